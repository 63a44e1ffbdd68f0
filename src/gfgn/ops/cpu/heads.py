"""Products with one small matrix a head on the CPU, in Numba: eight columns are too few for a library to be good at.

Columns are taken `LANES` at a time, whichever heads they belong to. Such a block reads the columns of those heads and
no others, so that its matrix is a narrow one, with zeros where the heads differ; a row's values are multiplied onto its
rows one by one, all in registers. Sums over rows are made a task at a time and joined in order: values do not depend
on threads.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfgn.ops.cpu.dense import _run
from gfgn.ops.cpu.kernels import (
    LANES,
    _array,
    at,
    bare,
    done,
    extract,
    inlined,
    kernel,
    load,
    meet,
    put,
    store,
    take,
    zeros,
)

ROWS = 128
"""Rows in one task."""


class Blocks(NamedTuple):
    """How the columns of heads are cut into blocks of `LANES`."""

    first: Tensor
    """`[blocks]`: the first column that each block reads."""
    span: int
    """Columns that a block reads at most."""
    place: Tensor
    """`[blocks, span, LANES]`: where a block's matrix has its values, in the matrices of all heads and one zero."""


@functools.lru_cache(maxsize=256)
def _blocks(heads: int, depth: int, width: int) -> Blocks:
    """The blocks of `[heads, depth, width]` matrices."""
    column = torch.arange(-(-heads * width // LANES) * LANES).view(-1, LANES)
    head = column.clamp(max=heads * width - 1) // width
    first = head[:, 0] * depth
    span = int((head[:, -1] + 1 - head[:, 0]).max()) * depth
    read = first.view(-1, 1, 1) + torch.arange(span).view(1, -1, 1)
    there = (read // depth == head.unsqueeze(1)) & (column < heads * width).unsqueeze(1)
    place = (head.unsqueeze(1) * depth + read % depth) * width + (column % width).unsqueeze(1)
    return Blocks(first, span, torch.where(there, place, heads * depth * width))


class Product(NamedTuple):
    x: Any
    matrix: Any
    """`[blocks, span, LANES]`."""
    first: Any
    out: Any
    rows: int
    reads: int
    """Columns of `x`."""
    columns: int
    """Columns of `out`."""
    span: int
    add: bool


@inlined
def deliver(op: Any, total: Any, row: int, block: int) -> None:
    """Writes or adds a block of a row's results."""
    target = row * op.columns + block * LANES
    count = min(LANES, op.columns - block * LANES)
    if count == LANES:
        store(total + load(op.out, target) if op.add else total, op.out, target)
        return
    for lane in range(count):
        value = extract(total, lane)
        put(value + at(op.out, target + lane) if op.add else value, op.out, target + lane)


@inlined
def multiply(op: Any, row: int, block: int) -> None:
    """One block of one row."""
    first = at(op.first, block)
    total = zeros(op.out)
    for k in range(min(op.span, op.reads - first)):
        total = total + load(op.matrix, (block * op.span + k) * LANES) * at(op.x, row * op.reads + first + k)
    deliver(op, total, row, block)


@inlined
def multiply_four(op: Any, row: int, block: int) -> None:
    """One block of four rows, for which a row of the matrix is loaded once."""
    first = at(op.first, block)
    source = row * op.reads + first
    t0 = t1 = t2 = t3 = zeros(op.out)
    for k in range(min(op.span, op.reads - first)):
        weights = load(op.matrix, (block * op.span + k) * LANES)
        t0 = t0 + weights * at(op.x, source + k)
        t1 = t1 + weights * at(op.x, source + op.reads + k)
        t2 = t2 + weights * at(op.x, source + 2 * op.reads + k)
        t3 = t3 + weights * at(op.x, source + 3 * op.reads + k)
    deliver(op, t0, row, block)
    deliver(op, t1, row + 1, block)
    deliver(op, t2, row + 2, block)
    deliver(op, t3, row + 3, block)


@kernel
def product_kernel(record: Any, shared: Any) -> None:
    op, work = bare(record), bare(shared)
    blocks = (op.columns + LANES - 1) // LANES
    task = take(work, 0)
    while task < work.number:
        first, last = task * ROWS, min((task + 1) * ROWS, op.rows)
        fours = first + (last - first) // 4 * 4
        for block in range(blocks):
            for row in range(first, fours, 4):
                multiply_four(op, row, block)
            for row in range(fours, last):
                multiply(op, row, block)
        task = done(work, 0)
    meet(work, 0, work.number)


def head_matmul(x: Tensor, weight: Tensor, out: Tensor, add: bool) -> None:
    """`x_k W_k` for every head `k`, written or added to `out`, `[N, heads·e]`, which must be contiguous."""
    heads, depth, width = weight.shape
    if out.numel() == 0 or depth == 0:
        out.mul_(int(add))
        return
    blocks = _blocks(heads, depth, width)
    values = torch.cat([weight.reshape(-1), weight.new_zeros(1)])
    arrays = (_array(x), _array(values[blocks.place]), _array(blocks.first), _array(out))
    op = Product(*arrays, x.size(0), heads * depth, heads * width, blocks.span, add)
    _run(product_kernel, x.dtype, op, -(-x.size(0) // ROWS))


class Gradient(NamedTuple):
    x: Any
    grad: Any
    first: Any
    partial: Any
    """`[tasks, blocks, span, LANES]`."""
    rows: int
    reads: int
    columns: int
    span: int


@inlined
def accumulate(op: Any, task: int, block: int, blocks: int) -> None:
    """`Σ x_kᵀ g_k` over a task's rows for one block, four columns of `x` at a time."""
    first, last = task * ROWS, min((task + 1) * ROWS, op.rows)
    place = (task * blocks + block) * op.span * LANES
    source = at(op.first, block)
    for k in range(0, min(op.span, op.reads - source), 4):
        s0 = s1 = s2 = s3 = zeros(op.partial)
        ahead = min(3, op.reads - source - k - 1)  # columns beyond the last are read from within, and not kept
        for row in range(first, last):
            g = load(op.grad, row * op.columns + block * LANES)
            here = row * op.reads + source + k
            s0 = s0 + g * at(op.x, here)
            s1 = s1 + g * at(op.x, here + min(1, ahead))
            s2 = s2 + g * at(op.x, here + min(2, ahead))
            s3 = s3 + g * at(op.x, here + ahead)
        store(s0, op.partial, place + k * LANES)
        if k + 1 < op.span:
            store(s1, op.partial, place + (k + 1) * LANES)
        if k + 2 < op.span:
            store(s2, op.partial, place + (k + 2) * LANES)
        if k + 3 < op.span:
            store(s3, op.partial, place + (k + 3) * LANES)


@kernel
def gradient_kernel(record: Any, shared: Any) -> None:
    op, work = bare(record), bare(shared)
    blocks = (op.columns + LANES - 1) // LANES
    task = take(work, 0)
    while task < work.number:
        for block in range(blocks):
            accumulate(op, task, block, blocks)
        task = done(work, 0)
    meet(work, 0, work.number)


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    depth, width, rows = x.size(1) // heads, grad.size(1) // heads, x.size(0)
    if x.numel() == 0 or grad.numel() == 0:
        return x.new_zeros(heads, depth, width)
    blocks = _blocks(heads, depth, width)
    tasks = -(-rows // ROWS)
    if grad.size(1) % LANES:  # the last block of the last row reads beyond it
        grad = torch.cat([grad.reshape(-1), grad.new_zeros(LANES)])
    partial = x.new_zeros(tasks, *blocks.place.shape)
    arrays = (_array(x), _array(grad), _array(blocks.first), _array(partial))
    op = Gradient(*arrays, rows, heads * depth, heads * width, blocks.span)
    _run(gradient_kernel, x.dtype, op, tasks)
    found = x.new_zeros(heads * depth * width + 1)
    found[blocks.place.view(-1)] = partial.sum(0).view(-1)
    return found[:-1].view(heads, depth, width)
