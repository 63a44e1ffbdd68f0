"""Products with one matrix per head, and sums over rows: the same bits for a column whatever stands beside it.

A product is computed in tiles: a few rows times one or two vectors of columns, all in registers. A value is one chain
of fused multiplications and additions in a fixed order, and sums over many rows are cut by the number of rows alone.
So the bits of a head do not depend on the number of heads, of replicas or of threads, as those of a BLAS library do.
"""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, types
from gfgn.ops.cpu.compiler import Emitter, as_pointers, inlined, instruction
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import finish_task, for_each_task, next_task, run_tasks, wait_for_tasks
from gfgn.ops.cpu.types import LANES, Vector
from gfgn.ops.cpu.vectors import atomic_add, load, load_masked, store, store_masked, zeros

ROWS = 128
"""Rows in one task."""
DEPTH = 128
"""Columns of `x` whose part of a matrix is multiplied at a time: with it, a panel fits into the first-level cache."""
CHUNKS = 8
"""Parts at most into which a sum over rows is cut; each has a sum of its own."""
STRIP = 64
"""Rows that are added up before they are added to the sum of their chunk."""

# Tiles: rows of `x` (or columns, for a gradient) by vectors. Enough independent sums to keep the processor busy.
WIDE, WIDE_REST = ((0,) * 4, (0,) * 2), ((0,), (0,) * 2)
NARROW, NARROW_REST = ((0,) * 8, (0,)), ((0,), (0,))


