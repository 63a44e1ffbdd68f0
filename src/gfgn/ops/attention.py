"""Attention without messages on edges: what is kept has one number per edge and head, not a vector.

`attend` sums neighbors with one weight per edge and head, `edge_dot` takes the products of both ends of every edge;
each is the other's gradient. `gfgn.ops.edges` has the softmax between them.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.ops.csr import Adjacency, traced_per_graph, unpack
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.registration import Tensors, empty_rows, operator, save


def attend(alpha: Tensor, z: Tensor, graph: Adjacency) -> Tensor:
    """`out_i = Σ_j α_ij z_j` with one `α` per head: `[E, heads]` and `[N, heads·d]` give `[N, heads·d]`."""
    if alpha.dim() != 2 or z.dim() != 2 or alpha.size(1) == 0 or z.size(1) % alpha.size(1):
        raise ValueError(
            f"z must have a multiple of alpha's columns, got {list(z.shape)} for alpha of {list(alpha.shape)}"
        )
    return attend_op(alpha, z, *_edges(graph), choose(z.device.type, z.dtype, None))


def edge_dot(q: Tensor, k: Tensor, heads: int, graph: Adjacency) -> Tensor:
    """`⟨q_i, k_j⟩` for every edge from `j` to `i` and every head: two `[N, heads·d]` give `[E, heads]`."""
    if q.shape != k.shape or q.dim() != 2 or q.size(1) % heads:
        raise ValueError(f"q and k must have shape [N, {heads}·d], got {list(q.shape)} and {list(k.shape)}")
    return edge_dot_op(q, k, *_edges(graph), q.size(1) // heads, choose(q.device.type, q.dtype, None))


@traced_per_graph
def _edges(graph: Adjacency) -> tuple[list[Tensor], list[Tensor]]:
    """Both orders of the edges; of every entry the number of its edge in the order of `by_target`."""
    return [*graph.by_target, torch.arange(graph.num_edges, device=graph.device)], [*graph.by_source, graph.transpose]


# --- the operators --------------------------------------------------------------------------------


@operator(empty_rows(2), features=2)
def attend_op(alpha: Tensor, z: Tensor, edges: Tensors, reverse: Tensors, backend: str) -> Tensor:
    rows, (entry,) = unpack(edges)
    return kernels(backend).attend(alpha, z, rows, entry)


def _edge_dot_fake(q: Tensor, k: Tensor, edges: Tensors, reverse: Tensors, width: int, backend: str) -> Tensor:
    return q.new_empty(edges[-1].size(0), q.size(1) // width)


@operator(_edge_dot_fake, features=2)
def edge_dot_op(q: Tensor, k: Tensor, edges: Tensors, reverse: Tensors, width: int, backend: str) -> Tensor:
    rows, (entry,) = unpack(edges)
    return kernels(backend).edge_dot(q, k, rows, entry, width)


@attend_op.gradient(save(0, 1, rest=2))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (alpha, z), (edges, reverse, backend), grad = ctx.saved_tensors, ctx.rest, grad.contiguous()
    grad_alpha = edge_dot_op(grad, z, edges, reverse, z.size(1) // alpha.size(1), backend)
    return grad_alpha, attend_op(alpha, grad, reverse, edges, backend)


@edge_dot_op.gradient(save(0, 1, rest=2))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (q, k), (edges, reverse, _, backend), grad = ctx.saved_tensors, ctx.rest, grad.contiguous()
    return attend_op(grad, k, edges, reverse, backend), attend_op(grad, q, reverse, edges, backend)
