"""Values that live on edges: from nodes to edges, from edges to their targets, and the softmax over a neighbourhood.

Attention needs a value for each edge, in the order of `graph.by_target`. Taking a node's value to its edges is a
gather; summing edges into nodes runs in the same kernels as the sums over neighbours do, in a fixed order. Replicas lie
side by side, and either one is the other's gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from gfgn.graph import Graph
from gfgn.nn.baselines.common import per_graph
from gfgn.ops import reference, registration
from gfgn.ops.csr import CSR
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.registration import Pattern


class Side(NamedTuple):
    """One end of every edge, edges in the order of `graph.by_target`."""

    ends: Tensor
    """`[E]`, int64: the node at that end of each edge."""
    edges: CSR
    """`[N]` rows, each holding the edges that have a node at that end."""


@per_graph
def sources(graph: Graph) -> Side:
    """Where edges come from."""
    return Side(graph.by_target.idx.long(), graph.by_source._replace(idx=graph.transpose.to(torch.int32)))


@per_graph
def targets(graph: Graph) -> Side:
    """Where edges arrive."""
    edges = torch.arange(graph.num_edges, device=graph.device, dtype=torch.int32)
    return Side(graph.targets, graph.by_target._replace(idx=edges))


def from_source(x: Tensor, graph: Graph) -> Tensor:
    """`[N, D]` to `[E, D]`: of each edge its source's row."""
    return _moved(x, sources(graph), to_edges)


def from_target(x: Tensor, graph: Graph) -> Tensor:
    """`[N, D]` to `[E, D]`: of each edge its target's row."""
    return _moved(x, targets(graph), to_edges)


def sum_by_target(values: Tensor, graph: Graph) -> Tensor:
    """`[E, D]` to `[N, D]`: the sum over the edges that arrive at each node, 0 where there are none."""
    return _moved(values, targets(graph), to_nodes)


def edge_softmax(scores: Tensor, graph: Graph) -> Tensor:
    """`α_ij = exp(e_ij) / Σ_{k∈N(i)} exp(e_ik)` for scores `[E, heads]`: each target's edges add up to 1."""
    side = targets(graph)
    if choose(scores.device.type, scores.dtype, None) == "triton":
        return cast(Tensor, softmax_operator(scores, side.ends, list(side.edges)))
    place = side.ends.unsqueeze(1).expand(-1, scores.size(1))
    top = scores.new_zeros(graph.num_nodes, scores.size(1))
    top = top.scatter_reduce(0, place, scores.detach(), "amax", include_self=False)
    weight = (scores - from_target(top, graph)).exp()
    return weight / from_target(sum_by_target(weight, graph), graph)


def max_over_neighbors(x: Tensor, graph: Graph) -> Tensor:
    """`out_i = max_{j∈N(i)} x_j` a dimension, 0 where a node has no neighbours. What is kept for the gradient, which
    goes to the first of equals, has a row a node."""
    if graph.num_edges == 0:
        return torch.zeros_like(x)
    source, target = sources(graph).ends, targets(graph).ends
    with torch.no_grad():
        place = target.unsqueeze(1).expand(-1, x.size(1))
        value = from_source(x, graph)
        top = torch.zeros_like(x).scatter_reduce(0, place, value, "amax", include_self=False)
        edges = torch.arange(graph.num_edges, device=x.device).unsqueeze(1)
        which = torch.where(value == from_target(top, graph), edges, graph.num_edges)
        first = torch.full_like(x, graph.num_edges, dtype=torch.int64).scatter_reduce(0, place, which, "amin")
        found = first < graph.num_edges
        winner = source[first.clamp(max=graph.num_edges - 1)]
    return x.gather(0, winner) * found


# --- the moves ------------------------------------------------------------------------------------


def _moved(x: Tensor, side: Side, move: registration.Operator) -> Tensor:
    return cast(Tensor, move(x.contiguous(), side.ends, list(side.edges), choose(x.device.type, x.dtype, None)))


def _to_edges(x: Tensor, ends: Tensor, edges: Pattern, backend: str) -> Tensor:
    return x.index_select(0, ends)


def _to_nodes(values: Tensor, ends: Tensor, edges: Pattern, backend: str) -> Tensor:
    spmm = reference.spmm if backend == "reference" else kernels(backend).spmm
    return spmm(values, CSR(*edges), None)


def _to_edges_fake(x: Tensor, ends: Tensor, edges: Pattern, backend: str) -> Tensor:
    return x.new_empty(ends.size(0), x.size(1))


def _to_nodes_fake(values: Tensor, ends: Tensor, edges: Pattern, backend: str) -> Tensor:
    return values.new_empty(edges[0].size(0) - 1, values.size(1))


def _side_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.side = inputs


def _to_edges_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return to_nodes(grad.contiguous(), *ctx.side), None, None, None


def _to_nodes_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return to_edges(grad.contiguous(), *ctx.side), None, None, None


to_edges = registration.Operator(_to_edges, _to_edges_fake, _side_context, _to_edges_backward, features=1)
to_nodes = registration.Operator(_to_nodes, _to_nodes_fake, _side_context, _to_nodes_backward, features=1)


# --- the softmax on a GPU -------------------------------------------------------------------------


def _edge_softmax(scores: Tensor, ends: Tensor, edges: Pattern) -> Tensor:
    from gfgn.ops.cuda import attention as triton_edges

    return triton_edges.softmax(scores, CSR(*edges))


def _edge_softmax_backward(grad: Tensor, alpha: Tensor, ends: Tensor, edges: Pattern) -> Tensor:
    from gfgn.ops.cuda import attention as triton_edges

    return triton_edges.softmax_backward(grad, alpha, CSR(*edges))


def _like_first(first: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(first)


def _softmax_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.side = inputs
    ctx.save_for_backward(output)


def _softmax_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (alpha,) = ctx.saved_tensors
    return softmax_backward_operator(grad.contiguous(), alpha, *ctx.side), None, None


def _backward_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, alpha, *ctx.side = inputs
    ctx.save_for_backward(grad, alpha)


def _backward_gradient(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    """Of `y = α (g - Σ αg)`: for `g` the same function of what comes from above, for `α` by the rule of products."""
    grad, alpha = ctx.saved_tensors

    def total(values: Tensor) -> Tensor:
        return cast(Tensor, to_edges(to_nodes(values, *ctx.side, "triton"), *ctx.side, "triton"))

    for_grad = softmax_backward_operator(upstream.contiguous(), alpha, *ctx.side)
    for_alpha = upstream * (grad - total(alpha * grad)) - total(alpha * upstream) * grad
    return for_grad, for_alpha, None, None


softmax_operator = registration.Operator(_edge_softmax, _like_first, _softmax_context, _softmax_gradient, features=1)
softmax_backward_operator = registration.Operator(
    _edge_softmax_backward, _like_first, _backward_context, _backward_gradient, features=2
)
