"""The fused kernels as PyTorch operators: shapes for the compiler, gradients, and batching over replicas.

Each operator takes a sparse pattern twice, by row and transposed, so that its gradient is the same kind of operator
walking the other one. Under `vmap` a batch of feature matrices `[B, N, D]` becomes one matrix `[N, B·D]`: every
operator treats columns independently, so a thousand replicas are one wide call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gfgn.ops import reference
from gfgn.ops.dispatch import kernels
from gfgn.ops.rows import Rows

Pattern: TypeAlias = Sequence[Tensor]  # the tensors of a `Rows`, since operators take no tuples
InDims: TypeAlias = tuple[Any, ...]

NO_ROWS = [None] * len(Rows._fields)  # the gradient with respect to a pattern


def _operator(name: str) -> Any:
    return torch.library.custom_op(f"gfgn::{name}", mutates_args=())


# --- sums over neighbours -------------------------------------------------------------------------


@_operator("spmm")
def spmm(
    x: Tensor,
    rows: Pattern,
    values: Tensor | None,
    reverse_rows: Pattern,
    reverse_values: Tensor | None,
    backend: str,
) -> Tensor:
    """`out_i = Σ_j v_ij x_j` (`v = 1` without `values`)."""
    return kernels(backend).spmm(x, Rows(*rows), values)


@spmm.register_fake
def _(
    x: Tensor,
    rows: Pattern,
    values: Tensor | None,
    reverse_rows: Pattern,
    reverse_values: Tensor | None,
    backend: str,
) -> Tensor:
    return x.new_empty(rows[0].size(0) - 1, x.size(1))


def _spmm_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.transposed, ctx.backend = inputs


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    rows, values, reverse_rows, reverse_values = ctx.transposed
    grad_x = spmm(grad, reverse_rows, reverse_values, rows, values, ctx.backend)
    return grad_x, NO_ROWS, None, NO_ROWS, None, None


spmm.register_autograd(_spmm_backward, setup_context=_spmm_context)


@_operator("spmm_pair")
def spmm_pair(
    x: Tensor, rows: Pattern, values: Tensor, reverse_rows: Pattern, reverse_values: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """`Σ_j v_ij x_j` and `Σ_j x_j` from one walk."""
    return kernels(backend).spmm_pair(x, Rows(*rows), values)


@spmm_pair.register_fake
def _(
    x: Tensor, rows: Pattern, values: Tensor, reverse_rows: Pattern, reverse_values: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    size = (rows[0].size(0) - 1, x.size(1))
    return x.new_empty(size), x.new_empty(size)


@_operator("spmm_pair_backward")
def spmm_pair_backward(
    weighted: Tensor,
    plain: Tensor,
    rows: Pattern,
    values: Tensor,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    backend: str,
) -> Tensor:
    """`Σ_i v_ij weighted_i + Σ_i plain_i` from one walk: the transpose of `spmm_pair`."""
    return kernels(backend).spmm_pair_backward(weighted, plain, Rows(*rows), values)


@spmm_pair_backward.register_fake
def _(
    weighted: Tensor,
    plain: Tensor,
    rows: Pattern,
    values: Tensor,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    backend: str,
) -> Tensor:
    return weighted.new_empty(rows[0].size(0) - 1, weighted.size(1))


def _spmm_pair_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, rows, values, reverse_rows, reverse_values, ctx.backend = inputs
    ctx.transposed = (reverse_rows, reverse_values, rows, values)


def _spmm_pair_backward(ctx: Any, weighted: Tensor, plain: Tensor) -> tuple[Any, ...]:
    grad_x = spmm_pair_backward(weighted, plain, *ctx.transposed, ctx.backend)
    return grad_x, NO_ROWS, None, NO_ROWS, None, None


def _spmm_pair_backward_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    grads = spmm_pair(grad, *ctx.transposed, ctx.backend)
    return *grads, NO_ROWS, None, NO_ROWS, None, None


spmm_pair.register_autograd(_spmm_pair_backward, setup_context=_spmm_pair_context)
spmm_pair_backward.register_autograd(_spmm_pair_backward_backward, setup_context=_spmm_pair_context)


# --- the pair level -------------------------------------------------------------------------------


@_operator("pair_aggregate")
def pair_aggregate(
    a: Tensor,
    b: Tensor,
    z: Tensor,
    lam: Tensor,
    norm: Tensor,
    share: Tensor,
    rows: Pattern,
    reverse_norm: Tensor,
    reverse_share: Tensor,
    reverse_rows: Pattern,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j σ(a_i + b_j)(Â_ij z_j − A_ij/d_i z_i)`, with `λ` a value a column.

    With `save`, also the two sums over the neighbours that the gradient needs and that would else cost it a second
    walk: `p_i = Σ_j σ'(Â_ij z_j − A_ij/d_i z_i)` and `q_i = Σ_j σ A_ij/d_i`.
    """
    return kernels(backend).pair_forward(a, b, z, lam, norm, share, Rows(*rows), save)


