"""`mlp`: a multilayer perceptron, which ignores the graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from gfgn.graph import Graph
from gfgn.nn.conv import check_positive
from gfgn.nn.linear import Linear, Rate, ResettableModule


class MLP(ResettableModule):
    """`H^(l+1) = ReLU(H^(l) W^(l) + b^(l))`, without ReLU in the last layer; arguments as for `GraphNetwork`."""

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.input_dropout = dropout if input_dropout is None else input_dropout
        self.lins = nn.ModuleList(Linear(*size) for size in layer_sizes(in_channels, hidden, layers, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor | Graph | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """Computes the logits; `edge_index` and `edge_weight` are ignored."""
        for layer, lin in enumerate(self.lins):
            x = lin(x.relu(), self.dropout) if layer else lin(x, self.input_dropout)
        return x


def layer_sizes(in_channels: int, hidden: int, layers: int, out_channels: int) -> list[tuple[int, int]]:
    """Input and output width of each of `layers` layers."""
    check_positive("layers", layers)
    return list(pairwise([in_channels, *[hidden] * (layers - 1), out_channels]))
