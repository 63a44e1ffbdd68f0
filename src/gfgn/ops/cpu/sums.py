"""Plain sums over the rows of a sparse pattern: products of a sparse matrix with a dense one."""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays
from gfgn.ops.cpu.compiler import as_pointers, inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import load, load_masked, read, store, store_masked, zeros
from gfgn.ops.cpu.walk import SINGLE_THREAD_TABLE_BYTES, Walk, plan_walk, prefetch_rows, run_kernel, run_walk
from gfgn.ops.csr import CSR

WIDE = 4 * LANES
"""Columns in a wide block, where the work per entry is shared by more columns."""

# The operands of all sums; those that an operator does not have are empty. `weighted`: whether there are `values`.
Sum = namedtuple("Sum", "x y values out plain_out weighted")


@inlined
def pack_block(op: Any, walk: Any, tile: Any, node: int, packed: int) -> None:
    offset = node * walk.columns + tile.column
    for k in range(0, walk.width, LANES):
        prefetch_rows(walk, (op.x,), offset + k)
        store(load_masked(op.x, offset + k, tile.active - k), walk.table, packed + k)


@inlined
def finish_block(op: Any, walk: Any, tile: Any, row: int, at: int) -> None:
    offset = row * walk.columns + tile.column
    for k in range(0, tile.active, LANES):
        prefetch_rows(walk, (op.out,), offset + k)
        store_masked(load(walk.row_sums, at + k), op.out, offset + k, tile.active - k)


@inlined
def add_wide(walk: Any, tile: Any, e: int, value: Any, totals: Any) -> Any:
    """Adds `value` times the wide block that entry `e` gathers."""
    packed = tile.table + read(walk.idx, e) * WIDE
    x0, x1, x2, x3 = totals
    return (
        x0 + load(walk.table, packed) * value,
        x1 + load(walk.table, packed + LANES) * value,
        x2 + load(walk.table, packed + 2 * LANES) * value,
        x3 + load(walk.table, packed + 3 * LANES) * value,
    )


@inlined
def load_wide(pointer: Any, at: int) -> Any:
    """The four vectors of a wide block."""
    a, b = load(pointer, at), load(pointer, at + LANES)
    return a, b, load(pointer, at + 2 * LANES), load(pointer, at + 3 * LANES)


@inlined
def store_wide(totals: Any, sums: Any, at: int) -> None:
    store(totals[0], sums, at)
    store(totals[1], sums, at + LANES)
    store(totals[2], sums, at + 2 * LANES)
    store(totals[3], sums, at + 3 * LANES)


@inlined
def spmm_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    total = zeros(op.x)
    if walk.width == WIDE:
        totals = (total, total, total, total)
        for e in range(low, high):
            totals = add_wide(walk, tile, e, read(op.values, e) if op.weighted else 1, totals)
        store_wide(totals, sums, at)
        return
    if op.weighted:
        for e in range(low, high):
            total = total + load(walk.table, tile.table + read(walk.idx, e) * LANES) * read(op.values, e)
    else:
        for e in range(low, high):
            total = total + load(walk.table, tile.table + read(walk.idx, e) * LANES)
    store(total, sums, at)


@kernel
def spmm_kernel(op: Any, walk: Any) -> None:
    run_walk(pack_block, spmm_gather, finish_block, as_pointers(op), as_pointers(walk))


@inlined
def pair_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    weighted = plain = zeros(op.x)
    if walk.width == WIDE:
        first = second = (plain, plain, plain, plain)
        for e in range(low, high):
            first = add_wide(walk, tile, e, read(op.values, e), first)
            second = add_wide(walk, tile, e, 1, second)
        store_wide(first, sums, at)
        store_wide(second, sums, at + WIDE)
        return
    for e in range(low, high):
        x = load(walk.table, tile.table + read(walk.idx, e) * LANES)
        weighted = weighted + x * read(op.values, e)
        plain = plain + x
    store(weighted, sums, at)
    store(plain, sums, at + LANES)


@inlined
def pair_finish(op: Any, walk: Any, tile: Any, row: int, at: int) -> None:
    offset = row * walk.columns + tile.column
    for k in range(0, tile.active, LANES):
        prefetch_rows(walk, (op.out, op.plain_out), offset + k)
        store_masked(load(walk.row_sums, at + k), op.out, offset + k, tile.active - k)
        plain = load(walk.row_sums, at + walk.width + k)
        store_masked(plain, op.plain_out, offset + k, tile.active - k)


