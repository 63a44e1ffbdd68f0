"""The gated sums of the three levels: `gated_propagate` (graph), `gated_neighbor`, `gated_pair` and `pair_aggregate`;
and `gated_two_hops`, that of GFGN+.

Gates are recomputed inside the kernels, forward and backward: no `[E, D]` tensor is stored. A gradient that is to be
differentiated again is that of the reference, since the kernels of the backward pass have no gradient themselves.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gfgn.ops import reference
from gfgn.ops.cache import is_captured, stream
from gfgn.ops.csr import CSR, Adjacency, unpack
from gfgn.ops.dense import head_linear_gradient_op, head_linear_op
from gfgn.ops.dispatch import choose, elementwise, kernels
from gfgn.ops.heads import halves, halves_backward
from gfgn.ops.invariant import activate, activate_op, expand_rows, sum_rows, sum_rows_op
from gfgn.ops.registration import Tensors, empty_like, is_eager, needs_gradient, operator, save
from gfgn.ops.sums import (
    check_features,
    inverse_count,
    needs_reference,
    propagate,
    propagate_and_mean,
    spmm_op,
    weighted_edges,
)
from gfgn.ops.torch_internals import graph_is_retained


def gated_propagate(z: Tensor, s: Tensor, graph: Adjacency, backend: str | None = None) -> Tensor:
    """`(1 − s) z + s Âz`, the output of the graph level.

    Args:
        z: `[N, D]`, the features that are gated.
        s: Gates: `[N, D]`, one row per node, or `[1, D]`, the same for all nodes.
    """
    check_features("gated_propagate", graph, z=z)
    if s.dim() != 2 or s.size(0) not in (1, z.size(0)) or s.size(1) != z.size(1):
        raise ValueError(f"gated_propagate: s must have shape {list(z.shape)} or [1, {z.size(1)}], got {list(s.shape)}")
    backend = choose(z.device.type, z.dtype, backend, needs_reference(graph))
    if backend != "triton":
        return torch.lerp(z, propagate(z, graph, backend), expand_rows(s, z.size(0)) if s.size(0) == 1 else s)
    return gated_propagate_op(z, s.to(z.dtype), *weighted_edges(graph), needs_gradient(z, s), backend)[0]


def gated_graph(
    z: Tensor, gate: Tensor, graph: Adjacency, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The output of the graph level: `gated_propagate` with `s = λ σ(mean_i(z_i) W_s)`, for all nodes the same.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        gate: `[heads, d, d]`, one `W_s` per head.
        lam: λ, one number or a `[heads·d]` tensor with one value per column.
    """
    check_lam(lam)
    check_features("gated_graph", graph, z=z)
    _check_gate("gated_graph", z, gate, inputs=1)
    backend = choose(z.device.type, z.dtype, backend, needs_reference(graph, lam))
    gate = gate.to(z.dtype)
    if backend == "reference":
        return _graph_reference(z, gate, lam, graph.by_target, graph.norm)
    lam = _lam_by_column(lam, z, z.dtype)
    return gated_graph_op(z, gate, lam, *weighted_edges(graph), needs_gradient(z, gate), backend)[0]


