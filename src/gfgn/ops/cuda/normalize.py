"""The normalized weights of a graph's edges in both orders on a GPU, in Triton: one kernel per node, one per edge.

Every sum is added in order by one thread: the same bits every time, and as on a CPU.
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
UNROLL = 8


@triton.jit(do_not_specialize=["nodes"])
def _degrees(ptr, weight, degree, inverse, root, nodes, ROWS: tl.constexpr, UNROLL: tl.constexpr):
    """The degrees, `1 / degree` and its root, rounded as PyTorch does; both are 0 where the degree is 0."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    here = row < nodes
    first = tl.load(ptr + row, mask=here, other=0)
    length = tl.load(ptr + row + 1, mask=here, other=0) - first
    if weight is None:
        total = length.to(degree.dtype.element_ty)
    else:
        total = tl.zeros([ROWS], degree.dtype.element_ty)
        for start in range(0, tl.max(length, 0), UNROLL):
            for k in tl.static_range(UNROLL):
                total += tl.load(weight + first + start + k, mask=start + k < length, other=0.0)
    divisor = tl.where(total > 0, total, float("inf"))
    if degree.dtype.element_ty == tl.float32:
        quotient = tl.div_rn(tl.full([ROWS], 1.0, tl.float32), divisor)
        rooted = tl.sqrt_rn(quotient)
    else:
        quotient = 1.0 / divisor
        rooted = tl.sqrt(quotient)
    tl.store(degree + row, total, mask=here)
    tl.store(inverse + row, quotient, mask=here)
    tl.store(root + row, rooted, mask=here)


@triton.jit(do_not_specialize=["count", "nodes", "steps"])
def _normalize(
    ptr, idx, reverse_ptr, reverse_idx, weight, transpose, inverse, root, norm, row_norm, reverse_norm,
    reverse_row_norm, count, nodes, steps, SYMMETRIC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The entries of one of the two orders, by the second index of the grid."""
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = k < count
    if tl.program_id(1) == 0:
        target = count_less(ptr, k + 1, nodes + 1, steps) - 1
        source = tl.load(idx + k, mask=here, other=0).to(tl.int64)
        value = tl.load(root + target, mask=here) * tl.load(root + source, mask=here)
        row_value = tl.load(inverse + target, mask=here)
        if weight is not None:
            factor = tl.load(weight + k, mask=here)
            value *= factor
            row_value *= factor
        tl.store(norm + k, value, mask=here)
        tl.store(row_norm + k, row_value, mask=here)
    else:
        target = tl.load(reverse_idx + k, mask=here, other=0).to(tl.int64)
        row_value = tl.load(inverse + target, mask=here)
        if not SYMMETRIC:
            source = count_less(reverse_ptr, k + 1, nodes + 1, steps) - 1
            value = tl.load(root + target, mask=here) * tl.load(root + source, mask=here)
            if weight is not None:
                factor = tl.load(weight + tl.load(transpose + k, mask=here, other=0), mask=here)
                value *= factor
                row_value *= factor
            tl.store(reverse_norm + k, value, mask=here)
        elif weight is not None:
            row_value *= tl.load(weight + k, mask=here)
        tl.store(reverse_row_norm + k, row_value, mask=here)


def normalize(
    by_target: CSR, by_source: CSR, transpose: Tensor, weight: Tensor | None, dtype: torch.dtype, symmetric: bool
) -> dict[str, Tensor]:
    """`degree`, `norm`, `row_norm`, `reverse_norm` and `reverse_row_norm` of a graph; see `gfgn.Graph`."""
    nodes, count = by_target.ptr.numel() - 1, by_target.idx.numel()

    def empty(size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, device=by_target.ptr.device)

    degree, inverse, root = empty(nodes), empty(nodes), empty(nodes)
    norm, row_norm, reverse_row_norm = empty(count), empty(count), empty(count)
    reverse_norm = norm if symmetric else empty(count)
    if nodes:
        _degrees[(triton.cdiv(nodes, ROWS),)](
            by_target.ptr, weight, degree, inverse, root, nodes, ROWS=ROWS, UNROLL=UNROLL, num_warps=1
        )
    if count:
        _normalize[(triton.cdiv(count, BLOCK), 2)](
            *by_target[:2], *by_source[:2], weight, transpose, inverse, root, norm, row_norm, reverse_norm,
            reverse_row_norm, count, nodes, (nodes + 1).bit_length(), SYMMETRIC=symmetric, BLOCK=BLOCK,
        )  # fmt: skip
    reverse = {"reverse_norm": reverse_norm, "reverse_row_norm": reverse_row_norm}
    return {"degree": degree, "norm": norm, "row_norm": row_norm, **reverse}
