"""Elementwise passes over dense tensors of replicas: dropout by hash, activations, gates of two hops, a step of Adam, a
copy of chosen replicas.

Each is one pass over memory, cut into tasks that threads share.
"""

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gfgn.ops.cpu import arrays, types, vectors
from gfgn.ops.cpu.compiler import Emitter, as_pointers, inlined, instruction
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.threads import finish_task, for_each_task, next_task, run_tasks, wait_for_tasks
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import exp, load_masked, read, store_masked, write
from gfgn.ops.heads import gated_neighbor, gated_neighbor_backward

__all__ = [
    "activate",
    "adam",
    "copy_where",
    "dropout",
    "gated_neighbor",
    "gated_neighbor_backward",
    "two_hops",
    "two_hops_backward",
]

CHUNK = 1 << 14
"""Elements in one task."""

# `keys`, `threshold`, `scale`: `[replicas]`, see `arrays.dropout_arrays`. `shared`: whether all replicas read the same
# values.
Dropout = namedtuple("Dropout", "x out keys threshold scale rows replicas width shared")


@inlined
def mix(h: Any) -> Any:
    """32 well mixed bits; see `gfgn.ops.keys.mix`."""
    h = np.uint32((h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D))
    h = np.uint32((h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


@inlined
def drop_consecutive(op: Any, offset: int, source: int, number: int, count: int, replica: int) -> None:
    """Drops among `count` consecutive values, whose numbers start at `number` and do not cross a multiple of 2³²."""
    key = np.uint32(read(op.keys, replica) ^ np.uint32((number >> 32) * 0x9E3779B1))
    low, threshold, scale = np.uint32(number), read(op.threshold, replica), read(op.scale, replica)
    for c in range(count):
        h = mix(np.uint32(np.uint32(low + np.uint32(c)) ^ key))
        write(read(op.x, source + c) * (scale if h >= threshold else scale * 0), op.out, offset + c)


@inlined
def dropout_task(op: Any, task: int) -> None:
    rows = max(1, CHUNK // (op.replicas * op.width))
    for row in range(task * rows, min((task + 1) * rows, op.rows)):
        number = row * op.width
        before = min(op.width, (((number >> 32) + 1) << 32) - number)  # values before the next multiple of 2³²
        for replica in range(op.replicas):
            offset = (row * op.replicas + replica) * op.width
            source = number if op.shared else offset
            drop_consecutive(op, offset, source, number, before, replica)
            if before < op.width:
                after = op.width - before
                drop_consecutive(op, offset + before, source + before, number + before, after, replica)


@kernel
def dropout_kernel(op: Any, work: Any) -> None:
    for_each_task(dropout_task, as_pointers(op), as_pointers(work))


def dropout(x: Tensor, keys: Tensor, rate: Tensor, shared: bool) -> Tensor:
    """Drops values of `x`, `[N, R·D]` or, if all replicas share it, `[N, D]`: value `n D + d` of replica `r` by a hash
    of this number and `keys[r]`."""
    dtype, replicas = arrays.compute_dtype(x), keys.numel()
    rows, columns = x.size(0), x.size(1) * (replicas if shared else 1)
    out = arrays.empty(rows, columns, dtype=dtype)
    if out.numel():
        tensors = (arrays.flat(x, dtype), arrays.flat(out), *arrays.dropout_arrays(keys, rate, dtype))
        op = Dropout(*tensors, rows, replicas, columns // replicas, shared)
        run_tasks(dropout_kernel, op, -(-rows // max(1, CHUNK // columns)))
    return out.to(x.dtype)


Activation = namedtuple("Activation", "x out size")


@inlined
def run_each(run_task: Any, function: Any, op: Any, work: Any) -> None:
    """`for_each_task` of tasks that also take a function."""
    task = next_task(work, 0)
    while task < work.number:
        run_task(function, op, task)
        task = finish_task(work, 0)
    wait_for_tasks(work, 0, work.number)


@inlined
def activation_task(function: Any, op: Any, task: int) -> None:
    end = min((task + 1) * CHUNK, op.size)
    for first in range(task * CHUNK, end, LANES):
        store_masked(function(load_masked(op.x, first, end - first)), op.out, first, end - first)


@kernel
def exp_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, exp, as_pointers(op), as_pointers(work))


@kernel
def sigmoid_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, vectors.sigmoid, as_pointers(op), as_pointers(work))


@kernel
def tanh_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, vectors.tanh, as_pointers(op), as_pointers(work))


@kernel
def elu_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, vectors.elu, as_pointers(op), as_pointers(work))


@kernel
def expm1_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, vectors.exp_minus_one, as_pointers(op), as_pointers(work))


@kernel
def softplus_kernel(op: Any, work: Any) -> None:
    run_each(activation_task, vectors.softplus, as_pointers(op), as_pointers(work))


ACTIVATIONS = {
    "exp": exp_kernel,
    "expm1": expm1_kernel,
    "sigmoid": sigmoid_kernel,
    "tanh": tanh_kernel,
    "elu": elu_kernel,
    "softplus": softplus_kernel,
}


def activate(x: Tensor, name: str) -> Tensor:
    """A function of every value. PyTorch's vectors and the numbers that do not fill one differ in the last bit."""
    dtype = arrays.compute_dtype(x)
    out = arrays.empty(*x.shape, dtype=dtype)
    if x.numel():
        op = Activation(arrays.flat(x, dtype), arrays.flat(out), x.numel())
        run_tasks(ACTIVATIONS[name], op, -(-x.numel() // CHUNK))
    return out.to(x.dtype)


TwoHops = namedtuple("TwoHops", "own one two first second lam out rows columns")
TwoHopsBackward = namedtuple(
    "TwoHopsBackward",
    "grad own one two first second lam grad_own grad_one grad_two grad_first grad_second rows columns",
)


@inlined
def shares(first: Any, second: Any) -> Any:
    """`exp(l_1) / (1 + exp(l_1) + exp(l_2))` and the same for `l_2`; no exponential overflows."""
    one = 1.0 / (exp(first * -1.0) + exp(second - first) + 1.0)
    return one, 1.0 / (exp(second * -1.0) + exp(first - second) + 1.0)


@inlined
def two_hops_lanes(op: Any, i: int, lam: Any, left: int) -> None:
    own = load_masked(op.own, i, left)
    p1, p2 = shares(load_masked(op.first, i, left), load_masked(op.second, i, left))
    change = p1 * (load_masked(op.one, i, left) - own) + p2 * (load_masked(op.two, i, left) - own)
    store_masked(own + lam * change, op.out, i, left)


@inlined
def two_hops_backward_lanes(op: Any, i: int, lam: Any, left: int) -> None:
    own, grad = load_masked(op.own, i, left), load_masked(op.grad, i, left)
    p1, p2 = shares(load_masked(op.first, i, left), load_masked(op.second, i, left))
    scaled = lam * grad
    of_one, of_two = scaled * p1, scaled * p2
    slope1 = of_one * (load_masked(op.one, i, left) - own)
    slope2 = of_two * (load_masked(op.two, i, left) - own)
    mean = slope1 + slope2
    store_masked(grad - of_one - of_two, op.grad_own, i, left)
    store_masked(of_one, op.grad_one, i, left)
    store_masked(of_two, op.grad_two, i, left)
    store_masked(slope1 - p1 * mean, op.grad_first, i, left)
    store_masked(slope2 - p2 * mean, op.grad_second, i, left)


@inlined
def two_hops_task(function: Any, op: Any, task: int) -> None:
    """Calls `function(op, i, lam, left)` for the elements from `i` on, of which `left` are in the same row."""
    rows = max(1, CHUNK // op.columns)
    for row in range(task * rows, min((task + 1) * rows, op.rows)):
        for column in range(0, op.columns, LANES):
            left = op.columns - column
            function(op, row * op.columns + column, load_masked(op.lam, column, left), left)


@kernel
def two_hops_kernel(op: Any, work: Any) -> None:
    run_each(two_hops_task, two_hops_lanes, as_pointers(op), as_pointers(work))


@kernel
def two_hops_backward_kernel(op: Any, work: Any) -> None:
    run_each(two_hops_task, two_hops_backward_lanes, as_pointers(op), as_pointers(work))


def two_hops(inputs: Sequence[Tensor], lam: Tensor) -> Tensor:
    """`gfgn.ops.gated_two_hops` of its five inputs, `[N, D]`, and λ, `[D]`."""
    return _two_hops(two_hops_kernel, TwoHops, inputs, lam, results=1)[0]


def two_hops_backward(inputs: Sequence[Tensor], lam: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `two_hops` by its five inputs; the gradient of its result comes before these."""
    return _two_hops(two_hops_backward_kernel, TwoHopsBackward, inputs, lam, results=5)


def _two_hops(kernel: Any, fields: Any, inputs: Sequence[Tensor], lam: Tensor, results: int) -> tuple[Tensor, ...]:
    x, dtype = inputs[0], arrays.compute_dtype(inputs[0])
    out = [arrays.empty(*x.shape, dtype=dtype) for _ in range(results)]
    if x.numel():
        tensors = [arrays.flat(value, dtype) for value in (*inputs, lam)]
        rows = max(1, CHUNK // x.size(1))
        run_tasks(kernel, fields(*tensors, *out, *x.shape), -(-x.size(0) // rows))
    return tuple(value.to(x.dtype) for value in out)


# All of `[replicas]` but the first four and `correction`, `[1]`. `scale`: the factor of the gradient; `rate`: the
# learning rate over the first bias correction; `correction`: the square root of the second.
Adam = namedtuple("Adam", "p grad m v scale decay rate correction beta1 beta2 eps size replicas inner")


@instruction
def adam_step(p: Any, grad: Any, m: Any, v: Any, own: Any, constants: Any) -> Any:
    """The new `p`, `m` and `v` by a replica's `own = (scale, decay, rate, correction)` and
    `constants = (β₁, 1 − β₁, β₂, 1 − β₂, ε)`, all in the parameters' type. Nothing is fused or approximated."""
    results, narrow = types.UniTuple(p, 3), p.scalar

    def emit(llvm: Emitter, p: Any, grad: Any, m: Any, v: Any, own: Any, constants: Any) -> Any:
        add, mul, div = llvm.builder.fadd, llvm.builder.fmul, llvm.builder.fdiv
        scale, decay, rate, correction = map(llvm.splat, own)
        casts = (llvm.cast(value, types.float64, narrow) for value in constants)
        beta1, rest1, beta2, rest2, eps = map(llvm.splat, casts)
        grad = add(mul(grad, scale), mul(decay, p))
        m = add(mul(m, beta1), mul(grad, rest1))
        v = add(mul(v, beta2), mul(mul(grad, grad), rest2))
        root = llvm.call(f"llvm.sqrt.v{LANES}f{narrow.bitwidth}", v.type, v)
        return llvm.builder.fsub(p, div(mul(rate, m), add(div(root, correction), eps))), m, v

    return results(p, grad, m, v, own, constants), emit


@inlined
def adam_consecutive(op: Any, first: int, last: int, replica: int) -> None:
    own = (read(op.scale, replica), read(op.decay, replica), read(op.rate, replica), read(op.correction, 0))
    constants = (op.beta1, 1 - op.beta1, op.beta2, 1 - op.beta2, op.eps)
    for i in range(first, last, LANES):
        left = last - i
        p, grad = load_masked(op.p, i, left), load_masked(op.grad, i, left)
        p, m, v = adam_step(p, grad, load_masked(op.m, i, left), load_masked(op.v, i, left), own, constants)
        store_masked(p, op.p, i, left)
        store_masked(m, op.m, i, left)
        store_masked(v, op.v, i, left)


@inlined
def adam_task(op: Any, task: int) -> None:
    first = task * CHUNK
    end = min(first + CHUNK, op.size)
    while first < end:
        run = first // op.inner
        last = min(end, (run + 1) * op.inner)
        adam_consecutive(op, first, last, run % op.replicas)
        first = last


@kernel
def adam_kernel(op: Any, work: Any) -> None:
    for_each_task(adam_task, as_pointers(op), as_pointers(work))


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
    if p.numel():
        tensors = (arrays.flat(x, p.dtype) for x in (p, grad, m, v, scale, decay, rate, correction))
        op = Adam._make((*tensors, beta1, beta2, eps, p.numel(), *p.shape[1:]))
        run_tasks(adam_kernel, op, -(-p.numel() // CHUNK))


Copy = namedtuple("Copy", "source target chosen runs runs_per_task replicas inner")


@inlined
def copy_task(op: Any, task: int) -> None:
    for run in range(task * op.runs_per_task, min((task + 1) * op.runs_per_task, op.runs)):
        if read(op.chosen, run % op.replicas) != 0:
            for i in range(run * op.inner, (run + 1) * op.inner):
                write(read(op.source, i), op.target, i)


@kernel
def copy_kernel(op: Any, work: Any) -> None:
    for_each_task(copy_task, as_pointers(op), as_pointers(work))


def copy_where(source: Tensor, target: Tensor, chosen: Tensor) -> None:
    """Copies the chosen replicas of `source` to `target`, both `[outer, R, inner]`; `chosen` is `[R]`, boolean."""
    if target.numel() == 0 or not chosen.any():
        return
    outer, replicas, inner = target.shape
    runs, tasks = outer * replicas, -(-target.numel() // CHUNK)
    tensors = (arrays.flat(source), arrays.flat(target), arrays.flat(chosen, torch.uint8))
    run_tasks(copy_kernel, Copy(*tensors, runs, -(-runs // tasks), replicas, inner), tasks)
