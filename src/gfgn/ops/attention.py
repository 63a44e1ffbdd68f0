"""Attention without messages on edges: what is kept has one number per edge and head, not a vector.

`attend` sums neighbors with one weight per edge and head, `edge_dot` takes the products of both ends of every edge;
each is the other's gradient. `gfgn.ops.edges` has the softmax between them.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gfgn.ops.csr import Adjacency, per_graph, unpack
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.registration import Operator, Tensors


def attend(alpha: Tensor, z: Tensor, graph: Adjacency) -> Tensor:
    """`out_i = Σ_j α_ij z_j` with one `α` per head: `[E, heads]` and `[N, heads·d]` give `[N, heads·d]`."""
    if alpha.dim() != 2 or z.dim() != 2 or alpha.size(1) == 0 or z.size(1) % alpha.size(1):
        raise ValueError(
            f"z must have a multiple of alpha's columns, got {list(z.shape)} for alpha of {list(alpha.shape)}"
        )
    return cast(Tensor, attend_op(alpha, z, *_edges(graph), choose(z.device.type, z.dtype, None)))


def edge_dot(q: Tensor, k: Tensor, heads: int, graph: Adjacency) -> Tensor:
    """`⟨q_i, k_j⟩` for every edge from `j` to `i` and every head: two `[N, heads·d]` give `[E, heads]`."""
    if q.shape != k.shape or q.dim() != 2 or q.size(1) % heads:
        raise ValueError(f"q and k must have shape [N, {heads}·d], got {list(q.shape)} and {list(k.shape)}")
    return cast(Tensor, edge_dot_op(q, k, *_edges(graph), q.size(1) // heads, choose(q.device.type, q.dtype, None)))


@per_graph
def _edges(graph: Adjacency) -> tuple[list[Tensor], list[Tensor]]:
    """Both orders of the edges; of every entry the number of its edge in the order of `by_target`."""
    return [*graph.by_target, torch.arange(graph.num_edges, device=graph.device)], [*graph.by_source, graph.transpose]


# --- the operators --------------------------------------------------------------------------------


def _attend(alpha: Tensor, z: Tensor, edges: Tensors, reverse: Tensors, backend: str) -> Tensor:
    rows, (entry,) = unpack(edges)
    return kernels(backend).attend(alpha, z, rows, entry)


def _attend_fake(alpha: Tensor, z: Tensor, edges: Tensors, *_: Any) -> Tensor:
    return z.new_empty(edges[0].size(0) - 1, z.size(1))


def _attend_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    alpha, z, ctx.edges, ctx.reverse, ctx.backend = inputs
    ctx.save_for_backward(alpha, z)


def _attend_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (alpha, z), grad = ctx.saved_tensors, grad.contiguous()
    grad_alpha = edge_dot_op(grad, z, ctx.edges, ctx.reverse, z.size(1) // alpha.size(1), ctx.backend)
    return grad_alpha, attend_op(alpha, grad, ctx.reverse, ctx.edges, ctx.backend)


def _edge_dot(q: Tensor, k: Tensor, edges: Tensors, reverse: Tensors, width: int, backend: str) -> Tensor:
    rows, (entry,) = unpack(edges)
    return kernels(backend).edge_dot(q, k, rows, entry, width)


def _edge_dot_fake(q: Tensor, k: Tensor, edges: Tensors, reverse: Tensors, width: int, backend: str) -> Tensor:
    return q.new_empty(edges[-1].size(0), q.size(1) // width)


def _edge_dot_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, ctx.edges, ctx.reverse, _, ctx.backend = inputs
    ctx.save_for_backward(q, k)


def _edge_dot_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (q, k), grad = ctx.saved_tensors, grad.contiguous()
    grad_q = attend_op(grad, k, ctx.edges, ctx.reverse, ctx.backend)
    return grad_q, attend_op(grad, q, ctx.reverse, ctx.edges, ctx.backend)


attend_op = Operator(_attend, _attend_fake, _attend_context, _attend_backward, features=2)
edge_dot_op = Operator(_edge_dot, _edge_dot_fake, _edge_dot_context, _edge_dot_backward, features=2)
