"""CUDA kernels on dense tensors of replicas, in Triton: dropout by hash, Adam steps, conditional copies."""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import torch
import triton.language as tl
from torch import Tensor

from gfgn.ops.cuda.gates import gated_neighbor as gated_neighbor
from gfgn.ops.cuda.gates import gated_neighbor_backward as gated_neighbor_backward
from gfgn.ops.cuda.gather import checked, dropout_masks, hash_bits
from gfgn.ops.cuda.launch import cdiv, kernel, next_power_of_2

BLOCK = 1024


@kernel(do_not_specialize=("columns",))
def _dropout(x, out, key, threshold, scale, columns, width: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    present = column < columns
    replica = column // width
    number = row * width + (column - replica * width)
    keys = tl.load(key + replica, mask=present, other=0).to(tl.uint32)
    cut = tl.load(threshold + replica, mask=present, other=0).to(tl.uint32)
    at = row * columns + column
    value = tl.load(x + (number if SHARED else at), mask=present, other=0.0).to(tl.float32)
    value = value * tl.load(scale + replica, mask=present, other=0.0)
    tl.store(out + at, tl.where(hash_bits(number, keys) >= cut, value, 0.0), mask=present)


def dropout(x: Tensor, keys: Tensor, rate: Tensor, shared: bool) -> Tensor:
    """Drops values of `x`, `[N, R·D]`: value `n D + d` of replica `r` by a hash of that number and `keys[r]`. If
    `shared`, `x` is `[N, D]`, the same for all replicas."""
    (x,) = checked(x)
    rows, columns = x.size(0), x.size(1) * (keys.numel() if shared else 1)
    out = x.new_empty(rows, columns)
    if out.numel() == 0:
        return out
    block = min(BLOCK, next_power_of_2(columns))
    grid = (rows, cdiv(columns, block))
    masks = dropout_masks(keys, rate)
    _dropout[grid](x, out, *masks, columns, columns // keys.numel(), SHARED=shared, BLOCK=block)
    return out


@kernel(do_not_specialize=("size", "replicas"))
def _adam(
    p, grad, m, v, scale, decay, rate, correction, beta1, beta2, eps, size, replicas,
    inner: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present = at < size
    replica = ((at // inner) % replicas).to(tl.int32)
    value = tl.load(p + at, mask=present, other=0.0)
    g = tl.load(grad + at, mask=present, other=0.0) * tl.load(scale + replica, mask=present, other=0.0)
    g += tl.load(decay + replica, mask=present, other=0.0) * value
    first = tl.load(m + at, mask=present, other=0.0) * beta1 + g * (1.0 - beta1)
    second = tl.load(v + at, mask=present, other=0.0) * beta2 + g * g * (1.0 - beta2)
    tl.store(m + at, first, mask=present)
    tl.store(v + at, second, mask=present)
    root = tl.sqrt(second) / tl.load(correction)
    value -= tl.load(rate + replica, mask=present, other=0.0) * first / (root + eps)
    tl.store(p + at, value, mask=present)


def adam(p: Tensor, *rest: Tensor | float) -> None:
    """One step of Adam, in place, on parameters `[outer, R, inner]`; see `gfgn.ops.adam.adam_`."""
    if p.numel() == 0:
        return
    _, replicas, inner = p.shape
    _adam[(cdiv(p.numel(), BLOCK),)](p, *rest, p.numel(), replicas, inner=inner, BLOCK=BLOCK)


@kernel(do_not_specialize=("size", "replicas"))
def _copy_where(source, target, chosen, size, replicas, inner: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present = at < size
    replica = ((at // inner) % replicas).to(tl.int32)
    copied = tl.load(chosen + replica, mask=present, other=0) != 0
    tl.store(target + at, tl.load(source + at, mask=copied), mask=copied)


def copy_where(source: Tensor, target: Tensor, chosen: Tensor) -> None:
    """Copies the chosen replicas of `source` to `target`, both `[outer, R, inner]`; `chosen` is `[R]`, boolean. Other
    replicas are not read."""
    if target.numel() == 0:
        return
    _, replicas, inner = target.shape
    _copy_where[(cdiv(target.numel(), BLOCK),)](
        source, target, chosen.to(torch.int32), target.numel(), replicas, inner=inner, BLOCK=BLOCK
    )
