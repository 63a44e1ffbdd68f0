"""Products with one small matrix per head, without copying the columns of a head."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.ops.dispatch import cpu_kernels

MANY_NODES = 16_384  # from which a GPU computes the gradient of a weight as one large product
MANY_HEADS = 64  # from which their number alone keeps a GPU busy
SMALL = 16  # columns of a head up to which the CPU has its own kernels, for matrices of at most four times as many rows


def by_head(x: Tensor, heads: int) -> Tensor:
    """`[N, heads·d]` viewed as `[heads, N, d]`."""
    return x.contiguous().view(x.size(0), heads, x.size(1) // heads).transpose(0, 1)


def head_matmul(x: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`, added to `onto`."""
    heads, depth, width = weight.shape
    out = x.new_empty(x.size(0), heads * width) if onto is None else onto
    small = _small_products(x, depth, width)
    if small is not None:
        small.head_matmul(x, weight, out, onto is not None)
    elif onto is None:
        torch.bmm(by_head(x, heads), weight, out=by_head(out, heads))
    else:
        by_head(out, heads).baddbmm_(by_head(x, heads), weight)
    return out


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    small = _small_products(x, x.size(1) // heads, grad.size(1) // heads)
    if small is not None:
        return small.head_weight_gradient(x, grad, heads)
    if not x.is_cuda or x.size(0) < MANY_NODES or heads >= MANY_HEADS:
        return torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad, heads))
    # A long sum into a few small matrices leaves most of a GPU idle. The product of all heads with all heads does not,
    # and is faster, although only the blocks on its diagonal are used.
    blocks = (x.t() @ grad).view(heads, x.size(1) // heads, heads, grad.size(1) // heads)
    return blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1).contiguous()


def _small_products(x: Tensor, depth: int, width: int) -> Any:
    """The kernels for products that are too small for a BLAS library, or `None`."""
    return cpu_kernels("heads") if _has_small_kernels(x, width) and depth <= 4 * SMALL else None


def _small_gates(x: Tensor, gate: Tensor) -> Any:
    """The kernels for the gates of small heads, or `None`."""
    return cpu_kernels("small_gates") if _has_small_kernels(x, gate.size(2)) else None


def _has_small_kernels(x: Tensor, width: int) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and width <= SMALL


def halves(z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The products of `z` with the two halves of a gate, `[heads, 2d, d]`."""
    small = _small_gates(z, gate)
    if small is not None:
        return small.halves(z, gate)
    own, other = gate.chunk(2, dim=1)
    return head_matmul(z, own), head_matmul(z, other)


def halves_backward(grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `halves`: for `z`, added to `grad` (possibly in place), and for the gate."""
    small = _small_gates(z, gate)
    if small is not None:
        return small.halves_backward(grad_a, grad_b, grad, z, gate)
    heads, (own, other) = gate.size(0), gate.chunk(2, dim=1)
    grad_gate = torch.cat([head_weight_gradient(z, g, heads) for g in (grad_a, grad_b)], dim=1)
    head_matmul(grad_a, own.transpose(1, 2), onto=grad)
    head_matmul(grad_b, other.transpose(1, 2), onto=grad)
    return grad, grad_gate


def neighbor_gate(z: Tensor, mean: Tensor, gate: Tensor) -> Tensor:
    """`σ([z ‖ mean] W_s)`, one `W_s` per head."""
    own, other = gate.chunk(2, dim=1)
    return head_matmul(mean, other, onto=head_matmul(z, own)).sigmoid_()


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`."""
    small = _small_gates(z, gate)
    if small is not None:
        return small.gated_neighbor(z, propagated, mean, gate, lam)
    s = neighbor_gate(z, mean, gate).mul_(lam.to(z.dtype))
    return torch.lerp(z, propagated, s, out=s)


def gated_neighbor_backward(
    grad: Tensor, z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `gated_neighbor` for `z`, `propagated`, `mean` and the gate."""
    small = _small_gates(z, gate)
    if small is not None:
        return small.gated_neighbor_backward(grad, z, propagated, mean, gate, lam)
    own, other = gate.chunk(2, dim=1)
    sigma, heads = neighbor_gate(z, mean, gate), gate.size(0)
    slope = (propagated - z).mul_(grad).mul_(lam.to(z.dtype)).mul_(sigma).mul_(1 - sigma)
    grad_propagated = sigma.mul_(lam.to(z.dtype)).mul_(grad)
    grad_z = head_matmul(slope, own.transpose(1, 2), onto=grad - grad_propagated)
    grad_mean = head_matmul(slope, other.transpose(1, 2))
    grad_gate = torch.cat([head_weight_gradient(x, slope, heads) for x in (z, mean)], dim=1)
    return grad_z, grad_propagated, grad_mean, grad_gate
