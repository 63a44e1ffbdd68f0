"""The fused kernels as PyTorch operators: shapes for the compiler, gradients, and batching over replicas.

Each operator takes a sparse pattern twice, by row and transposed, so that its gradient is the same kind of operator
walking the other one. Under `vmap` a batch of feature matrices `[B, N, D]` becomes one matrix `[N, B·D]`: every
operator treats columns independently, so a thousand replicas are one wide call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gfgn.ops import reference
from gfgn.ops.dispatch import kernels
from gfgn.ops.rows import Rows

Pattern: TypeAlias = Sequence[Tensor]  # the tensors of a `Rows`, since operators take no tuples of tensors
Context: TypeAlias = Callable[[Any, tuple[Any, ...], Any], None]
Backward: TypeAlias = Callable[..., tuple[Any, ...]]


class Operator:
    """A kernel with everything that PyTorch wants to know about it.

    The operator is registered with `torch.library` for `torch.compile`, `torch.export`, `vmap` and whatever else looks
    inside. A plain eager call skips that machinery, which costs more than a kernel takes on a small graph: it goes
    straight to the kernel, or through an `autograd.Function` with the same gradient.

    Args:
        kernel: The function; a parameter annotated `Pattern` is a list of tensors.
        fake: The same signature; the shapes of the result.
        context: What the gradient keeps, as for `torch.library.register_autograd`.
        backward: The gradient; one entry an argument, `None` for patterns.
        features: How many of the first arguments are feature matrices, batched side by side.
        columns: The places of arguments that hold a value a column.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        context: Context | None = None,
        backward: Backward | None = None,
        *,
        features: int,
        columns: Sequence[int] = (),
    ) -> None:
        self.kernel = kernel
        self.features = features
        name = kernel.__name__.removeprefix("_")
        registered = torch.library.custom_op(f"gfgn::{name}", kernel, mutates_args=())
        registered.register_fake(fake)
        registered.register_vmap(_side_by_side_rule(self, features, columns))
        self.function: Any = None
        if context is not None and backward is not None:
            gradient = backward
            patterns = [p.annotation == "Pattern" for p in inspect.signature(kernel).parameters.values()]
            no_rows = [None] * len(Rows._fields)

            def whole(ctx: Any, *grads: Any) -> tuple[Any, ...]:
                """`torch.library` wants a gradient for every tensor of a list."""
                found = gradient(ctx, *grads)
                return tuple(no_rows if is_rows else g for is_rows, g in zip(patterns, found, strict=True))

            registered.register_autograd(whole, setup_context=context)
            self.function = _eager_function(name, kernel, context, backward)
        self.registered = registered._opoverload

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or not _plain(args[0]):
            return self.registered(*args)
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in args[: self.features])
        if needs_grad and self.function is not None:
            return self.function.apply(*args)
        return self.kernel(*args)


def _eager_function(name: str, kernel: Callable[..., Any], context: Context, backward: Backward) -> Any:
    # `forward` that takes the context itself: PyTorch calls it with far less ado than one with `setup_context`.
    def forward(ctx: Any, *args: Any) -> Any:
        out = kernel(*args)
        context(ctx, args, out)
        return out

    return type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    )


