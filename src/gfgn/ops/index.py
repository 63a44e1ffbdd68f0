"""`index_edges`: the edges of a graph sorted by target and by source, in one opaque operator.

It is integers only. Being opaque, compilers see none of its data-dependent code.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from gfgn.ops.csr import CSR, build_patterns
from gfgn.ops.dispatch import cpu_kernels, cuda_kernels

MAX_KERNEL_EDGES = 2**31 - 1  # the kernels number the edges in 32 bits
MIN_KEPT_SHARE = 0.9
"""The share of the edges below which the memory of those that were dropped or merged is given back."""
BAD_ID = "edge_index must hold ids from 0 to {}"
Sorted: TypeAlias = tuple[CSR, CSR, Tensor, Tensor]
"""`by_target`, `by_source`, `transpose` and `edge_position`; see `gfgn.Graph`."""


class Indexed(NamedTuple):
    """The edges of a graph in both orders, as the function `index` of the kernels returns them; see `gfgn.Graph`.

    Its arguments are those of `index_edges` and the given float32 or float64 weights. Weights of repeated edges are
    added in the order given. A bad id is a `ValueError`, on a GPU a bad weight too.
    """

    by_target: CSR
    by_source: CSR  # the same object as `by_target` if the graph is undirected
    transpose: Tensor
    edge_position: Tensor
    weight: Tensor | None


def first(x: Tensor, size: int) -> Tensor:
    """The first elements; most of them as a view."""
    if size == x.numel():
        return x
    return x[:size] if size >= MIN_KEPT_SHARE * x.numel() else x[:size].clone()


@torch.library.custom_op("gfgn::index_edges", mutates_args=())
def index_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> list[Tensor]:
    """Sorts the edges by target and by source.

    Args:
        edges: `[2, E]`, source and target.
        num_nodes: Number of nodes.
        merge: Whether repeated edges become one.
        num_loops: How many of the last edges are self-loops to keep; all others are dropped.

    Returns:
        The five tensors of `CSR` by target, the five by source, `transpose` and `edge_position` (see `Graph`).
    """
    kernels = kernels_for(edges)
    if kernels is None:
        by_target, by_source, transpose, edge_position = sort_edges(edges, num_nodes, merge, num_loops)
    else:
        by_target, by_source, transpose, edge_position, _ = kernels.index(edges, num_nodes, merge, num_loops, None)
    if by_source is by_target:  # an operator returns no tensor twice
        by_source = CSR(*(x.clone() for x in by_target))
    return [*by_target, *by_source, transpose, edge_position]


def kernels_for(edges: Tensor) -> Any:
    """The kernels that sort these edges, or `None`."""
    if edges.size(1) > MAX_KERNEL_EDGES:
        return None
    return cpu_kernels("index") if edges.device.type == "cpu" else cuda_kernels("index", edges.device)


def sort_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> Sorted:
    """`index_edges` by two stable sorts in plain PyTorch; on a GPU it waits for the number of edges, then of hubs."""
    end = max(num_nodes, 1) ** 2  # sorts last: the key of a self-loop that is dropped
    source, target = edges.to(torch.int32 if end < 2**31 else torch.int64)  # a radix sort takes half the time in int32
    dropped = source == target
    if num_loops:
        dropped[-num_loops:] = False
    key, order = torch.sort((target * num_nodes + source).masked_fill_(dropped, end), stable=True)
    kept = key < end
    first = kept.clone()
    if merge:
        first[1:] &= key[1:] != key[:-1]
    edge_position = torch.empty_like(order)
    edge_position[order] = (first.cumsum(0) - 1).masked_fill_(~kept, -1)

    key = key[first]
    nodes = torch.arange(num_nodes + 1, device=key.device, dtype=key.dtype)
    ptr = torch.searchsorted(key, nodes * num_nodes)
    target = torch.div(key, max(num_nodes, 1), rounding_mode="floor").int()
    source = (key - target * num_nodes).int()
    ends, transpose = torch.sort(source, stable=True)  # sorted by target already
    reverse_ptr = torch.searchsorted(ends, nodes.int())
    by_target, by_source = build_patterns((ptr, source), (reverse_ptr, target[transpose]))
    return by_target, by_source, transpose, edge_position


@index_edges.register_fake
def _(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> list[Tensor]:
    size = torch.library.get_ctx().new_dynamic_size

    def ids(length: int | torch.SymInt) -> Tensor:
        return edges.new_empty(length, dtype=torch.int64)

    def rows() -> list[Tensor]:
        hubs, segments = size(), size()
        return [ids(num_nodes + 1), ids(entries).int(), ids(hubs), ids(hubs + 1), ids(segments)]

    entries = size()
    return [*rows(), *rows(), ids(entries), ids(edges.size(1))]
