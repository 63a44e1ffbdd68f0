"""Mini-batches: PyG's `NodeLoader` with gfgn's neighbor sampler, which needs neither pyg-lib nor torch-sparse."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader

import gfgn

dataset = gfgn.data.load("dimensions")
train, val, test = dataset.splits[0]
data = Data(x=dataset.x, edge_index=dataset.graph.edge_index, y=dataset.y)

sampler = gfgn.sampling.NeighborSampler.from_graph(dataset.graph, [10, 10])  # ten neighbors per node and hop
loader = NodeLoader(data, node_sampler=sampler, input_nodes=train, batch_size=128, shuffle=True)

torch.manual_seed(0)
model = gfgn.GFGN(dataset.num_features, 64, num_layers=2, out_channels=dataset.num_classes, level="pair", dropout=0.2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(8):
    sampler.set_epoch(epoch)  # other neighbors in every epoch
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        logits = model(batch.x, batch.edge_index)[: batch.batch_size]  # the first rows are the nodes of the batch
        cross_entropy(logits, batch.y[: batch.batch_size]).backward()
        optimizer.step()

model.eval()
with torch.no_grad():
    predicted = model(dataset.x, dataset.graph).argmax(dim=1)  # all nodes, all neighbors
print(f"test accuracy: {(predicted == dataset.y)[test].float().mean():.3f}")
