"""Gates of small heads: products with each head's square matrices, and everything that follows them, in one pass.

A block is the largest number of whole heads that fit `LANES` columns. A row's block is one vector `x`, and its product
with the heads' matrices is `Σ_k x⁽ᵏ⁾ M_k`: every lane of `x⁽ᵏ⁾` holds the `k`-th value of that lane's head, a shuffle
within the vector, and `M_k` holds the `k`-th rows of the heads' matrices side by side. Nothing between the inputs and
the results of a level is written to memory. Sums over rows are computed per task and added in order: the bits do not
depend on threads.

The halves of a gate `[heads, 2d, d]` are `own`, for a node's own features, and `other`, for those of its neighbors.
"""

import functools
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, types
from gfgn.ops.cpu.compiler import Emitter, as_pointers, inlined, instruction
from gfgn.ops.cpu.heads import ROWS, from_blocks, num_tasks, row_sums, to_blocks
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import finish_task, next_task, run_tasks, wait_for_tasks
from gfgn.ops.cpu.types import LANES, Vector
from gfgn.ops.cpu.vectors import load_masked, prefetch_each, sigmoid, store_masked, zeros

STRIP = 16
"""Rows whose block is computed at a time, with its matrices in registers."""
AHEAD = 8 * LANES
"""How many columns before its use a row's block is prefetched."""


