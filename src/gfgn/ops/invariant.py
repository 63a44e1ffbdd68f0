"""Functions of PyTorch whose last bits depend on the shape of a batch, in a form in which a replica's do not.

PyTorch adds numbers in an order that depends on sizes and strides, and its functions of single numbers, such as the
exponential, differ between whole vectors and the few numbers that do not fill one. A single model uses PyTorch's.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gfgn.ops.dispatch import choose, elementwise
from gfgn.ops.heads import row_sums
from gfgn.ops.registration import empty_like, operator
from gfgn.ops.torch_internals import is_batched


def activate(x: Tensor, name: str) -> Tensor:
    """A function of `ACTIVATIONS` of `[N, D]`. Among replicas, each has the bits that it has alone."""
    return activate_op(x.contiguous(), name) if is_batched(x) else ACTIVATIONS[name](x)


def sum_rows(x: Tensor) -> Tensor:
    """`[1, D]`: the sum of the rows of `[N, D]`. Among replicas, each has the bits that it has alone."""
    return sum_rows_op(x) if is_batched(x) else x.sum(0, keepdim=True)


def expand_rows(row: Tensor, count: int) -> Tensor:
    """`[D]` or `[1, D]` repeated as `count` rows, whose gradient is `sum_rows`: for biases and gates of all nodes."""
    row = row.reshape(1, -1)
    return expand_rows_op(row, count) if is_batched(row) else row


def standardize(x: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """`(x − mean) / √(var + ε)` with mean and variance over the rows of `[N, D]`, and these two, `[1, D]` each.

    Among replicas, each has the bits that it has alone. The variance is divided by `N`.
    """
    return standardize_op(x.contiguous(), eps)


# --- the operators --------------------------------------------------------------------------------


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "elu": functional.elu,
    "softplus": functional.softplus,
}


@operator(empty_like(0), features=1)
def activate_op(x: Tensor, name: str) -> Tensor:
    if x.device.type == "cpu" and choose("cpu", x.dtype, None) == "numba":
        return elementwise("numba").activate(x, name)
    return ACTIVATIONS[name](x)


# The derivatives by the results.
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda y: y,
    "expm1": lambda y: y + 1,
    "sigmoid": lambda y: y * (1 - y),
    "tanh": lambda y: 1 - y * y,
    "elu": lambda y: torch.where(y > 0, 1.0, y + 1),
    "softplus": lambda y: -activate_op(-y, "expm1"),
}


def _save_result(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.name = inputs[1]


@activate_op.gradient(_save_result)
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (y,) = ctx.saved_tensors
    return (grad * SLOPES[ctx.name](y),)


@operator(lambda x: x.new_empty(1, x.size(1)), features=1, view=True)  # of a single row
def sum_rows_op(x: Tensor) -> Tensor:
    return row_sums(x).to(x.dtype).unsqueeze(0)


@operator(lambda row, count: row.new_empty(count, row.size(1)), features=1, view=True)
def expand_rows_op(row: Tensor, count: int) -> Tensor:
    return row.detach().expand(count, -1)


@sum_rows_op.gradient(lambda ctx, inputs, output: setattr(ctx, "count", inputs[0].size(0)))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (expand_rows_op(grad, ctx.count),)


@expand_rows_op.gradient(lambda ctx, inputs, output: None)
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (sum_rows_op(grad.contiguous()),)


@operator(lambda x, eps: (torch.empty_like(x), x.new_empty(1, x.size(1)), x.new_empty(1, x.size(1))), features=1)
def standardize_op(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    count = max(x.size(0), 1)
    mean = row_sums(x).to(x.dtype).div_(count)
    out = x - mean
    var = row_sums(out.square()).to(x.dtype).div_(count)
    return out.mul_((var + eps).rsqrt()), mean.unsqueeze(0), var.unsqueeze(0)


def _save_standardized(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[0], output[2])
    ctx.eps = inputs[1]


@standardize_op.gradient(_save_standardized)
def _(ctx: Any, grad: Tensor, grad_mean: Tensor, grad_var: Tensor) -> tuple[Any, ...]:
    out, var = ctx.saved_tensors
    count = max(out.size(0), 1)
    scale = (var + ctx.eps).rsqrt()
    constant = (grad_mean - sum_rows_op(grad.contiguous()) * scale) / count
    slope = (2 * grad_var / scale - sum_rows_op(grad * out) * scale) / count
    return ((grad * scale).add_(constant).add_(out * slope),)  # no fused product and sum: bits could differ
