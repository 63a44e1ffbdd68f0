"""The CPU kernels: gated and plain sums over the rows of a sparse pattern, in Numba, forward and backward.

Every operator is the same walk. Columns are cut into narrow blocks; for each block

1. *pack* copies what the entries will gather, one line of `fields` vectors a node, into a table that fits the
   cache (for the gated operators it holds `exp(−b)` rather than `b`: a gate is then one product and one reciprocal
   an entry, and the exponentials are paid a node, not an entry);
2. *gather* sums the entries of a row, or of a segment of a hub, with all its sums in registers;
3. *finish* turns the sums of a row into the output. The sums of a hub's segments are joined in order before it.

The kernels are written on vectors of `LANES` columns, a type this file adds to Numba. Every column goes through the
same instructions, whatever its place and its neighbours, so a column's bits depend on that column alone. LLVM turns
the vectors into whatever the processor has.

Threads: the calling thread and its helpers take tasks from one atomic counter. The order of each sum is fixed by the
pattern, so bits do not depend on who took what. A helper that comes late finds nothing to do; the caller never waits
for one that has not started. So calls may come from any thread, at the same time, and after a fork.
"""

from __future__ import annotations

import operator
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import factorial, prod
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray
from torch import Tensor

from gfgn.ops.cpu.attention import attend, edge_dot
from gfgn.ops.csr import CSR, SEGMENT

__all__ = [
    "attend",
    "edge_dot",
    "pair_backward",
    "pair_forward",
    "sparse_linear",
    "spmm",
    "spmm_pair",
    "spmm_pair_backward",
]

LANES = 16
"""Columns in a vector: one AVX-512 register of float32, two of float64, four or eight of NEON."""
WIDE = 4 * LANES
"""Columns in a block of `sparse_linear`, where wider blocks spread the cost of a hash."""
TABLE_BYTES = 4 << 20
"""Blocks are packed together up to this size: fewer meetings of the threads, yet a table that stays in the cache."""
OWN_TABLE_BYTES = 1 << 19
"""The same for a thread on its own, who meets nobody: the cache next to it."""
AHEAD = 16
"""How many entries before its use a line of the table is asked for."""
HUGE = 4 << 20
"""Bytes from which NumPy asks for huge pages."""
CHUNK = 4096
"""Entries in one task, about ten microseconds of work; a row counts as `ROW_COST` entries more."""
ROW_COST = 4
NODES = 512
"""Nodes packed in one task."""
SEGMENTS = CHUNK // SEGMENT
"""Segments of hubs in one task."""
SMALL = 4 * CHUNK
"""Entries × blocks below which waking a helper costs more than it saves."""

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """A function that only kernels call; without a trace in the compiled code."""
    return cast(F, njit(forceinline=True, error_model="numpy")(function))


def kernel(function: F) -> F:
    """An entry point: compiled on its first call, kept on disk, run without the interpreter lock."""
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function for kernels, given as one from the types of its arguments to its signature and its LLVM code."""
    return cast(Callable[..., Any], intrinsic(function))


# ------------------------------------------------------------------------------------------------- vectors and pointers


def _init_vector(self: Any, scalar: Any) -> None:
    types.Type.__init__(self, name=f"vector({scalar}, {LANES})")
    self.scalar = scalar


def _init_model(self: Any, manager: Any, vector: Any) -> None:
    lane = manager.lookup(vector.scalar).get_value_type()
    models.PrimitiveModel.__init__(self, manager, vector, ir.VectorType(lane, LANES))


# Made by `type` since Numba's classes are untyped, and mypy lets no typed class derive from an untyped one.
Vector: Any = type("Vector", (types.Type,), {"__init__": _init_vector})
register_model(Vector)(type("VectorModel", (models.PrimitiveModel,), {"__init__": _init_model}))


def _splat(builder: Any, value: Any) -> Any:
    """The vector whose lanes all hold `value`."""
    vector, lane = ir.VectorType(value.type, LANES), ir.IntType(32)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(lane, 0))
    order = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), order)


def _widen(context: Any, builder: Any, value: Any, kind: Any, vector: Any) -> Any:
    """`value` as it is if it is a vector, else its cast to the lanes' type in every lane."""
    return value if isinstance(kind, Vector) else _splat(builder, context.cast(builder, value, kind, vector.scalar))


@instruction
def bare(_: Any, record: Any) -> Any:
    """A record of arrays as a record of pointers, for Numba counts the references of an array at every call."""
    kinds = [types.CPointer(t.dtype) if isinstance(t, types.Array) else t for t in record.types]
    result = types.NamedTuple(kinds, record.instance_class)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[0], len(kinds))
        for k, kind in enumerate(record.types):
            if isinstance(kind, types.Array):
                values[k] = cgutils.create_struct_proxy(kind)(context, builder, values[k]).data
        return context.make_tuple(builder, result, values)

    return result(record), emit


@instruction
def at(_: Any, pointer: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(args[0], [args[1]]))

    return pointer.dtype(pointer, types.int64), emit


@instruction
def put(_: Any, value: Any, pointer: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[0], builder.gep(args[1], [args[2]]))
        return context.get_dummy_value()

    return types.void(pointer.dtype, pointer, types.int64), emit


@instruction
def add_atomically(_: Any, pointer: Any, index: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), args[2], "seq_cst")

    return types.int64(pointer, types.int64, types.int64), emit


