"""A sparse matrix under dropout times a weight, for replicas that each drop other entries."""

from collections import namedtuple
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, types
from gfgn.ops.cpu.compiler import Emitter, as_pointers, inlined, instruction, integers
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.sums import WIDE, add_wide, store_wide
from gfgn.ops.cpu.types import LANES, Vector
from gfgn.ops.cpu.vectors import load, load_masked, prefetch, read, store, store_masked, zeros
from gfgn.ops.cpu.walk import plan_walk, prefetch_rows, run_kernel, run_walk
from gfgn.ops.csr import CSR

# `keys`, `threshold`, `scale`: `[replicas]`, see `arrays.dropout_arrays`. `numbered`: whether `entry` gives the numbers
# of the entries; else they are 0, 1, …. `x_stacked`, `out_stacked`: whether replicas are the first dimension of `x` and
# of `out`, so that what belongs to one is adjacent; else they are blocks of columns.
SparseLinear = namedtuple("SparseLinear", "x values keys threshold scale entry numbered out x_stacked out_stacked")


@instruction
def consecutive(first: Any) -> Any:
    """The integers from `first` on, one per lane."""
    lanes = list(range(LANES))
    return Vector(types.int64)(types.int64), lambda llvm, i: llvm.builder.add(llvm.splat(i), llvm.numbers(64, lanes))


@instruction
def lowest_bit(bits: Any) -> Any:
    """The index of the lowest bit that is set; there must be one."""
    return types.int64(types.int64), lambda llvm, bits: llvm.builder.cttz(bits, llvm.number(1, 1))


@instruction
def kept_bits(numbers: Any, key: Any, threshold: Any) -> Any:
    """One bit per entry of these numbers: whether it is kept; see `gfgn.ops.keys.keep`."""

    def emit(llvm: Emitter, numbers: Any, key: Any, threshold: Any) -> Any:
        build = llvm.builder

        def mix(h: Any, shift: int, factor: int) -> Any:
            return build.mul(build.xor(h, build.lshr(h, llvm.numbers(32, shift))), llvm.numbers(32, factor))

        high = build.trunc(build.lshr(numbers, llvm.numbers(64, 32)), integers(32))
        h = build.xor(build.trunc(numbers, integers(32)), llvm.splat(key))
        h = build.xor(h, build.mul(high, llvm.numbers(32, 0x9E3779B1)))
        h = mix(mix(h, 16, 0x7FEB352D), 15, 0x846CA68B)
        h = build.xor(h, build.lshr(h, llvm.numbers(32, 16)))
        return llvm.mask(build.icmp_unsigned(">=", h, llvm.splat(threshold)), bits=64)

    return types.int64(numbers, types.uint32, types.uint32), emit


@inlined
def kept_entries(op: Any, walk: Any, first: int, high: int, replica: int) -> Any:
    """One bit for each of the next `LANES` entries before `high`: whether a replica keeps it."""
    bits, threshold = (1 << LANES) - 1, read(op.threshold, replica)
    if threshold > 0:
        numbers = consecutive(first)
        if op.numbered:
            full = first + LANES <= walk.entries
            numbers = load(op.entry, first) if full else load_masked(op.entry, first, high - first)
        bits = kept_bits(numbers, read(op.keys, replica), threshold)
    return bits if high - first >= LANES else bits & ((1 << (high - first)) - 1)


@inlined
def gather_kept(op: Any, walk: Any, tile: Any, low: int, high: int, sums: Any, at: int, wide: bool) -> None:
    """Adds up the kept entries of a row; `wide` is known when the kernel is compiled."""
    replica = tile.column // walk.part
    scale = read(op.scale, replica)
    total = zeros(op.x)
    totals = (total, total, total, total)
    for first in range(low, high, LANES):
        bits = kept_entries(op, walk, first, high, replica)
        while bits != 0:
            e = first + lowest_bit(bits)
            bits = bits & (bits - 1)
            value = read(op.values, e) * scale
            if wide:
                totals = add_wide(walk, tile, e, value, totals)
            else:
                total = total + load(walk.table, tile.table + read(walk.idx, e) * LANES) * value
    if wide:
        store_wide(totals, sums, at)
    else:
        store(total, sums, at)