def num_tasks(rows: int) -> int:
    return -(-rows // ROWS)


def to_blocks(weight: Tensor, index: Tensor) -> Tensor:
    """Matrices of blocks from those of heads; `index` points past the last value where there is 0."""
    return torch.cat([weight.reshape(-1), weight.new_zeros(1)])[index]


def from_blocks(blocks: Tensor, index: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The reverse of `to_blocks`."""
    values = blocks.new_zeros(shape[0] * shape[1] * shape[2] + 1)
    values[index.view(-1)] = blocks.reshape(-1)
    return values[:-1].view(shape)


# --- tiles ----------------------------------------------------------------------------------------


def _tile(pointer: Any, shape: Any) -> Any:
    return types.UniTuple(Vector(pointer.dtype), len(shape[0]) * len(shape[1]))


@instruction
def zero_tile(pointer: Any, shape: Any) -> Any:
    """A tile of zeros."""
    tile = _tile(pointer, shape)

    def emit(llvm: Emitter, *_: Any) -> Any:
        return (llvm.zeros(tile.dtype),) * len(tile)

    return tile(pointer, shape), emit


@instruction
def multiply_tile(tile: Any, x: Any, first: Any, step: Any, y: Any, at: Any, shape: Any) -> Any:
    """The tile plus the product of the numbers at `first`, `first + step`, … with the vectors from `at` on."""
    rows, vectors, vector = len(shape[0]), len(shape[1]), tile.dtype
    intrinsic = f"llvm.fmuladd.v{LANES}f{vector.scalar.bitwidth}"

    def emit(llvm: Emitter, before: Any, x: Any, first: Any, step: Any, y: Any, at: Any, _: Any) -> Any:
        right = [llvm.load(vector, llvm.element(y, at, v * LANES)) for v in range(vectors)]
        items = []
        for row in range(rows):
            left = llvm.splat(llvm.builder.load(llvm.element(x, first)))
            first = llvm.builder.add(first, step)
            for v in range(vectors):
                total = before[row * vectors + v]
                items.append(llvm.call(intrinsic, total.type, left, right[v], total))
        return tuple(items)

    signature = tile(tile, x, types.int64, types.int64, y, types.int64, shape)
    return signature, emit


@instruction
def change_tile(tile: Any, pointer: Any, first: Any, step: Any, count: Any, add: Any, shape: Any) -> Any:
    """Stores the tile, or adds it, at `first`, `first + step`, …; of each row the first `count` columns."""
    rows, vectors, vector = len(shape[0]), len(shape[1]), tile.dtype

    def emit(llvm: Emitter, items: Any, base: Any, first: Any, step: Any, count: Any, add: Any, _: Any) -> None:
        build = llvm.builder
        for v in range(vectors):
            inside = llvm.first_lanes(build.sub(count, llvm.number(64, v * LANES)))
            read, at = build.and_(inside, llvm.splat(add)), build.add(first, llvm.number(64, v * LANES))
            for row in range(rows):
                address = llvm.element(base, at)
                total = build.fadd(llvm.load_where(vector, address, read), items[row * vectors + v])
                llvm.store_where(vector, total, address, inside)
                at = build.add(at, step)

    return types.void(tile, pointer, types.int64, types.int64, types.int64, types.boolean, shape), emit


# --- products -------------------------------------------------------------------------------------

# `panels`: `[heads, panels, depth, LANES or 2 LANES]`, the matrices with zeros to the right; `depth`, `width`: of one
# head's matrix; `add`: whether to add to `out`; `wide`: whether a panel has two vectors.
Product = namedtuple("Product", "x panels out rows heads depth width add wide")


def _panels(weight: Tensor) -> Tensor:
    """`[heads, d, e]` cut into panels of columns: `[heads, panels, d, columns of a panel]`."""
    width = LANES if weight.size(2) <= LANES else 2 * LANES
    count = -(-weight.size(2) // width)
    padded = torch.nn.functional.pad(weight, (0, count * width - weight.size(2)))
    panels: Tensor = padded.unflatten(2, (count, width))
    return panels.transpose(1, 2).contiguous()


@inlined
def multiply_rows(op: Any, row: int, head: int, panel: int, low: int, high: int, shape: Any) -> None:
    """The product of a few rows with the rows `low` to `high` of a panel."""
    lanes = len(shape[1]) * LANES
    panels = (op.width + lanes - 1) // lanes
    step, first = op.heads * op.depth, row * op.heads * op.depth + head * op.depth
    at = (head * panels + panel) * op.depth * lanes
    tile = zero_tile(op.out, shape)
    for k in range(low, high):
        tile = multiply_tile(tile, op.x, first + k, step, op.panels, at + k * lanes, shape)
    offset = (row * op.heads + head) * op.width + panel * lanes
    change_tile(tile, op.out, offset, op.heads * op.width, op.width - panel * lanes, op.add or low > 0, shape)


@inlined
def multiply_head(op: Any, task: int, head: int, shape: Any, rest: Any) -> None:
    """The product of a task's rows with the matrix of a head."""
    first, last, lanes, together = task * ROWS, min((task + 1) * ROWS, op.rows), len(shape[1]) * LANES, len(shape[0])
    tiled = first + (last - first) // together * together
    for panel in range((op.width + lanes - 1) // lanes):
        for low in range(0, op.depth, DEPTH):
            high = min(low + DEPTH, op.depth)
            for row in range(first, tiled, together):
                multiply_rows(op, row, head, panel, low, high, shape)
            for row in range(tiled, last):
                multiply_rows(op, row, head, panel, low, high, rest)


@inlined
def product_task(op: Any, task: int) -> None:
    for head in range(op.heads):
        if op.wide:
            multiply_head(op, task, head, WIDE, WIDE_REST)
        else:
            multiply_head(op, task, head, NARROW, NARROW_REST)


@kernel
def product_kernel(op: Any, work: Any) -> None:
    for_each_task(product_task, as_pointers(op), as_pointers(work))


def head_matmul(x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None:
    """`x_k W_k` for every head `k`, written or added to `out`, `[N, heads·e]`, which must be contiguous."""
    heads, depth, width = weight.shape
    if out.numel() == 0 or depth == 0:
        out.mul_(int(add))
        return
    tensors = (x, _panels(weight), out)
    op = Product._make((*map(arrays.flat, tensors), x.size(0), heads, depth, width, add, width > LANES))
    run_tasks(product_kernel, op, num_tasks(x.size(0)))


# --- gradients of the matrices --------------------------------------------------------------------

# `sums`: `[chunks, heads, panels, depth, LANES or 2 LANES]`; `copies`: `[threads, STRIP, DEPTH and a panel's columns]`;
# `chunk`: rows of a chunk; `parts`: of `depth`, each `DEPTH` or less.
Gradient = namedtuple("Gradient", "x grad sums copies rows heads depth width chunk parts wide")


@inlined
def copy_strip(source: Any, first: int, rows: int, step: int, count: int, target: Any, at: int, width: int) -> None:
    """Copies `count` columns of `rows` rows to rows of `width` columns, with zeros after them up to a whole vector."""
    whole = count // LANES * LANES
    for row in range(rows):
        for k in range(0, whole, LANES):
            store(load(source, first + row * step + k), target, at + row * width + k)
        if whole < width:
            rest = load_masked(source, first + row * step + whole, count - whole)
            store(rest, target, at + row * width + whole)


@inlined
def add_strip(op: Any, rows: int, copies: int, low: int, count: int, sums: int, first: bool, shape: Any) -> None:
    """Adds the product of a strip's columns `low`, … and a panel of its gradients to the panel's sums."""
    lanes = len(shape[1]) * LANES
    tile = zero_tile(op.sums, shape)
    for row in range(rows):
        at = copies + STRIP * DEPTH + row * lanes
        tile = multiply_tile(tile, op.copies, copies + row * DEPTH + low, 1, op.copies, at, shape)
    change_tile(tile, op.sums, sums + low * lanes, lanes, lanes, not first, shape)


@inlined
def gradient_task(op: Any, task: int, copies: int, shape: Any, rest: Any) -> None:
    """One chunk of rows, one head, one part of its columns of `x` and one panel of its gradients."""
    lanes, together = len(shape[1]) * LANES, len(shape[0])
    panels = (op.width + lanes - 1) // lanes
    panel, part = task % panels, task // panels % op.parts
    head, chunk = task // (panels * op.parts) % op.heads, task // (panels * op.parts * op.heads)
    low, count = part * DEPTH, min(DEPTH, op.depth - part * DEPTH)
    tiled = count // together * together
    sums = (((chunk * op.heads + head) * panels + panel) * op.depth + low) * lanes
    begin, end = chunk * op.chunk, min((chunk + 1) * op.chunk, op.rows)
    for row in range(begin, end, STRIP):
        rows, of_x, of_grad = min(STRIP, end - row), op.heads * op.depth, op.heads * op.width
        copy_strip(op.x, row * of_x + head * op.depth + low, rows, of_x, count, op.copies, copies, DEPTH)
        first, left = row * of_grad + head * op.width + panel * lanes, min(lanes, op.width - panel * lanes)
        copy_strip(op.grad, first, rows, of_grad, left, op.copies, copies + STRIP * DEPTH, lanes)
        for k in range(0, tiled, together):
            add_strip(op, rows, copies, k, count, sums, row == begin, shape)
        for k in range(tiled, count):
            add_strip(op, rows, copies, k, count, sums, row == begin, rest)


@inlined
def gradient_tasks(op: Any, work: Any) -> None:
    copies = atomic_add(work.counters, 0, 1) * STRIP * (DEPTH + 2 * LANES)
    task = next_task(work, 0)
    while task < work.number:
        if op.wide:
            gradient_task(op, task, copies, WIDE, WIDE_REST)
        else:
            gradient_task(op, task, copies, NARROW, NARROW_REST)
        task = finish_task(work, 0)
    wait_for_tasks(work, 0, work.number)


@kernel
def gradient_kernel(op: Any, work: Any) -> None:
    gradient_tasks(as_pointers(op), as_pointers(work))


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    depth, width, rows = x.size(1) // heads, grad.size(1) // heads, x.size(0)
    if x.numel() == 0 or grad.numel() == 0:
        return x.new_zeros(heads, depth, width)
    chunk = STRIP * -(-rows // (STRIP * CHUNKS))
    chunks, parts, lanes = -(-rows // chunk), -(-depth // DEPTH), LANES if width <= LANES else 2 * LANES
    panels = -(-width // lanes)
    sums = arrays.empty(chunks, heads, panels, depth, lanes, dtype=x.dtype)
    copies = arrays.empty(torch.get_num_threads(), STRIP * (DEPTH + 2 * LANES), dtype=x.dtype)
    sizes = (rows, heads, depth, width, chunk, parts, width > LANES)
    op = Gradient._make((*map(arrays.flat, (x, grad, sums, copies)), *sizes))
    run_tasks(gradient_kernel, op, chunks * heads * parts * panels)
    total = row_sums(sums.view(chunks, -1)).view(heads, panels, depth, lanes)
    return total.transpose(1, 2).flatten(2)[:, :, :width]


# --- sums over rows -------------------------------------------------------------------------------

Sum = namedtuple("Sum", "x sums rows columns")


@inlined
def sum_task(op: Any, task: int) -> None:
    """The sums of a task's rows, four vectors of columns at a time."""
    first, last = task * ROWS, min((task + 1) * ROWS, op.rows)
    done = op.columns // (4 * LANES) * (4 * LANES)
    for column in range(0, done, 4 * LANES):
        s0 = s1 = s2 = s3 = zeros(op.x)
        for row in range(first, last):
            at = row * op.columns + column
            s0 = s0 + load(op.x, at)
            s1 = s1 + load(op.x, at + LANES)
            s2 = s2 + load(op.x, at + 2 * LANES)
            s3 = s3 + load(op.x, at + 3 * LANES)
        target = task * op.columns + column
        store(s0, op.sums, target)
        store(s1, op.sums, target + LANES)
        store(s2, op.sums, target + 2 * LANES)
        store(s3, op.sums, target + 3 * LANES)
    for column in range(done, op.columns, LANES):
        total, left = zeros(op.x), op.columns - column
        for row in range(first, last):
            total = total + load_masked(op.x, row * op.columns + column, left)
        store_masked(total, op.sums, task * op.columns + column, left)


@kernel
def sum_kernel(op: Any, work: Any) -> None:
    for_each_task(sum_task, as_pointers(op), as_pointers(work))


def row_sums(x: Tensor) -> Tensor:
    """`[C]`: the sum of the rows of `[N, C]`, added in an order that depends on `N` alone."""
    rows, columns = x.shape
    while rows > 1 and columns:
        sums = arrays.empty(num_tasks(rows), columns, dtype=x.dtype)
        run_tasks(sum_kernel, Sum(arrays.flat(x), arrays.flat(sums), rows, columns), num_tasks(rows))
        x, rows = sums, num_tasks(rows)
    return x[0] if rows else x.new_zeros(columns)
