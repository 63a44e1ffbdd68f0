"""The normalized weights of a graph's edges in both orders on a GPU, in Triton.

The weights of a row are added in order by one thread: the same bits every time, and as on a CPU.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton
import triton.language as tl
from torch import Tensor

from gfgn.ops.csr import CSR
from gfgn.ops.cuda.index import count_less

BLOCK = 512
ROWS = 32
UNROLL = 32  # loads of one thread that are under way at once: they take most of the time of a row
LONG = 512
"""Entries of a row after which it is a long one, with more loads at once: as many bytes."""


@triton.jit
def _inverse(degree):
    """`1 / degree`, rounded as by PyTorch, or 0 where the degree is 0."""
    divisor = tl.where(degree > 0, degree, float("inf"))
    return tl.div_rn(tl.zeros_like(degree) + 1.0, divisor) if degree.dtype == tl.float32 else 1.0 / divisor


@triton.jit(do_not_specialize=["nodes"])
def _add_weights(
    ptr, weight, degree, bad, nodes,
    ROWS: tl.constexpr, UNROLL: tl.constexpr, LONG: tl.constexpr, UNROLL_LONG: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < nodes
    first = tl.load(ptr + row, mask=here, other=0)
    length = tl.load(ptr + row + 1, mask=here, other=0) - first
    total = tl.zeros([ROWS], degree.dtype.element_ty)
    longest = tl.max(length, 0)
    for start in range(0, tl.minimum(longest, LONG), UNROLL):
        for k in tl.static_range(UNROLL):
            total += tl.load(weight + first + start + k, mask=start + k < length, other=0.0)
    for start in range(LONG, longest, UNROLL_LONG):
        for k in tl.static_range(UNROLL_LONG):
            total += tl.load(weight + first + start + k, mask=start + k < length, other=0.0)
    tl.store(degree + row, total, mask=here)
    infinite = (total == float("inf")) | ((total > 0) & (_inverse(total) == float("inf")))
    tl.store(bad, 1, mask=tl.max(infinite.to(tl.int32), 0) > 0)


@triton.jit
def _degree(ptr, degree, node, here, WEIGHTED: tl.constexpr):
    """The degrees of these nodes; without weights they are not read, as other programs are writing them."""
    if WEIGHTED:
        value = tl.load(degree + node, mask=here, other=0.0)
    else:
        length = tl.load(ptr + node + 1, mask=here, other=0) - tl.load(ptr + node, mask=here, other=0)
        value = length.to(degree.dtype.element_ty)
    return value


@triton.jit
def _root(x):
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@triton.jit
def _row_of(ptr, k, nodes, BLOCK: tl.constexpr):
    """The row of each of consecutive entries: between the rows of the first and of the last one."""
    ends = tl.min(k, 0) + tl.arange(0, 2) * (BLOCK - 1)
    ends = count_less(ptr, ends + 1, nodes + 1) - 1
    low = tl.min(ends, 0)
    return low + count_less(ptr + low, k + 1, tl.zeros_like(k) + (tl.max(ends, 0) - low + 1)) - 1


@triton.jit(do_not_specialize=["count", "nodes"])
def _normalize(
    ptr, idx, reverse_ptr, reverse_idx, weight, transpose, degree, norm, row_norm, reverse_norm, reverse_row_norm,
    count, nodes, SYMMETRIC: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The entries of one of the two orders, by the second index of the grid; if symmetric, of both in one."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < count
    if tl.program_id(1) == 0:
        target = _row_of(ptr, k, nodes, BLOCK)
        source = tl.load(idx + k, mask=here, other=0).to(tl.int64)
        row_value = _inverse(_degree(ptr, degree, target, here, WEIGHTED))
        other = _inverse(_degree(ptr, degree, source, here, WEIGHTED))
        value = _root(row_value) * _root(other)
        if WEIGHTED:
            factor = tl.load(weight + k, mask=here, other=0.0)
            value *= factor
            row_value *= factor
            other *= factor
        tl.store(norm + k, value, mask=here)
        tl.store(row_norm + k, row_value, mask=here)
        if SYMMETRIC:
            tl.store(reverse_row_norm + k, other, mask=here)
        if not WEIGHTED:
            tl.store(degree + k, _degree(ptr, degree, k, k < nodes, WEIGHTED), mask=k < nodes)
    else:
        source = _row_of(reverse_ptr, k, nodes, BLOCK)
        target = tl.load(reverse_idx + k, mask=here, other=0).to(tl.int64)
        row_value = _inverse(_degree(ptr, degree, target, here, WEIGHTED))
        other = _inverse(_degree(ptr, degree, source, here, WEIGHTED))
        value = _root(row_value) * _root(other)
        if WEIGHTED:
            entry = tl.load(transpose + k, mask=here, other=0)
            factor = tl.load(weight + entry, mask=here, other=0.0)
            value *= factor
            row_value *= factor
        tl.store(reverse_norm + k, value, mask=here)
        tl.store(reverse_row_norm + k, row_value, mask=here)


def normalize(
    by_target: CSR, by_source: CSR, transpose: Tensor, weight: Tensor | None, dtype: torch.dtype, symmetric: bool
) -> tuple[dict[str, Tensor], bool]:
    """`degree`, `norm`, `row_norm`, `reverse_norm` and `reverse_row_norm` of a graph, see `gfgn.Graph`; and whether a
    degree or its inverse is too large for the dtype."""
    nodes, count = by_target.ptr.numel() - 1, by_target.idx.numel()

    def empty(size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, device=by_target.ptr.device)

    degree, norm, row_norm, reverse_row_norm = empty(nodes), empty(count), empty(count), empty(count)
    reverse_norm = norm if symmetric else empty(count)
    bad = None if weight is None else torch.zeros(1, dtype=torch.int32, device=degree.device)
    if weight is not None and nodes:
        _add_weights[(triton.cdiv(nodes, ROWS),)](
            by_target.ptr, weight, degree, bad, nodes,
            ROWS=ROWS, UNROLL=UNROLL, LONG=LONG, UNROLL_LONG=512 // weight.element_size(), num_warps=1,
        )  # fmt: skip
    if nodes:
        _normalize[(triton.cdiv(max(count, nodes), BLOCK), 1 if symmetric else 2)](
            *by_target[:2], *by_source[:2], weight, transpose, degree, norm, row_norm, reverse_norm, reverse_row_norm,
            count, nodes, SYMMETRIC=symmetric, WEIGHTED=weight is not None, BLOCK=BLOCK,
        )  # fmt: skip
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}, bad is not None and bool(bad)
