"""Base classes of the baselines."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, as_graph
from gfgn.nn.conv import norm_dtype
from gfgn.nn.linear import Rate, ResettableModule
from gfgn.nn.mlp import layer_sizes


class GraphNetwork(ResettableModule, ABC):
    """A network that maps node features and a graph to logits; a subclass implements `logits`.

    The subclasses have these arguments in common, and document only what they add:

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Dropout rate of the input of every layer.
        input_dropout: Dropout rate of the features, the input of the first layer; `None` for `dropout`.
        hidden: Hidden units.
        layers: Number of layers.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - `edge_index`: `[2, E]` (source, target), a PyG `EdgeIndex`, a sparse `[N, N]` matrix or a `gfgn.Graph`, with
          which values that depend on the graph alone are computed once.
        - `edge_weight`: `[E]`; models whose paper has no edge weights ignore them.
        - output: `[N, out_channels]`.
    """

    def __init__(self, dropout: Rate, input_dropout: Rate | None = None) -> None:
        super().__init__()
        self.dropout = dropout
        self.input_dropout = dropout if input_dropout is None else input_dropout

    def forward(self, x: Tensor, edge_index: Tensor | Graph, edge_weight: Tensor | None = None) -> Tensor:
        dtype = edge_index.dtype if isinstance(edge_index, Graph) else norm_dtype(next(self.parameters()))
        return self.logits(x, as_graph(edge_index, x.size(0), edge_weight, dtype=dtype))

    @abstractmethod
    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        """Computes the logits."""


class ConvNetwork(GraphNetwork):
    """Layers, called as `conv(x, graph, dropout)`, with an activation between them; the first has `input_dropout`.

    A subclass defines by `prepare` the graph that its layers take and by `activate` the activation.
    """

    def __init__(self, convs: Iterable[nn.Module], dropout: Rate, input_dropout: Rate | None = None) -> None:
        super().__init__(dropout, input_dropout)
        self.convs = nn.ModuleList(convs)

    def prepare(self, graph: Graph) -> Any:
        """The graph that the layers take, or what they need of it."""
        return graph

    def activate(self, x: Tensor) -> Tensor:
        """The activation between two layers."""
        return x.relu()

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        return self.convolve(x, self.prepare(graph))

    def convolve(self, x: Tensor, prepared: Any) -> Tensor:
        """Computes the logits from a graph that `prepare` returned."""
        for layer, conv in enumerate(self.convs):
            x = conv(self.activate(x), prepared, self.dropout) if layer else conv(x, prepared, self.input_dropout)
        return x


class UniformConvNetwork(ConvNetwork):
    """A `ConvNetwork` whose layers are all of one class, `layer(in_channels, out_channels, **options)`."""

    layer: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        input_dropout: Rate | None = None,
        **options: Any,
    ) -> None:
        sizes = layer_sizes(in_channels, hidden, layers, out_channels)
        super().__init__((self.layer(*size, **options) for size in sizes), dropout, input_dropout)


def join_heads(out: Tensor, heads: int, concat: bool) -> Tensor:
    """Keeps heads side by side, `[N, heads * d]`, or averages them, `[N, d]`."""
    return out if concat else sum_of(out.chunk(heads, dim=1)) / heads


def repeat_columns(x: Tensor, count: int) -> Tensor:
    """`[N, D]` with each column `count` times, `[N, D·count]`: PyTorch's gradient of an expanded tensor is a sum whose
    order depends on the shapes."""
    return ops.head_linear(x, x.new_ones(x.size(1), 1, count))


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    """The sum of tensors, one after the other: PyTorch's order depends on the shapes."""
    return functools.reduce(torch.add, parts)
