"""Sums over neighbors: `propagate`, `neighbor_sum`, `neighbor_mean`, `neighbor_max`, and two of them in one pass.

The operators take the pattern by target and by source: the gradient is the same operator on the other one.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.ops import reference
from gfgn.ops.csr import Adjacency, traced_per_graph, unpack
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.edges import source_ends, to_edges_op, to_nodes_op
from gfgn.ops.registration import Tensors, empty_like, empty_rows, operator, save
from gfgn.ops.torch_internals import is_wrapped


def propagate(x: Tensor, graph: Adjacency, backend: str | None = None) -> Tensor:
    """`out_i = Σ_j Â_ij x_j`: features `[N, D]` summed over neighbors with normalized weights."""
    check_features("propagate", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend, needs_reference(graph))
    if backend == "reference":
        return reference.spmm(x, graph.by_target, graph.norm)
    return spmm_op(x, *weighted_edges(graph), backend)


def neighbor_sum(x: Tensor, graph: Adjacency, backend: str | None = None) -> Tensor:
    """`out_i = Σ_{j∈N(i)} x_j`."""
    check_features("neighbor_sum", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend)
    if backend == "reference":
        return reference.spmm(x, graph.by_target, None)
    return spmm_op(x, list(graph.by_target), list(graph.by_source), backend)


def neighbor_mean(x: Tensor, graph: Adjacency, backend: str | None = None) -> Tensor:
    """`out_i = Σ_{j∈N(i)} x_j / |N(i)|`, 0 for nodes without neighbors; edge weights are ignored."""
    return neighbor_sum(x, graph, backend) * inverse_count(graph).to(x.dtype).unsqueeze(1)


def neighbor_max(x: Tensor, graph: Adjacency, backend: str | None = None) -> Tensor:
    """`out_i = max_{j∈N(i)} x_j` per column, 0 for nodes without neighbors.

    The gradient goes to the first of equal neighbors; what is kept for it has one row per node, not per edge.
    """
    check_features("neighbor_max", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend)
    source, target, edges = graph.by_target.idx.long(), graph.targets, graph.num_edges
    with torch.no_grad():
        index = target.unsqueeze(1).expand(-1, x.size(1))
        value = to_edges_op(x, [*graph.by_target, source], backend)
        top = torch.zeros_like(x).scatter_reduce(0, index, value, "amax", include_self=False)
        is_top = (value == to_edges_op(top, [*graph.by_target, target], backend)) | value.isnan()
        edge = torch.where(is_top, torch.arange(edges, device=x.device).unsqueeze(1), edges)
        first = torch.full_like(x, edges, dtype=torch.int64).scatter_reduce(0, index, edge, "amin")
    return take_edges_op(x, first, [*source_ends(graph), target], backend)


def propagate_and_mean(x: Tensor, graph: Adjacency, backend: str | None = None) -> tuple[Tensor, Tensor]:
    """`propagate` and `neighbor_mean` of the same features from one pass over the edges."""
    check_features("propagate_and_mean", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend, needs_reference(graph))
    if backend == "reference":
        return propagate(x, graph, backend), neighbor_mean(x, graph, backend)
    return propagate_and_mean_op(x, *weighted_edges(graph), inverse_count(graph), backend)


def weighted_edges(graph: Adjacency) -> tuple[list[Tensor], list[Tensor]]:
    """The pattern and `Â` by target, and the same by source."""
    return [*graph.by_target, graph.norm], [*graph.by_source, graph.reverse_norm]


@traced_per_graph
def inverse_count(graph: Adjacency) -> Tensor:
    """`[N]`: one over the number of neighbors."""
    return graph.row_lengths.clamp(min=1).to(graph.norm.dtype).reciprocal()


def needs_reference(graph: Adjacency, lam: float | Tensor = 1.0) -> str | None:
    """The argument, if any, that only the reference can differentiate."""
    if isinstance(lam, Tensor) and lam.requires_grad:
        return "lam"
    return "edge_weight" if graph.norm.requires_grad or is_wrapped(graph.norm) else None


def check_features(operator: str, graph: Adjacency, **features: Tensor) -> None:
    """Raises a `ValueError` where features do not fit the graph or each other."""
    shape = None
    for name, value in features.items():
        if value.dim() != 2 or value.size(0) != graph.num_nodes or (shape is not None and value.shape != shape):
            expected = f"[{graph.num_nodes}, D]" if shape is None else list(shape)
            raise ValueError(f"{operator}: {name} must have shape {expected}, got {list(value.shape)}")
        if value.device != graph.device:
            raise ValueError(f"{operator}: {name} is on {value.device}, but the graph is on {graph.device}")
        shape = value.shape


# --- the operators --------------------------------------------------------------------------------


@operator(empty_rows(1), features=1)
def spmm_op(x: Tensor, edges: Tensors, reverse: Tensors, backend: str) -> Tensor:
    """`out_i = Σ_j v_ij x_j`, with `v = 1` if `edges` holds no values."""
    rows, values = unpack(edges)
    return kernels(backend).spmm(x, rows, values[0] if values else None)


@spmm_op.gradient(save(rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    edges, reverse, backend = ctx.rest
    return (spmm_op(grad, reverse, edges, backend),)


@operator(empty_rows(1, results=2), features=1)
def propagate_and_mean_op(
    x: Tensor, edges: Tensors, reverse: Tensors, inverse: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """`Σ_j v_ij x_j` and `inverse_i Σ_j x_j` from one pass."""
    rows, (values,) = unpack(edges)
    return kernels(backend).spmm_pair(x, rows, values, inverse)


@operator(empty_rows(2), features=2)
def propagate_and_mean_transposed_op(
    weighted: Tensor, mean: Tensor, edges: Tensors, reverse: Tensors, inverse: Tensor, backend: str
) -> Tensor:
    """`Σ_i v_ij weighted_i + inverse_i mean_i` from one pass: the transpose of `propagate_and_mean`."""
    rows, (values,) = unpack(edges)
    return kernels(backend).spmm_pair_backward(weighted, mean, rows, values, inverse)


@propagate_and_mean_op.gradient(save(rest=1))
def _(ctx: Any, weighted: Tensor, mean: Tensor) -> tuple[Any, ...]:
    edges, reverse, *rest = ctx.rest
    return (propagate_and_mean_transposed_op(weighted, mean, reverse, edges, *rest),)


@propagate_and_mean_transposed_op.gradient(save(rest=2))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    edges, reverse, *rest = ctx.rest
    return propagate_and_mean_op(grad, reverse, edges, *rest)


@operator(empty_like(0), features=2)
def take_edges_op(x: Tensor, edge: Tensor, ends: Tensors, backend: str) -> Tensor:
    """`[N, D]`: for each node and column the value of the source of an edge, 0 if that edge does not exist. `ends` has
    the outgoing edges of all nodes, the source and the target of every edge."""
    _, (source, _) = unpack(ends)
    node = torch.cat([source, source.new_zeros(1)])[edge]
    return torch.where(edge < source.numel(), x.gather(0, node), 0)


@take_edges_op.gradient(save(1, rest=2))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Summed over the outgoing edges of each node in a fixed order, which `scatter_add` on a GPU does not have."""
    (edge,), (ends, backend) = ctx.saved_tensors, ctx.rest
    target = ends[-1]
    taken = edge.index_select(0, target) == torch.arange(target.numel(), device=grad.device).unsqueeze(1)
    return (to_nodes_op(torch.where(taken, grad.index_select(0, target), 0), ends[:-1], backend),)