def gated_neighbor(
    z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`, the output of the neighbor level.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        propagated: `[N, heads·d]`, `propagate` of `z`.
        mean: `[N, heads·d]`, `neighbor_mean` of `z`.
        gate: `[heads, 2d, d]`, one `W_s` per head.
        lam: λ, one number or a `[heads·d]` tensor with one value per column.
    """
    check_lam(lam)
    _check_gate("gated_neighbor", z, gate)
    for name, value in (("propagated", propagated), ("mean", mean)):
        if value.shape != z.shape:
            raise ValueError(f"gated_neighbor: {name} must have shape {list(z.shape)}, got {list(value.shape)}")
    only_reference = "lam" if isinstance(lam, Tensor) and lam.requires_grad else None
    backend = choose(z.device.type, z.dtype, backend, only_reference)
    if backend == "reference":
        return reference.gated_neighbor(z, propagated, mean, gate, lam)
    lam = _lam_by_column(lam, z, reference.compute_dtype(z.dtype))
    return gated_neighbor_op(z, propagated, mean, gate.to(z.dtype), lam, backend)


def gated_neighborhood(
    z: Tensor, gate: Tensor, graph: Adjacency, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The output of the neighbor level: `gated_neighbor` of `z` with its `propagate` and `neighbor_mean`.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        gate: `[heads, 2d, d]`, one `W_s` per head.
        lam: λ, one number or a `[heads·d]` tensor with one value per column.
    """
    check_lam(lam)
    check_features("gated_neighborhood", graph, z=z)
    _check_gate("gated_neighborhood", z, gate)
    backend = choose(z.device.type, z.dtype, backend, needs_reference(graph, lam))
    if backend == "reference":
        return reference.gated_neighbor(z, *propagate_and_mean(z, graph, backend), gate, lam)
    lam, gate = _lam_by_column(lam, z, reference.compute_dtype(z.dtype)), gate.to(z.dtype)
    save, inverse = needs_gradient(z, gate), inverse_count(graph)
    return gated_neighborhood_op(z, gate, lam, inverse, *weighted_edges(graph), save, backend)[0]


def gated_two_hops(
    own: Tensor,
    one: Tensor,
    two: Tensor,
    first: Tensor,
    second: Tensor,
    lam: float | Tensor = 1.0,
    backend: str | None = None,
) -> Tensor:
    """`(1 − s_1 − s_2) own + s_1 one + s_2 two` with `s_k = λ exp(l_k) / (1 + exp(l_1) + exp(l_2))`.

    All products are element-wise.

    Args:
        own: `[N, D]`, a node's own features.
        one: `[N, D]`, those of its neighbors one hop away.
        two: `[N, D]`, and two hops away.
        first: `[N, D]`, the logits `l_1` of the gates.
        second: `[N, D]`, the logits `l_2`.
        lam: λ, one number or a `[D]` tensor with one value per column.
    """
    check_lam(lam)
    for name, value in (("one", one), ("two", two), ("first", first), ("second", second)):
        if value.shape != own.shape:
            raise ValueError(f"gated_two_hops: {name} must have shape {list(own.shape)}, got {list(value.shape)}")
    only_reference = "lam" if isinstance(lam, Tensor) and lam.requires_grad else None
    backend = choose(own.device.type, own.dtype, backend, only_reference)
    if backend == "reference":
        return reference.gated_two_hops(own, one, two, first, second, lam)
    lam = _lam_by_column(lam, own, reference.compute_dtype(own.dtype))
    return gated_two_hops_op(own, *(x.to(own.dtype) for x in (one, two, first, second)), lam, backend)


def gated_pair(
    z: Tensor, gate: Tensor, graph: Adjacency, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The output of the pair level: `pair_aggregate` with `a = z U` and `b = z V`, the two halves of the gate.

    As one operator it keeps neither `a` nor `b` for the backward pass.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        gate: `[heads, 2d, d]`, `U` above `V` for each head.
        lam: λ, one number or a `[heads·d]` tensor with one value per column.
    """
    check_lam(lam)
    check_features("gated_pair", graph, z=z)
    _check_gate("gated_pair", z, gate)
    backend = choose(z.device.type, z.dtype, backend, needs_reference(graph, lam))
    gate = gate.to(z.dtype)
    if backend == "reference":
        a, b = (reference.head_linear(z, half) for half in gate.chunk(2, dim=1))
        return reference.pair_aggregate(a, b, z, lam, graph.norm, graph.row_norm, graph.by_target)
    return gated_pair_op(z, gate, *_pair_edges(lam, z, graph), needs_gradient(z, gate), backend)[0]


def pair_aggregate(
    a: Tensor, b: Tensor, z: Tensor, graph: Adjacency, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The gated sum of the pair level.

    `out_i = (1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j` with `s_ij = λ σ(a_i + b_j)`, every product element-wise.

    Args:
        a: `[N, D]`, the target's part of the gate.
        b: `[N, D]`, the source's part of the gate.
        z: `[N, D]`, the features that are gated.
        lam: λ, one number or a `[D]` tensor with one value per column.
    """
    check_lam(lam)
    check_features("pair_aggregate", graph, z=z, a=a, b=b)
    backend = choose(z.device.type, z.dtype, backend, needs_reference(graph, lam))
    if backend == "reference":
        return reference.pair_aggregate(a, b, z, lam, graph.norm, graph.row_norm, graph.by_target)
    save, edges = needs_gradient(a, b, z), _pair_edges(lam, z, graph)
    return pair_aggregate_op(a.to(z.dtype), b.to(z.dtype), z, *edges, save, backend)[0]


def pair_scores(a: Tensor, b: Tensor, graph: Adjacency, lam: float | Tensor = 1.0) -> Tensor:
    """The gates `s_ij = λ σ(a_i + b_j)` themselves: `[E, D]` in the order of the edges that the graph was built from,
    0 for a removed self-loop."""
    check_lam(lam)
    s = reference.pair_gate(a, b, lam, graph.by_target.idx, graph.targets)
    zero = s.new_zeros(1, s.size(1))  # the row that edge_position −1, a removed self-loop, reads
    return torch.cat([s, zero]).index_select(0, graph.edge_position % (s.size(0) + 1))


def _pair_edges(lam: float | Tensor, z: Tensor, graph: Adjacency) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """λ and the edges in both orders as the pair operators take them."""
    by_target = [*graph.by_target, graph.norm, graph.row_norm]
    by_source = [*graph.by_source, graph.reverse_norm, graph.reverse_row_norm]
    return _lam_by_column(lam, z, graph.norm.dtype), by_target, by_source


def check_lam(lam: float | Tensor) -> None:
    """Raises for a λ that is negative or not finite; the values of a tensor are not read."""
    if isinstance(lam, Tensor) or torch.compiler.is_compiling():
        return
    if not (math.isfinite(lam) and lam >= 0):
        raise ValueError(f"lam must be finite, 0 or larger, got {lam!r}")


def _lam_by_column(lam: float | Tensor, z: Tensor, dtype: torch.dtype) -> Tensor:
    """`[D]`: λ for every column of `z`."""
    if not isinstance(lam, Tensor):
        if torch.compiler.is_compiling() or not is_eager(z) or is_captured(z):
            return torch.full((z.size(1),), lam, dtype=dtype, device=z.device)
        return _constant(float(lam), z.size(1), dtype, z.device, stream(z))
    if lam.dim() > 1 or lam.numel() not in (1, z.size(1)):
        raise ValueError(f"lam must be a number or have shape [{z.size(1)}], got {list(lam.shape)}")
    return lam.to(z.device, dtype).expand(z.size(1)).contiguous()


@functools.lru_cache(maxsize=64)
def _constant(value: float, size: int, dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    """`[size]` times the same value, which is not to be changed. One per CUDA stream: another would have to wait."""
    with torch.inference_mode(False):
        return torch.full((size,), value, dtype=dtype, device=device)


def _check_gate(operator: str, z: Tensor, gate: Tensor, inputs: int = 2) -> None:
    if gate.dim() != 3 or gate.size(1) != inputs * gate.size(2) or z.size(1) != gate.size(0) * gate.size(2):
        expected = "[heads, 2d, d]" if inputs == 2 else "[heads, d, d]"
        raise ValueError(
            f"{operator}: gate must have shape {expected} with heads·d = {z.size(1)}, got {list(gate.shape)}"
        )


def _fake(sums: int) -> Callable[..., Any]:
    """The shapes of a result and of sums that are empty unless the last argument but one, `save`, is true."""

    def fake(features: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        saved = features.shape if rest[-2] else (0,)
        return torch.empty_like(features), *[features.new_empty(saved) for _ in range(sums)]

    return fake


def _context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.edges, ctx.reverse, _, ctx.backend = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # no zeros for their gradients
    ctx.save_for_backward(*tensors, *output[1:])


# --- pair level -----------------------------------------------------------------------------------


@operator(_fake(sums=2), features=3, columns=(3,))
def pair_aggregate_op(
    a: Tensor, b: Tensor, z: Tensor, lam: Tensor, edges: Tensors, reverse: Tensors, save: bool, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j σ(a_i + b_j)(Â_ij z_j − A_ij/d_i z_i)`, with one `λ` per column.

    With `save`, also the two sums over the neighbors that the gradient needs and would otherwise recompute:
    `p_i = Σ_j σ'(Â_ij z_j − A_ij/d_i z_i)` and `q_i = Σ_j σ A_ij/d_i`.
    """
    rows, (norm, row_norm) = unpack(edges)
    return kernels(backend).pair_forward(a, b, z, lam, norm, row_norm, rows, save)


@operator(empty_like(1, 2, 3), features=6, columns=(6,))
def pair_gradient_op(
    grad: Tensor, a: Tensor, b: Tensor, z: Tensor, p: Tensor, q: Tensor, lam: Tensor, reverse: Tensors, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to `a`, `b` and `z`, from one pass over the edges by source."""
    rows, (norm, row_norm) = unpack(reverse)
    return kernels(backend).pair_backward(grad, a, b, z, p, q, lam, norm, row_norm, rows)


@pair_aggregate_op.gradient(_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    a, b, z, lam, p, q = ctx.saved_tensors
    if torch.is_grad_enabled():  # the gradient is to be differentiated again
        of_pairs = functools.partial(_pair_reference, lam=lam, edges=ctx.edges)
        return reference.gradient(of_pairs, (a, b, z), grad)
    if p.dim() != 2:  # the forward pass did not expect a gradient
        _, p, q = pair_aggregate_op(a, b, z, lam, ctx.edges, ctx.reverse, True, ctx.backend)
    return pair_gradient_op(grad, a, b, z, p, q, lam, ctx.reverse, ctx.backend)


@operator(_fake(sums=2), features=1, columns=(2,), heads=(1,))
def gated_pair_op(
    z: Tensor, gate: Tensor, lam: Tensor, edges: Tensors, reverse: Tensors, save: bool, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """`pair_aggregate` with `a` and `b` computed from `z` by the halves of the gate."""
    rows, (norm, row_norm) = unpack(edges)
    return kernels(backend).pair_forward(*halves(z, gate), z, lam, norm, row_norm, rows, save)


@operator(empty_like(1, 4), features=4, columns=(5,), heads=(4,))
def gated_pair_gradient_op(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    gate: Tensor,
    lam: Tensor,
    reverse: Tensors,
    reuse: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and the gate. `a` and `b` are recomputed rather than kept; with `reuse` the
    gradients overwrite `p` and `q`."""
    rows, (norm, row_norm) = unpack(reverse)
    a, b = halves(z, gate)
    grad_a, grad_b, grad_z = kernels(backend).pair_backward(grad, a, b, z, p, q, lam, norm, row_norm, rows, reuse)
    del a, b
    return halves_backward(grad_a, grad_b, grad_z, z, gate)


@gated_pair_op.gradient(_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    z, gate, lam, p, q = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again

        def of_halves(z: Tensor, gate: Tensor) -> Tensor:
            a, b = (head_linear_op(z, half) for half in gate.chunk(2, dim=1))
            return _pair_reference(a, b, z, lam, ctx.edges)

        return reference.gradient(of_halves, (z, gate), grad)
    # Without `retain_graph` nothing reads `p` and `q` after this.
    reuse = not torch.compiler.is_compiling() and not graph_is_retained() and is_eager(grad)
    if p.dim() != 2:  # the forward pass did not expect a gradient
        _, p, q = gated_pair_op(z, gate, lam, ctx.edges, ctx.reverse, True, ctx.backend)
    return gated_pair_gradient_op(grad, z, p, q, gate, lam, ctx.reverse, reuse, ctx.backend)


def _pair_reference(a: Tensor, b: Tensor, z: Tensor, lam: Tensor, edges: Tensors) -> Tensor:
    rows, (norm, row_norm) = unpack(edges)
    return reference.pair_aggregate(a, b, z, lam, norm, row_norm, rows)


# --- neighbor level -------------------------------------------------------------------------------


@operator(empty_like(0), features=3, columns=(4,), heads=(3,))
def gated_neighbor_op(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor, backend: str) -> Tensor:
    return elementwise(backend).gated_neighbor(z, propagated, mean, gate, lam)


@operator(empty_like(1, 1, 1, 4), features=4, columns=(5,), heads=(4,))
def gated_neighbor_gradient_op(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return elementwise(backend).gated_neighbor_backward(grad, z, propagated, mean, gate, lam)


@gated_neighbor_op.gradient(save(0, 1, 2, 3, 4, rest=5))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *inputs, lam = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        return reference.gradient(functools.partial(reference.gated_neighbor, lam=lam), inputs, grad)
    return gated_neighbor_gradient_op(grad.contiguous(), *inputs, lam, *ctx.rest)


@operator(_fake(sums=2), features=1, columns=(2,), heads=(1,))
def gated_neighborhood_op(
    z: Tensor, gate: Tensor, lam: Tensor, inverse: Tensor, edges: Tensors, reverse: Tensors, save: bool, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    """`gated_neighbor` with the sums over neighbors, which it returns if `save`."""
    rows, (norm,) = unpack(edges)
    sums = kernels(backend).spmm_pair(z, rows, norm, inverse)
    out = elementwise(backend).gated_neighbor(z, *sums, gate, lam)
    return out, *(sums if save else (z.new_empty(0), z.new_empty(0)))


@operator(empty_like(1, 4), features=4, columns=(5,), heads=(4,))
def gated_neighborhood_gradient_op(
    grad: Tensor,
    z: Tensor,
    propagated: Tensor,
    mean: Tensor,
    gate: Tensor,
    lam: Tensor,
    inverse: Tensor,
    reverse: Tensors,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and the gate."""
    rows, (norm,) = unpack(reverse)
    own, *of_sums, grad_gate = elementwise(backend).gated_neighbor_backward(grad, z, propagated, mean, gate, lam)
    return own.add_(kernels(backend).spmm_pair_backward(*of_sums, rows, norm, inverse)), grad_gate


@gated_neighborhood_op.gradient(_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    z, gate, lam, inverse, propagated, mean = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        rows, (norm,) = unpack(ctx.edges)

        def of_sums(z: Tensor, gate: Tensor) -> Tensor:
            mean = reference.spmm(z, rows, None) * inverse.to(z.dtype).unsqueeze(1)
            return reference.gated_neighbor(z, reference.spmm(z, rows, norm), mean, gate, lam)

        return reference.gradient(of_sums, (z, gate), grad)
    if propagated.dim() != 2:  # the forward pass did not expect a gradient
        _, propagated, mean = gated_neighborhood_op(z, gate, lam, inverse, ctx.edges, ctx.reverse, True, ctx.backend)
    sums = (propagated, mean)
    return gated_neighborhood_gradient_op(grad.contiguous(), z, *sums, gate, lam, inverse, ctx.reverse, ctx.backend)


# --- two hops -------------------------------------------------------------------------------------


@operator(empty_like(0), features=5, columns=(5,))
def gated_two_hops_op(
    own: Tensor, one: Tensor, two: Tensor, first: Tensor, second: Tensor, lam: Tensor, backend: str
) -> Tensor:
    return elementwise(backend).two_hops((own, one, two, first, second), lam)


@operator(empty_like(1, 1, 1, 1, 1), features=6, columns=(6,))
def gated_two_hops_gradient_op(
    grad: Tensor, own: Tensor, one: Tensor, two: Tensor, first: Tensor, second: Tensor, lam: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return elementwise(backend).two_hops_backward((grad, own, one, two, first, second), lam)


@gated_two_hops_op.gradient(save(0, 1, 2, 3, 4, 5, rest=6))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *inputs, lam = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        return reference.gradient(functools.partial(reference.gated_two_hops, lam=lam), inputs, grad)
    return gated_two_hops_gradient_op(grad, *inputs, lam, *ctx.rest)


# --- graph level ----------------------------------------------------------------------------------


@operator(_fake(sums=1), features=2)
def gated_propagate_op(
    z: Tensor, s: Tensor, edges: Tensors, reverse: Tensors, save: bool, backend: str
) -> tuple[Tensor, Tensor]:
    """`z + s (Âz − z)`, and with `save` also `Âz − z`; `s` has one row per node, or one for all."""
    rows, (norm,) = unpack(edges)
    return kernels(backend).gated_propagate(z, s, rows, norm, save)


@operator(empty_like(0, 0), features=3)
def gated_gradient_op(grad: Tensor, s: Tensor, diff: Tensor, reverse: Tensors, backend: str) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and to `s`, the latter with one row per node."""
    rows, (norm,) = unpack(reverse)
    return kernels(backend).gated_propagate_backward(grad, s, diff, rows, norm)


@gated_propagate_op.gradient(_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    z, s, diff = ctx.saved_tensors
    if torch.is_grad_enabled() or diff.dim() != 2:  # to be differentiated again, or nothing was saved
        forward = spmm_op(z, ctx.edges, ctx.reverse, ctx.backend) - z
        backward = spmm_op(grad * s, ctx.reverse, ctx.edges, ctx.backend)
        grad_z, grad_s = grad * (1 - s) + backward, grad * forward
    else:
        grad_z, grad_s = gated_gradient_op(grad, s, diff, ctx.reverse, ctx.backend)
    return grad_z, grad_s if s.size(0) == z.size(0) else sum_rows_op(grad_s)


def _graph_fake(z: Tensor, gate: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    saved = z.shape if rest[-2] else (0,)
    return torch.empty_like(z), z.new_empty(saved), z.new_empty(1, z.size(1)), z.new_empty(1, z.size(1))


@operator(_graph_fake, features=1, columns=(2,), heads=(1,))
def gated_graph_op(
    z: Tensor, gate: Tensor, lam: Tensor, edges: Tensors, reverse: Tensors, save: bool, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`z + s (Âz − z)` with one gate `s` for all nodes. Also what the gradient needs: with `save` the difference, the
    mean of the nodes and `σ`."""
    rows, (norm,) = unpack(edges)
    if backend == "triton" and z.numel():
        s, mean, sigma = kernels(backend).graph_gate(z, gate, lam)
        return *kernels(backend).gated_propagate(z, s, rows, norm, save), mean, sigma
    mean = sum_rows_op(z.contiguous()) / max(z.size(0), 1)
    sigma = activate_op(head_linear_op(mean, gate), "sigmoid")
    s = sigma * lam
    propagated = kernels(backend).spmm(z, rows, norm)
    out = torch.lerp(z, propagated, s)
    return out, propagated.sub_(z) if save else z.new_empty(0), mean, sigma


@operator(empty_like(1, 4), features=4, columns=(5,), heads=(4,))
def gated_graph_gradient_op(
    grad: Tensor,
    diff: Tensor,
    mean: Tensor,
    sigma: Tensor,
    gate: Tensor,
    lam: Tensor,
    reverse: Tensors,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and the gate."""
    rows, (norm,) = unpack(reverse)
    s = sigma * lam
    if backend == "triton" and grad.numel():
        grad_z, grad_s = kernels(backend).gated_propagate_backward(grad, s, diff, rows, norm)
        grad_mean, grad_gate = kernels(backend).graph_gate_backward(grad_s, gate, lam, mean, sigma)
        return grad_z.add_(grad_mean), grad_gate
    gated = grad * s
    grad_z, grad_s = kernels(backend).spmm(gated, rows, norm).add_(grad).sub_(gated), diff * grad
    slope = s.mul_(1 - sigma).mul_(sum_rows_op(grad_s))
    grad_mean, grad_gate = head_linear_gradient_op(slope, mean, gate)
    return grad_z.add_(grad_mean.div_(max(grad.size(0), 1))), grad_gate


@gated_graph_op.gradient(_context)
def _(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return ()
    z, gate, lam, diff, mean, sigma = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        rows, (norm,) = unpack(ctx.edges)
        of_graph = functools.partial(_graph_reference, lam=lam, rows=rows, norm=norm)
        return reference.gradient(of_graph, (z, gate), grad)
    if diff.dim() != 2:  # the forward pass did not expect a gradient
        _, diff, mean, sigma = gated_graph_op(z, gate, lam, ctx.edges, ctx.reverse, True, ctx.backend)
    return gated_graph_gradient_op(grad.contiguous(), diff, mean, sigma, gate, lam, ctx.reverse, ctx.backend)


def _graph_reference(z: Tensor, gate: Tensor, lam: float | Tensor, rows: CSR, norm: Tensor) -> Tensor:
    mean = sum_rows(z) / max(z.size(0), 1)
    s = lam * activate(reference.head_linear(mean, gate), "sigmoid")
    return torch.lerp(z, reference.spmm(z, rows, norm), expand_rows(s.to(z.dtype), z.size(0)))
