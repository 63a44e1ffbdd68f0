"""`Operator`: a kernel as a PyTorch operator, with shapes for the compiler, a gradient, and batching over replicas.

Under `vmap` a batch of feature matrices `[B, N, D]` becomes one matrix `[N, B·D]`: every operator treats columns
independently, so a thousand replicas are one wide call.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gfgn.ops.torch_internals import (
    add_batch_dim,
    batch_dim,
    has_derivatives,
    has_dispatch_modes,
    has_transforms,
    is_batched,
    only_vmap_level,
    outside_of_transforms,
    overload,
    unwrapped,
    without_function_modes,
)

Tensors: TypeAlias = Sequence[Tensor]  # a `CSR` and values of its entries: operators accept lists, but no tuples
Context: TypeAlias = Callable[[Any, tuple[Any, ...], Any], None]
Backward: TypeAlias = Callable[..., tuple[Any, ...]]


_batch = threading.local()


def replicas() -> int:
    """Number of replicas whose columns the running operator has; 1 outside of `vmap`.

    Kernels cut their work by the columns of one replica, so that the bits of its results do not depend on the others.
    """
    count: int = getattr(_batch, "replicas", 1)
    return count


@contextmanager
def _among(count: int) -> Iterator[None]:
    before, _batch.replicas = replicas(), count
    try:
        yield
    finally:
        _batch.replicas = before


class Operator:
    """A kernel together with all that PyTorch needs to know about it.

    The operator is registered with `torch.library` for `torch.compile`, `torch.export`, nested `vmap` and tensor
    subclasses. A plain eager call skips that machinery, which costs more than a kernel does on a small graph: it calls
    the kernel directly, or through an `autograd.Function` with the same gradient. So does a call inside one `vmap`.

    Args:
        kernel: The function. Arguments that have a gradient come first: feature matrices, then matrices of heads.
        fake: Takes the same arguments and returns empty tensors of the result's shapes.
        features: How many of the first arguments are feature matrices; their replicas are concatenated by columns.
        columns: Indices of the arguments that hold one value per column (or per replica).
        heads: Indices of the arguments that hold one matrix per head; replicas are further heads.
        view: Whether the kernel returns a view of an argument, of which `torch.library` needs a copy.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        features: int,
        columns: Sequence[int] = (),
        heads: Sequence[int] = (),
        view: bool = False,
    ) -> None:
        self.kernel, self.features, self.stacked = kernel, features, (*columns, *heads)
        self.differentiable = features + len(heads)
        self.name = kernel.__name__.removesuffix("_op")
        registered = _copied(kernel) if view else kernel
        self.library = torch.library.custom_op(f"gfgn::{self.name}", registered, mutates_args=())
        self.library.register_fake(fake)
        self.library.register_vmap(lambda info, in_dims, *args: self._batch(info.batch_size, in_dims, *args))
        self.registered = overload(self.library)
        self.function: Any = None  # the `autograd.Function`, if there is a gradient

    def gradient(self, context: Context) -> Callable[[Backward], Backward]:
        """Registers the decorated function, which returns the gradients of the arguments that have one.

        `context` saves what it needs, as for `torch.library.register_autograd`.
        """

        def register(backward: Backward) -> Backward:
            self._register_gradient(context, backward)
            self.function = _eager_function(self.name, self.kernel, context, backward)
            return backward

        return register

    def _register_gradient(self, context: Context, backward: Backward) -> None:
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            # `torch.library` expects a gradient for every tensor of a list.
            ctx.none = [[None] * len(x) if isinstance(x, list) else None for x in inputs]
            context(ctx, inputs, output)

        def padded(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            result = backward(ctx, *grads)
            return *result, *ctx.none[len(result) :]

        self.library.register_autograd(padded, setup_context=setup_context)

    def __call__(self, *args: Any) -> Any:
        compiling = torch.compiler.is_compiling()
        if not compiling and has_derivatives():
            return self._visible(args)
        if compiling or not is_eager(args[0]):
            level = None if compiling else only_vmap_level()
            return self.registered(*args) if level is None else self._inside_vmap(level, args)
        if self.function is not None and torch.is_grad_enabled():
            for x in args[: self.differentiable]:
                if x.requires_grad:
                    return self.function.apply(*args)
        return self.kernel(*args)

    def _visible(self, args: tuple[Any, ...]) -> Any:
        """The reference's plain operations, which `torch.func` and forward mode differentiate one by one."""
        if args[-1] != "reference":  # the backend, if there is one
            raise NotImplementedError(
                f"{self.name} has no derivative by torch.func or in forward mode; torch.autograd.grad differentiates it"
            )
        return self.kernel(*args)

    def _inside_vmap(self, level: int, args: tuple[Any, ...]) -> Any:
        """Batches a call inside one `vmap` without PyTorch's machinery, which is slower than small kernels."""
        dims = tuple(batch_dim(x) if is_batched(x) else None for x in args)
        if all(dim is None for dim in dims):
            with outside_of_transforms():
                return self(*args)
        inner = [x if dim is None else unwrapped(x) for x, dim in zip(args, dims, strict=True)]
        size = next(x.size(dim) for x, dim in zip(inner, dims, strict=True) if dim is not None)
        with outside_of_transforms(), without_function_modes():
            out, out_dims = self._batch(size, dims, *inner)
        if isinstance(out, Tensor):
            return add_batch_dim(out, out_dims, level)
        return tuple(x if dim is None else add_batch_dim(x, dim, level) for x, dim in zip(out, out_dims, strict=True))

    def _batch(self, size: int, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """The result for a batch of `size` replicas, and which of its dimensions holds them."""
        wide = list(args)
        for k in range(self.features):
            x, dim = args[k], in_dims[k]
            x = x.unsqueeze(1).expand(-1, size, -1) if dim is None else x.movedim(dim, 1)
            wide[k] = x.reshape(x.size(0), x.size(1) * x.size(2))  # no −1: there may be no rows
        for k in self.stacked:
            x, dim = args[k], in_dims[k]
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            wide[k] = x.reshape(
                x.size(0) * x.size(1), *x.shape[2:]
            ).contiguous()  # not expanded: kernels read addresses
        with _among(replicas() * size):
            out = self(*wide)
        if isinstance(out, Tensor):
            return _split_replicas(out, size)
        results = [_split_replicas(one, size) for one in out]
        return tuple(one for one, _ in results), tuple(dim for _, dim in results)


def _copied(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(kernel)
    def copied(*args: Any) -> Tensor:
        return kernel(*args).clone()

    return copied


def _split_replicas(out: Tensor, size: int) -> tuple[Tensor, int | None]:
    """The result with a dimension for the replicas, and which dimension that is."""
    if out.dim() == 2:
        return out.view(out.size(0), size, out.size(1) // size), 1
    if out.dim() == 3:  # one matrix per head
        return out.view(size, out.size(0) // size, *out.shape[1:]), 0
    return out, None  # an optional result that was not requested: empty


def _eager_function(name: str, kernel: Callable[..., Any], context: Context, backward: Backward) -> Any:
    arguments = len(inspect.signature(kernel).parameters)

    # A `forward` that takes the context itself: PyTorch calls it with less overhead than one with `setup_context`.
    def forward(ctx: Any, *args: Any) -> Any:
        out = kernel(*args)
        ctx.replicas = replicas()
        context(ctx, args, out)
        return out

    def padded(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if ctx.replicas == replicas():
            result = backward(ctx, *grads)
        else:
            with _among(ctx.replicas):
                result = backward(ctx, *grads)
        return *result, *[None] * (arguments - len(result))

    return type(name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(padded)})


def is_eager(x: Tensor) -> bool:
    """Whether an eager call has ordinary tensors: no subclass, no dispatch mode, no functorch transform."""
    return type(x) in (Tensor, nn.Parameter) and not has_dispatch_modes() and not has_transforms()


def needs_gradient(*inputs: Tensor) -> bool:
    """Whether a gradient may be requested. Under `vmap` only the tensors inside the batched ones know that."""
    if not torch.is_grad_enabled():
        return False
    return any(x.requires_grad or (is_batched(x) and unwrapped(x).requires_grad) for x in inputs)


def operator(
    fake: Callable[..., Any], features: int, columns: Sequence[int] = (), heads: Sequence[int] = (), view: bool = False
) -> Callable[[Callable[..., Any]], Operator]:
    """Makes an `Operator` of the decorated kernel; the operator's name is the kernel's, less its `_op`."""
    return lambda kernel: Operator(kernel, fake, features, columns, heads, view)


def save(*indices: int, rest: int) -> Context:
    """A `context` that saves the tensors with these indices; `ctx.rest` are the arguments from index `rest` on."""

    def context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*[inputs[k] for k in indices])
        ctx.rest = inputs[rest:]

    return context


def empty_like(*indices: int) -> Callable[..., Any]:
    """A `fake` whose results have the shapes of the arguments with these indices."""

    def fake(*args: Any) -> Any:
        results = tuple(torch.empty_like(args[k]) for k in indices)
        return results[0] if len(results) == 1 else results

    return fake


def empty_rows(pattern: int, results: int = 1) -> Callable[..., Any]:
    """A `fake` whose results have one row per row of the `CSR` with this index, and the columns of what precedes it."""

    def fake(*args: Any) -> Any:
        shape = args[pattern][0].size(0) - 1, args[pattern - 1].size(1)
        out = tuple(args[pattern - 1].new_empty(shape) for _ in range(results))
        return out[0] if results == 1 else out

    return fake
