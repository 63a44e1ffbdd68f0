"""`mlp`: a multilayer perceptron, which ignores the graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from gfgn.graph import Graph
from gfgn.nn.entry import Model, hidden, layers
from gfgn.nn.linear import Linear


class MLP(nn.Module):
    """`H^(l+1) = ReLU(H^(l) W^(l) + b^(l))`, without ReLU in the last layer.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Dropout rate of the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - output: `[N, out_channels]`.
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hidden: int = 64, layers: int = 2
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.lins = nn.ModuleList(Linear(*size) for size in layer_sizes(in_channels, hidden, layers, out_channels))

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        reset(self.lins)

    def forward(self, x: Tensor, edge_index: Tensor | Graph | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """Computes the logits; `edge_index` and `edge_weight` are ignored."""
        for layer, lin in enumerate(self.lins):
            x = lin(x.relu() if layer else x, self.dropout)
        return x


def layer_sizes(in_channels: int, hidden: int, layers: int, out_channels: int) -> list[tuple[int, int]]:
    """Input and output width of each of `layers` layers."""
    check_at_least_one("layers", layers)
    return list(pairwise([in_channels, *[hidden] * (layers - 1), out_channels]))


def check_at_least_one(name: str, value: int) -> None:
    """Raises a `ValueError` for an argument that is not 1 or larger."""
    if value < 1:
        raise ValueError(f"{name} must be 1 or larger, got {value}")


ENTRY = Model(MLP, "Rumelhart et al., Nature 1986", {"hidden": hidden(), "layers": layers()})
