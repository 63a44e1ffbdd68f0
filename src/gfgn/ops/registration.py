"""The fused kernels as PyTorch operators: shapes for the compiler, gradients, and batching over replicas.

Each operator takes a sparse pattern twice, by row and transposed, so that its gradient is the same kind of operator
walking the other one. Under `vmap` a batch of feature matrices `[B, N, D]` becomes one matrix `[N, B·D]`: every
operator treats columns independently, so a thousand replicas are one wide call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

from gfgn.ops import bf16_split, reference
from gfgn.ops.csr import CSR
from gfgn.ops.dispatch import elementwise, kernels
from gfgn.ops.heads import by_head, halves, halves_backward, head_matmul, head_weight_gradient

Pattern: TypeAlias = Sequence[Tensor]  # the tensors of a `CSR`, since operators take no tuples of tensors
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
        heads: The places of arguments that hold a matrix a head; replicas are so many more heads.
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
        heads: Sequence[int] = (),
    ) -> None:
        self.kernel = kernel
        self.differentiable = features + len(heads)  # matrices of heads follow the features
        name = kernel.__name__.removeprefix("_")
        registered = torch.library.custom_op(f"gfgn::{name}", kernel, mutates_args=())
        registered.register_fake(fake)
        self.rule = _side_by_side_rule(self, features, columns, heads)
        registered.register_vmap(self.rule)
        self.function: Any = None
        if context is not None and backward is not None:
            gradient = backward
            patterns = [p.annotation == "Pattern" for p in inspect.signature(kernel).parameters.values()]
            no_rows = [None] * len(CSR._fields)

            def whole(ctx: Any, *grads: Any) -> tuple[Any, ...]:
                """`torch.library` wants a gradient for every tensor of a list."""
                found = gradient(ctx, *grads)
                return tuple(no_rows if is_rows else g for is_rows, g in zip(patterns, found, strict=True))

            registered.register_autograd(whole, setup_context=context)
            self.function = _eager_function(name, kernel, context, backward)
        self.registered = registered._opoverload

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or not _plain(args[0]):
            level = None if torch.compiler.is_compiling() else _only_vmap()
            return self.registered(*args) if level is None else self._side_by_side(level, args)
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in args[: self.differentiable])
        if needs_grad and self.function is not None:
            return self.function.apply(*args)
        return self.kernel(*args)

    def _side_by_side(self, level: int, args: tuple[Any, ...]) -> Any:
        """A call under one `vmap`: the rule by which it is batched, without the machinery in between, whose cost on
        small graphs is many times that of the kernels."""
        functorch = torch._C._functorch
        batched = [isinstance(x, Tensor) and functorch.is_batchedtensor(x) for x in args]
        if not any(batched):
            with temporarily_pop_interpreter_stack():
                return self(*args)
        dims = tuple(functorch.maybe_get_bdim(x) if is_one else None for x, is_one in zip(args, batched, strict=True))
        inner = [functorch.get_unwrapped(x) if is_one else x for x, is_one in zip(args, batched, strict=True)]
        size = next(x.size(dim) for x, dim in zip(inner, dims, strict=True) if dim is not None)
        with temporarily_pop_interpreter_stack():
            out, out_dims = self.rule(_Batch(size), dims, *inner)
        if isinstance(out, Tensor):
            return functorch._add_batch_dim(out, out_dims, level)
        return tuple(
            x if dim is None else functorch._add_batch_dim(x, dim, level) for x, dim in zip(out, out_dims, strict=True)
        )


class _Batch(NamedTuple):
    """What a rule for `vmap` is told."""

    batch_size: int


def _only_vmap() -> int | None:
    """The level of the functorch transform that is going on, if it is one `vmap` and nothing else looks on."""
    if torch._C._len_torch_dispatch_stack() != 0:
        return None
    stack = torch._C._functorch.get_interpreter_stack()
    if stack is None or len(stack) != 1 or stack[0].key() != torch._C._functorch.TransformType.Vmap:
        return None
    level: int = stack[0].level()
    return level


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


def _side_by_side_rule(
    operator: Operator, features: int, columns: Sequence[int], heads: Sequence[int]
) -> Callable[..., Any]:
    """How an operator is batched: replicas side by side in the columns."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        size, wide = info.batch_size, list(args)
        for place in range(features):
            x, dim = args[place], in_dims[place]
            x = x.unsqueeze(1).expand(-1, size, -1) if dim is None else x.movedim(dim, 1)
            wide[place] = x.reshape(x.size(0), -1)
        for place in (*columns, *heads):
            x, dim = args[place], in_dims[place]
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            wide[place] = x.reshape(-1, *x.shape[2:])
        out = operator(*wide)
        results = [_apart(o, size) for o in ((out,) if isinstance(out, Tensor) else out)]
        if isinstance(out, Tensor):
            return results[0]
        return tuple(o for o, _ in results), tuple(dim for _, dim in results)

    return rule


