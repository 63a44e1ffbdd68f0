"""CUDA kernels of products with one matrix per head, and of sums over rows, in Triton.

The tiles, and the cuts of a long sum, depend on the sizes of one head and on the number of rows alone. A value is
computed by the same instructions in the same order however many heads or replicas there are; a BLAS library chooses
other algorithms for other numbers of these.
"""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton.language as tl
from torch import Tensor

from gfgn.ops.cuda.gather import aligned
from gfgn.ops.cuda.launch import cdiv, kernel, next_power_of_2
from gfgn.ops.registration import replicas

ROWS, TILE = 512, 32  # rows that one program of `row_sums` adds, and how many of them at a time
PROGRAMS = 256  # about as many as fill a GPU
PRECISE = {"product": "tf32x3", "gradient": "ieee"}
"""How float32 products are computed. Three TF32 products on matrix units are as precise as float32, and fast if the
summed dimension is contiguous in memory; in the gradient, which sums over rows, it is not."""
GRADIENT = {"BLOCK_N": 32, "num_warps": 4, "num_stages": 2}


# Nothing that depends on the number of replicas is compiled in, not even whether it is 1 or a multiple of 16: Triton
# would choose other instructions for it.
@kernel(do_not_specialize=("rows", "heads", "width", "column_blocks"))
def _product(
    x, w, out, rows, heads, width, column_blocks, depth: tl.constexpr, ALIGNED: tl.constexpr, ADD: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """`x_k W_k` for a block of rows and a block of columns of one head.

    Programs that run at the same time share rows: all heads of a row are next to each other in memory.
    """
    width = aligned(width, ALIGNED)
    block = tl.program_id(0) // column_blocks
    head = (block % heads).to(tl.int64)
    row = (block // heads).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = (tl.program_id(0) % column_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    k = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    x_at = x + (row * heads * depth)[:, None] + head * depth
    w_at = w + head * depth * width + column[None, :]
    for start in range(0, depth, BLOCK_D):
        inside = start + k < depth
        left = tl.load(x_at + (start + k)[None, :], mask=(row < rows)[:, None] & inside[None, :], other=0.0)
        at = ((start + k).to(tl.int64) * width)[:, None]
        right = tl.load(w_at + at, mask=inside[:, None] & (column < width)[None, :], other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    at = (row * heads * width)[:, None] + (head * width + column)[None, :]
    mask = (row < rows)[:, None] & (column < width)[None, :]
    if ADD:
        total += tl.load(out + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, total, mask=mask)


@kernel(do_not_specialize=("rows", "heads", "width", "chunk", "depth_blocks", "column_blocks"))
def _weight_gradient(
    x, grad, sums, rows, heads, width, chunk, depth_blocks, column_blocks, depth: tl.constexpr, ALIGNED: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """`x_kᵀ g_k` over a chunk of rows, for a block of columns of `x` and of the gradients of one head."""
    width = aligned(width, ALIGNED)
    program = tl.program_id(0)
    column = (program % column_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    program = program // column_blocks
    k = (program % depth_blocks) * BLOCK_D + tl.arange(0, BLOCK_D)
    program = program // depth_blocks
    head, part = (program % heads).to(tl.int64), (program // heads).to(tl.int64)
    total = tl.zeros([BLOCK_D, BLOCK_E], tl.float32)
    for start in range(0, chunk, BLOCK_N):
        row = part * chunk + start + tl.arange(0, BLOCK_N)
        exists = (start + tl.arange(0, BLOCK_N) < chunk) & (row < rows)
        x_at = (row * heads * depth)[:, None] + (head * depth + k)[None, :]
        left = tl.load(x + x_at, mask=exists[:, None] & (k < depth)[None, :], other=0.0)
        at = (row * heads * width)[:, None] + (head * width + column)[None, :]
        right = tl.load(grad + at, mask=exists[:, None] & (column < width)[None, :], other=0.0)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
    at = ((part * heads + head) * depth + k)[:, None] * width + column[None, :]
    tl.store(sums + at, total, mask=(k < depth)[:, None] & (column < width)[None, :])


@kernel(do_not_specialize=("rows", "columns", "blocks"))
def _row_sums(x, out, rows, columns, blocks, ROWS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Adds `ROWS` rows, `TILE` at a time, and these at the end."""
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    part = (tl.program_id(0) // blocks).to(tl.int64)
    total = tl.zeros([TILE, BLOCK], tl.float32)
    for start in range(0, ROWS, TILE):
        row = part * ROWS + start + tl.arange(0, TILE)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(x + (row * columns)[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + part * columns + column, tl.sum(total, 0), mask=column < columns)


# --- both halves of a gate, `[heads, 2d, d]`, in one launch ---


@kernel(do_not_specialize=("rows", "heads", "column_blocks"))
def _halves(
    x, gate, out0, out1, rows, heads, column_blocks,
    d: tl.constexpr, PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """`x_k U_k` and `x_k V_k` for a block of rows and a block of columns of one head."""
    block = tl.program_id(0) // column_blocks
    head = (block % heads).to(tl.int64)
    row = (block // heads).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = (tl.program_id(0) % column_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    at = (row * heads * d)[:, None] + head * d
    total0 = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    total1 = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    for start in range(0, d, BLOCK_D):
        k = start + tl.arange(0, BLOCK_D)
        left = tl.load(x + at + k[None, :], mask=(row < rows)[:, None] & (k < d)[None, :], other=0.0)
        inside = (k < d)[:, None] & (column < d)[None, :]
        gate_at = head * (2 * d * d) + k[:, None] * d + column[None, :]
        total0 = tl.dot(left, tl.load(gate + gate_at, mask=inside, other=0.0), total0, input_precision=PRECISION)
        other = tl.load(gate + gate_at + d * d, mask=inside, other=0.0)
        total1 = tl.dot(left, other, total1, input_precision=PRECISION)
    mask = (row < rows)[:, None] & (column < d)[None, :]
    tl.store(out0 + at + column[None, :], total0, mask=mask)
    tl.store(out1 + at + column[None, :], total1, mask=mask)


@kernel(do_not_specialize=("rows", "heads", "column_blocks"))
def _halves_backward(
    g0, g1, gate, out, rows, heads, column_blocks,
    d: tl.constexpr, PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Adds `g0_k U_kᵀ + g1_k V_kᵀ` to a block of rows and a block of columns of one head."""
    block = tl.program_id(0) // column_blocks
    head = (block % heads).to(tl.int64)
    row = (block // heads).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    column = (tl.program_id(0) % column_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    at = (row * heads * d)[:, None] + head * d
    mask = (row < rows)[:, None] & (column < d)[None, :]
    total = tl.load(out + at + column[None, :], mask=mask, other=0.0).to(tl.float32)
    for start in range(0, d, BLOCK_D):
        k = start + tl.arange(0, BLOCK_D)
        there = (row < rows)[:, None] & (k < d)[None, :]
        inside = (k < d)[:, None] & (column < d)[None, :]
        gate_at = head * (2 * d * d) + column[None, :] * d + k[:, None]
        left = tl.load(g0 + at + k[None, :], mask=there, other=0.0)
        total = tl.dot(left, tl.load(gate + gate_at, mask=inside, other=0.0), total, input_precision=PRECISION)
        left = tl.load(g1 + at + k[None, :], mask=there, other=0.0)
        other = tl.load(gate + gate_at + d * d, mask=inside, other=0.0)
        total = tl.dot(left, other, total, input_precision=PRECISION)
    tl.store(out + at + column[None, :], total, mask=mask)


@kernel(do_not_specialize=("rows", "heads", "chunk", "depth_blocks", "column_blocks"))
def _halves_gradient(
    x, g0, g1, sums, rows, heads, chunk, depth_blocks, column_blocks,
    d: tl.constexpr, PRECISION: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """`x_kᵀ g0_k` and `x_kᵀ g1_k` over a chunk of rows, for a block of columns of `x` and of the gradients."""
    program = tl.program_id(0)
    column = (program % column_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
    program = program // column_blocks
    k = (program % depth_blocks) * BLOCK_D + tl.arange(0, BLOCK_D)
    program = program // depth_blocks
    head, part = (program % heads).to(tl.int64), (program // heads).to(tl.int64)
    total0 = tl.zeros([BLOCK_D, BLOCK_E], tl.float32)
    total1 = tl.zeros([BLOCK_D, BLOCK_E], tl.float32)
    for start in range(0, chunk, BLOCK_N):
        row = part * chunk + start + tl.arange(0, BLOCK_N)
        exists = (start + tl.arange(0, BLOCK_N) < chunk) & (row < rows)
        at = (row * heads * d)[:, None] + head * d
        left = tl.trans(tl.load(x + at + k[None, :], mask=exists[:, None] & (k < d)[None, :], other=0.0))
        mask = exists[:, None] & (column < d)[None, :]
        right = tl.load(g0 + at + column[None, :], mask=mask, other=0.0)
        total0 = tl.dot(left, right, total0, input_precision=PRECISION)
        right = tl.load(g1 + at + column[None, :], mask=mask, other=0.0)
        total1 = tl.dot(left, right, total1, input_precision=PRECISION)
    at = ((part * heads + head) * 2 * d + k)[:, None] * d + column[None, :]
    mask = (k < d)[:, None] & (column < d)[None, :]
    tl.store(sums + at, total0, mask=mask)
    tl.store(sums + at + d * d, total1, mask=mask)


def _precision(kind: str) -> str:
    return PRECISE[kind] if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _block(size: int, largest: int) -> int:
    """The block for a dimension; matrix units need 16."""
    return max(16, min(largest, next_power_of_2(size)))


def _width(columns: int, heads: int) -> int:
    """The columns of one replica's head; a single head may have those of many replicas, see `shared_matmul`."""
    return columns if heads > 1 else columns // replicas()


def head_matmul(x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None:
    """`x_k W_k` for every head `k`, written or added to `out`, `[N, heads·e]`, which must be contiguous."""
    heads, depth, columns = weight.shape
    if out.numel() == 0 or depth == 0:
        out.mul_(int(add))
        return
    split = x.dtype == torch.bfloat16 and out.dtype == torch.float32  # see `gfgn.ops.bf16_split`
    width = _width(columns, heads)
    block_n, block_d, block_e = (128, 64, 128) if split else (128, _block(depth, 32), _block(width, 64))
    row_blocks, column_blocks = cdiv(x.size(0), block_n), cdiv(columns, block_e)
    _product[(row_blocks * column_blocks * heads,)](
        x.contiguous(), weight.contiguous(), out, x.size(0), heads, columns, column_blocks,
        depth=depth, ALIGNED=width % 16 == 0, ADD=add, PRECISION=_precision("product"),
        BLOCK_N=block_n, BLOCK_D=block_d, BLOCK_E=block_e, num_warps=8 if split else 4,
    )  # fmt: skip


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    depth, columns, rows = x.size(1) // heads, grad.size(1) // heads, x.size(0)
    width = _width(columns, heads)
    if x.numel() == 0 or grad.numel() == 0:
        return x.new_zeros(heads, depth, columns)
    block_d, block_e = _block(depth, 64), _block(width, 64)
    depth_blocks, column_blocks = cdiv(depth, block_d), cdiv(columns, block_e)
    chunks, chunk = _chunks(rows, depth_blocks * cdiv(width, block_e))
    sums = torch.empty(chunks, heads, depth, columns, dtype=torch.float32, device=x.device)
    _weight_gradient[(column_blocks * depth_blocks * heads * chunks,)](
        x.contiguous(), grad.contiguous(), sums, rows, heads, columns, chunk, depth_blocks, column_blocks,
        depth=depth, ALIGNED=width % 16 == 0, PRECISION=_precision("gradient"),
        BLOCK_D=block_d, BLOCK_E=block_e, **GRADIENT,
    )  # fmt: skip
    return row_sums(sums.view(chunks, -1)).view(heads, depth, columns).to(x.dtype)


def _chunks(rows: int, blocks: int) -> tuple[int, int]:
    """Into how many chunks rows are cut so that they fill a GPU with one replica, and the rows of a chunk."""
    chunks = max(1, min(cdiv(rows, 256), PROGRAMS // blocks))
    chunk = cdiv(rows, chunks)
    return cdiv(rows, chunk), chunk


def halves(z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The products of `z` with the two halves of a gate, `[heads, 2d, d]`."""
    heads, _, d = gate.shape
    z = z.contiguous()
    a, b = torch.empty_like(z), torch.empty_like(z)
    if z.numel():
        block = _block(d, 64)
        row_blocks, column_blocks = cdiv(z.size(0), 128), cdiv(d, block)
        _halves[(row_blocks * column_blocks * heads,)](
            z, gate.contiguous(), a, b, z.size(0), heads, column_blocks,
            d=d, PRECISION=_precision("product"), BLOCK_N=128, BLOCK_D=min(32, block), BLOCK_E=block,
            num_warps=8 if block == 64 else 4,
        )  # fmt: skip
    return a, b


def halves_backward(grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `halves`: for `z`, added to `grad` in place, and for the gate."""
    (rows, _), (heads, _, d) = z.shape, gate.shape
    if z.numel() == 0:
        return grad, torch.zeros_like(gate)
    z, grad_a, grad_b, grad = z.contiguous(), grad_a.contiguous(), grad_b.contiguous(), grad.contiguous()
    block = _block(d, 64)
    row_blocks, blocks = cdiv(rows, 64), cdiv(d, block)  # more rows would take too much shared memory
    _halves_backward[(row_blocks * blocks * heads,)](
        grad_a, grad_b, gate.contiguous(), grad, rows, heads, blocks,
        d=d, PRECISION=_precision("product"), BLOCK_N=64, BLOCK_D=min(32, block), BLOCK_E=block, num_warps=4,
    )  # fmt: skip
    chunks, chunk = _chunks(rows, blocks * blocks)
    sums = torch.empty(chunks, *gate.shape, dtype=torch.float32, device=z.device)
    _halves_gradient[(blocks * blocks * heads * chunks,)](
        z, grad_a, grad_b, sums, rows, heads, chunk, blocks, blocks,
        d=d, PRECISION=_precision("gradient"), BLOCK_D=block, BLOCK_E=block, **GRADIENT,
    )  # fmt: skip
    return grad, row_sums(sums.view(chunks, -1)).view(gate.shape).to(gate.dtype)


def row_sums(x: Tensor) -> Tensor:
    """`[C]`: the sum of the rows of `[N, C]` in float32, added in an order that depends on `N` alone."""
    x = x.contiguous()
    rows, columns = x.shape
    if rows == 0 or columns == 0:
        return x.new_zeros(columns, dtype=torch.float32)
    while rows > 1:
        x = partial_sums(x)
        rows = x.size(0)
    return x[0].float()


def partial_sums(x: Tensor) -> Tensor:
    """The sums of every `ROWS` rows of `[N, C]`, in float32."""
    rows, columns = x.shape
    parts, blocks = cdiv(rows, ROWS), cdiv(columns, 32)
    sums = torch.empty(parts, columns, dtype=torch.float32, device=x.device)
    if sums.numel():
        _row_sums[(parts * blocks,)](x, sums, rows, columns, blocks, ROWS=ROWS, TILE=TILE, BLOCK=32, num_warps=4)
    return sums
