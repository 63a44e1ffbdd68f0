"""What several baselines share: linear maps through `gfgn.ops`, and what is worked out once for each graph."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph
from gfgn.graph import per_graph as per_graph
from gfgn.graph import with_self_loops as with_self_loops


def glorot_linear(in_channels: int, out_channels: int, bias: bool = True) -> Linear:
    """A linear map with Glorot weights and a bias of 0."""
    return Linear(in_channels, out_channels, bias=bias, weight_initializer="glorot", bias_initializer="zeros")


def apply(lin: Linear, x: Tensor, dropout: float | Tensor = 0.0, training: bool = False) -> Tensor:
    """`lin(x)` after dropout of `x`, which may be sparse CSR."""
    return ops.linear(x, lin.weight, lin.bias, dropout, training)


class Map(NamedTuple):
    """One of several linear maps."""

    weight: Tensor
    bias: Tensor | None


class Maps(nn.Module):
    """Several linear maps of one input, which is dropped once for all: one matrix, one product.

    Args:
        in_channels: Input width.
        sizes: Output widths by name, in the order of the results.
        bias: Names of the maps that have a bias.
    """

    bias: nn.Parameter | None

    def __init__(self, in_channels: int, sizes: Mapping[str, int], bias: Collection[str] = ()) -> None:
        super().__init__()
        self.names = tuple(sizes)
        self.sizes = tuple(sizes.values())
        self.biased = tuple(name in bias for name in sizes)
        self.weight = nn.Parameter(torch.empty(sum(self.sizes), in_channels))
        biases = sum(size for size, has in zip(self.sizes, self.biased, strict=True) if has)
        if biases:
            self.bias = nn.Parameter(torch.empty(biases))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew: Glorot for each map, 0 for biases."""
        for part in self.weight.split(self.sizes):
            glorot(part)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def __getitem__(self, name: str) -> Map:
        """The map of that name."""
        place = self.names.index(name)
        return Map(self.weight.split(self.sizes)[place], self._biases()[place])

    def forward(self, x: Tensor, dropout: float | Tensor = 0.0) -> tuple[Tensor, ...]:
        """What each map makes of `x`, dense or sparse CSR."""
        parts = ops.linear(x, self.weight, None, dropout, self.training).split(self.sizes, dim=1)
        return tuple(part if b is None else part + b for part, b in zip(parts, self._biases(), strict=True))

    def _biases(self) -> list[Tensor | None]:
        if self.bias is None:
            return [None] * len(self.sizes)
        found = iter(self.bias.split([size for size, has in zip(self.sizes, self.biased, strict=True) if has]))
        return [next(found) if has else None for has in self.biased]


def random_walk(x: Tensor, graph: Graph) -> Tensor:
    """`D⁻¹A x`, the mean over neighbours by weight; 0 where a degree is 0. As `D^(−1/2) Â D^(1/2) x` it is one walk
    over the edges with the weights that `propagate` has."""
    root = graph.degree.clamp(min=torch.finfo(graph.dtype).tiny).sqrt().to(x.dtype).unsqueeze(1)
    return ops.propagate(x * root, graph) / root


def merge(out: Tensor, heads: int, concat: bool) -> Tensor:
    """Heads side by side, or their mean."""
    by_head: Tensor = out.unflatten(1, (heads, -1))
    return out if concat else by_head.mean(1)


def widths(in_channels: int, hidden: int, layers: int, out_channels: int) -> list[tuple[int, int]]:
    """Input and output width of each of `layers` layers."""
    if layers < 1:
        raise ValueError(f"layers must be 1 or larger, got {layers}")
    sizes = [in_channels, *[hidden] * (layers - 1), out_channels]
    return list(pairwise(sizes))


def reset(*modules: Any) -> None:
    """Draws the parameters of each module anew."""
    for module in modules:
        module.reset_parameters()


class Convolutions(nn.Module):
    """Layers one after the other, with an activation between them and dropout on the input of each.

    A network is a subclass that says by `prepare` what its layers want to have of a graph and by `activate` what comes
    between them.

    Args:
        convs: The layers, called as `layer(x, edges, dropout)`.
        dropout: Rate, on the input of every layer.
    """

    def __init__(self, convs: Iterable[nn.Module], dropout: float | Tensor) -> None:
        super().__init__()
        self.dropout = dropout
        self.convs = nn.ModuleList(convs)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def prepare(self, graph: Graph) -> Graph:
        """What the layers work on."""
        return graph

    def activate(self, x: Tensor) -> Tensor:
        """What comes between two layers."""
        return x.relu()

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.convolve(x, self.prepare(graph))

    def convolve(self, x: Tensor, edges: Graph) -> Tensor:
        """The logits from what `prepare` returns."""
        for number, conv in enumerate(self.convs):
            x = conv(x if number == 0 else self.activate(x), edges, self.dropout)
        return x


class ConvolutionStack(Convolutions):
    """`Convolutions` of one kind that have no parameters but their widths: a subclass names its `layer`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
    """

    layer: ClassVar[type[nn.Module]]

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hidden: int = 64, layers: int = 2
    ) -> None:
        sizes = widths(in_channels, hidden, layers, out_channels)
        super().__init__((type(self).layer(*pair) for pair in sizes), dropout)