@inlined
def prefetch_next(walk: Any, tile: Any, row: int) -> None:
    """Requests a part of the next replica's table, another one for each row, while this one's is in use."""
    if not walk.packed and tile.block + 1 < walk.blocks:
        size = walk.nodes * walk.width
        for k in range(row * size // walk.rows, (row + 1) * size // walk.rows, LANES):
            prefetch(walk.table, tile.table + size + k)


@inlined
def linear_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, sums: Any, at: int) -> None:
    prefetch_next(walk, tile, row)
    if walk.width == WIDE:
        gather_kept(op, walk, tile, low, high, sums, at, True)
    else:
        gather_kept(op, walk, tile, low, high, sums, at, False)


@inlined
def offset_of(walk: Any, tile: Any, row: int, rows: int, stacked: bool) -> Any:
    """The offset of a row's block among `rows` rows."""
    in_stack = (tile.column // walk.part * rows + row) * walk.part + tile.column % walk.part
    return in_stack if stacked else row * walk.columns + tile.column


@inlined
def linear_pack(op: Any, walk: Any, tile: Any, node: int, packed: int) -> None:
    offset = offset_of(walk, tile, node, walk.nodes, op.x_stacked)
    for k in range(0, walk.width, LANES):
        prefetch_rows(walk, (op.x,), offset + k)
        store(load_masked(op.x, offset + k, tile.active - k), walk.table, packed + k)


@inlined
def linear_finish(op: Any, walk: Any, tile: Any, row: int, at: int) -> None:
    offset = offset_of(walk, tile, row, walk.rows, op.out_stacked)
    for k in range(0, tile.active, LANES):
        prefetch_rows(walk, (op.out,), offset + k)
        store_masked(load(walk.row_sums, at + k), op.out, offset + k, tile.active - k)


@kernel
def sparse_linear_kernel(op: Any, walk: Any) -> None:
    run_walk(linear_pack, linear_gather, linear_finish, as_pointers(op), as_pointers(walk))


def sparse_linear(
    weight: Tensor,
    rows: CSR,
    values: Tensor,
    keys: Tensor,
    rate: Tensor,
    entry: Tensor | None,
    out_columns: int,
    out_stacked: bool = False,
) -> Tensor:
    """A sparse matrix under dropout times a weight, for `R` replicas.

    Args:
        weight: `[F, R * out_columns]`, where replica `r` owns the `r`-th run of `out_columns` columns; or
            `[R, F, out_columns]`.
        rows, values: The sparse matrix, or its transpose.
        keys, rate: `[R]`, see `arrays.dropout_arrays`.
        entry: `[E]`: the numbers of the entries (default: 0, 1, …), so that a transpose drops what its original drops.
        out_columns: Columns of a replica.
        out_stacked: Whether the result is `[R, N, out_columns]` instead of `[N, R * out_columns]`.
    """
    dtype, replicas, stacked = arrays.compute_dtype(weight), keys.numel(), weight.dim() == 3
    width, x = WIDE if out_columns > 2 * LANES else LANES, arrays.flat(weight, dtype)
    sizes = x.view(x.size(1), x.size(0) * x.size(2)) if stacked else x  # only its shape is read
    table = x if stacked and width == out_columns else None  # a replica's weights are a table already
    walk = plan_walk(rows, sizes, fields=1, sums=1, part=out_columns, width=width, table=table)
    shape = (replicas, walk.rows, out_columns) if out_stacked else (walk.rows, walk.columns)
    out = arrays.empty(*shape, dtype=dtype)
    op = SparseLinear(
        x,
        arrays.flat(values, dtype),
        *arrays.dropout_arrays(keys, rate, dtype),
        arrays.flat(torch.empty(0) if entry is None else entry, torch.int64),
        entry is not None,
        arrays.flat(out),
        stacked,
        out_stacked,
    )
    run_kernel(sparse_linear_kernel, op, walk)
    return out.to(weight.dtype)
