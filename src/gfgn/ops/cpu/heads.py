"""Products with one small matrix per head: with about eight columns, too small for a BLAS to be fast.

Columns are processed `LANES` at a time, whichever heads they belong to. Such a block reads the columns of those heads
and no others, so its matrix is narrow, with −0 where the heads differ; the values of a row are multiplied with its
rows one by one, all in registers. A result that is not finite is computed again without what belongs to other heads,
which may be those of another replica: 0 · ∞ is NaN. Sums over rows are computed per task and added in order: the bits
do not depend on threads.
"""

import functools
from collections import namedtuple
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays
from gfgn.ops.cpu.compiler import Emitter, as_pointers, inlined, instruction, integers
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import for_each_task, run_tasks
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import all_within, load, load_masked, read, store, store_masked, zeros

ROWS = 128
"""Rows in one task."""
FINITE = 3e38
"""A result up to this size is finite in every type, and no product with 0 was anything but 0."""


def num_tasks(rows: int) -> int:
    return -(-rows // ROWS)


def to_blocks(weight: Tensor, index: Tensor) -> Tensor:
    """The matrices of blocks from those of the heads; `index` points past the last value where there is a −0, which no
    weight is."""
    return torch.cat([weight.reshape(-1) + 0.0, weight.new_full((1,), -0.0)])[index]


def from_blocks(blocks: Tensor, index: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The reverse of `to_blocks`."""
    values = blocks.new_zeros(shape[0] * shape[1] * shape[2] + 1)
    values[index.view(-1)] = blocks.reshape(-1)
    return values[:-1].view(shape)


class Blocks(NamedTuple):
    """How the columns of heads are cut into blocks of `LANES`."""

    first: Tensor
    """`[blocks]`: the first column that each block reads."""
    span: int
    """The largest number of columns that a block reads."""
    layout: Tensor
    """`[blocks, span, LANES]`: see `to_blocks`."""


@functools.lru_cache(maxsize=256)
def _blocks(heads: int, depth: int, width: int) -> Blocks:
    """The blocks of `[heads, depth, width]` matrices."""
    column = torch.arange(-(-heads * width // LANES) * LANES).view(-1, LANES)
    head = column.clamp(max=heads * width - 1) // width
    first = head[:, 0] * depth
    span = int((head[:, -1] + 1 - head[:, 0]).max()) * depth
    source = first.view(-1, 1, 1) + torch.arange(span).view(1, -1, 1)
    exists = (source // depth == head.unsqueeze(1)) & (column < heads * width).unsqueeze(1)
    index = (head.unsqueeze(1) * depth + source % depth) * width + (column % width).unsqueeze(1)
    return Blocks(first, span, torch.where(exists, index, heads * depth * width))


# `matrix`: `[blocks, span, LANES]`; `depth`, `columns`: the columns of `x` and `out`; `add`: whether to add to `out`.
Product = namedtuple("Product", "x matrix first out rows depth columns span add")


@inlined
def store_block(op: Any, total: Any, row: int, block: int) -> None:
    """Stores or adds a block of a row's results."""
    offset, count = row * op.columns + block * LANES, op.columns - block * LANES
    store_masked(total + load_masked(op.out, offset, count) if op.add else total, op.out, offset, count)


@instruction
def where_own(weights: Any, value: Any) -> Any:
    """`value` in the lanes whose weight is not −0, else 0."""
    bits = weights.scalar.bitwidth

    def emit(llvm: Emitter, row: Any, x: Any) -> Any:
        sign = llvm.numbers(bits, -(2 ** (bits - 1)))
        own = llvm.builder.icmp_signed("!=", llvm.builder.bitcast(row, integers(bits)), sign)
        return llvm.builder.select(own, llvm.widen(x, value, weights), llvm.zeros(weights))

    return weights(weights, value), emit


@inlined
def checked(op: Any, total: Any, row: int, block: int) -> Any:
    """A block of one row as computed if it is finite, else computed from the columns of each lane's own head alone."""
    if all_within(total, FINITE):
        return total
    first = read(op.first, block)
    again = zeros(op.out)
    for k in range(min(op.span, op.depth - first)):
        weights = load(op.matrix, (block * op.span + k) * LANES)
        again = again + weights * where_own(weights, read(op.x, row * op.depth + first + k))
    return again


@inlined
def multiply(op: Any, row: int, block: int) -> None:
    """One block of one row."""
    first = read(op.first, block)
    total = zeros(op.out)
    for k in range(min(op.span, op.depth - first)):
        total = total + load(op.matrix, (block * op.span + k) * LANES) * read(op.x, row * op.depth + first + k)
    store_block(op, checked(op, total, row, block), row, block)


@inlined
def multiply_four(op: Any, row: int, block: int) -> None:
    """One block of four rows, for which a row of the matrix is loaded once."""
    first = read(op.first, block)
    source = row * op.depth + first
    t0 = t1 = t2 = t3 = zeros(op.out)
    for k in range(min(op.span, op.depth - first)):
        weights = load(op.matrix, (block * op.span + k) * LANES)
        t0 = t0 + weights * read(op.x, source + k)
        t1 = t1 + weights * read(op.x, source + op.depth + k)
        t2 = t2 + weights * read(op.x, source + 2 * op.depth + k)
        t3 = t3 + weights * read(op.x, source + 3 * op.depth + k)
    store_block(op, checked(op, t0, row, block), row, block)
    store_block(op, checked(op, t1, row + 1, block), row + 1, block)
    store_block(op, checked(op, t2, row + 2, block), row + 2, block)
    store_block(op, checked(op, t3, row + 3, block), row + 3, block)


@inlined
def product_task(op: Any, task: int) -> None:
    first, last = task * ROWS, min((task + 1) * ROWS, op.rows)
    fours = first + (last - first) // 4 * 4
    for block in range((op.columns + LANES - 1) // LANES):
        for row in range(first, fours, 4):
            multiply_four(op, row, block)
        for row in range(fours, last):
            multiply(op, row, block)


@kernel
def product_kernel(op: Any, work: Any) -> None:
    for_each_task(product_task, as_pointers(op), as_pointers(work))


def head_matmul(x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None:
    """`x_k W_k` for every head `k`, written or added to `out`, `[N, heads·e]`, which must be contiguous."""
    heads, depth, width = weight.shape
    if out.numel() == 0 or depth == 0:
        out.mul_(int(add))
        return
    blocks = _blocks(heads, depth, width)
    tensors = (x, to_blocks(weight, blocks.layout), blocks.first, out)
    sizes = (x.size(0), heads * depth, heads * width, blocks.span)
    op = Product._make((*map(arrays.flat, tensors), *sizes, add))
    run_tasks(product_kernel, x.dtype, op, num_tasks(x.size(0)))


# `sums`: `[tasks, blocks, span, LANES]`; `depth`, `columns`: the columns of `x` and `grad`.
Gradient = namedtuple("Gradient", "x grad first sums rows depth columns span")


@inlined
def gradient_block(op: Any, task: int, block: int, blocks: int) -> None:
    """`Σ x_kᵀ g_k` over a task's rows for one block, four columns of `x` at a time."""
    first, last = task * ROWS, min((task + 1) * ROWS, op.rows)
    target = (task * blocks + block) * op.span * LANES
    source = read(op.first, block)
    for k in range(0, min(op.span, op.depth - source), 4):
        s0 = s1 = s2 = s3 = zeros(op.sums)
        ahead = min(3, op.depth - source - k - 1)  # past the last column, an earlier one is read and not kept
        for row in range(first, last):
            g = load(op.grad, row * op.columns + block * LANES)
            offset = row * op.depth + source + k
            s0 = s0 + g * read(op.x, offset)
            s1 = s1 + g * read(op.x, offset + min(1, ahead))
            s2 = s2 + g * read(op.x, offset + min(2, ahead))
            s3 = s3 + g * read(op.x, offset + ahead)
        store(s0, op.sums, target + k * LANES)
        if k + 1 < op.span:
            store(s1, op.sums, target + (k + 1) * LANES)
        if k + 2 < op.span:
            store(s2, op.sums, target + (k + 2) * LANES)
        if k + 3 < op.span:
            store(s3, op.sums, target + (k + 3) * LANES)


@inlined
def gradient_task(op: Any, task: int) -> None:
    blocks = (op.columns + LANES - 1) // LANES
    for block in range(blocks):
        gradient_block(op, task, block, blocks)


@kernel
def gradient_kernel(op: Any, work: Any) -> None:
    for_each_task(gradient_task, as_pointers(op), as_pointers(work))


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    depth, width, rows = x.size(1) // heads, grad.size(1) // heads, x.size(0)
    if x.numel() == 0 or grad.numel() == 0:
        return x.new_zeros(heads, depth, width)
    blocks = _blocks(heads, depth, width)
    if grad.size(1) % LANES:  # the last block of the last row reads past its end
        grad = torch.cat([grad.reshape(-1), grad.new_zeros(LANES)])
    sums = x.new_zeros(num_tasks(rows), *blocks.layout.shape)
    tensors = (x, grad, blocks.first, sums)
    op = Gradient._make((*map(arrays.flat, tensors), rows, heads * depth, heads * width, blocks.span))
    run_tasks(gradient_kernel, x.dtype, op, num_tasks(rows))
    return from_blocks(sums.sum(0), blocks.layout, (heads, depth, width))
