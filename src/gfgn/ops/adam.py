"""Optimizer steps on the parameters of many replicas at once.

A stacked parameter is viewed as `[outer, R, inner]`, whether the replicas are its first dimension (`outer = 1`) or a
later one. What differs between replicas (learning rate, weight decay) is a vector `[R]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gfgn.ops.dispatch import choose, elementwise

BETAS = (0.9, 0.999)
EPS = 1e-8


def adam_(
    p: Tensor,
    grad: Tensor,
    m: Tensor,
    v: Tensor,
    scale: Tensor,
    decay: Tensor,
    rate: Tensor,
    correction: Tensor,
    backend: str | None = None,
) -> None:
    """One step of Adam (Kingma and Ba, 2015) with an L2 penalty, in place on `p`, `m` and `v`.

    `g = scale · grad + decay · p`, `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`,
    `p ← p − rate · m / (√v / correction + ε)`.

    Args:
        p, grad, m, v: `[outer, R, inner]`, contiguous.
        scale: `[R]`, the factor of the gradient (1, or less where it is clipped).
        decay: `[R]`, the L2 penalty.
        rate: `[R]`, the learning rate over `1 − β₁ᵗ`.
        correction: `[1]`, `√(1 − β₂ᵗ)`.
    """
    backend = choose(p.device.type, p.dtype, backend)
    if backend != "reference":
        elementwise(backend).adam(p, grad, m, v, scale, decay, rate, correction, *BETAS, EPS)
        return
    scale, decay, rate = (value.to(p.dtype).view(-1, 1) for value in (scale, decay, rate))
    g = grad * scale + decay * p
    m.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
    v.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
    p.sub_(rate * m / (v.sqrt() / correction.to(p.dtype) + EPS))


def copy_where_(source: Tensor, target: Tensor, chosen: Tensor, backend: str | None = None) -> None:
    """Copies the replicas of `source` for which `chosen`, `[R]`, is true to `target`; both are `[outer, R, inner]`."""
    backend = choose(target.device.type, target.dtype, backend)
    if backend != "reference":
        elementwise(backend).copy_where(source, target, chosen)
    else:
        target.copy_(torch.where(chosen.view(-1, 1), source, target))