@pair_aggregate.register_fake
def _(
    a: Tensor,
    b: Tensor,
    z: Tensor,
    lam: Tensor,
    norm: Tensor,
    share: Tensor,
    rows: Pattern,
    reverse_norm: Tensor,
    reverse_share: Tensor,
    reverse_rows: Pattern,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    saved = z.shape if save else (0,)
    return torch.empty_like(z), z.new_empty(saved), z.new_empty(saved)


@_operator("pair_backward")
def pair_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    lam: Tensor,
    reverse_norm: Tensor,
    reverse_share: Tensor,
    reverse_rows: Pattern,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to `a`, `b` and `z`, from one walk over the edges by source."""
    return kernels(backend).pair_backward(grad, a, b, z, p, q, lam, reverse_norm, reverse_share, Rows(*reverse_rows))


@pair_backward.register_fake
def _(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    lam: Tensor,
    reverse_norm: Tensor,
    reverse_share: Tensor,
    reverse_rows: Pattern,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(a), torch.empty_like(b), torch.empty_like(z)


def _pair_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    a, b, z, lam, norm, share, rows, reverse_norm, reverse_share, reverse_rows, _, ctx.backend = inputs
    _, p, q = output
    ctx.mark_non_differentiable(p, q)
    ctx.save_for_backward(a, b, z, p, q, lam, norm, share, reverse_norm, reverse_share)
    ctx.patterns = (rows, reverse_rows)


def _pair_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    a, b, z, p, q, lam, norm, share, reverse_norm, reverse_share = ctx.saved_tensors
    rows, reverse_rows = ctx.patterns
    if torch.is_grad_enabled():  # the gradient is to be differentiated again: the reference can, the kernel cannot
        a, b, z = a.clone(), b.clone(), z.clone()
        out = reference.pair_aggregate(a, b, z, lam, norm, share, Rows(*rows))
        grads = torch.autograd.grad(out, (a, b, z), grad, create_graph=True)
    else:
        if p.dim() != 2:  # the forward pass was told that no gradient would be asked for
            _, p, q = pair_aggregate(
                a, b, z, lam, norm, share, rows, reverse_norm, reverse_share, reverse_rows, True, ctx.backend
            )
        grads = pair_backward(grad, a, b, z, p, q, lam, reverse_norm, reverse_share, reverse_rows, ctx.backend)
    return *grads, None, None, None, NO_ROWS, None, None, NO_ROWS, None, None


pair_aggregate.register_autograd(_pair_backward, setup_context=_pair_context)


# --- the graph level ------------------------------------------------------------------------------


@_operator("gated_propagate")
def gated_propagate(
    z: Tensor,
    s: Tensor,
    rows: Pattern,
    norm: Tensor,
    reverse_rows: Pattern,
    reverse_norm: Tensor,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """`z + s (Âz − z)`, and with `save` also `Âz − z`; `s` has a row a node, or one for all."""
    return kernels(backend).gated_propagate(z, s, Rows(*rows), norm, save)


@gated_propagate.register_fake
def _(
    z: Tensor,
    s: Tensor,
    rows: Pattern,
    norm: Tensor,
    reverse_rows: Pattern,
    reverse_norm: Tensor,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape if save else (0,))


@_operator("gated_propagate_backward")
def gated_propagate_backward(
    grad: Tensor, s: Tensor, diff: Tensor, reverse_rows: Pattern, reverse_norm: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and, a row a node, to `s`."""
    return kernels(backend).gated_propagate_backward(grad, s, diff, Rows(*reverse_rows), reverse_norm)


@gated_propagate_backward.register_fake
def _(
    grad: Tensor, s: Tensor, diff: Tensor, reverse_rows: Pattern, reverse_norm: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grad), torch.empty_like(grad)


def _gated_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    z, s, rows, norm, reverse_rows, reverse_norm, _, ctx.backend = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(z, s, norm, reverse_norm, output[1])
    ctx.patterns = (rows, reverse_rows)


def _gated_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    z, s, norm, reverse_norm, diff = ctx.saved_tensors
    rows, reverse_rows = ctx.patterns
    if torch.is_grad_enabled() or diff.dim() != 2:  # to be differentiated again, or nothing was saved
        forward = spmm(z, rows, norm, reverse_rows, reverse_norm, ctx.backend) - z
        backward = spmm(grad * s, reverse_rows, reverse_norm, rows, norm, ctx.backend)
        grad_z, grad_s = grad * (1 - s) + backward, grad * forward
    else:
        grad_z, grad_s = gated_propagate_backward(grad, s, diff, reverse_rows, reverse_norm, ctx.backend)
    if s.size(0) != z.size(0):
        grad_s = grad_s.sum(0, keepdim=True)
    return grad_z, grad_s, NO_ROWS, None, NO_ROWS, None, None, None


gated_propagate.register_autograd(_gated_backward, setup_context=_gated_context)


# --- the sparse first layer -----------------------------------------------------------------------


@_operator("sparse_linear")
def sparse_linear(
    weight: Tensor,
    rows: Pattern,
    values: Tensor,
    entry: Tensor | None,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    reverse_entry: Tensor | None,
    keys: Tensor,
    rate: Tensor,
    backend: str,
) -> Tensor:
    """`X W` with dropout on the stored values of `X`: `weight` is `[F, R·C]`, one block of columns for each of the `R`
    keys, and entry `e` survives in block `r` by a hash of `(e, keys[r])`."""
    columns = weight.size(1) // max(keys.numel(), 1)
    return kernels(backend).sparse_linear(weight, Rows(*rows), values, keys, rate, entry, columns)


@sparse_linear.register_fake
def _(
    weight: Tensor,
    rows: Pattern,
    values: Tensor,
    entry: Tensor | None,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    reverse_entry: Tensor | None,
    keys: Tensor,
    rate: Tensor,
    backend: str,
) -> Tensor:
    return weight.new_empty(rows[0].size(0) - 1, weight.size(1))


def _sparse_linear_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.sides, keys, rate, ctx.backend = inputs
    ctx.save_for_backward(keys, rate)


def _sparse_linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    sides = (*ctx.sides[3:], *ctx.sides[:3])
    grad_weight = sparse_linear(grad, *sides, *ctx.saved_tensors, ctx.backend)
    return grad_weight, NO_ROWS, None, None, NO_ROWS, None, None, None, None, None


sparse_linear.register_autograd(_sparse_linear_backward, setup_context=_sparse_linear_context)


# --- batching: replicas side by side in the columns -----------------------------------------------


def _side_by_side(x: Tensor, dim: int | None, size: int) -> Tensor:
    """`[B, N, D]` (or `[N, D]`, repeated) as `[N, B·D]`."""
    x = x.unsqueeze(1).expand(-1, size, -1) if dim is None else x.movedim(dim, 1)
    return x.reshape(x.size(0), -1)


def _apart(x: Tensor, size: int) -> Tensor:
    return x.view(x.size(0), size, -1)


def _columns(x: Tensor, dim: int | None, size: int) -> Tensor:
    """A value a column and replica, `[B, D]` (or `[D]`, repeated), as `[B·D]`."""
    return (x.expand(size, -1) if dim is None else x.movedim(dim, 0)).reshape(-1)


def _register_wide(operator: Any, features: int, columns: Sequence[int] = ()) -> None:
    """Batches an operator whose first `features` arguments are feature matrices, and those at the places `columns`
    vectors with a value a column."""

    def rule(info: Any, in_dims: InDims, *args: Any) -> tuple[Any, Any]:
        size, wide = info.batch_size, list(args)
        for place in range(features):
            wide[place] = _side_by_side(args[place], in_dims[place], size)
        for place in columns:
            wide[place] = _columns(args[place], in_dims[place], size)
        out = operator(*wide)
        if isinstance(out, Tensor):
            return _apart(out, size), 1
        # What was not asked to be saved is empty, and the same for every replica.
        return tuple(_apart(o, size) if o.dim() == 2 else o for o in out), tuple(
            1 if o.dim() == 2 else None for o in out
        )

    operator.register_vmap(rule)


_register_wide(spmm, features=1)
_register_wide(spmm_pair, features=1)
_register_wide(spmm_pair_backward, features=2)
_register_wide(pair_aggregate, features=3, columns=(3,))
_register_wide(pair_backward, features=6, columns=(6,))
_register_wide(gated_propagate, features=2)
_register_wide(gated_propagate_backward, features=3)
_register_wide(sparse_linear, features=1, columns=(7, 8))
