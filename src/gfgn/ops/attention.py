"""Attention without messages on edges: what is kept has one number per edge and head, not a vector.

`attend` sums neighbors with one weight per edge and head, `edge_dot` takes the products of both ends of every edge;
each is the other's gradient. `gfgn.ops.edges` has the softmax between them. `additive_attention` is all of the
attention of `gat`, on a GPU in one pass over the edges, with nothing kept per edge.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from gfgn.ops import reference
from gfgn.ops.csr import Adjacency, traced_per_graph, unpack
from gfgn.ops.dense import dropout, head_linear
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.edges import edge_softmax, from_source, from_target
from gfgn.ops.heads import head_matmul, head_weight_gradient
from gfgn.ops.keys import keep, next_key, rate_dtype
from gfgn.ops.registration import Tensors, empty_like, empty_rows, needs_gradient, operator, save


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


def additive_attention(
    z: Tensor,
    source: Tensor,
    target: Tensor,
    graph: Adjacency,
    slope: float = 0.2,
    rate: float | Tensor = 0.0,
    training: bool = False,
) -> Tensor:
    """`out_i = Σ_j α_ij z_j` with `α_ij = softmax_j(LeakyReLU(a_s · z_j + a_t · z_i))` for every head, `[N, heads·d]`.

    Args:
        z: `[N, heads·d]`.
        source: `a_s`, `[heads, d]`.
        target: `a_t`, `[heads, d]`.
        slope: Of LeakyReLU below 0.
        rate: Of the dropout of `α`, see `gfgn.ops.dropout`; a tensor with one value where replicas differ in it.
        training: Whether anything is dropped.
    """
    if source.dim() != 2 or source.shape != target.shape or z.dim() != 2 or z.size(1) != source.numel():
        raise ValueError(
            f"source and target must have shape [heads, d] with heads·d = {z.size(-1)}, "
            f"got {list(source.shape)} and {list(target.shape)}"
        )
    backend = choose(z.device.type, z.dtype, None)
    if backend != "triton":
        of_source, of_target = (head_linear(z, a.unsqueeze(2)) for a in (source, target))
        scores = leaky_relu(from_source(of_source, graph) + from_target(of_target, graph), slope)
        return attend(dropout(edge_softmax(scores, graph), rate, training), z, graph)
    weight = torch.stack([source, target], dim=2).to(z.dtype)
    edges = list(graph.by_target), [*graph.by_source, graph.transpose]
    keys, rates = _dropout_keys(z, rate, training)
    return additive_attention_op(z, weight, keys, rates, *edges, slope, needs_gradient(z, weight), backend)[0]


def _dropout_keys(z: Tensor, rate: float | Tensor, training: bool) -> tuple[Tensor, Tensor]:
    """The key and the rate of `gfgn.ops.dropout`, `[1]`; empty where nothing is dropped."""
    if not isinstance(rate, Tensor) and not 0 <= rate < 1:
        raise ValueError(f"rate must be at least 0 and below 1, got {rate!r}")
    if not training or (not isinstance(rate, Tensor) and rate == 0):
        return z.new_empty(0), z.new_empty(0)
    dtype = rate_dtype(z.device)
    if not isinstance(rate, Tensor):
        rate = torch.full((), rate, device=z.device, dtype=dtype)
    return next_key(z.device).reshape(1), rate.to(z.device, dtype).reshape(1)


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


# --- additive attention ---------------------------------------------------------------------------


def _additive_fake(z: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    nodes, heads, is_saved = z.size(0), weight.size(0), rest[-2]
    shapes = (nodes, 2 * heads), (nodes, z.size(1)), (nodes, heads), (nodes, heads)
    dtypes = z.dtype, z.dtype, torch.float32, torch.float32
    saved = [z.new_empty(shape if is_saved else (0,), dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return torch.empty_like(z), *saved


@operator(_additive_fake, features=1, columns=(2, 3), heads=(1,))
def additive_attention_op(
    z: Tensor,
    weight: Tensor,
    keys: Tensor,
    rate: Tensor,
    edges: Tensors,
    reverse: Tensors,
    slope: float,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`additive_attention` with `weight`, `[heads, d, 2]`, and dropout by hash of `α`, `[E, heads]`, as in
    `dropout_op`, or none with empty `keys`. With `save` also what the gradient needs: the scores of the nodes, and the
    sums of `additive_forward`."""
    scores = head_matmul(z, weight)
    out, *sums = kernels(backend).additive_forward(z, scores, keys, rate, unpack(edges)[0], slope, save)
    return out, scores if save else z.new_empty(0), *sums


@operator(empty_like(1, 7), features=7, columns=(8, 9), heads=(7,))
def additive_attention_gradient_op(
    grad: Tensor,
    z: Tensor,
    out: Tensor,
    scores: Tensor,
    plus: Tensor,
    lse: Tensor,
    of_plus: Tensor,
    weight: Tensor,
    keys: Tensor,
    rate: Tensor,
    reverse: Tensors,
    slope: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and `weight`, from one pass over the edges by source."""
    rows, (entry,) = unpack(reverse)
    grad_z, grad_scores = kernels(backend).additive_backward(
        grad, z, scores, out, plus, lse, of_plus, weight, keys, rate, rows, entry, slope
    )
    return grad_z, head_weight_gradient(z, grad_scores, weight.size(0))


def _additive_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.edges, ctx.reverse, ctx.slope, _, ctx.backend = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # no zeros for their gradients
    ctx.save_for_backward(*tensors, *output)


@additive_attention_op.gradient(_additive_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    z, weight, keys, rate, *results = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        rows = unpack(ctx.edges)[0]
        kept = _kept(rows.idx.numel(), weight.size(0), keys, rate) if keys.numel() else None
        attention = functools.partial(reference.additive_attention, kept=kept, rows=rows, slope=ctx.slope)
        return reference.gradient(attention, (z, weight), grad)
    if results[1].dim() != 2:  # the forward pass did not expect a gradient
        results = additive_attention_op(z, weight, keys, rate, ctx.edges, ctx.reverse, ctx.slope, True, ctx.backend)
    out, *saved = results
    return additive_attention_gradient_op(
        grad.contiguous(), z, out, *saved, weight, keys, rate, ctx.reverse, ctx.slope, ctx.backend
    )


def _kept(entries: int, heads: int, keys: Tensor, rate: Tensor) -> Tensor:
    """The factors of dropout, `[entries, heads]`, with the same number of heads for every key."""
    number = torch.arange(entries * (heads // keys.numel()), device=keys.device).view(entries, 1, -1)
    kept = keep(number, keys.unsqueeze(1), rate.unsqueeze(1)) / (1 - rate).unsqueeze(1)
    return kept.flatten(1)