def _plain(x: Tensor) -> bool:
    """Whether an eager call sees real tensors: no subclass, no mode that looks on, no functorch transform."""
    return (
        type(x) in (Tensor, nn.Parameter)
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _side_by_side_rule(operator: Operator, features: int, columns: Sequence[int]) -> Callable[..., Any]:
    """How an operator is batched: replicas side by side in the columns."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size, wide = info.batch_size, list(args)
        for place in range(features):
            x, dim = args[place], in_dims[place]
            x = x.unsqueeze(1).expand(-1, size, -1) if dim is None else x.movedim(dim, 1)
            wide[place] = x.reshape(x.size(0), -1)
        for place in columns:
            x, dim = args[place], in_dims[place]
            wide[place] = (x.expand(size, -1) if dim is None else x.movedim(dim, 0)).reshape(-1)
        out = operator(*wide)
        outs = (out,) if isinstance(out, Tensor) else out
        # What was not asked to be saved is empty, and the same for every replica.
        apart = tuple(o.view(o.size(0), size, -1) if o.dim() == 2 else o for o in outs)
        dims = tuple(1 if o.dim() == 2 else None for o in outs)
        return (apart[0], dims[0]) if isinstance(out, Tensor) else (apart, dims)

    return rule


# --- sums over neighbours -------------------------------------------------------------------------


def _spmm(
    x: Tensor,
    rows: Pattern,
    values: Tensor | None,
    reverse_rows: Pattern,
    reverse_values: Tensor | None,
    backend: str,
) -> Tensor:
    """`out_i = Σ_j v_ij x_j` (`v = 1` without `values`)."""
    return kernels(backend).spmm(x, Rows(*rows), values)


def _spmm_fake(x: Tensor, rows: Pattern, *_: Any) -> Tensor:
    return x.new_empty(rows[0].size(0) - 1, x.size(1))


def _sum_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, rows, values, reverse_rows, reverse_values, ctx.backend = inputs
    ctx.transposed = (reverse_rows, reverse_values, rows, values)


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return spmm(grad, *ctx.transposed, ctx.backend), None, None, None, None, None


def _spmm_pair(
    x: Tensor, rows: Pattern, values: Tensor, reverse_rows: Pattern, reverse_values: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """`Σ_j v_ij x_j` and `Σ_j x_j` from one walk."""
    return kernels(backend).spmm_pair(x, Rows(*rows), values)


def _spmm_pair_fake(x: Tensor, rows: Pattern, *_: Any) -> tuple[Tensor, Tensor]:
    return _spmm_fake(x, rows), _spmm_fake(x, rows)


def _spmm_pair_transposed(
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


def _spmm_pair_transposed_fake(weighted: Tensor, plain: Tensor, rows: Pattern, *_: Any) -> Tensor:
    return _spmm_fake(weighted, rows)


def _spmm_pair_backward(ctx: Any, weighted: Tensor, plain: Tensor) -> tuple[Any, ...]:
    return spmm_pair_transposed(weighted, plain, *ctx.transposed, ctx.backend), None, None, None, None, None


def _spmm_pair_transposed_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *spmm_pair(grad, *ctx.transposed, ctx.backend), None, None, None, None, None


# --- the pair level -------------------------------------------------------------------------------


def _pair_aggregate(
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


def _pair_aggregate_fake(a: Tensor, b: Tensor, z: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    saved = z.shape if rest[-2] else (0,)
    return torch.empty_like(z), z.new_empty(saved), z.new_empty(saved)


def _pair_gradient(
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
    rows = Rows(*reverse_rows)
    return kernels(backend).pair_backward(grad, a, b, z, p, q, lam, reverse_norm, reverse_share, rows)


def _pair_gradient_fake(grad: Tensor, a: Tensor, b: Tensor, z: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
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
            edges = (norm, share, rows, reverse_norm, reverse_share, reverse_rows)
            _, p, q = pair_aggregate(a, b, z, lam, *edges, True, ctx.backend)
        grads = pair_gradient(grad, a, b, z, p, q, lam, reverse_norm, reverse_share, reverse_rows, ctx.backend)
    return *grads, *[None] * 9


# --- the graph level ------------------------------------------------------------------------------


def _gated_propagate(
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


def _gated_propagate_fake(z: Tensor, s: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape if rest[-2] else (0,))


def _gated_gradient(
    grad: Tensor, s: Tensor, diff: Tensor, reverse_rows: Pattern, reverse_norm: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and, a row a node, to `s`."""
    return kernels(backend).gated_propagate_backward(grad, s, diff, Rows(*reverse_rows), reverse_norm)


def _gated_gradient_fake(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
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
        grad_z, grad_s = gated_gradient(grad, s, diff, reverse_rows, reverse_norm, ctx.backend)
    if s.size(0) != z.size(0):
        grad_s = grad_s.sum(0, keepdim=True)
    return grad_z, grad_s, None, None, None, None, None, None


# --- the sparse first layer -----------------------------------------------------------------------


def _sparse_linear(
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


def _sparse_linear_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.sides, keys, rate, ctx.backend = inputs
    ctx.save_for_backward(keys, rate)


def _sparse_linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    transposed = (*ctx.sides[3:], *ctx.sides[:3])
    return sparse_linear(grad, *transposed, *ctx.saved_tensors, ctx.backend), *[None] * 9


spmm = Operator(_spmm, _spmm_fake, _sum_context, _spmm_backward, features=1)
spmm_pair = Operator(_spmm_pair, _spmm_pair_fake, _sum_context, _spmm_pair_backward, features=1)
spmm_pair_transposed = Operator(
    _spmm_pair_transposed, _spmm_pair_transposed_fake, _sum_context, _spmm_pair_transposed_backward, features=2
)
pair_aggregate = Operator(
    _pair_aggregate, _pair_aggregate_fake, _pair_context, _pair_backward, features=3, columns=(3,)
)
pair_gradient = Operator(_pair_gradient, _pair_gradient_fake, features=6, columns=(6,))
gated_propagate = Operator(_gated_propagate, _gated_propagate_fake, _gated_context, _gated_backward, features=2)
gated_gradient = Operator(_gated_gradient, _gated_gradient_fake, features=3)
sparse_linear = Operator(
    _sparse_linear, _spmm_fake, _sparse_linear_context, _sparse_linear_backward, features=1, columns=(7, 8)
)
