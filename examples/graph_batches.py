"""Graph classification: batches of graphs, with one gate per graph and feature dimension."""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_mean_pool
from torch_geometric.utils import to_undirected

from gfgn import GFGNConv


def ring_or_star(label: int, size: int) -> Data:
    """A ring (label 0) or a star (label 1) with random node features."""
    nodes = torch.arange(size)
    source = (nodes + 1) % size if label == 0 else torch.zeros(size, dtype=torch.long)
    return Data(x=torch.randn(size, 8), edge_index=to_undirected(torch.stack([source, nodes])), y=torch.tensor([label]))


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GFGNConv(8, 32, level="graph", heads=1)
        self.out = torch.nn.Linear(32, 2)

    def forward(self, batch: Data) -> torch.Tensor:
        h = self.conv(batch.x, batch.edge_index, batch=batch.batch).relu()  # `batch` keeps the graphs apart
        return self.out(global_mean_pool(h, batch.batch))


torch.manual_seed(0)
loader = DataLoader([ring_or_star(i % 2, 8 + i % 5) for i in range(128)], batch_size=32, shuffle=True)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for _ in range(20):
    for batch in loader:
        optimizer.zero_grad()
        cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
print(f"training accuracy: {sum(int((model(b).argmax(1) == b.y).sum()) for b in loader) / 128:.3f}")
