"""What several baselines share: linear maps through `gfgn.ops`, and what is worked out once for each graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from gfgn import ops
from gfgn.graph import Graph

P = ParamSpec("P")
T = TypeVar("T")


def per_graph(function: Callable[Concatenate[Graph, P], T]) -> Callable[Concatenate[Graph, P], T]:
    """Keeps what `function` returns for a graph (and hashable further arguments) as long as the graph lives.

    It runs without gradients, outside of inference mode, so that what it returns serves training as well.
    """
    known: WeakKeyDictionary[Graph, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def cached(graph: Graph, /, *args: P.args, **kwargs: P.kwargs) -> T:
        results = known.setdefault(graph, {})
        key = (args, tuple(sorted(kwargs.items())))
        if key not in results:
            with torch.inference_mode(False), torch.no_grad():
                results[key] = function(graph, *args, **kwargs)
        return results[key]

    return cached


@per_graph
def with_self_loops(graph: Graph) -> Graph:
    """GCN's `Ã = A + I`."""
    return Graph.from_edge_index(
        graph.edge_index, graph.num_nodes, graph.weight, batch=graph.batch, self_loops="add", dtype=graph.dtype
    )


def glorot_linear(in_channels: int, out_channels: int, bias: bool = True) -> Linear:
    """A linear map with Glorot weights and a bias of 0."""
    return Linear(in_channels, out_channels, bias=bias, weight_initializer="glorot", bias_initializer="zeros")


def apply(lin: Linear, x: Tensor, dropout: float | Tensor = 0.0, training: bool = False) -> Tensor:
    """`lin(x)` after dropout of `x`, which may be sparse CSR."""
    return ops.linear(x, lin.weight, lin.bias, dropout, training)


def apply_all(
    lins: Sequence[Linear], x: Tensor, dropout: float | Tensor = 0.0, training: bool = False
) -> tuple[Tensor, ...]:
    """`lin(x)` for each of several maps of one input, dropped once for all, as one product."""
    weight = torch.cat([lin.weight for lin in lins])
    parts = ops.linear(x, weight, None, dropout, training).split([lin.weight.size(0) for lin in lins], dim=1)
    return tuple(part if lin.bias is None else part + lin.bias for lin, part in zip(lins, parts, strict=True))


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
