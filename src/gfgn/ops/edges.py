"""Values on edges: from nodes to edges, from edges to their targets, and the softmax over a neighborhood.

Edges are in the order of `graph.by_target`. Moving a node's value to its edges is a gather; summing edges into nodes
runs in the same kernels as the sums over neighbors, in a fixed order. Each move is the other's gradient.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.ops.csr import Adjacency, traced_per_graph, unpack
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.invariant import activate
from gfgn.ops.registration import Operator, Tensors, empty_like, empty_rows, operator, save


@traced_per_graph
def source_ends(graph: Adjacency) -> list[Tensor]:
    """A `CSR` with one row per node that holds its outgoing edges, and `[E]`, the source of every edge."""
    return [*graph.by_source._replace(idx=graph.transpose.to(torch.int32)), graph.by_target.idx.long()]


@traced_per_graph
def target_ends(graph: Adjacency) -> list[Tensor]:
    """A `CSR` with one row per node that holds its incoming edges, and `[E]`, the target of every edge."""
    edges = torch.arange(graph.num_edges, device=graph.device, dtype=torch.int32)
    return [*graph.by_target._replace(idx=edges), graph.targets]


def from_source(x: Tensor, graph: Adjacency) -> Tensor:
    """`[N, D]` to `[E, D]`: for each edge the row of its source."""
    return _move(to_edges_op, x, source_ends(graph))


def from_target(x: Tensor, graph: Adjacency) -> Tensor:
    """`[N, D]` to `[E, D]`: for each edge the row of its target."""
    return _move(to_edges_op, x, target_ends(graph))


def sum_by_target(values: Tensor, graph: Adjacency) -> Tensor:
    """`[E, D]` to `[N, D]`: the sum over the incoming edges of each node, 0 where there are none."""
    return _move(to_nodes_op, values, target_ends(graph))


def edge_softmax(scores: Tensor, graph: Adjacency) -> Tensor:
    """`α_ij = exp(e_ij) / Σ_{k∈N(i)} exp(e_ik)` for scores `[E, heads]`: the incoming edges of a node sum to 1."""
    ends = target_ends(graph)
    backend = choose(scores.device.type, scores.dtype, None)
    if backend == "triton":  # fused where that is faster: on a GPU
        return edge_softmax_op(scores, ends, backend)
    index = ends[-1].unsqueeze(1).expand(-1, scores.size(1))
    top = scores.new_zeros(graph.num_nodes, scores.size(1))
    top = top.scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
    weight = activate(scores - from_target(top, graph), "exp")
    return weight / from_target(sum_by_target(weight, graph), graph)


def _move(operator: Operator, x: Tensor, ends: list[Tensor]) -> Tensor:
    return operator(x.contiguous(), ends, choose(x.device.type, x.dtype, None))


# --- the operators --------------------------------------------------------------------------------


@operator(lambda x, ends, backend: x.new_empty(ends[-1].size(0), x.size(1)), features=1)
def to_edges_op(x: Tensor, ends: Tensors, backend: str) -> Tensor:
    return x.index_select(0, ends[-1])


@operator(empty_rows(1), features=1)
def to_nodes_op(values: Tensor, ends: Tensors, backend: str) -> Tensor:
    return kernels(backend).spmm(values, unpack(ends)[0], None)


@to_edges_op.gradient(save(rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (to_nodes_op(grad.contiguous(), *ctx.rest),)


@to_nodes_op.gradient(save(rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (to_edges_op(grad.contiguous(), *ctx.rest),)


@operator(empty_like(0), features=1)
def edge_softmax_op(scores: Tensor, ends: Tensors, backend: str) -> Tensor:
    return kernels(backend).softmax(scores, unpack(ends)[0])


@operator(empty_like(0), features=2)
def edge_softmax_backward_op(grad: Tensor, alpha: Tensor, ends: Tensors, backend: str) -> Tensor:
    return kernels(backend).softmax_backward(grad, alpha, unpack(ends)[0])


def _save_result(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.rest = inputs[1:]


@edge_softmax_op.gradient(_save_result)
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (edge_softmax_backward_op(grad.contiguous(), *ctx.saved_tensors, *ctx.rest),)


@edge_softmax_backward_op.gradient(save(0, 1, rest=2))
def _(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    """The gradients of `y = α (g − Σ αg)`: for `g` the same function of `upstream`, for `α` by the product rule."""
    grad, alpha = ctx.saved_tensors

    def total(values: Tensor) -> Tensor:
        return to_edges_op(to_nodes_op(values, *ctx.rest), *ctx.rest)

    for_grad = edge_softmax_backward_op(upstream.contiguous(), alpha, *ctx.rest)
    for_alpha = upstream * (grad - total(alpha * grad)) - total(alpha * upstream) * grad
    return for_grad, for_alpha
