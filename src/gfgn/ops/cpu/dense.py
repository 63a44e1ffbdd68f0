"""Passes over dense tensors of replicas on the CPU, in Numba: dropout by hash, and a step of Adam.

Each is one pass over memory, cut into tasks that the calling thread and its helpers take from one counter, as in
`numba_kernels`. Values do not depend on who took what.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu import kernels as numba_kernels
from gfgn.ops.cpu.kernels import (
    _announced,
    _array,
    _compiled,
    _compute_dtype,
    _fresh,
    at,
    bare,
    done,
    inlined,
    kernel,
    meet,
    put,
    take,
)
from gfgn.ops.heads import gated_neighbor, gated_neighbor_backward

__all__ = ["adam", "copy_where", "dropout", "gated_neighbor", "gated_neighbor_backward"]

CHUNK = 1 << 14
"""Elements in one task."""


class Tasks(NamedTuple):
    """The shared counter of a pass, and the number of its tasks."""

    clock: Any
    number: int


def _run(function: Callable[..., Any], dtype: torch.dtype, op: Any, tasks: int) -> None:
    work = Tasks(np.zeros(3, dtype=np.int64), tasks)
    if (function, dtype) not in _compiled:
        with _announced(dtype):
            function(op, work)
        _compiled.add((function, dtype))
        return
    if tasks > 1:
        numba_kernels._helpers.invite(min(tasks, torch.get_num_threads()) - 1, (function, op, work))
    function(op, work)


# ------------------------------------------------------------------------------------------------------------ dropout


class Dropout(NamedTuple):
    x: Any
    out: Any
    keys: Any
    cut: Any
    """`[replicas]`, uint32: a value stays where its hash is at least this."""
    scale: Any
    rows: int
    replicas: int
    width: int
    shared: bool


@inlined
def mixed(h: Any) -> Any:
    """32 well mixed bits; see `gfgn.ops.random.mix`."""
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
    h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


@inlined
def drop_run(op: Any, place: int, source: int, number: int, count: int, replica: int) -> None:
    """`count` consecutive values, the first being number `number` of its replica; none crosses 2³²."""
    key = np.uint32(at(op.keys, replica) ^ np.uint32((number >> 32) * 0x9E3779B1))
    low, cut, scale = np.uint32(number), at(op.cut, replica), at(op.scale, replica)
    for c in range(count):
        h = mixed(np.uint32(np.uint32(low + np.uint32(c)) ^ key))
        put(at(op.x, source + c) * (scale if h >= cut else scale * 0), op.out, place + c)


@kernel
def dropout_kernel(record: Any, shared: Any) -> None:
    op, work = bare(record), bare(shared)
    rows = max(1, CHUNK // (op.replicas * op.width))
    task = take(work, 0)
    while task < work.number:
        for row in range(task * rows, min((task + 1) * rows, op.rows)):
            number = row * op.width
            near = min(op.width, (((number >> 32) + 1) << 32) - number)
            for replica in range(op.replicas):
                place = (row * op.replicas + replica) * op.width
                source = number if op.shared else place
                drop_run(op, place, source, number, near, replica)
                if near < op.width:
                    drop_run(op, place + near, source + near, number + near, op.width - near, replica)
        task = done(work, 0)
    meet(work, 0, work.number)


def dropout(x: Tensor, keys: Tensor, rate: Tensor, shared: bool) -> Tensor:
    """Drops values of `x`, `[N, R·D]`: number `n D + d` of replica `r` by a hash of it and `keys[r]`.

    Args:
        x: `[N, R·D]`; replica `r` owns the `r`-th run of `D` columns. If `shared`, `[N, D]`, the same for all.
        keys: `[R]`, int64, of which the low 32 bits count.
        rate: `[R]`, in [0, 1).
        shared: Whether all replicas have the same values.
    """
    dtype, replicas = _compute_dtype(x), keys.numel()
    rows, columns = x.size(0), x.size(1) * (replicas if shared else 1)
    out = _fresh(rows, columns, dtype=dtype)
    if out.numel() == 0:
        return out.to(x.dtype)
    rate = rate.double()
    op = Dropout(
        _array(x, dtype),
        _array(out),
        _array(keys, torch.int64).astype(np.uint32),
        _array((rate * 2.0**32).floor().to(torch.int64)).astype(np.uint32),
        _array(1.0 / (1.0 - rate), dtype),
        rows,
        replicas,
        columns // replicas,
        shared,
    )
    _run(dropout_kernel, dtype, op, -(-rows // max(1, CHUNK // columns)))
    return out.to(x.dtype)


# --------------------------------------------------------------------------------------------------------------- Adam


class Adam(NamedTuple):
    p: Any
    grad: Any
    m: Any
    v: Any
    scale: Any
    """`[replicas]`: what the gradient is multiplied by."""
    decay: Any
    rate: Any
    """`[replicas]`: the learning rate over the first bias correction."""
    correction: Any
    """`[1]`: the square root of the second bias correction."""
    beta1: float
    beta2: float
    eps: float
    runs: int
    replicas: int
    inner: int


@inlined
def adam_run(op: Any, first: int, last: int, replica: int) -> None:
    scale, decay, rate = at(op.scale, replica), at(op.decay, replica), at(op.rate, replica)
    zero = scale * 0  # of the parameters' type, so that nothing is worked out in a wider one
    beta1, beta2, eps, correction = zero + op.beta1, zero + op.beta2, zero + op.eps, at(op.correction, 0)
    rest1, rest2 = zero + (1 - op.beta1), zero + (1 - op.beta2)
    for i in range(first, last):
        p = at(op.p, i)
        grad = at(op.grad, i) * scale + decay * p
        m = at(op.m, i) * beta1 + grad * rest1
        v = at(op.v, i) * beta2 + grad * grad * rest2
        put(m, op.m, i)
        put(v, op.v, i)
        put(p - rate * m / (sqrt(v) / correction + eps), op.p, i)


@kernel
def adam_kernel(record: Any, shared: Any) -> None:
    op, work = bare(record), bare(shared)
    size = op.runs * op.inner
    task = take(work, 0)
    while task < work.number:
        first = task * CHUNK
        end = min(first + CHUNK, size)
        while first < end:
            run = first // op.inner
            last = min(end, (run + 1) * op.inner)
            adam_run(op, first, last, run % op.replicas)
            first = last
        task = done(work, 0)
    meet(work, 0, work.number)


def adam(
    p: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    scale: Tensor,
    decay: Tensor,
    rate: Tensor,
    correction: Tensor,
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One step of Adam, in place, on parameters `[outer, R, inner]`; see `gfgn.ops.adam.adam_`."""
    if p.numel() == 0:
        return
    outer, replicas, inner = p.shape
    arrays = (_array(x, p.dtype) for x in (p, grad, m, v, scale, decay, rate, correction))
    op = Adam._make((*arrays, beta1, beta2, eps, outer * replicas, replicas, inner))
    _run(adam_kernel, p.dtype, op, -(-p.numel() // CHUNK))


# ------------------------------------------------------------------------------------------------ some of the replicas


class Copy(NamedTuple):
    source: Any
    target: Any
    chosen: Any
    runs: int
    replicas: int
    inner: int


@kernel
def copy_kernel(record: Any, shared: Any) -> None:
    op, work = bare(record), bare(shared)
    row_norm = (op.runs + work.number - 1) // work.number
    task = take(work, 0)
    while task < work.number:
        for run in range(task * row_norm, min((task + 1) * row_norm, op.runs)):
            if at(op.chosen, run % op.replicas) != 0:
                for i in range(run * op.inner, (run + 1) * op.inner):
                    put(at(op.source, i), op.target, i)
        task = done(work, 0)
    meet(work, 0, work.number)


def copy_where(source: Tensor, target: Tensor, chosen: Tensor) -> None:
    """Copies the chosen replicas of `source` to `target`, both `[outer, R, inner]`; `chosen` is `[R]`, boolean."""
    if target.numel() == 0 or not chosen.any():
        return
    outer, replicas, inner = target.shape
    op = Copy(_array(source), _array(target), _array(chosen, torch.uint8), outer * replicas, replicas, inner)
    _run(copy_kernel, target.dtype, op, -(-target.numel() // CHUNK))