def _apart(out: Tensor, size: int) -> tuple[Tensor, int | None]:
    """The replicas of a result, and the dimension they are in."""
    if out.dim() == 2:
        return out.view(out.size(0), size, -1), 1
    if out.dim() == 3:  # a matrix a head
        return out.view(size, -1, *out.shape[1:]), 0
    return out, None  # what was not asked to be saved is empty, and the same for every replica


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
    return kernels(backend).spmm(x, CSR(*rows), values)


def _spmm_fake(x: Tensor, rows: Pattern, *_: Any) -> Tensor:
    return x.new_empty(rows[0].size(0) - 1, x.size(1))


def _sum_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, rows, values, reverse_rows, reverse_values, ctx.backend = inputs
    ctx.transposed = (reverse_rows, reverse_values, rows, values)


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return spmm(grad, *ctx.transposed, ctx.backend), None, None, None, None, None


def _propagate_and_mean(
    x: Tensor,
    rows: Pattern,
    values: Tensor,
    inverse: Tensor,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """`Σ_j v_ij x_j` and `inverse_i Σ_j x_j` from one walk."""
    return kernels(backend).spmm_pair(x, CSR(*rows), values, inverse)


def _propagate_and_mean_fake(x: Tensor, rows: Pattern, *_: Any) -> tuple[Tensor, Tensor]:
    return _spmm_fake(x, rows), _spmm_fake(x, rows)


def _both_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *_, rows, values, inverse, reverse_rows, reverse_values, ctx.backend = inputs
    ctx.transposed = (reverse_rows, reverse_values, inverse, rows, values)


def _propagate_and_mean_transposed(
    weighted: Tensor,
    mean: Tensor,
    rows: Pattern,
    values: Tensor,
    inverse: Tensor,
    reverse_rows: Pattern,
    reverse_values: Tensor,
    backend: str,
) -> Tensor:
    """`Σ_i v_ij weighted_i + inverse_i mean_i` from one walk: the transpose of `propagate_and_mean`."""
    return kernels(backend).spmm_pair_backward(weighted, mean, CSR(*rows), values, inverse)


def _propagate_and_mean_transposed_fake(weighted: Tensor, mean: Tensor, rows: Pattern, *_: Any) -> Tensor:
    return _spmm_fake(weighted, rows)


def _propagate_and_mean_backward(ctx: Any, weighted: Tensor, mean: Tensor) -> tuple[Any, ...]:
    return propagate_and_mean_transposed(weighted, mean, *ctx.transposed, ctx.backend), *[None] * 6


def _propagate_and_mean_transposed_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *propagate_and_mean(grad, *ctx.transposed, ctx.backend), *[None] * 6


# --- the pair level -------------------------------------------------------------------------------


def _pair_aggregate(
    a: Tensor,
    b: Tensor,
    z: Tensor,
    lam: Tensor,
    norm: Tensor,
    row_norm: Tensor,
    rows: Pattern,
    reverse_norm: Tensor,
    reverse_row_norm: Tensor,
    reverse_rows: Pattern,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j σ(a_i + b_j)(Â_ij z_j − A_ij/d_i z_i)`, with `λ` a value a column.

    With `save`, also the two sums over the neighbours that the gradient needs and that would else cost it a second
    walk: `p_i = Σ_j σ'(Â_ij z_j − A_ij/d_i z_i)` and `q_i = Σ_j σ A_ij/d_i`.
    """
    return kernels(backend).pair_forward(a, b, z, lam, norm, row_norm, CSR(*rows), save)


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
    reverse_row_norm: Tensor,
    reverse_rows: Pattern,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to `a`, `b` and `z`, from one walk over the edges by source."""
    rows = CSR(*reverse_rows)
    return kernels(backend).pair_backward(grad, a, b, z, p, q, lam, reverse_norm, reverse_row_norm, rows)


def _pair_gradient_fake(grad: Tensor, a: Tensor, b: Tensor, z: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(a), torch.empty_like(b), torch.empty_like(z)


def _pair_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    a, b, z, lam, norm, row_norm, rows, reverse_norm, reverse_row_norm, reverse_rows, _, ctx.backend = inputs
    _, p, q = output
    ctx.mark_non_differentiable(p, q)
    ctx.set_materialize_grads(False)  # no zeros in the place of their gradients
    ctx.save_for_backward(a, b, z, p, q, lam, norm, row_norm, reverse_norm, reverse_row_norm)
    ctx.patterns = (rows, reverse_rows)


def _pair_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 12
    a, b, z, p, q, lam, norm, row_norm, reverse_norm, reverse_row_norm = ctx.saved_tensors
    rows, reverse_rows = ctx.patterns
    if torch.is_grad_enabled():  # the gradient is to be differentiated again: the reference can, the kernel cannot
        a, b, z = a.clone(), b.clone(), z.clone()
        out = reference.pair_aggregate(a, b, z, lam, norm, row_norm, CSR(*rows))
        grads = torch.autograd.grad(out, (a, b, z), grad, create_graph=True)
    else:
        if p.dim() != 2:  # the forward pass was told that no gradient would be asked for
            edges = (norm, row_norm, rows, reverse_norm, reverse_row_norm, reverse_rows)
            _, p, q = pair_aggregate(a, b, z, lam, *edges, True, ctx.backend)
        grads = pair_gradient(grad, a, b, z, p, q, lam, reverse_norm, reverse_row_norm, reverse_rows, ctx.backend)
    return *grads, *[None] * 9


# --- products with a matrix a head, and the pair level from them on ---------------------------------


def _head_linear(x: Tensor, weight: Tensor) -> Tensor:
    """`x_k W_k` for every head `k`."""
    return head_matmul(x, weight)


def _head_linear_fake(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.size(0), weight.size(0) * weight.size(2))


def _head_linear_gradient(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return head_matmul(grad, weight.transpose(1, 2)), head_weight_gradient(x, grad, weight.size(0))


def _head_linear_gradient_fake(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


def _head_linear_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _head_linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    if torch.is_grad_enabled():
        heads = weight.size(0)
        grad_weight = torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad.contiguous(), heads))
        return head_linear(grad.contiguous(), weight.transpose(1, 2)), grad_weight
    if not ctx.needs_input_grad[0]:  # features that are data
        return None, head_weight_gradient(x, grad.contiguous(), weight.size(0))
    grads: tuple[Tensor, Tensor] = head_linear_gradient(grad.contiguous(), x, weight)
    return grads


def _gated_pair(
    z: Tensor,
    gate: Tensor,
    lam: Tensor,
    norm: Tensor,
    row_norm: Tensor,
    rows: Pattern,
    reverse_norm: Tensor,
    reverse_row_norm: Tensor,
    reverse_rows: Pattern,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """`pair_aggregate` with `a` and `b` worked out from `z` by the halves of the gate."""
    a, b = halves(z, gate)
    return kernels(backend).pair_forward(a, b, z, lam, norm, row_norm, CSR(*rows), save)


def _gated_pair_fake(z: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    saved = z.shape if rest[-2] else (0,)
    return torch.empty_like(z), z.new_empty(saved), z.new_empty(saved)


def _gated_pair_gradient(
    grad: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    gate: Tensor,
    lam: Tensor,
    reverse_norm: Tensor,
    reverse_row_norm: Tensor,
    reverse_rows: Pattern,
    reuse: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and the gate. `a` and `b` are worked out again rather than kept; with `reuse`
    the memory of `p` and `q` takes gradients."""
    a, b = halves(z, gate)
    grad_a, grad_b, grad_z = kernels(backend).pair_backward(
        grad, a, b, z, p, q, lam, reverse_norm, reverse_row_norm, CSR(*reverse_rows), reuse
    )
    del a, b
    return halves_backward(grad_a, grad_b, grad_z, z, gate)


def _gated_pair_gradient_fake(
    grad: Tensor, z: Tensor, p: Tensor, q: Tensor, gate: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), torch.empty_like(gate)


def _gated_pair_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    z, gate, lam, norm, row_norm, rows, reverse_norm, reverse_row_norm, reverse_rows, _, ctx.backend = inputs
    _, p, q = output
    ctx.mark_non_differentiable(p, q)
    ctx.set_materialize_grads(False)  # no zeros in the place of their gradients
    ctx.save_for_backward(z, gate, p, q, lam, norm, row_norm, reverse_norm, reverse_row_norm)
    ctx.patterns = (rows, reverse_rows)


def _gated_pair_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 11
    z, gate, p, q, lam, norm, row_norm, reverse_norm, reverse_row_norm = ctx.saved_tensors
    rows, reverse_rows = ctx.patterns
    if torch.is_grad_enabled():  # to be differentiated again
        z, gate = z.clone(), gate.clone()
        a, b = (head_linear(z, half) for half in gate.chunk(2, dim=1))
        out = reference.pair_aggregate(a, b, z, lam, norm, row_norm, CSR(*rows))
        grads = torch.autograd.grad(out, (z, gate), grad, create_graph=True)
    else:
        reuse = _last_backward() and _plain(grad)
        if p.dim() != 2:  # the forward pass was told that no gradient would be asked for
            edges = (norm, row_norm, rows, reverse_norm, reverse_row_norm, reverse_rows)
            _, p, q = gated_pair(z, gate, lam, *edges, True, ctx.backend)
        reverse = (reverse_norm, reverse_row_norm, reverse_rows)
        grads = gated_pair_gradient(grad, z, p, q, gate, lam, *reverse, reuse, ctx.backend)
    return *grads, *[None] * 9


def _last_backward() -> bool:
    """Whether nobody can ask for this gradient again (no `retain_graph`), so that what was saved may be overwritten."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return keeps is not None and not torch.compiler.is_compiling() and not keeps()


# --- the neighbour level ---------------------------------------------------------------------------


def _gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor, backend: str) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`, `W_s` a matrix a head and `λ` a value a column."""
    return elementwise(backend).gated_neighbor(z, propagated, mean, gate, lam)


def _gated_neighbor_fake(z: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(z)


def _gated_neighbor_gradient(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor, backend: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients with respect to `z`, `propagated`, `mean` and the gate."""
    return elementwise(backend).gated_neighbor_backward(grad, z, propagated, mean, gate, lam)


def _gated_neighbor_gradient_fake(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(z), torch.empty_like(z), torch.empty_like(z), torch.empty_like(gate)


def _gated_neighbor_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


def _gated_neighbor_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    z, propagated, mean, gate, lam = ctx.saved_tensors
    if torch.is_grad_enabled():  # to be differentiated again
        inputs = (z.clone(), propagated.clone(), mean.clone(), gate.clone())
        out = reference.gated_neighbor(*inputs, lam)
        grads = torch.autograd.grad(out, inputs, grad, create_graph=True)
    else:
        grads = gated_neighbor_gradient(grad.contiguous(), z, propagated, mean, gate, lam, ctx.backend)
    return *grads, None, None


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
    return kernels(backend).gated_propagate(z, s, CSR(*rows), norm, save)


def _gated_propagate_fake(z: Tensor, s: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape if rest[-2] else (0,))


def _gated_gradient(
    grad: Tensor, s: Tensor, diff: Tensor, reverse_rows: Pattern, reverse_norm: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    """The gradients with respect to `z` and, a row a node, to `s`."""
    return kernels(backend).gated_propagate_backward(grad, s, diff, CSR(*reverse_rows), reverse_norm)


def _gated_gradient_fake(grad: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grad), torch.empty_like(grad)


def _gated_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    z, s, rows, norm, reverse_rows, reverse_norm, _, ctx.backend = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(z, s, norm, reverse_norm, output[1])
    ctx.patterns = (rows, reverse_rows)


def _gated_backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 8
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
    return kernels(backend).sparse_linear(weight, CSR(*rows), values, keys, rate, entry, columns)


def _sparse_linear_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *ctx.sides, keys, rate, ctx.backend = inputs
    ctx.save_for_backward(keys, rate)


def _sparse_linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    transposed = (*ctx.sides[3:], *ctx.sides[:3])
    return sparse_linear(grad, *transposed, *ctx.saved_tensors, ctx.backend), *[None] * 9


# --- dense layers of replicas -----------------------------------------------------------------------


def _dropout(x: Tensor, keys: Tensor, rate: Tensor, backend: str) -> Tensor:
    """Dropout by hash: `x` is `[N, R·D]`, one block of columns for each of the `R` keys, and value `n D + d` survives
    in block `r` by a hash of it and `keys[r]`."""
    return elementwise(backend).dropout(x, keys, rate, shared=False)


def _dropout_fake(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _dropout_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, keys, rate, ctx.backend = inputs
    ctx.save_for_backward(keys, rate)


def _dropout_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return dropout(grad.contiguous(), *ctx.saved_tensors, ctx.backend), None, None, None


def _dropout_shared(keys: Tensor, rate: Tensor, x: Tensor, backend: str) -> Tensor:
    """`dropout` where all replicas have the same `x`, `[N, D]`, which is data: `[N, R·D]`."""
    return elementwise(backend).dropout(x, keys, rate, shared=True)


def _dropout_shared_fake(keys: Tensor, rate: Tensor, x: Tensor, backend: str) -> Tensor:
    return x.new_empty(x.size(0), x.size(1) * keys.numel())


def _shared_linear(weight: Tensor, x: Tensor, left: Tensor | None) -> Tensor:
    """`x W`, where every replica has a `W` of its own, `[F, D]`, and all have the same `x`; `left`: `x` in parts."""
    if left is not None and weight.dtype == torch.float32 and weight.size(1) >= bf16_split.FEWEST_COLUMNS:
        return bf16_split.product(left, weight)
    return x @ weight


def _shared_linear_fake(weight: Tensor, x: Tensor, left: Tensor | None) -> Tensor:
    return weight.new_empty(x.size(0), weight.size(1))


def _shared_linear_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.x = inputs[1]


def _shared_linear_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return shared_linear(grad, ctx.x.t(), None), None, None


spmm = Operator(_spmm, _spmm_fake, _sum_context, _spmm_backward, features=1)
propagate_and_mean = Operator(
    _propagate_and_mean, _propagate_and_mean_fake, _both_context, _propagate_and_mean_backward, features=1
)
propagate_and_mean_transposed = Operator(
    _propagate_and_mean_transposed,
    _propagate_and_mean_transposed_fake,
    _both_context,
    _propagate_and_mean_transposed_backward,
    features=2,
)
pair_aggregate = Operator(
    _pair_aggregate, _pair_aggregate_fake, _pair_context, _pair_backward, features=3, columns=(3,)
)
head_linear = Operator(
    _head_linear, _head_linear_fake, _head_linear_context, _head_linear_backward, features=1, heads=(1,)
)
head_linear_gradient = Operator(_head_linear_gradient, _head_linear_gradient_fake, features=2, heads=(2,))
gated_pair = Operator(
    _gated_pair, _gated_pair_fake, _gated_pair_context, _gated_pair_backward, features=1, columns=(2,), heads=(1,)
)
gated_pair_gradient = Operator(_gated_pair_gradient, _gated_pair_gradient_fake, features=4, columns=(5,), heads=(4,))
pair_gradient = Operator(_pair_gradient, _pair_gradient_fake, features=6, columns=(6,))
gated_propagate = Operator(_gated_propagate, _gated_propagate_fake, _gated_context, _gated_backward, features=2)
gated_gradient = Operator(_gated_gradient, _gated_gradient_fake, features=3)
sparse_linear = Operator(
    _sparse_linear, _spmm_fake, _sparse_linear_context, _sparse_linear_backward, features=1, columns=(7, 8)
)
dropout = Operator(_dropout, _dropout_fake, _dropout_context, _dropout_backward, features=1, columns=(1, 2))
dropout_shared = Operator(_dropout_shared, _dropout_shared_fake, features=0, columns=(0, 1))
gated_neighbor = Operator(
    _gated_neighbor,
    _gated_neighbor_fake,
    _gated_neighbor_context,
    _gated_neighbor_backward,
    features=3,
    columns=(4,),
    heads=(3,),
)
gated_neighbor_gradient = Operator(
    _gated_neighbor_gradient, _gated_neighbor_gradient_fake, features=4, columns=(5,), heads=(4,)
)
shared_linear = Operator(
    _shared_linear, _shared_linear_fake, _shared_linear_context, _shared_linear_backward, features=1
)
