"""Attention with values on edges and no messages on edges: what is kept has a number an edge and head, not a vector.

`attend` sums neighbours with a weight an edge and head, `edge_dot` takes the products of both ends of every edge; each
is the other's gradient. Both are one walk over the edges; the reference goes through a few heads at a time.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from gfgn.graph import Graph
from gfgn.nn.baselines.common import per_graph
from gfgn.ops import reference
from gfgn.ops.csr import CSR
from gfgn.ops.dispatch import choose
from gfgn.ops.registration import Operator, Pattern

CHUNK_BYTES = 256 << 20
"""Memory for the messages of some heads in the reference."""


def attend(alpha: Tensor, z: Tensor, graph: Graph) -> Tensor:
    """`out_i = Σ_j α_ij z_j` with an `α` a head: `[E, heads]` and `[N, heads·d]` give `[N, heads·d]`."""
    if alpha.dim() != 2 or z.dim() != 2 or alpha.size(1) == 0 or z.size(1) % alpha.size(1):
        raise ValueError(
            f"z must have a multiple of alpha's columns, got {list(z.shape)} for alpha of {list(alpha.shape)}"
        )
    return cast(Tensor, attend_operator(alpha, z, *_edges(graph), _backend(z)))


def edge_dot(q: Tensor, k: Tensor, heads: int, graph: Graph) -> Tensor:
    """`⟨q_i, k_j⟩` of every edge from `j` to `i` and every head: twice `[N, heads·d]` gives `[E, heads]`."""
    if q.shape != k.shape or q.dim() != 2 or q.size(1) % heads:
        raise ValueError(f"q and k must have shape [N, {heads}·d], got {list(q.shape)} and {list(k.shape)}")
    return cast(Tensor, dot_operator(q, k, *_edges(graph), q.size(1) // heads, _backend(q)))


@per_graph
def _entries(graph: Graph) -> tuple[Tensor, Tensor]:
    """The edge, in the order of `by_target`, of every entry of `by_target` and of `by_source`."""
    return torch.arange(graph.num_edges, device=graph.device), graph.transpose


def _edges(graph: Graph) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
    entry, reverse_entry = _entries(graph)
    return list(graph.by_target), entry, list(graph.by_source), reverse_entry


def _backend(x: Tensor) -> str:
    backend: str = choose(x.device.type, x.dtype, None)
    return backend


# --- the operators --------------------------------------------------------------------------------


def _attend(
    alpha: Tensor,
    z: Tensor,
    rows: Pattern,
    entry: Tensor,
    reverse_rows: Pattern,
    reverse_entry: Tensor,
    backend: str,
) -> Tensor:
    if backend == "numba":
        from gfgn.ops.cpu import attention as attention_kernels

        return attention_kernels.attend(alpha, z, CSR(*rows), entry)
    if backend == "triton":
        from gfgn.ops.cuda import kernels as triton_kernels

        return triton_kernels.attend(alpha, z, CSR(*rows), entry)
    pattern, heads = CSR(*rows), alpha.size(1)
    width = z.size(1) // heads
    own = pattern._replace(idx=torch.arange(entry.numel(), device=z.device, dtype=torch.int32))
    out = z.new_empty(pattern.ptr.numel() - 1, z.size(1))
    for some in _chunks(entry.numel(), heads, z):
        columns = slice(some.start * width, some.stop * width)
        message = z[:, columns].index_select(0, pattern.idx).view(entry.numel(), -1, width)
        message = (message * alpha[:, some].index_select(0, entry).unsqueeze(2)).flatten(1)
        out[:, columns] = reference.spmm(message, own, None)
    return out


def _edge_dot(
    q: Tensor,
    k: Tensor,
    rows: Pattern,
    entry: Tensor,
    reverse_rows: Pattern,
    reverse_entry: Tensor,
    width: int,
    backend: str,
) -> Tensor:
    if backend == "numba":
        from gfgn.ops.cpu import attention as attention_kernels

        return attention_kernels.edge_dot(q, k, CSR(*rows), entry, width)
    if backend == "triton":
        from gfgn.ops.cuda import attention as triton_edges

        return triton_edges.edge_dot(q, k, CSR(*rows), entry, width)
    pattern, heads = CSR(*rows), q.size(1) // width
    target = reference.targets(pattern)
    out = q.new_empty(entry.numel(), heads)
    for some in _chunks(entry.numel(), heads, q):
        columns = slice(some.start * width, some.stop * width)
        product = q[:, columns].index_select(0, target) * k[:, columns].index_select(0, pattern.idx)
        out[entry, some] = product.view(entry.numel(), -1, width).sum(2)
    return out


def _chunks(entries: int, heads: int, x: Tensor) -> list[slice]:
    """Heads in so many groups that the messages of one fit `CHUNK_BYTES`."""
    width = x.size(1) // heads
    size = max(1, CHUNK_BYTES // max(1, entries * width * x.element_size()))
    return [slice(first, min(first + size, heads)) for first in range(0, heads, size)]


def _attend_fake(alpha: Tensor, z: Tensor, rows: Pattern, *_: Any) -> Tensor:
    return z.new_empty(rows[0].size(0) - 1, z.size(1))


def _edge_dot_fake(q: Tensor, k: Tensor, rows: Pattern, entry: Tensor, *rest: Any) -> Tensor:
    return q.new_empty(entry.size(0), q.size(1) // rest[-2])


def _attend_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    alpha, z, *ctx.edges, ctx.backend = inputs
    ctx.save_for_backward(alpha, z)


def _attend_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    alpha, z = ctx.saved_tensors
    rows, entry, reverse_rows, reverse_entry = ctx.edges
    grad = grad.contiguous()
    grad_alpha = dot_operator(grad, z, *ctx.edges, z.size(1) // alpha.size(1), ctx.backend)
    grad_z = attend_operator(alpha, grad, reverse_rows, reverse_entry, rows, entry, ctx.backend)
    return grad_alpha, grad_z, *[None] * 5


def _edge_dot_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, *ctx.edges, _, ctx.backend = inputs
    ctx.save_for_backward(q, k)


def _edge_dot_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    q, k = ctx.saved_tensors
    rows, entry, reverse_rows, reverse_entry = ctx.edges
    grad = grad.contiguous()
    grad_q = attend_operator(grad, k, *ctx.edges, ctx.backend)
    grad_k = attend_operator(grad, q, reverse_rows, reverse_entry, rows, entry, ctx.backend)
    return grad_q, grad_k, *[None] * 6


attend_operator = Operator(_attend, _attend_fake, _attend_context, _attend_backward, features=2)
dot_operator = Operator(_edge_dot, _edge_dot_fake, _edge_dot_context, _edge_dot_backward, features=2)
