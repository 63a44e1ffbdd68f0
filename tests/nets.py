"""Networks of a user, for the tests of models of one's own; also named as `nets:Net` on the command line."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import BatchNorm, GCNConv

from gfgn import Graph
from gfgn.nn import GFGNConv


class Net(nn.Module):
    """The network of a PyG tutorial."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 8, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.conv1(x, edge_index)), self.dropout, self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


class Normalized(nn.Module):
    """Has buffers, a frozen parameter and weights of edges, and takes no dropout rate."""

    def __init__(self, num_features: int, num_classes: int, hidden_channels: int) -> None:
        super().__init__()
        self.conv = GCNConv(num_features, hidden_channels, bias=False)
        self.norm = BatchNorm(hidden_channels)
        self.out = nn.Linear(hidden_channels, num_classes)
        self.out.bias.requires_grad_(False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.out(F.dropout(self.norm(self.conv(x, edge_index, edge_weight)).relu(), 0.3, self.training))


class Gated(nn.Module):
    """Takes a `Graph`."""

    def __init__(self, in_channels: int, out_channels: int, dropout: float) -> None:
        super().__init__()
        self.conv = GFGNConv(in_channels, out_channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.conv(self.dropout(x), graph)


class Branching(Net):
    """Looks at values, which `vmap` cannot do."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        if x.abs().max() > 1e9:
            x = torch.zeros_like(x)
        x = F.dropout(x.relu(), self.dropout, self.training)
        return self.conv2(x, edge_index)


class Counting(Net):
    """Remembers a number and its last hidden units from step to step."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 8, dropout: float = 0.5) -> None:
        super().__init__(in_channels, out_channels, hidden_channels, dropout)
        self.steps = 0
        self.last: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.steps += self.training
        x = self.conv1(x, edge_index)
        x = x if self.last is None else 0.9 * x + 0.1 * self.last
        self.last = x.detach()
        return self.conv2(x.relu() / (1 + self.steps), edge_index)


class WrongShape(Net):
    """Forgets the classes."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv1(x, edge_index)


class OfData(Net):
    """Takes a `Data`, as some tutorials do."""

    def forward(self, data: Tensor) -> Tensor:  # type: ignore[override]
        return data


class Deep(nn.Module):
    """Has an option without a default."""

    def __init__(self, in_channels: int, out_channels: int, depth: int, name: str | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(in_channels, in_channels) for _ in range(depth)])
        self.out = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.out(self.layers(x))


def make_net(in_channels: int, out_channels: int, dropout: float = 0.5, width: int = 4) -> nn.Module:
    """A function that returns a module."""
    return Net(in_channels, out_channels, width, dropout)


NOT_A_MODEL = 3
