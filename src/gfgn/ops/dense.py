"""Dropout and linear maps for one model or for a batch of replicas.

A single model takes PyTorch's own functions. Under `vmap`, replicas lie side by side in the columns, where dropout is
one pass with a hash, and a linear map one product for all: nothing is moved or expanded in between.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from gfgn.ops import registration
from gfgn.ops.dispatch import choose
from gfgn.ops.random import is_keyed, keep, next_key, rate_dtype
from gfgn.ops.sparse import sparse_linear


def dropout(
    x: Tensor,
    rate: float | Tensor,
    training: bool = True,
    key: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """Sets each value of `x` to 0 with probability `rate` and scales the others up; `x` itself when not training.

    Args:
        x: `[N, D]`, dense.
        rate: At least 0 and below 1; a tensor with one value where replicas differ in it.
        training: Whether anything is dropped.
        key: A 32-bit number in an int64 tensor that decides what is dropped, by a hash of it and of a value's place.
            If `None`, see `gfgn.ops.keyed`; outside of it, PyTorch's generator decides.
        backend: `None` for the automatic choice.
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
        return cast(Tensor, registration.dropout_shared(key.reshape(1), rate.reshape(1), x, backend))
    return cast(Tensor, registration.dropout(x, key.reshape(1), rate.reshape(1), backend))


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dropout: float | Tensor = 0.0,
    training: bool = False,
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
        out = _product(_drop(x, dropout, training), weight)
    return out if bias is None else out + bias


_drop = dropout  # under a name that no argument hides


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if not (is_batched(x) or is_batched(weight)):
        return functional.linear(x, weight)
    if not is_batched(x):  # the same features for all replicas: one product with all their weights
        return cast(Tensor, registration.shared_linear(weight.t(), x, None))
    return cast(Tensor, registration.head_linear(x, weight.t().unsqueeze(0)))


def is_batched(x: Tensor) -> bool:
    """Whether `x` differs between the replicas of a `vmap` that is going on."""
    return torch._C._functorch.is_batchedtensor(x)