@kernel
def spmm_pair_kernel(op: Any, walk: Any) -> None:
    run_walk(pack_block, pair_gather, pair_finish, as_pointers(op), as_pointers(walk))


@inlined
def merge_pack(op: Any, walk: Any, tile: Any, node: int, packed: int) -> None:
    offset = node * walk.columns + tile.column
    for k in range(0, walk.width, LANES):
        prefetch_rows(walk, (op.x, op.y), offset + k)
        store(load_masked(op.x, offset + k, tile.active - k), walk.table, packed + k)
        store(load_masked(op.y, offset + k, tile.active - k), walk.table, packed + walk.width + k)


@inlined
def add_both(walk: Any, packed: int, value: Any, totals: Any) -> Any:
    """Adds `value` times the wide block of the table at `packed` plus the next one."""
    x0, x1, x2, x3 = totals
    y0, y1, y2, y3 = load_wide(walk.table, packed + WIDE)
    z0, z1, z2, z3 = load_wide(walk.table, packed)
    return x0 + (z0 * value + y0), x1 + (z1 * value + y1), x2 + (z2 * value + y2), x3 + (z3 * value + y3)


@inlined
def merge_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    total = zeros(op.x)
    if walk.width == WIDE:
        totals = (total, total, total, total)
        for e in range(low, high):
            totals = add_both(walk, tile.table + read(walk.idx, e) * (2 * WIDE), read(op.values, e), totals)
        store_wide(totals, sums, at)
        return
    for e in range(low, high):
        packed = tile.table + read(walk.idx, e) * (2 * LANES)
        total = total + (load(walk.table, packed) * read(op.values, e) + load(walk.table, packed + LANES))
    store(total, sums, at)


@kernel
def spmm_pair_backward_kernel(op: Any, walk: Any) -> None:
    run_walk(merge_pack, merge_gather, finish_block, as_pointers(op), as_pointers(walk))


def _run(function: Any, walk: Walk, x: Tensor, y: Tensor | None, values: Tensor | None, outputs: int) -> list[Tensor]:
    dtype = arrays.compute_dtype(x)
    results = [arrays.empty(walk.rows, walk.columns, dtype=dtype) for _ in range(outputs)]
    operands = (x, y, values, results[0], results[1] if outputs > 1 else None)
    nothing = torch.empty(0, dtype=dtype)
    op = Sum._make((*(arrays.flat(nothing if t is None else t, dtype) for t in operands), values is not None))
    run_kernel(function, op, walk)
    return [result.to(x.dtype) for result in results]


def _width(x: Tensor, fields: int = 1) -> int:
    """Columns in a block: a wide one where its table fits the cache of a single thread."""
    fits = x.size(0) * fields * WIDE * x.element_size() <= SINGLE_THREAD_TABLE_BYTES
    return WIDE if fits and x.size(1) >= WIDE else LANES


def spmm(x: Tensor, rows: CSR, values: Tensor | None) -> Tensor:
    """`out_i = Σ_e values_e x[idx_e]` over the entries of row `i`; without `values`, all are 1."""
    walk = plan_walk(rows, x, fields=1, sums=1, width=_width(x))
    (out,) = _run(spmm_kernel, walk, x, None, values, 1)
    return out


def spmm_pair(x: Tensor, rows: CSR, values: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """`spmm(x, rows, values)` and `inverse_i · spmm(x, rows, None)_i`, gathering once."""
    walk = plan_walk(rows, x, fields=1, sums=2, width=_width(x))
    weighted, plain = _run(spmm_pair_kernel, walk, x, None, values, 2)
    return weighted, plain.mul_(inverse.to(plain.dtype).unsqueeze(1))


def spmm_pair_backward(g_weighted: Tensor, g_mean: Tensor, rows_t: CSR, values_t: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of `spmm_pair` with respect to `x`: `Σ_e values_e g_weighted[idx_e] + (inverse g_mean)[idx_e]`."""
    walk = plan_walk(rows_t, g_weighted, fields=2, sums=1, width=_width(g_weighted, fields=2))
    g_plain = g_mean * inverse.to(g_mean.dtype).unsqueeze(1)
    (out,) = _run(spmm_pair_backward_kernel, walk, g_weighted, g_plain, values_t, 1)
    return out