def _add_product(llvm: Emitter, x: Any, k: int, size: int, y: Any, total: Any) -> Any:
    """`x⁽ᵏ⁾ y + total` for heads of `size` columns."""
    in_head = llvm.shuffle(x, [min(lane // size * size + k, LANES - 1) for lane in range(LANES)])
    return llvm.multiply_add(in_head, y, total)


@instruction
def load_matrix(pointer: Any, offset: Any, size: Any) -> Any:
    """The rows of a block's matrix at `offset`; the tuple `size` has one item per row."""
    vector = Vector(pointer.dtype)
    rows = types.UniTuple(vector, len(size))

    def emit(llvm: Emitter, base: Any, offset: Any, _: Any) -> Any:
        loaded = [llvm.load(vector, llvm.element(base, offset, k * LANES)) for k in range(len(size))]
        return tuple(loaded)

    return rows(pointer, types.int64, size), emit


@instruction
def store_matrix(rows: Any, pointer: Any, offset: Any) -> Any:
    """Stores the rows of a block's matrix at `offset`."""

    def emit(llvm: Emitter, matrix: Any, base: Any, offset: Any) -> None:
        for k in range(len(rows)):
            row = matrix[k]
            llvm.store(rows.dtype, row, llvm.element(base, offset, k * LANES))

    return types.void(rows, pointer, types.int64), emit


@instruction
def multiply_heads(x: Any, rows: Any, initial: Any) -> Any:
    """`initial + x M` for each head."""

    def emit(llvm: Emitter, x: Any, matrix: Any, total: Any) -> Any:
        for k in range(len(rows)):
            total = _add_product(llvm, x, k, len(rows), matrix[k], total)
        return total

    return x(x, rows, initial), emit


@instruction
def add_outer_product(rows: Any, x: Any, y: Any) -> Any:
    """`M + xᵀ y` for each head."""

    def emit(llvm: Emitter, matrix: Any, x: Any, y: Any) -> Any:
        items = [matrix[k] for k in range(len(rows))]
        items = [_add_product(llvm, x, k, len(rows), y, item) for k, item in enumerate(items)]
        return tuple(items)

    return rows(rows, x, y), emit


# Operands of the kernels. All end with: `rows`; `columns`; `block`, the columns of a block; `size`, a tuple with one
# item per column of a head, whose length is known when a kernel is compiled. Matrices of blocks (`own`, `other`, and
# their transposes `own_t`, `other_t`) are `[blocks, d, LANES]`; `sums` are the gradients of both halves for each task,
# `[tasks, blocks, 2, d, LANES]`.
Neighbor = namedtuple("Neighbor", "z propagated mean lam own other out rows columns block size")
NeighborBackward = namedtuple(
    "NeighborBackward",
    "grad z propagated mean lam own other own_t other_t grad_z grad_propagated grad_mean sums rows columns block size",
)
Halves = namedtuple("Halves", "z own other a b rows columns block size")
HalvesBackward = namedtuple("HalvesBackward", "grad_a grad_b grad z own_t other_t out sums rows columns block size")


@inlined
def for_each_strip(run_strip: Any, op: Any, work: Any) -> None:
    """Calls `run_strip(op, first row, last row, block, index of its sums)` for the tasks that this thread gets.

    The blocks of a strip come in order: where heads do not fill a vector, a block writes into the first columns of the
    next, which overwrites them.
    """
    blocks = (op.columns + op.block - 1) // op.block
    task = next_task(work, 0)
    while task < work.number:
        for first in range(task * ROWS, min((task + 1) * ROWS, op.rows), STRIP):
            for block in range(blocks):
                run_strip(op, first, min(first + STRIP, op.rows), block, task * blocks + block)
        task = finish_task(work, 0)
    wait_for_tasks(work, 0, work.number)


@inlined
def add_outer_products(op: Any, x: Any, y: Any, u: Any, v: Any, first: int, last: int, column: int, sums: int) -> None:
    """Adds `Σ xᵀ u` and `Σ yᵀ v` over the rows of a strip to a block's two sums."""
    add_outer_product_sums(op, x, u, first, last, column, 2 * sums)
    add_outer_product_sums(op, y, v, first, last, column, 2 * sums + 1)


@inlined
def add_outer_product_sums(op: Any, x: Any, u: Any, first: int, last: int, column: int, sums: int) -> None:
    """Adds `Σ xᵀ u` over the rows of a strip; two such sums at once would need more registers than there are."""
    left, at = op.columns - column, sums * len(op.size) * LANES
    total = load_matrix(op.sums, at, op.size)
    for row in range(first, last):
        offset = row * op.columns + column
        total = add_outer_product(total, load_masked(x, offset, left), load_masked(u, offset, left))
    store_matrix(total, op.sums, at)


@inlined
def neighbor_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, matrix = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = load_matrix(op.own, matrix, op.size), load_matrix(op.other, matrix, op.size)
    lam = load_masked(op.lam, column, left)
    for row in range(first, last):
        offset = row * op.columns + column
        prefetch_each((op.z, op.mean, op.propagated, op.out), offset + AHEAD)
        z = load_masked(op.z, offset, left)
        score = multiply_heads(load_masked(op.mean, offset, left), other, multiply_heads(z, own, zeros(op.z)))
        change = lam * sigmoid(score) * (load_masked(op.propagated, offset, left) - z)
        store_masked(z + change, op.out, offset, left)


@kernel
def neighbor_kernel(op: Any, work: Any) -> None:
    for_each_strip(neighbor_strip, as_pointers(op), as_pointers(work))


@inlined
def neighbor_backward_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    """Three passes over the rows of a strip, since one would need more registers than there are."""
    column, matrix = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = load_matrix(op.own, matrix, op.size), load_matrix(op.other, matrix, op.size)
    lam = load_masked(op.lam, column, left)
    for row in range(first, last):
        offset = row * op.columns + column
        prefetch_each((op.z, op.mean, op.propagated, op.grad), offset + AHEAD)
        prefetch_each((op.grad_propagated, op.grad_z, op.grad_mean), offset + AHEAD)
        z, grad = load_masked(op.z, offset, left), load_masked(op.grad, offset, left)
        s = sigmoid(multiply_heads(load_masked(op.mean, offset, left), other, multiply_heads(z, own, zeros(op.z))))
        gated = lam * (s * grad)
        store_masked(gated, op.grad_propagated, offset, left)
        store_masked(grad - gated, op.grad_z, offset, left)
        slope = gated * ((load_masked(op.propagated, offset, left) - z) * (1.0 - s))
        store_masked(slope, op.grad_mean, offset, left)
    add_outer_products(op, op.z, op.mean, op.grad_mean, op.grad_mean, first, last, column, sums)
    own, other = load_matrix(op.own_t, matrix, op.size), load_matrix(op.other_t, matrix, op.size)
    for row in range(first, last):
        offset = row * op.columns + column
        slope = load_masked(op.grad_mean, offset, left)
        store_masked(multiply_heads(slope, own, load_masked(op.grad_z, offset, left)), op.grad_z, offset, left)
        store_masked(multiply_heads(slope, other, zeros(op.z)), op.grad_mean, offset, left)


@kernel
def neighbor_backward_kernel(op: Any, work: Any) -> None:
    for_each_strip(neighbor_backward_strip, as_pointers(op), as_pointers(work))


@inlined
def halves_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, matrix = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = load_matrix(op.own, matrix, op.size), load_matrix(op.other, matrix, op.size)
    for row in range(first, last):
        offset = row * op.columns + column
        prefetch_each((op.z, op.a, op.b), offset + AHEAD)
        z = load_masked(op.z, offset, left)
        store_masked(multiply_heads(z, own, zeros(op.z)), op.a, offset, left)
        store_masked(multiply_heads(z, other, zeros(op.z)), op.b, offset, left)


@kernel
def halves_kernel(op: Any, work: Any) -> None:
    for_each_strip(halves_strip, as_pointers(op), as_pointers(work))


@inlined
def halves_backward_strip(op: Any, first: int, last: int, block: int, sums: int) -> None:
    column, matrix = block * op.block, block * len(op.size) * LANES
    left = op.columns - column
    own, other = load_matrix(op.own_t, matrix, op.size), load_matrix(op.other_t, matrix, op.size)
    for row in range(first, last):
        offset = row * op.columns + column
        prefetch_each((op.grad_a, op.grad_b, op.grad, op.z, op.out), offset + AHEAD)
        grad = multiply_heads(load_masked(op.grad_a, offset, left), own, load_masked(op.grad, offset, left))
        store_masked(multiply_heads(load_masked(op.grad_b, offset, left), other, grad), op.out, offset, left)
    add_outer_products(op, op.z, op.z, op.grad_a, op.grad_b, first, last, column, sums)


@kernel
def halves_backward_kernel(op: Any, work: Any) -> None:
    for_each_strip(halves_backward_strip, as_pointers(op), as_pointers(work))


@functools.lru_cache(maxsize=256)
def _block_index(heads: int, size: int) -> Tensor:
    """`[blocks, d, LANES]`: see `gfgn.ops.cpu.heads.to_blocks`."""
    per_block, lane = LANES // size, torch.arange(LANES)
    head = torch.arange(0, heads, per_block).view(-1, 1, 1) + lane // size
    index = (head * size + torch.arange(size).view(-1, 1)) * size + lane % size
    return torch.where((head < heads) & (lane < per_block * size), index, heads * size * size)


def _halves_in_blocks(gate: Tensor, transposed: bool = False) -> list[Tensor]:
    """The matrices of the blocks for both halves of a gate `[heads, 2d, d]`."""
    index = _block_index(gate.size(0), gate.size(2))
    halves = gate.chunk(2, dim=1)
    return [to_blocks(half.transpose(1, 2) if transposed else half, index) for half in halves]


def _run(kernel: Any, record: Any, tensors: Sequence[Tensor], x: Tensor, size: int) -> None:
    """Runs a kernel on the given tensors and the sizes of `x`."""
    op = record(*map(arrays.flat, tensors), *x.shape, LANES // size * size, (0,) * size)
    run_tasks(kernel, op, num_tasks(x.size(0)))


def _new_sums(x: Tensor, gate: Tensor) -> Tensor:
    """Memory for the gradients of both halves for each task."""
    index = _block_index(gate.size(0), gate.size(2))
    return x.new_zeros(num_tasks(x.size(0)), index.size(0), 2, *index.shape[1:])


def _gate_gradient(sums: Tensor, gate: Tensor) -> Tensor:
    """The gradient of the gate from those of its tasks."""
    heads, _, size = gate.shape
    index = _block_index(heads, size)
    total = row_sums(sums.flatten(1)).view(sums.shape[1:])
    return torch.cat([from_blocks(half, index, (heads, size, size)) for half in total.unbind(1)], dim=1)


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`; see `gfgn.ops.heads`."""
    out = arrays.empty(*z.shape, dtype=z.dtype)
    if z.numel():
        tensors = (z, propagated, mean, lam.to(z.dtype), *_halves_in_blocks(gate), out)
        _run(neighbor_kernel, Neighbor, tensors, z, gate.size(2))
    return out


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` with respect to `z`, `propagated`, `mean` and the gate."""
    grad_z, grad_propagated, grad_mean = results = [arrays.empty(*z.shape, dtype=z.dtype) for _ in range(3)]
    if z.numel() == 0:
        return grad_z, grad_propagated, grad_mean, torch.zeros_like(gate)
    sums = _new_sums(z, gate)
    matrices = (*_halves_in_blocks(gate), *_halves_in_blocks(gate, transposed=True))
    tensors = (grad, z, propagated, mean, lam.to(z.dtype), *matrices, *results, sums)
    _run(neighbor_backward_kernel, NeighborBackward, tensors, z, gate.size(2))
    return grad_z, grad_propagated, grad_mean, _gate_gradient(sums, gate)


def halves(z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The products of `z` with both halves of a gate."""
    a, b = (arrays.empty(*z.shape, dtype=z.dtype) for _ in range(2))
    if z.numel():
        _run(halves_kernel, Halves, (z, *_halves_in_blocks(gate), a, b), z, gate.size(2))
    return a, b


def halves_backward(grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `halves` with respect to `z`, added to `grad`, and to the gate."""
    out = arrays.empty(*z.shape, dtype=z.dtype)
    if z.numel() == 0:
        return out, torch.zeros_like(gate)
    sums = _new_sums(z, gate)
    tensors = (grad_a, grad_b, grad, z, *_halves_in_blocks(gate, transposed=True), out, sums)
    _run(halves_backward_kernel, HalvesBackward, tensors, z, gate.size(2))
    return out, _gate_gradient(sums, gate)
