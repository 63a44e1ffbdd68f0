"""Node classification: a GFGN in a plain PyTorch training loop."""

import torch
from torch.nn.functional import cross_entropy

import gfgn

data = gfgn.data.load("dimensions")  # a generated graph, no download
train, val, test = data.splits[0]  # boolean masks

torch.manual_seed(0)
model = gfgn.GFGN(data.num_features, 64, num_layers=2, out_channels=data.num_classes, level="neighbor")
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)

best_val, best_test = 0.0, 0.0
for epoch in range(1, 61):
    model.train()
    optimizer.zero_grad()
    loss = cross_entropy(model(data.x, data.graph)[train], data.y[train])  # an edge_index works too
    loss.backward()
    optimizer.step()

    model.eval()
    with torch.no_grad():
        correct = model(data.x, data.graph).argmax(dim=1) == data.y
    val_accuracy, test_accuracy = correct[val].float().mean().item(), correct[test].float().mean().item()
    if val_accuracy > best_val:
        best_val, best_test = val_accuracy, test_accuracy
    if epoch % 20 == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}, validation accuracy {val_accuracy:.3f}")

print(f"test accuracy at the best validation accuracy: {best_test:.3f}")
