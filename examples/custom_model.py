"""Your own model: `GFGNConv` next to other layers of PyG."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.nn import GCNConv

import gfgn


class Network(torch.nn.Module):
    """A gated layer, then the sum of a linear map and a graph convolution."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.gated = gfgn.GFGNConv(in_channels, hidden_channels, level="neighbor", heads=1)
        self.own = torch.nn.Linear(hidden_channels, out_channels)
        self.smoothed = GCNConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.gated(dropout(x, 0.5, self.training), edge_index).relu()
        h = dropout(h, 0.5, self.training)
        return self.own(h) + self.smoothed(h, edge_index)


data = gfgn.data.load("dimensions")
train, val, test = data.splits[0]
torch.manual_seed(0)
model = Network(data.num_features, 64, data.num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for _ in range(50):
    model.train()
    optimizer.zero_grad()
    cross_entropy(model(data.x, data.graph.edge_index)[train], data.y[train]).backward()
    optimizer.step()

model.eval()
correct = model(data.x, data.graph.edge_index).argmax(dim=1) == data.y
print(f"test accuracy: {correct[test].float().mean():.3f}")
