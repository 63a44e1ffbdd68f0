"""`index_edges`: the edges of a graph sorted by target and by source, in one opaque operator.

It is integers only. Being opaque, compilers see none of its data-dependent code.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from gfgn.ops.csr import CSR, build_patterns
from gfgn.ops.dispatch import cpu_kernels, cuda_kernels

MAX_KERNEL_EDGES = 2**31 - 1  # the kernels number the edges in 32 bits
Sorted: TypeAlias = tuple[CSR, CSR, Tensor, Tensor]
"""`by_target`, `by_source`, `transpose` and `edge_position`; see `gfgn.Graph`."""


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
    kernels = cpu_kernels("index") if edges.device.type == "cpu" else cuda_kernels("index", edges.device)
    sort = sort_edges if kernels is None or edges.size(1) > MAX_KERNEL_EDGES else kernels.sort_edges
    by_target, by_source, transpose, edge_position = sort(edges, num_nodes, merge, num_loops)
    return [*by_target, *by_source, transpose, edge_position]


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
