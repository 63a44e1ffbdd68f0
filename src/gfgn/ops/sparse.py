"""Products with input features: `X W` with `X` in sparse CSR and dropout on its stored values.

A bag of words is 99% zeros: a sparse first layer is cheap, and dropping stored values by a hash of their index needs
no mask. Dropout is a function of the key alone: the same key drops the same values in one replica or among a thousand,
on any device.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gfgn.ops import bf16_split, reference
from gfgn.ops.csr import CSR, compress, unpack
from gfgn.ops.dispatch import choose, kernels
from gfgn.ops.heads import shared_matmul, shared_weight_gradient
from gfgn.ops.keys import keep, next_key, rate_dtype
from gfgn.ops.registration import Tensors, empty_rows, operator, save
from gfgn.ops.sums import spmm_op
from gfgn.ops.torch_internals import WeakIdKeyDictionary, in_place_version, is_batched

DENSE_FROM = 0.05  # fraction of stored values from which a GPU is faster with a dense product
LARGEST_DENSE = 2**26  # values that a dense copy may have


@dataclass(frozen=True)
class _BothOrders:
    """A sparse matrix by rows and by columns."""

    rows: CSR
    values: Tensor
    reverse_rows: CSR
    reverse_values: Tensor
    reverse_entry: Tensor  # for every entry by columns its index by rows
    version: int
    _dense: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)

    def orders(self) -> tuple[list[Tensor], list[Tensor]]:
        """Both orders as operators take them."""
        return [*self.rows, self.values], [*self.reverse_rows, self.reverse_values, self.reverse_entry]

    def dense(self, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """If a GPU is faster with a dense product: the dense matrix and, where faster, its bfloat16 split."""
        if self.values.numel() < DENSE_FROM * x.numel() or x.numel() > LARGEST_DENSE:
            return None
        if not self._dense:
            dense = x.to_dense()
            self._dense.append((dense, bf16_split.left_parts(dense) if bf16_split.is_faster(dense) else None))
        return self._dense[0]


_both_orders_of: WeakIdKeyDictionary = WeakIdKeyDictionary()


def sparse_linear(
    x: Tensor, weight: Tensor, dropout: float | Tensor = 0.0, key: Tensor | None = None, backend: str | None = None
) -> Tensor:
    """`X W` with each stored value of `X` dropped with probability `dropout`, and the rest scaled up.

    Args:
        x: `[N, F]`, sparse CSR; data, not differentiated. Its transpose is computed once and kept with the tensor.
        weight: `[F, D]`.
        dropout: Rate, at least 0 and below 1.
        key: A 32-bit number in an int64 tensor that decides which values are dropped; if `None`, see `gfgn.ops.keyed`.
    """
    _check(x, weight, dropout)
    matrix = _both_orders(x)
    dropped = isinstance(dropout, Tensor) or dropout > 0
    if key is None and dropped:
        key = next_key(weight.device)
    backend = choose(weight.device.type, weight.dtype, backend)
    by_replica = backend == "numba" and is_batched(weight)
    if key is None or not dropped:
        if not by_replica:
            return _without_dropout(x, matrix, weight, backend)
        key, dropout = torch.zeros(1, dtype=torch.int64), 0.0
    dtype = rate_dtype(weight.device)
    if not isinstance(dropout, Tensor):
        dropout = torch.full((), dropout, device=weight.device, dtype=dtype)  # no copy from the host to wait for
    rate = dropout.to(weight.device, dtype)
    if backend == "reference":
        entry = torch.arange(matrix.values.numel(), device=weight.device)
        kept = keep(entry, key, rate).to(weight.dtype) / (1 - rate).to(weight.dtype)
        return reference.spmm(weight, matrix.rows, matrix.values.to(weight.dtype) * kept)
    options = (*matrix.orders(), key.reshape(1), rate.reshape(1))
    return (
        replica_linear_op(weight.unsqueeze(0), *options) if by_replica else sparse_linear_op(weight, *options, backend)
    )


def _without_dropout(x: Tensor, matrix: _BothOrders, weight: Tensor, backend: str) -> Tensor:
    if backend == "reference":
        return reference.spmm(weight, matrix.rows, matrix.values)
    dense = matrix.dense(x) if weight.is_cuda else None
    if dense is not None:
        return shared_linear_op(weight, dense[0].to(weight.dtype), dense[1])
    return spmm_op(weight, *matrix.orders(), backend)


def _check(x: Tensor, weight: Tensor, dropout: float | Tensor) -> None:
    if x.layout != torch.sparse_csr or x.dim() != 2:
        raise ValueError(f"x must be a sparse CSR matrix, got layout {x.layout} and shape {list(x.shape)}")
    if weight.dim() != 2 or weight.size(0) != x.size(1):
        raise ValueError(f"weight must have shape [{x.size(1)}, D], got {list(weight.shape)}")
    if x.requires_grad:
        raise ValueError("x must not require a gradient: sparse features are data")
    if not isinstance(dropout, Tensor) and not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")


def _both_orders(x: Tensor) -> _BothOrders:
    """The matrix by rows and by columns, computed once per tensor."""
    values = x.values()
    version = in_place_version(values)
    known: _BothOrders | None = _both_orders_of.get(x)
    if known is not None and known.version == version:
        return known
    ptr, idx = x.crow_indices().long(), x.col_indices().long()
    rows = CSR.from_pointers(ptr, idx)
    column, entry = torch.sort(idx, stable=True)
    reverse_rows = compress(column, rows.row_of_each_entry()[entry], x.size(1))
    # A view of the values would keep the tensor alive.
    matrix = _BothOrders(rows, values.clone(), reverse_rows, values[entry], entry, version)
    _both_orders_of[x] = matrix
    return matrix


# --- the operators --------------------------------------------------------------------------------


@operator(empty_rows(1), features=1, columns=(3, 4))
def sparse_linear_op(
    weight: Tensor, matrix: Tensors, reverse: Tensors, keys: Tensor, rate: Tensor, backend: str
) -> Tensor:
    """`X W` with dropout on the stored values of `X`: `weight` is `[F, R·C]`, one block of columns for each of the `R`
    keys, and a hash of `(e, keys[r])` decides whether block `r` keeps entry `e`. `matrix` holds the values of the
    entries and, if they are not `0, 1, …`, their numbers."""
    rows, (values, *entry) = unpack(matrix)
    columns = weight.size(1) // max(keys.numel(), 1)
    return kernels(backend).sparse_linear(weight, rows, values, keys, rate, entry[0] if entry else None, columns)


@sparse_linear_op.gradient(save(3, 4, rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    matrix, reverse, _, _, backend = ctx.rest
    return (sparse_linear_op(grad, reverse, matrix, *ctx.saved_tensors, backend),)


# On a CPU, the weights of a replica are adjacent: `[R, F, D]`. A replica at a time then passes through the cache, which
# columns of `[F, R·D]`, thousands of bytes apart, would do more slowly.


@operator(
    lambda weight, matrix, *_: weight.new_empty(matrix[0].size(0) - 1, weight.size(0) * weight.size(2)),
    features=0,
    columns=(3, 4),
    heads=(0,),
)
def replica_linear_op(weight: Tensor, matrix: Tensors, reverse: Tensors, keys: Tensor, rate: Tensor) -> Tensor:
    """`sparse_linear_op` for weights `[R, F, D]`."""
    rows, (values, *_) = unpack(matrix)
    return kernels("numba").sparse_linear(weight, rows, values, keys, rate, None, weight.size(2))


@operator(
    lambda grad, matrix, reverse, keys, rate: grad.new_empty(
        keys.numel(), reverse[0].size(0) - 1, grad.size(1) // keys.numel()
    ),
    features=1,
    columns=(3, 4),
)
def replica_gradient_op(grad: Tensor, matrix: Tensors, reverse: Tensors, keys: Tensor, rate: Tensor) -> Tensor:
    """The gradient of `replica_linear_op` for the weights, `[R, F, D]`."""
    rows, (values, entry) = unpack(reverse)
    return kernels("numba").sparse_linear(
        grad, rows, values, keys, rate, entry, grad.size(1) // keys.numel(), out_stacked=True
    )


@replica_linear_op.gradient(save(3, 4, rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    matrix, reverse, *_ = ctx.rest
    return (replica_gradient_op(grad, matrix, reverse, *ctx.saved_tensors),)


@replica_gradient_op.gradient(save(3, 4, rest=1))
def _(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    matrix, reverse, *_ = ctx.rest
    return (replica_linear_op(upstream, matrix, reverse, *ctx.saved_tensors),)


@operator(lambda weight, x, left: weight.new_empty(x.size(0), weight.size(1)), features=1)
def shared_linear_op(weight: Tensor, x: Tensor, left: Tensor | None) -> Tensor:
    """`x W`, where every replica has its own `W`, `[F, D]`, and all have the same `x`; `left`: `x` split into parts."""
    if left is not None and weight.dtype == torch.float32:
        return bf16_split.product(left, weight)
    return shared_matmul(x, weight)


@operator(lambda grad, x: grad.new_empty(x.size(1), grad.size(1)), features=1)
def shared_linear_gradient_op(grad: Tensor, x: Tensor) -> Tensor:
    """`xᵀ g`, the gradient of `shared_linear_op` for `W`."""
    return shared_weight_gradient(x, grad)


@shared_linear_op.gradient(save(rest=1))
def _(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (shared_linear_gradient_op(grad, ctx.rest[0]),)


@shared_linear_gradient_op.gradient(save(rest=1))
def _(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    return (shared_linear_op(upstream, ctx.rest[0], None),)
