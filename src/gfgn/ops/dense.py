"""Dropout and linear maps for one model or for a batch of replicas.

A single model uses PyTorch's own functions. Under `vmap`, replicas are concatenated by columns: dropout is one pass
with a hash and a linear map one product for all replicas, without moving or expanding anything in between.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gfgn.ops import reference
from gfgn.ops.dispatch import choose, elementwise
from gfgn.ops.heads import by_head, head_matmul, head_weight_gradient
from gfgn.ops.invariant import expand_rows
from gfgn.ops.keys import is_keyed, keep, next_key, rate_dtype
from gfgn.ops.registration import empty_like, operator, save
from gfgn.ops.sparse import shared_linear_op, sparse_linear
from gfgn.ops.torch_internals import is_batched


def dropout(
    x: Tensor, rate: float | Tensor, training: bool = True, key: Tensor | None = None, backend: str | None = None
) -> Tensor:
    """Sets each value of `x` to 0 with probability `rate` and scales up the others; returns `x` when not training.

    Args:
        x: `[N, D]`, dense.
        rate: At least 0 and below 1; a tensor with one value where replicas differ in it.
        training: Whether anything is dropped.
        key: A 32-bit number in an int64 tensor; a hash of it and of a value's index decides what is dropped. If
            `None`, see `gfgn.ops.keyed`; outside of it, PyTorch's generator decides.
    """
    if not isinstance(rate, Tensor):
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, got {rate!r}")
        if not training or rate == 0:
            return x
        if key is None and not is_keyed():
            return functional.dropout(x, rate)
        rate = torch.full((), rate, device=x.device, dtype=rate_dtype(x.device))
    if not training:
        return x
    if x.dim() != 2:
        return dropout(x.reshape(x.size(0), -1), rate, training, key, backend).reshape(x.shape)
    if key is None:
        key = next_key(x.device)
    rate = rate.to(x.device, rate_dtype(x.device))
    backend = choose(x.device.type, x.dtype, backend)
    if backend == "reference":
        entry = torch.arange(x.numel(), device=x.device).view(x.shape)
        return x * (keep(entry, key, rate) / (1 - rate)).to(x.dtype)
    if not is_batched(x) and not x.requires_grad and (is_batched(key) or is_batched(rate)):
        return dropout_shared_op(key.reshape(1), rate.reshape(1), x, backend)
    return dropout_op(x, key.reshape(1), rate.reshape(1), backend)


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, dropout: float | Tensor = 0.0, training: bool = False
) -> Tensor:
    """`x Wᵀ + b`, with dropout of `x` before it when training.

    Args:
        x: `[N, F]`, dense or sparse CSR; of a sparse one, only stored values are dropped.
        weight: `[D, F]`.
        bias: `[D]` or `None`.
        dropout: Rate, see `gfgn.ops.dropout`.
        training: Whether anything is dropped.
    """
    if x.layout == torch.sparse_csr:
        out = sparse_linear(x, weight.t(), dropout if training else 0.0)
    else:
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(
                f"x must have the dtype of the weights, {weight.dtype}, got {x.dtype}; convert x or the layer by .to()"
            )
        out = _product(_dropout_of_input(x, dropout, training), weight)
    return out if bias is None else out + expand_rows(bias, out.size(0))


_dropout_of_input = dropout  # a name that the argument of `linear` does not hide


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if not (is_batched(x) or is_batched(weight)):
        return functional.linear(x, weight)
    if not is_batched(x):  # all replicas have the same features: one product with all their weights
        return shared_linear_op(weight.t(), x, None)
    return head_linear_op(x, weight.t().unsqueeze(0))


def head_linear(x: Tensor, weight: Tensor, backend: str | None = None) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`."""
    if weight.dim() != 3 or x.dim() != 2 or x.size(1) != weight.size(0) * weight.size(1):
        raise ValueError(f"head_linear: x {list(x.shape)} must have heads·d columns for weight {list(weight.shape)}")
    if choose(x.device.type, x.dtype, backend) == "reference":
        return reference.head_linear(x, weight.to(x.dtype))
    return head_linear_op(x, weight.to(x.dtype))


# --- the operators --------------------------------------------------------------------------------


@operator(empty_like(0), features=1, columns=(1, 2))
def dropout_op(x: Tensor, keys: Tensor, rate: Tensor, backend: str) -> Tensor:
    """Dropout by hash: `x` is `[N, R·D]`, one block of columns for each of the `R` keys; whether value `n D + d` of
    block `r` is kept depends on a hash of that number and `keys[r]`."""
    return elementwise(backend).dropout(x, keys, rate, shared=False)


@dropout_op.gradient(save(1, 2, rest=3))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (dropout_op(grad.contiguous(), *ctx.saved_tensors, *ctx.rest),)


@operator(lambda keys, rate, x, _: x.new_empty(x.size(0), x.size(1) * keys.numel()), features=0, columns=(0, 1))
def dropout_shared_op(keys: Tensor, rate: Tensor, x: Tensor, backend: str) -> Tensor:
    """`dropout` where all replicas have the same `x`, `[N, D]`, which is data: `[N, R·D]`."""
    return elementwise(backend).dropout(x, keys, rate, shared=True)


@operator(lambda x, weight: x.new_empty(x.size(0), weight.size(0) * weight.size(2)), features=1, heads=(1,))
def head_linear_op(x: Tensor, weight: Tensor) -> Tensor:
    return head_matmul(x, weight)


@operator(empty_like(1, 2), features=2, heads=(2,))
def head_linear_gradient_op(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    # Contiguous, as the fake says: the gradient may be a part of a larger, padded tensor.
    return head_matmul(grad, weight.transpose(1, 2)), head_weight_gradient(x, grad, weight.size(0)).contiguous()


@head_linear_op.gradient(save(0, 1, rest=2))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    grad, heads = grad.contiguous(), weight.size(0)
    if torch.is_grad_enabled():  # to be differentiated again
        grad_weight = torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad, heads))
        return head_linear_op(grad, weight.transpose(1, 2)), grad_weight
    if not ctx.needs_input_grad[0]:  # features that are data
        return None, head_weight_gradient(x, grad, heads)
    return head_linear_gradient_op(grad, x, weight)