@instruction
def load(_: Any, pointer: Any, index: Any) -> Any:
    vector = Vector(pointer.dtype)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = context.get_value_type(vector).as_pointer()
        place = builder.bitcast(builder.gep(args[0], [args[1]]), lanes)
        return builder.load(place, align=pointer.dtype.bitwidth // 8)

    return vector(pointer, types.int64), emit


@instruction
def prefetch(_: Any, pointer: Any, index: Any) -> Any:
    """Asks for the cache line at `index`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        line = builder.bitcast(builder.gep(args[0], [args[1]]), place)
        builder.call(ask, [line, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(pointer, types.int64), emit


@instruction
def store(_: Any, vector: Any, pointer: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.bitcast(builder.gep(args[1], [args[2]]), args[0].type.as_pointer())
        builder.store(args[0], place, align=pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(vector, pointer, types.int64), emit


@instruction
def zeros(_: Any, pointer: Any) -> Any:
    """A vector of zeros of the type `pointer` points to."""
    vector = Vector(pointer.dtype)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), None)

    return vector(pointer), emit


@instruction
def insert(_: Any, vector: Any, lane: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.insert_element(args[0], args[2], args[1])

    return vector(vector, types.int64, vector.scalar), emit


@instruction
def extract(_: Any, vector: Any, lane: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(args[0], args[1])

    return vector.scalar(vector, types.int64), emit


@instruction
def counting(_: Any, first: Any) -> Any:
    """The integers from `first` on, one a lane."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = ir.VectorType(args[0].type, LANES)
        return builder.add(_splat(builder, args[0]), ir.Constant(lanes, list(range(LANES))))

    return Vector(types.int64)(types.int64), emit


@instruction
def lowest(_: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; there must be one."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), emit


def _arithmetic(operation: Callable[..., Any], name: str, *flags: str) -> None:
    """Gives vectors, and a vector with a number, the Python operator `operation`."""

    @instruction
    def lanewise(_: Any, x: Any, y: Any) -> Any:
        vector = x if isinstance(x, Vector) else y

        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            sides = (_widen(context, builder, v, t, vector) for v, t in zip(args, signature.args, strict=True))
            return getattr(builder, name)(*sides, flags=flags)

        return vector(x, y), emit

    def compiled(x: Any, y: Any) -> Any:
        return lanewise(x, y)

    def typed(x: Any, y: Any) -> Any:
        return compiled if isinstance(x, Vector) or isinstance(y, Vector) else None

    overload(operation)(typed)


# `contract` lets a product and a sum become one fused instruction. A quotient may become an estimated reciprocal
# with a Newton step, a third of the time of a division. LLVM asks for `ninf` before it does so, as the step turns
# 1/∞ into NaN; divisors are finite by construction (see `gate`). `nnan` is given nowhere: NaN in is NaN out.
_arithmetic(operator.add, "fadd", "contract")
_arithmetic(operator.sub, "fsub", "contract")
_arithmetic(operator.mul, "fmul", "contract")
_arithmetic(operator.truediv, "fdiv", "arcp", "ninf")


@instruction
def multiply_add(_: Any, x: Any, y: Any, z: Any) -> Any:
    """x·y + z, fused wherever the processor can: for LLVM to keep as it is, so that it has the same bits everywhere."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = args[0].type
        name = f"llvm.fmuladd.v{LANES}f{x.scalar.bitwidth}"
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        sides = [_widen(context, builder, v, t, x) for v, t in zip(args, signature.args, strict=True)]
        return builder.call(fused, sides)

    return x(x, y, z), emit


def _is_within(context: Any, builder: Any, vector: Any, value: Any, limit: Any) -> Any:
    """The lanes with |value| ≤ limit, which NaN is not."""
    high = _splat(builder, context.cast(builder, limit, types.float64, vector.scalar))
    return builder.and_(builder.fcmp_ordered("<=", value, high), builder.fcmp_ordered(">=", value, builder.fneg(high)))


@instruction
def within(_: Any, vector: Any, limit: Any) -> Any:
    """Whether |lane| ≤ limit in every lane."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes = builder.bitcast(_is_within(context, builder, vector, *args), ir.IntType(LANES))
        return builder.icmp_unsigned("==", lanes, ir.Constant(lanes.type, 2**LANES - 1))

    return types.boolean(vector, types.float64), emit


@instruction
def choose(_: Any, x: Any, y: Any, limit: Any, near: Any, far: Any) -> Any:
    """The lane of `near` where |x| ≤ limit and |y| ≤ limit, else that of `far`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sides = [_is_within(context, builder, x, value, args[2]) for value in args[:2]]
        return builder.select(builder.and_(*sides), args[3], args[4])

    return x(x, x, types.float64, x, x), emit


@instruction
def clip(_: Any, vector: Any, limit: Any) -> Any:
    """The lanes brought into ±limit; NaN stays."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        high = _splat(builder, context.cast(builder, args[1], types.float64, vector.scalar))
        low = builder.fneg(high)
        value = builder.select(builder.fcmp_ordered(">", args[0], high), high, args[0])
        return builder.select(builder.fcmp_ordered("<", value, low), low, value)

    return vector(vector, types.float64), emit


# -------------------------------------------------------------------------------------------- the exponential, the gate


class Real(NamedTuple):
    """What the exponential needs to know of a floating-point type."""

    bits: int
    mantissa: int
    limit: float
    """exp(±limit) is a normal number, and so is its reciprocal."""
    near: float
    """exp(±near)² is far from overflow."""
    ln2_high: float
    ln2_low: float
    degree: int


REALS = {
    types.float32: Real(32, 23, 86.0, 40.0, 0.693359375, -2.12194440054690583e-4, 7),
    types.float64: Real(64, 52, 708.0, 300.0, 6.93147180369123816490e-1, 1.90821492927058770002e-10, 13),
}


@instruction
def power_of_two(_: Any, shifted: Any) -> Any:
    """2ⁿ where the low bits of the lanes hold n: written into the exponent."""
    real = REALS[shifted.scalar]

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole = ir.VectorType(ir.IntType(real.bits), LANES)
        one = ((1 << (real.bits - real.mantissa - 2)) - 1) << real.mantissa
        power = builder.shl(builder.bitcast(args[0], whole), ir.Constant(whole, [real.mantissa] * LANES))
        return builder.bitcast(builder.add(power, ir.Constant(whole, [one] * LANES)), args[0].type)

    return shifted(shifted), emit


def near_limit(x: Any) -> float:
    """Up to this size, `a` and `b` may be exponentiated apart."""
    raise TypeError("this function runs inside kernels only")


def _near_limit(x: Any) -> Any:
    near = REALS[x.scalar].near

    def compiled(x: Any) -> Any:
        return near

    return compiled


def exp(x: Any) -> Any:
    """exp of every lane clipped to ±`limit`: never 0, never infinite."""
    raise TypeError("this function runs inside kernels only")


def _exp(x: Any) -> Any:
    _, mantissa, limit, _, ln2_high, ln2_low, degree = REALS[x.scalar]
    to_integer = 1.5 * 2.0**mantissa  # adding it rounds to an integer and leaves that in the low bits
    inverse_ln2 = 1.4426950408889634
    first = 1.0 / factorial(degree)
    series = tuple(1.0 / factorial(k) for k in range(degree - 1, -1, -1))

    def compiled(x: Any) -> Any:
        x = clip(x, limit)
        shifted = x * inverse_ln2 + to_integer
        n = shifted - to_integer
        r = (x - n * ln2_high) - n * ln2_low
        y = r * first
        for k in range(degree - 1):
            y = (y + series[k]) * r
        return (y + series[degree - 1]) * power_of_two(shifted)

    return compiled


overload(near_limit)(_near_limit)
overload(exp)(_exp)


@inlined
def gate(own: Any, other: Any) -> Any:
    """σ(a + b) from exp(−a) and exp(−b), both at most exp(`near`): the divisor is finite."""
    return 1.0 / multiply_add(own, other, 1.0)


@inlined
def far_gate(a: Any, b: Any, own: Any, other: Any) -> Any:
    """σ(a + b) whatever the size of a and b, given their exponentials as `gate` has them.

    Where `gate` can be used the result has its bits, so a number too large in one column does not show in another.
    """
    return 1.0 / choose(a, b, near_limit(a), multiply_add(own, other, 1.0), exp((a + b) * -1.0) + 1.0)


# ------------------------------------------------------------------------------------------------------------- the walk


class Walk(NamedTuple):
    """A pattern, how its columns are cut into blocks, and the scratch memory of one call."""

    ptr: Any
    idx: Any
    hub_rows: Any
    hub_ptr: Any
    seg_hub: Any
    table: Any
    """`[group, nodes, fields, width]`: what entries gather."""
    cells: Any
    """`[threads, sums, width]`: the sums of the row at hand."""
    partial: Any
    """`[group, segments, sums, width]`: the sums of the segments of hubs."""
    clock: Any
    """A counter of threads, then for each phase one of tasks taken and one of tasks done."""
    rows: int
    entries: int
    hubs: int
    segments: int
    nodes: int
    part: int
    """Columns that belong together (one replica's); a block never straddles two parts."""
    columns: int
    width: int
    """Columns in a block, a multiple of `LANES`."""
    blocks: int
    group: int
    """Blocks packed together."""
    fields: int
    sums: int


class Tile(NamedTuple):
    """A block of columns."""

    block: int
    column: int
    """Its first column."""
    active: int
    """How many of its columns there are: `width`, or fewer in the last block of a part."""
    table: int
    """Where its table starts."""


@inlined
def tile_of(walk: Any, first: int, slot: int) -> Any:
    per_part = (walk.part + walk.width - 1) // walk.width
    block = first + slot
    inside = (block % per_part) * walk.width
    column = (block // per_part) * walk.part + inside
    table = slot * walk.nodes * walk.fields * walk.width
    return Tile(block, column, min(walk.width, walk.part - inside), table)


@inlined
def fetch(pointer: Any, offset: int, count: int) -> Any:
    """The vector at `offset`; lanes from `count` on are 0."""
    if count >= LANES:
        return load(pointer, offset)
    vector = zeros(pointer)
    for k in range(count):
        vector = insert(vector, k, at(pointer, offset + k))
    return vector


@inlined
def deliver(vector: Any, pointer: Any, offset: int, count: int) -> None:
    """Stores the first `count` lanes."""
    if count >= LANES:
        store(vector, pointer, offset)
    else:
        for k in range(count):
            put(extract(vector, k), pointer, offset + k)


@inlined
def line_of(walk: Any, tile: Any, e: int, fields: int) -> Any:
    """Where the table holds what entry `e` gathers; asks for what a later entry will."""
    later = tile.table + at(walk.idx, min(e + AHEAD, walk.entries - 1)) * (fields * LANES)
    for k in range(fields):
        prefetch(walk.table, later + k * LANES)
    return tile.table + at(walk.idx, e) * (fields * LANES)


@inlined
def first_row(walk: Any, target: int) -> int:
    """The first row before which there are `target` entries or more, rows counting for `ROW_COST` each."""
    low, high = 0, walk.rows
    while low < high:
        middle = (low + high) // 2
        if at(walk.ptr, middle) + ROW_COST * middle < target:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def pack_task(pack: Any, op: Any, walk: Any, tile: Any, task: int) -> None:
    line = walk.fields * walk.width
    for node in range(task * NODES, min(walk.nodes, (task + 1) * NODES)):
        pack(op, walk, tile, node, tile.table + node * line)


@inlined
def segment_task(gather: Any, op: Any, walk: Any, tile: Any, slot: int, task: int) -> None:
    for segment in range(task * SEGMENTS, min(walk.segments, (task + 1) * SEGMENTS)):
        hub = at(walk.seg_hub, segment)
        row = at(walk.hub_rows, hub)
        low = at(walk.ptr, row) + (segment - at(walk.hub_ptr, hub)) * SEGMENT
        high = min(low + SEGMENT, at(walk.ptr, row + 1))
        cell = (slot * walk.segments + segment) * walk.sums * walk.width
        gather(op, walk, tile, row, low, high, walk.partial, cell)


@inlined
def row_task(gather: Any, finish: Any, op: Any, walk: Any, tile: Any, cell: int, task: int) -> None:
    for row in range(first_row(walk, task * CHUNK), first_row(walk, (task + 1) * CHUNK)):
        low, high = at(walk.ptr, row), at(walk.ptr, row + 1)
        if high - low <= SEGMENT:
            gather(op, walk, tile, row, low, high, walk.cells, cell)
            finish(op, walk, tile, row, cell)


@inlined
def hub_task(finish: Any, op: Any, walk: Any, tile: Any, slot: int, cell: int, hub: int) -> None:
    size = walk.sums * walk.width
    low, high = at(walk.hub_ptr, hub), at(walk.hub_ptr, hub + 1)
    for k in range(0, size, LANES):
        total = load(walk.partial, (slot * walk.segments + low) * size + k)
        for segment in range(low + 1, high):
            total = total + load(walk.partial, (slot * walk.segments + segment) * size + k)
        store(total, walk.cells, cell + k)
    finish(op, walk, tile, at(walk.hub_rows, hub), cell)


@inlined
def take(walk: Any, phase: int) -> Any:
    """The number of the next task of a phase."""
    return add_atomically(walk.clock, 1 + 2 * phase, 1)


@inlined
def done(walk: Any, phase: int) -> Any:
    """Reports a task of a phase as done and takes the next one."""
    add_atomically(walk.clock, 2 + 2 * phase, 1)
    return take(walk, phase)


def _no_pause() -> None:
    """Where the system lets no thread step aside, waiting is spinning."""


# On a busy machine the thread waited for may be the one that needs this core.
step_aside: Callable[[], Any] = (
    types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else inlined(_no_pause)
)


@inlined
def meet(walk: Any, phase: int, tasks: int) -> None:
    """Waits until all tasks of a phase are done."""
    while add_atomically(walk.clock, 2 + 2 * phase, 0) < tasks:
        step_aside()


@inlined
def drive(pack: Any, gather: Any, finish: Any, op: Any, walk: Any) -> None:
    """The part of one thread in the whole walk."""
    cell = add_atomically(walk.clock, 0, 1) * walk.sums * walk.width
    packs = (walk.nodes + NODES - 1) // NODES
    segments = (walk.segments + SEGMENTS - 1) // SEGMENTS
    walks = segments + (walk.entries + ROW_COST * walk.rows) // CHUNK + 1
    phase = 0
    for first in range(0, walk.blocks, walk.group):
        group = min(walk.group, walk.blocks - first)
        task = take(walk, phase)
        while task < group * packs:
            pack_task(pack, op, walk, tile_of(walk, first, task // packs), task % packs)
            task = done(walk, phase)
        meet(walk, phase, group * packs)

        task = take(walk, phase + 1)
        while task < group * walks:
            slot, part = task // walks, task % walks
            tile = tile_of(walk, first, slot)
            if part < segments:
                segment_task(gather, op, walk, tile, slot, part)
            else:
                row_task(gather, finish, op, walk, tile, cell, part - segments)
            task = done(walk, phase + 1)
        meet(walk, phase + 1, group * walks)

        task = take(walk, phase + 2)
        while task < group * walk.hubs:
            slot = task // walk.hubs
            hub_task(finish, op, walk, tile_of(walk, first, slot), slot, cell, task % walk.hubs)
            task = done(walk, phase + 2)
        meet(walk, phase + 2, group * walk.hubs)
        phase += 3


# -------------------------------------------------------------------------------------------------- the gated operators


class PairForward(NamedTuple):
    a: Any
    b: Any
    z: Any
    lam: Any
    norm: Any
    row_norm: Any
    far: Any
    """`[blocks]`: 1 where some `b` of the block is beyond `near_limit`."""
    out: Any
    p: Any
    q: Any
    save: bool


@inlined
def forward_pack(op: Any, walk: Any, tile: Any, node: int, line: int) -> None:
    place = node * walk.columns + tile.column
    b = fetch(op.b, place, tile.active)
    if not within(b, near_limit(b)):
        put(1, op.far, tile.block)
    store(exp(b * -1.0), walk.table, line)
    store(fetch(op.z, place, tile.active), walk.table, line + LANES)


@inlined
def forward_step(op: Any, walk: Any, line: int, e: int, s: Any, sums: Any) -> Any:
    """Adds an entry to Σ s·Â·z_j and Σ s·row_norm, and to the same with s(1−s) for s (z_i is outside the sums)."""
    x, q, y, r = sums
    slope = s - s * s
    message = load(walk.table, line + LANES) * at(op.norm, e)
    row_norm = at(op.row_norm, e)
    return x + s * message, q + s * row_norm, y + slope * message, r + slope * row_norm


@inlined
def forward_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    a = fetch(op.a, row * walk.columns + tile.column, tile.active)
    odds = exp(a * -1.0)
    zero = zeros(op.z)
    x, q, y, r = zero, zero, zero, zero
    near = at(op.far, tile.block) == 0 and within(a, near_limit(a))
    if near and not op.save:
        for e in range(low, high):
            line = line_of(walk, tile, e, 2)
            s = gate(odds, load(walk.table, line))
            x = x + s * (load(walk.table, line + LANES) * at(op.norm, e))
            q = q + s * at(op.row_norm, e)
    elif near:
        for e in range(low, high):
            line = line_of(walk, tile, e, 2)
            s = gate(odds, load(walk.table, line))
            x, q, y, r = forward_step(op, walk, line, e, s, (x, q, y, r))
    else:
        for e in range(low, high):
            line = line_of(walk, tile, e, 2)
            b = fetch(op.b, at(walk.idx, e) * walk.columns + tile.column, tile.active)
            s = far_gate(a, b, odds, load(walk.table, line))
            x, q, y, r = forward_step(op, walk, line, e, s, (x, q, y, r))
    store(x, cells, cell)
    store(q, cells, cell + LANES)
    if op.save:
        store(y, cells, cell + 2 * LANES)
        store(r, cells, cell + 3 * LANES)


@inlined
def forward_finish(op: Any, walk: Any, tile: Any, row: int, cell: int) -> None:
    place = row * walk.columns + tile.column
    z = fetch(op.z, place, tile.active)
    q = load(walk.cells, cell + LANES)
    change = fetch(op.lam, tile.column, tile.active) * (load(walk.cells, cell) - q * z)
    deliver(z + change, op.out, place, tile.active)
    if op.save:
        p = load(walk.cells, cell + 2 * LANES) - load(walk.cells, cell + 3 * LANES) * z
        deliver(p, op.p, place, tile.active)
        deliver(q, op.q, place, tile.active)


@kernel
def pair_forward_kernel(op: Any, walk: Any) -> None:
    drive(forward_pack, forward_gather, forward_finish, bare(op), bare(walk))


class PairBackward(NamedTuple):
    grad: Any
    a: Any
    b: Any
    z: Any
    p: Any
    q: Any
    lam: Any
    norm: Any
    row_norm: Any
    far: Any
    """`[blocks]`: 1 where some `a` of the block is beyond `near_limit`."""
    grad_a: Any
    grad_b: Any
    grad_z: Any


@inlined
def backward_pack(op: Any, walk: Any, tile: Any, node: int, line: int) -> None:
    place = node * walk.columns + tile.column
    a = fetch(op.a, place, tile.active)
    if not within(a, near_limit(a)):
        put(1, op.far, tile.block)
    grad = fetch(op.grad, place, tile.active)
    store(exp(a * -1.0), walk.table, line)
    store(grad, walk.table, line + LANES)
    store(grad * fetch(op.z, place, tile.active), walk.table, line + 2 * LANES)


@inlined
def backward_step(op: Any, walk: Any, line: int, e: int, s: Any, sums: Any) -> Any:
    """Adds an entry to Σ s·Â·grad_i and, with s(1−s) for s, to Σ Â·grad_i and Σ row_norm·z_i·grad_i."""
    x, y, r = sums
    slope = s - s * s
    message = load(walk.table, line + LANES) * at(op.norm, e)
    return x + s * message, y + slope * message, r + slope * (load(walk.table, line + 2 * LANES) * at(op.row_norm, e))


@inlined
def backward_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    b = fetch(op.b, row * walk.columns + tile.column, tile.active)
    odds = exp(b * -1.0)
    zero = zeros(op.z)
    x, y, r = zero, zero, zero
    if at(op.far, tile.block) == 0 and within(b, near_limit(b)):
        for e in range(low, high):
            line = line_of(walk, tile, e, 3)
            s = gate(odds, load(walk.table, line))
            x, y, r = backward_step(op, walk, line, e, s, (x, y, r))
    else:
        for e in range(low, high):
            line = line_of(walk, tile, e, 3)
            a = fetch(op.a, at(walk.idx, e) * walk.columns + tile.column, tile.active)
            s = far_gate(a, b, odds, load(walk.table, line))
            x, y, r = backward_step(op, walk, line, e, s, (x, y, r))
    store(x, cells, cell)
    store(y, cells, cell + LANES)
    store(r, cells, cell + 2 * LANES)


@inlined
def backward_finish(op: Any, walk: Any, tile: Any, row: int, cell: int) -> None:
    place = row * walk.columns + tile.column
    lam = fetch(op.lam, tile.column, tile.active)
    grad = fetch(op.grad, place, tile.active)
    z = fetch(op.z, place, tile.active)
    deliver(lam * (grad * fetch(op.p, place, tile.active)), op.grad_a, place, tile.active)
    slope = load(walk.cells, cell + LANES) * z - load(walk.cells, cell + 2 * LANES)
    deliver(lam * slope, op.grad_b, place, tile.active)
    change = load(walk.cells, cell) - grad * fetch(op.q, place, tile.active)
    deliver(grad + lam * change, op.grad_z, place, tile.active)


@kernel
def pair_backward_kernel(op: Any, walk: Any) -> None:
    drive(backward_pack, backward_gather, backward_finish, bare(op), bare(walk))


# -------------------------------------------------------------------------------------------------- the plain operators


class Plain(NamedTuple):
    """Operands of the plain sums; those an operator does not have are empty."""

    x: Any
    y: Any
    values: Any
    out: Any
    other: Any
    weighted: bool


@inlined
def plain_pack(op: Any, walk: Any, tile: Any, node: int, line: int) -> None:
    place = node * walk.columns + tile.column
    for k in range(0, walk.width, LANES):
        store(fetch(op.x, place + k, tile.active - k), walk.table, line + k)


@inlined
def plain_finish(op: Any, walk: Any, tile: Any, row: int, cell: int) -> None:
    place = row * walk.columns + tile.column
    for k in range(0, tile.active, LANES):
        deliver(load(walk.cells, cell + k), op.out, place + k, tile.active - k)


@inlined
def add_line(walk: Any, tile: Any, e: int, value: Any, sums: Any) -> Any:
    """Adds `value` times the wide line that entry `e` gathers."""
    line = tile.table + at(walk.idx, e) * WIDE
    x0, x1, x2, x3 = sums
    return (
        x0 + load(walk.table, line) * value,
        x1 + load(walk.table, line + LANES) * value,
        x2 + load(walk.table, line + 2 * LANES) * value,
        x3 + load(walk.table, line + 3 * LANES) * value,
    )


@inlined
def store_line(sums: Any, cells: Any, cell: int) -> None:
    store(sums[0], cells, cell)
    store(sums[1], cells, cell + LANES)
    store(sums[2], cells, cell + 2 * LANES)
    store(sums[3], cells, cell + 3 * LANES)


@inlined
def spmm_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    total = zeros(op.x)
    if walk.width == WIDE:
        sums = (total, total, total, total)
        for e in range(low, high):
            sums = add_line(walk, tile, e, at(op.values, e) if op.weighted else 1, sums)
        store_line(sums, cells, cell)
        return
    if op.weighted:
        for e in range(low, high):
            total = total + load(walk.table, tile.table + at(walk.idx, e) * LANES) * at(op.values, e)
    else:
        for e in range(low, high):
            total = total + load(walk.table, tile.table + at(walk.idx, e) * LANES)
    store(total, cells, cell)


@kernel
def spmm_kernel(op: Any, walk: Any) -> None:
    drive(plain_pack, spmm_gather, plain_finish, bare(op), bare(walk))


@inlined
def both_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    weighted = plain = zeros(op.x)
    for e in range(low, high):
        x = load(walk.table, tile.table + at(walk.idx, e) * LANES)
        weighted = weighted + x * at(op.values, e)
        plain = plain + x
    store(weighted, cells, cell)
    store(plain, cells, cell + LANES)


@inlined
def both_finish(op: Any, walk: Any, tile: Any, row: int, cell: int) -> None:
    place = row * walk.columns + tile.column
    deliver(load(walk.cells, cell), op.out, place, tile.active)
    deliver(load(walk.cells, cell + LANES), op.other, place, tile.active)


@kernel
def spmm_pair_kernel(op: Any, walk: Any) -> None:
    drive(plain_pack, both_gather, both_finish, bare(op), bare(walk))


@inlined
def merge_pack(op: Any, walk: Any, tile: Any, node: int, line: int) -> None:
    place = node * walk.columns + tile.column
    store(fetch(op.x, place, tile.active), walk.table, line)
    store(fetch(op.y, place, tile.active), walk.table, line + LANES)


@inlined
def merge_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    total = zeros(op.x)
    for e in range(low, high):
        line = tile.table + at(walk.idx, e) * (2 * LANES)
        total = total + (load(walk.table, line) * at(op.values, e) + load(walk.table, line + LANES))
    store(total, cells, cell)


@kernel
def spmm_pair_backward_kernel(op: Any, walk: Any) -> None:
    drive(merge_pack, merge_gather, plain_finish, bare(op), bare(walk))


# ---------------------------------------------------------------------------- a sparse matrix under dropout, replicated


class SparseLinear(NamedTuple):
    x: Any
    values: Any
    keys: Any
    threshold: Any
    """`[replicas]`, uint32: an entry stays where its hash is at least this."""
    scale: Any
    entry: Any
    numbered: bool
    """Whether `entry` gives the entries' numbers; else they are 0, 1, …"""
    out: Any


@instruction
def survivors(_: Any, numbers: Any, key: Any, threshold: Any) -> Any:
    """A bit for each of the entries of these numbers: whether it survives; see `gfgn.ops.random.keep`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = ir.VectorType(ir.IntType(32), LANES)

        def constant(value: int) -> Any:
            return ir.Constant(half, [value] * LANES)

        high = builder.trunc(builder.lshr(args[0], ir.Constant(args[0].type, [32] * LANES)), half)
        h = builder.xor(builder.trunc(args[0], half), _splat(builder, args[1]))
        h = builder.xor(h, builder.mul(high, constant(0x9E3779B1)))
        h = builder.mul(builder.xor(h, builder.lshr(h, constant(16))), constant(0x7FEB352D))
        h = builder.mul(builder.xor(h, builder.lshr(h, constant(15))), constant(0x846CA68B))
        h = builder.xor(h, builder.lshr(h, constant(16)))
        lanes = builder.icmp_unsigned(">=", h, _splat(builder, args[2]))
        return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(numbers, types.uint32, types.uint32), emit


@inlined
def kept(op: Any, walk: Any, first: int, high: int, replica: int) -> Any:
    """A bit for each of the next `LANES` entries before `high` that survives a replica's dropout."""
    numbers = counting(first)
    if op.numbered:
        numbers = load(op.entry, first) if first + LANES <= walk.entries else fetch(op.entry, first, high - first)
    bits = survivors(numbers, at(op.keys, replica), at(op.threshold, replica))
    return bits if high - first >= LANES else bits & ((1 << (high - first)) - 1)


@inlined
def linear_gather(op: Any, walk: Any, tile: Any, row: int, low: int, high: int, cells: Any, cell: int) -> None:
    replica = tile.column // walk.part
    scale = at(op.scale, replica)
    total = zeros(op.x)
    sums = (total, total, total, total)
    for first in range(low, high, LANES):
        bits = kept(op, walk, first, high, replica)
        while bits != 0:
            e = first + lowest(bits)
            bits = bits & (bits - 1)
            value = at(op.values, e) * scale
            if walk.width == WIDE:
                sums = add_line(walk, tile, e, value, sums)
            else:
                total = total + load(walk.table, tile.table + at(walk.idx, e) * LANES) * value
    if walk.width == WIDE:
        store_line(sums, cells, cell)
    else:
        store(total, cells, cell)


@kernel
def sparse_linear_kernel(op: Any, walk: Any) -> None:
    drive(plain_pack, linear_gather, plain_finish, bare(op), bare(walk))


# ----------------------------------------------------------------------------------------------------- running a kernel


class Helpers:
    """Threads that lend a hand to whoever calls a kernel; started when first wanted."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Callable[..., Any], Any, Any]] = queue.SimpleQueue()
        self.count = 0
        self.lock = threading.Lock()

    def invite(self, count: int, job: tuple[Callable[..., Any], Any, Any]) -> None:
        if self.count < count:
            with self.lock:
                while self.count < count:
                    threading.Thread(target=self.work, name="gfgn-helper", daemon=True).start()
                    self.count += 1
        for _ in range(count):
            self.jobs.put(job)

    def work(self) -> None:
        while True:
            function, op, walk = self.jobs.get()
            function(op, walk)
            del function, op, walk  # hold no tensor while waiting


_helpers = Helpers()
_compiled: set[tuple[Callable[..., Any], torch.dtype]] = set()
_told: set[torch.dtype] = set()


def _after_fork() -> None:
    """A child has none of its parent's threads."""
    global _helpers
    _helpers = Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def _announced(dtype: torch.dtype) -> Iterator[None]:
    """Says on stderr what is going on if it takes more than a second, once a dtype."""

    def tell() -> None:
        if dtype not in _told:
            _told.add(dtype)
            name = str(dtype).removeprefix("torch.")
            print(f"gfgn: compiling the CPU kernels for {name} (once; cached on disk)…", file=sys.stderr, flush=True)

    timer = threading.Timer(1.0, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _run(function: Callable[..., Any], dtype: torch.dtype, op: Any, walk: Walk) -> None:
    if (function, dtype) not in _compiled:
        with _announced(dtype):
            function(op, walk)
        _compiled.add((function, dtype))
        return
    if (walk.entries + ROW_COST * walk.rows) * walk.blocks > SMALL:
        _helpers.invite(len(walk.cells) // (walk.sums * walk.width) - 1, (function, op, walk))
    function(op, walk)


def _fresh(*shape: int, dtype: torch.dtype) -> Tensor:
    """Memory of any content that begins on a cache line; if much, by NumPy, which asks the system for huge pages."""
    size = prod(shape) * dtype.itemsize
    if size < HUGE:
        return torch.empty(shape, dtype=dtype)
    buffer = np.empty(size + 64, dtype=np.uint8)
    start = -buffer.ctypes.data % 64
    return torch.from_numpy(buffer[start : start + size]).view(dtype).view(shape)


def _array(x: Tensor, dtype: torch.dtype | None = None) -> NDArray[Any]:
    """The elements in a row, in `dtype`; without a copy where none is needed."""
    x = x.detach()
    if dtype is not None and x.dtype != dtype:
        x = x.to(dtype)
    return x.contiguous().numpy().reshape(-1)


def _compute_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _walk(rows: CSR, x: Tensor, fields: int, sums: int, part: int = 0, width: int = LANES) -> Walk:
    """The plan of a walk over `rows` that gathers from rows of `x`."""
    dtype = _compute_dtype(x)
    nodes, columns = x.shape
    part = part or max(1, columns)
    blocks = columns // part * -(-part // width)
    line = fields * width * dtype.itemsize
    threads = torch.get_num_threads()
    table = TABLE_BYTES if threads > 1 else OWN_TABLE_BYTES
    group = max(1, min(blocks, table // max(1, nodes * line)))
    segments = rows.seg_hub.numel()
    scratch = (
        _fresh(group, nodes, fields, width, dtype=dtype),
        _fresh(threads, sums, width, dtype=dtype),
        _fresh(group, segments, sums, width, dtype=dtype),
        torch.zeros(1 + 6 * -(-blocks // group), dtype=torch.int64),
    )
    sizes = (rows.ptr.numel() - 1, rows.idx.numel(), rows.hub_rows.numel(), segments, nodes, part, columns)
    return Walk._make((*map(_array, (*rows, *scratch)), *sizes, width, blocks, group, fields, sums))


# ------------------------------------------------------------------------------------------------- the public functions


def pair_forward(
    a: Tensor, b: Tensor, z: Tensor, lam: Tensor, norm: Tensor, row_norm: Tensor, rows: CSR, save: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`out_i = z_i + λ Σ_j s t` with `s = σ(a_i + b_j)` and `t = norm_ij z_j − share_ij z_i`.

    Args:
        a, b, z: `[N, D]`.
        lam: λ, `[D]`.
        norm, row_norm: `[E]`, in the order of `rows.idx`.
        rows: for each target its sources.
        save: whether to return what the backward needs.

    Returns:
        `out`, `p = Σ_j s (1 − s) t` and `q = Σ_j s share_ij`, all `[N, D]`; `p` and `q` are empty unless `save`.
    """
    dtype = _compute_dtype(z)
    walk = _walk(rows, z, fields=2, sums=4 if save else 2)
    out = _fresh(*z.shape, dtype=dtype)
    p, q = (_fresh(*(z.shape if save else (0,)), dtype=dtype) for _ in range(2))
    far = np.zeros(walk.blocks, dtype=np.uint8)
    inputs = (_array(x, dtype) for x in (a, b, z, lam, norm, row_norm))
    op = PairForward._make((*inputs, far, *map(_array, (out, p, q)), save))
    _run(pair_forward_kernel, dtype, op, walk)
    return out.to(z.dtype), p.to(z.dtype), q.to(z.dtype)


def pair_backward(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    z: Tensor,
    p: Tensor,
    q: Tensor,
    lam: Tensor,
    norm_t: Tensor,
    row_norm_t: Tensor,
    rows_t: CSR,
    reuse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `pair_forward` with respect to `a`, `b` and `z`.

    Args:
        grad: the gradient of `out`, `[N, D]`.
        a, b, z, lam: as given to `pair_forward`.
        p, q: as returned by it.
        norm_t, row_norm_t: `[E]`, in the order of `rows_t.idx`.
        rows_t: for each source its targets.
        reuse: whether `p`, `b` and `q` may be overwritten, which is of no use here.
    """
    dtype = _compute_dtype(z)
    walk = _walk(rows_t, z, fields=3, sums=3)
    results = [_fresh(*z.shape, dtype=dtype) for _ in range(3)]
    far = np.zeros(walk.blocks, dtype=np.uint8)
    inputs = (_array(x, dtype) for x in (grad, a, b, z, p, q, lam, norm_t, row_norm_t))
    _run(pair_backward_kernel, dtype, PairBackward._make((*inputs, far, *map(_array, results))), walk)
    grad_a, grad_b, grad_z = (x.to(z.dtype) for x in results)
    return grad_a, grad_b, grad_z


def _plain(
    function: Callable[..., Any], walk: Walk, x: Tensor, y: Tensor | None, values: Tensor | None, outputs: int
) -> list[Tensor]:
    dtype = _compute_dtype(x)
    nothing = torch.empty(0, dtype=dtype)
    results = [_fresh(walk.rows, walk.columns, dtype=dtype) for _ in range(outputs)]
    operands = (x, nothing if y is None else y, nothing if values is None else values, *results, nothing)
    op = Plain._make((*(_array(operand, dtype) for operand in operands[:5]), values is not None))
    _run(function, dtype, op, walk)
    return [result.to(x.dtype) for result in results]


def spmm(x: Tensor, rows: CSR, values: Tensor | None) -> Tensor:
    """`out_i = Σ_e values_e x[idx_e]` over the entries of row `i`; without `values`, all are 1."""
    wide = x.size(1) >= WIDE and x.size(0) * WIDE * x.element_size() <= OWN_TABLE_BYTES
    walk = _walk(rows, x, fields=1, sums=1, width=WIDE if wide else LANES)
    (out,) = _plain(spmm_kernel, walk, x, None, values, 1)
    return out


def spmm_pair(x: Tensor, rows: CSR, values: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """`spmm(x, rows, values)` and `inverse_i · spmm(x, rows, None)_i`, gathering once."""
    weighted, plain = _plain(spmm_pair_kernel, _walk(rows, x, fields=1, sums=2), x, None, values, 2)
    return weighted, plain.mul_(inverse.to(plain.dtype).unsqueeze(1))


def spmm_pair_backward(g_weighted: Tensor, g_mean: Tensor, rows_t: CSR, values_t: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of `spmm_pair` with respect to `x`: `Σ_e values_e g_weighted[idx_e] + (inverse g_mean)[idx_e]`."""
    walk = _walk(rows_t, g_weighted, fields=2, sums=1)
    g_plain = g_mean * inverse.to(g_mean.dtype).unsqueeze(1)
    (out,) = _plain(spmm_pair_backward_kernel, walk, g_weighted, g_plain, values_t, 1)
    return out


def sparse_linear(
    weight: Tensor,
    rows: CSR,
    values: Tensor,
    keys: Tensor,
    rate: Tensor,
    entry: Tensor | None,
    out_columns: int,
) -> Tensor:
    """A sparse matrix under dropout times a weight, for `R` replicas that each drop other entries.

    Entry `e` of replica `r` stays if its hash is `⌊rate_r 2³²⌋` or more (`survivors`), and is divided by `1 − rate_r`.

    Args:
        weight: `[F, R * out_columns]`; replica `r` owns the `r`-th run of `out_columns` columns.
        rows, values: the sparse matrix, or its transpose.
        keys: `[R]`, int64, of which the low 32 bits count.
        rate: `[R]`, float64, in [0, 1).
        entry: `[E]`, int64: the entries' numbers, by which a transpose drops what its original drops; None: 0, 1, ….
        out_columns: columns of a replica.
    """
    dtype = _compute_dtype(weight)
    width = WIDE if out_columns > 2 * LANES else LANES
    walk = _walk(rows, weight, fields=1, sums=1, part=out_columns, width=width)
    out = _fresh(walk.rows, walk.columns, dtype=dtype)
    threshold = (rate.double() * 2.0**32).floor().to(torch.int64)
    op = SparseLinear(
        _array(weight, dtype),
        _array(values, dtype),
        _array(keys, torch.int64).astype(np.uint32),
        _array(threshold).astype(np.uint32),
        _array(1.0 / (1.0 - rate.double()), dtype),
        _array(torch.empty(0) if entry is None else entry, torch.int64),
        entry is not None,
        _array(out),
    )
    _run(sparse_linear_kernel, dtype, op, walk)
    return out.to(weight.dtype)
