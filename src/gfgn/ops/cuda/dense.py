"""CUDA kernels on dense tensors of replicas, in Triton: dropout by hash, gates of two hops, Adam steps, conditional
copies."""

# Triton's own functions cannot be annotated; the functions that launch them are.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from collections.abc import Sequence

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


@kernel(do_not_specialize=("size",))
def _two_hops(
    grad, own, one, two, first, second, lam, out, grad_one, grad_two, grad_first, grad_second, size, columns,
    BACKWARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    present = at < size
    scale = tl.load(lam + (at % columns), mask=present, other=0.0).to(tl.float32)
    x = tl.load(own + at, mask=present, other=0.0).to(tl.float32)
    l1 = tl.load(first + at, mask=present, other=0.0).to(tl.float32)
    l2 = tl.load(second + at, mask=present, other=0.0).to(tl.float32)
    top = tl.maximum(tl.maximum(l1, l2), 0.0)
    e1, e2 = tl.exp(l1 - top), tl.exp(l2 - top)
    total = tl.exp(-top) + e1 + e2
    p1, p2 = e1 / total, e2 / total
    d1 = tl.load(one + at, mask=present, other=0.0).to(tl.float32) - x
    d2 = tl.load(two + at, mask=present, other=0.0).to(tl.float32) - x
    if BACKWARD:
        g = tl.load(grad + at, mask=present, other=0.0).to(tl.float32)
        of_one, of_two = scale * g * p1, scale * g * p2
        slope1, slope2 = of_one * d1, of_two * d2
        mean = slope1 + slope2
        tl.store(out + at, g - of_one - of_two, mask=present)
        tl.store(grad_one + at, of_one, mask=present)
        tl.store(grad_two + at, of_two, mask=present)
        tl.store(grad_first + at, slope1 - p1 * mean, mask=present)
        tl.store(grad_second + at, slope2 - p2 * mean, mask=present)
    else:
        tl.store(out + at, x + scale * (p1 * d1 + p2 * d2), mask=present)


def two_hops(inputs: Sequence[Tensor], lam: Tensor) -> Tensor:
    """`gfgn.ops.gated_two_hops` of its five inputs, `[N, D]`, and λ, `[D]`."""
    own, *rest = checked(*inputs)
    out = torch.empty_like(own)
    if out.numel():
        grid = (cdiv(out.numel(), BLOCK),)
        unused = [out] * 4
        _two_hops[grid](own, own, *rest, lam, out, *unused, out.numel(), out.size(1), BACKWARD=False, BLOCK=BLOCK)
    return out


def two_hops_backward(inputs: Sequence[Tensor], lam: Tensor) -> tuple[Tensor, ...]:
    """The gradients of `two_hops` by its five inputs; the gradient of its result comes before these."""
    grad, *rest = checked(*inputs)
    out = [torch.empty_like(grad) for _ in range(5)]
    if grad.numel():
        grid = (cdiv(grad.numel(), BLOCK),)
        _two_hops[grid](grad, *rest, lam, *out, grad.numel(), grad.size(1), BACKWARD=True, BLOCK=BLOCK)
    return tuple(out)


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
