"""The gates of small heads on the CPU, in Numba: products with each head's square matrices, and all that follows them.

As many whole heads as `LANES` columns hold make up a block. A row's block is one vector `x`, and its product with the
heads' matrices is `Σ_k x⁽ᵏ⁾ M_k`: `x⁽ᵏ⁾` has in every lane the `k`-th value of that lane's head, a shuffle within the
vector, and `M_k` the `k`-th rows of the heads' matrices side by side. Nothing between the inputs and the results of a
level is written to memory. Sums over rows are made a task at a time and joined in order: values do not depend on
threads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from llvmlite import ir
from numba import types
from torch import Tensor

from gfgn.ops.cpu.dense import _run
from gfgn.ops.cpu.heads import ROWS
from gfgn.ops.cpu.kernels import (
    LANES,
    Vector,
    _array,
    _fresh,
    bare,
    deliver,
    done,
    exp,
    fetch,
    inlined,
    instruction,
    kernel,
    meet,
    take,
    zeros,
)

STRIP = 16
"""Rows of which a block is worked out at a time, with its matrices in registers."""


# ------------------------------------------------------------------------------------------ matrices of a block's heads


def _spread(builder: Any, x: Any, k: int, size: int) -> Any:
    """In every lane the `k`-th value of that lane's head."""
    lanes = [min(lane // size * size + k, LANES - 1) for lane in range(LANES)]
    order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
    return builder.shuffle_vector(x, ir.Constant(x.type, ir.Undefined), order)


def _multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return builder.fadd(builder.fmul(x, y, flags=("contract",)), z, flags=("contract",))


@instruction
def matrix(_: Any, pointer: Any, offset: Any, size: Any) -> Any:
    """The rows of a block's matrix at `offset`, as many as the tuple `size` has items."""
    vector = Vector(pointer.dtype)
    rows = types.UniTuple(vector, len(size))

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lanes, width = context.get_value_type(vector).as_pointer(), pointer.dtype.bitwidth // 8
        places = [builder.add(args[1], ir.Constant(args[1].type, k * LANES)) for k in range(len(size))]
        found = [builder.load(builder.bitcast(builder.gep(args[0], [p]), lanes), align=width) for p in places]
        return context.make_tuple(builder, rows, found)

    return rows(pointer, types.int64, size), emit


@instruction
def put_matrix(_: Any, rows: Any, pointer: Any, offset: Any) -> Any:
    """Stores the rows of a block's matrix at `offset`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for k in range(len(rows)):
            place = builder.gep(args[1], [builder.add(args[2], ir.Constant(args[2].type, k * LANES))])
            row = builder.extract_value(args[0], k)
            builder.store(row, builder.bitcast(place, row.type.as_pointer()), align=pointer.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(rows, pointer, types.int64), emit


@instruction
def turned(_: Any, x: Any, rows: Any, onto: Any) -> Any:
    """`x M + onto`, head by head."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total = args[2]
        for k in range(len(rows)):
            value = _spread(builder, args[0], k, len(rows))
            total = _multiply_add(builder, value, builder.extract_value(args[1], k), total)
        return total

    return x(x, rows, onto), emit


@instruction
def outer(_: Any, rows: Any, x: Any, y: Any) -> Any:
    """`M + xᵀ y`, head by head."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = [
            _multiply_add(builder, _spread(builder, args[1], k, len(rows)), args[2], builder.extract_value(args[0], k))
            for k in range(len(rows))
        ]
        return context.make_tuple(builder, rows, found)

    return rows(rows, x, y), emit


# ----------------------------------------------------------------------------------------------------------- the strips


@inlined
def sigmoid(x: Any) -> Any:
    return 1.0 / (exp(x * -1.0) + 1.0)


@inlined
def drive(strip: Any, op: Any, work: Any) -> None:
    """The part of one thread. The blocks of a strip come in order: where heads do not fill a vector, a block writes
    into the first columns of the next, which writes them after it."""
    blocks = (op.columns + op.block - 1) // op.block
    task = take(work, 0)
    while task < work.number:
        for first in range(task * ROWS, min((task + 1) * ROWS, op.rows), STRIP):
            for block in range(blocks):
                strip(op, first, min(first + STRIP, op.rows), block, task * blocks + block)
        task = done(work, 0)
    meet(work, 0, work.number)


@inlined
def add_outer(op: Any, x: Any, y: Any, u: Any, v: Any, first: int, last: int, column: int, sums: int) -> None:
    """Adds `Σ xᵀ u` and `Σ yᵀ v` over the rows of a strip to a block's two sums."""
    left, step = op.columns - column, len(op.size) * LANES
    mine, theirs = matrix(op.sums, 2 * sums * step, op.size), matrix(op.sums, (2 * sums + 1) * step, op.size)
    for row in range(first, last):
        place = row * op.columns + column
        mine = outer(mine, fetch(x, place, left), fetch(u, place, left))
        theirs = outer(theirs, fetch(y, place, left), fetch(v, place, left))
    put_matrix(mine, op.sums, 2 * sums * step)
    put_matrix(theirs, op.sums, (2 * sums + 1) * step)


class Neighbor(NamedTuple):
    z: Any
    propagated: Any
    mean: Any
    lam: Any
    own: Any
    """`[blocks, d, LANES]`, as all matrices of blocks."""
    other: Any
    out: Any
    rows: int
    columns: int
    block: int
    """Columns of a block: those of its heads."""
    size: Any
    """A tuple with an item a column of a head: its length is known where a kernel is compiled."""


@inlined
def neighbor_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, heads = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = matrix(op.own, heads, op.size), matrix(op.other, heads, op.size)
    lam = fetch(op.lam, column, left)
    for row in range(first, last):
        place = row * op.columns + column
        z = fetch(op.z, place, left)
        s = lam * sigmoid(turned(fetch(op.mean, place, left), other, turned(z, own, zeros(op.z))))
        deliver(z + s * (fetch(op.propagated, place, left) - z), op.out, place, left)


@kernel
def neighbor_kernel(op: Any, work: Any) -> None:
    drive(neighbor_strip, bare(op), bare(work))


class NeighborBackward(NamedTuple):
    grad: Any
    z: Any
    propagated: Any
    mean: Any
    lam: Any
    own: Any
    other: Any
    own_back: Any
    """Of the transposed matrices."""
    other_back: Any
    grad_z: Any
    grad_propagated: Any
    grad_mean: Any
    sums: Any
    """`[tasks, blocks, 2, d, LANES]`: the gradients of the matrices, a task's row_norm each."""
    rows: int
    columns: int
    block: int
    size: Any


@inlined
def neighbor_backward_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    """Three times over the rows of a strip, since one would want more registers than there are."""
    column, heads = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = matrix(op.own, heads, op.size), matrix(op.other, heads, op.size)
    lam = fetch(op.lam, column, left)
    for row in range(first, last):
        place = row * op.columns + column
        z, grad = fetch(op.z, place, left), fetch(op.grad, place, left)
        s = sigmoid(turned(fetch(op.mean, place, left), other, turned(z, own, zeros(op.z))))
        taken = lam * (s * grad)
        deliver(taken, op.grad_propagated, place, left)
        deliver(grad - taken, op.grad_z, place, left)
        deliver(taken * ((fetch(op.propagated, place, left) - z) * (1.0 - s)), op.grad_mean, place, left)
    add_outer(op, op.z, op.mean, op.grad_mean, op.grad_mean, first, last, column, sums)
    own, other = matrix(op.own_back, heads, op.size), matrix(op.other_back, heads, op.size)
    for row in range(first, last):
        place = row * op.columns + column
        slope = fetch(op.grad_mean, place, left)
        deliver(turned(slope, own, fetch(op.grad_z, place, left)), op.grad_z, place, left)
        deliver(turned(slope, other, zeros(op.z)), op.grad_mean, place, left)


@kernel
def neighbor_backward_kernel(op: Any, work: Any) -> None:
    drive(neighbor_backward_strip, bare(op), bare(work))


class Halves(NamedTuple):
    z: Any
    own: Any
    other: Any
    a: Any
    b: Any
    rows: int
    columns: int
    block: int
    size: Any


@inlined
def halves_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, heads = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = matrix(op.own, heads, op.size), matrix(op.other, heads, op.size)
    for row in range(first, last):
        place = row * op.columns + column
        z = fetch(op.z, place, left)
        deliver(turned(z, own, zeros(op.z)), op.a, place, left)
        deliver(turned(z, other, zeros(op.z)), op.b, place, left)


@kernel
def halves_kernel(op: Any, work: Any) -> None:
    drive(halves_strip, bare(op), bare(work))


class HalvesBackward(NamedTuple):
    grad_a: Any
    grad_b: Any
    grad: Any
    z: Any
    own_back: Any
    other_back: Any
    out: Any
    sums: Any
    rows: int
    columns: int
    block: int
    size: Any


@inlined
def halves_backward_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, heads = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = matrix(op.own_back, heads, op.size), matrix(op.other_back, heads, op.size)
    for row in range(first, last):
        place = row * op.columns + column
        grad = turned(fetch(op.grad_a, place, left), own, fetch(op.grad, place, left))
        deliver(turned(fetch(op.grad_b, place, left), other, grad), op.out, place, left)
    add_outer(op, op.z, op.z, op.grad_a, op.grad_b, first, last, column, sums)


@kernel
def halves_backward_kernel(op: Any, work: Any) -> None:
    drive(halves_backward_strip, bare(op), bare(work))


# ------------------------------------------------------------------------------------------------- the public functions


@functools.lru_cache(maxsize=256)
def _places(heads: int, size: int) -> Tensor:
    """`[blocks, d, LANES]`: where the blocks' matrices have their values, in those of all heads and one zero."""
    each, lane = LANES // size, torch.arange(LANES)
    head = torch.arange(0, heads, each).view(-1, 1, 1) + lane // size
    place = (head * size + torch.arange(size).view(-1, 1)) * size + lane % size
    return torch.where((head < heads) & (lane < each * size), place, heads * size * size)


def _by_block(halves: Sequence[Tensor], transposed: bool = False) -> list[Tensor]:
    """The matrices `[heads, d, d]` of the heads as those of the blocks."""
    places = _places(*halves[0].shape[:2])
    halves = [half.transpose(1, 2) for half in halves] if transposed else halves
    return [torch.cat([half.reshape(-1), half.new_zeros(1)])[places] for half in halves]


def _start(kernel: Any, record: Any, tensors: Sequence[Tensor], x: Tensor, size: int) -> None:
    """Runs a kernel on the given tensors and the sizes of `x`."""
    sizes = (*x.shape, LANES // size * size, (0,) * size)
    _run(kernel, x.dtype, record(*map(_array, tensors), *sizes), -(-x.size(0) // ROWS))


def _sums(x: Tensor, gate: Tensor) -> Tensor:
    """Room for the gradients of the matrices, a task's row_norm each."""
    places = _places(gate.size(0), gate.size(2))
    return x.new_zeros(-(-x.size(0) // ROWS), places.size(0), 2, *places.shape[1:])


def _joined(sums: Tensor, gate: Tensor) -> Tensor:
    """The gradient of the gate from its tasks' shares."""
    heads, _, size = gate.shape
    found = gate.new_zeros(2, heads * size * size + 1)
    found[:, _places(heads, size).view(-1)] = sums.sum(0).transpose(0, 1).flatten(1)
    return torch.cat(found[:, :-1].view(2, heads, size, size).unbind(0), dim=1)


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`; see `gfgn.ops.heads`."""
    out = _fresh(*z.shape, dtype=z.dtype)
    if z.numel():
        tensors = (z, propagated, mean, lam.to(z.dtype), *_by_block(gate.chunk(2, dim=1)), out)
        _start(neighbor_kernel, Neighbor, tensors, z, gate.size(2))
    return out


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` for `z`, `propagated`, `mean` and the gate."""
    grad_z, grad_propagated, grad_mean = results = [_fresh(*z.shape, dtype=z.dtype) for _ in range(3)]
    if z.numel() == 0:
        return grad_z, grad_propagated, grad_mean, torch.zeros_like(gate)
    halves, sums = gate.chunk(2, dim=1), _sums(z, gate)
    matrices = (*_by_block(halves), *_by_block(halves, transposed=True))
    tensors = (grad, z, propagated, mean, lam.to(z.dtype), *matrices, *results, sums)
    _start(neighbor_backward_kernel, NeighborBackward, tensors, z, gate.size(2))
    return grad_z, grad_propagated, grad_mean, _joined(sums, gate)


def halves(z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """What each half of a gate makes of `z`."""
    a, b = (_fresh(*z.shape, dtype=z.dtype) for _ in range(2))
    if z.numel():
        _start(halves_kernel, Halves, (z, *_by_block(gate.chunk(2, dim=1)), a, b), z, gate.size(2))
    return a, b


def halves_backward(grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `halves` for `z`, added to `grad`, and for the gate."""
    out = _fresh(*z.shape, dtype=z.dtype)
    if z.numel() == 0:
        return out, torch.zeros_like(gate)
    sums = _sums(z, gate)
    matrices = _by_block(gate.chunk(2, dim=1), transposed=True)
    _start(halves_backward_kernel, HalvesBackward, (grad_a, grad_b, grad, z, *matrices, out, sums), z, gate.size(2))
    return out, _joined(sums, gate)
