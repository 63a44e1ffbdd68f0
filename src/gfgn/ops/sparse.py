"""The sparse first layer: `X W` with `X` in sparse CSR and dropout on its stored values.

Bags of words are 99% zeros; keeping them sparse makes the first layer cheap, and dropping stored values by a hash of
their place needs no mask. The hash also makes dropout a function of a key and nothing else: the same key drops the same
values, alone or among a thousand replicas, on any device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gfgn.ops import bf16_split, reference, registration
from gfgn.ops.csr import CSR, compress
from gfgn.ops.dispatch import choose
from gfgn.ops.random import keep, next_key, rate_dtype


@dataclass(frozen=True)
class _Sides:
    """A sparse matrix by rows and by columns."""

    rows: CSR
    values: Tensor
    reverse_rows: CSR
    reverse_values: Tensor
    reverse_entry: Tensor
    """For every entry by columns its place by rows."""
    version: int
    _dense: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)

    def dense(self, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """The matrix with its zeros and, where that helps, in parts, if on a GPU a product with it is the faster one;
        kept once made."""
        if self.values.numel() < DENSE * x.numel() or x.numel() > LARGEST_DENSE:
            return None
        if not self._dense:
            dense = x.to_dense()
            self._dense.append((dense, bf16_split.left_parts(dense) if bf16_split.is_faster(dense) else None))
        return self._dense[0]


DENSE = 0.05
"""Share of stored values from which on a GPU multiplies zeros sooner than it gathers rows."""
LARGEST_DENSE = 2**26

_sides: WeakIdKeyDictionary = WeakIdKeyDictionary()


def sparse_linear(
    x: Tensor,
    weight: Tensor,
    dropout: float | Tensor = 0.0,
    key: Tensor | None = None,
    backend: str | None = None,
) -> Tensor:
    """`X W` with each stored value of `X` dropped with probability `dropout`, and the rest scaled up.

    Args:
        x: `[N, F]`, sparse CSR; data, not differentiated. What the operator works out about it is kept with the tensor.
        weight: `[F, D]`.
        dropout: Rate, at least 0 and below 1.
        key: A 32-bit number in an int64 tensor that decides which values are dropped; if `None`, see `gfgn.ops.keyed`.
        backend: `None` for the automatic choice.
    """
    if x.layout != torch.sparse_csr or x.dim() != 2:
        raise ValueError(f"x must be a sparse CSR matrix, got layout {x.layout} and shape {list(x.shape)}")
    if weight.dim() != 2 or weight.size(0) != x.size(1):
        raise ValueError(f"weight must have shape [{x.size(1)}, D], got {list(weight.shape)}")
    if x.requires_grad:
        raise ValueError("x must not require a gradient: sparse features are data")
    if not isinstance(dropout, Tensor) and not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
    sides = _both_sides(x)
    dropped = isinstance(dropout, Tensor) or dropout > 0
    if key is None and dropped:
        key = next_key(weight.device)
    backend = choose(weight.device.type, weight.dtype, backend)
    if not dropped:
        if backend == "reference":
            return reference.spmm(weight, sides.rows, sides.values)
        dense = sides.dense(x) if weight.is_cuda else None
        if dense is not None:
            return cast(Tensor, registration.shared_linear(weight, dense[0].to(weight.dtype), dense[1]))
        reverse = (list(sides.reverse_rows), sides.reverse_values)
        return cast(Tensor, registration.spmm(weight, list(sides.rows), sides.values, *reverse, backend))
    assert key is not None
    if not isinstance(dropout, Tensor):
        dropout = torch.full(
            (), dropout, device=weight.device, dtype=rate_dtype(weight.device)
        )  # no copy from the host to wait for
    rate = dropout.to(weight.device, rate_dtype(weight.device))
    if backend == "reference":
        entry = torch.arange(sides.values.numel(), device=weight.device)
        kept = keep(entry, key, rate).to(weight.dtype) / (1 - rate).to(weight.dtype)
        return reference.spmm(weight, sides.rows, sides.values.to(weight.dtype) * kept)
    out: Tensor = registration.sparse_linear(
        weight,
        list(sides.rows),
        sides.values,
        None,
        list(sides.reverse_rows),
        sides.reverse_values,
        sides.reverse_entry,
        key.reshape(1),
        rate.reshape(1),
        backend,
    )
    return out


def _both_sides(x: Tensor) -> _Sides:
    """The matrix by rows and by columns, worked out once for each tensor."""
    values = x.values()
    known: _Sides | None = _sides.get(x)
    if known is not None and known.version == values._version:
        return known
    ptr, idx = x.crow_indices().long(), x.col_indices().long()
    row = torch.repeat_interleave(torch.arange(x.size(0), device=x.device), ptr.diff())
    column, entry = torch.sort(idx, stable=True)
    sides = _Sides(
        rows=compress(row, idx, x.size(0)),
        values=values.clone(),  # a view would keep the tensor alive
        reverse_rows=compress(column, row[entry], x.size(1)),
        reverse_values=values[entry],
        reverse_entry=entry,
        version=values._version,
    )
    _sides[x] = sides
    return sides
