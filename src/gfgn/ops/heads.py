"""Products with one matrix per head, without copying the columns of a head, and sums over rows."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.ops.dispatch import cpu_kernels, cuda_kernels

MAX_KERNEL_WIDTH = 16  # columns of a head up to which the CPU has its own kernels of gates


def by_head(x: Tensor, heads: int) -> Tensor:
    """`[N, heads·d]` viewed as `[heads, N, d]`."""
    return x.contiguous().view(x.size(0), heads, x.size(1) // heads).transpose(0, 1)


def head_matmul(x: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`, added to `onto`."""
    heads, _, width = weight.shape
    out = x.new_empty(x.size(0), heads * width) if onto is None else onto
    own = _products(x)
    if own is not None:
        own.head_matmul(x, weight, out, onto is not None)
    elif onto is None:
        torch.bmm(by_head(x, heads), weight, out=by_head(out, heads))
    else:
        by_head(out, heads).baddbmm_(by_head(x, heads), weight)
    return out


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    own = _products(x)
    if own is not None:
        return own.head_weight_gradient(x, grad, heads)
    return torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad, heads))


def shared_matmul(x: Tensor, weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """`x W`, `[N, F]` times `[F, R·D]`, where the columns of `W` may be those of many replicas; the result in `dtype`
    if that is wider."""
    own, dtype = _products(x), dtype or weight.dtype
    if own is None:
        return x.to(dtype) @ weight.to(dtype)
    out = weight.new_empty(x.size(0), weight.size(1), dtype=dtype)
    own.head_matmul(x, weight.unsqueeze(0), out, False)
    return out


def shared_weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """`xᵀ g`, the gradient of `shared_matmul` for the weights."""
    own = _products(x)
    return x.t() @ grad if own is None else own.head_weight_gradient(x, grad, 1)[0]


def row_sums(x: Tensor) -> Tensor:
    """`[C]`: the sum of the rows of `[N, C]`."""
    own = _products(x)
    return x.sum(0) if own is None else own.row_sums(x)


def _products(x: Tensor) -> Any:
    """Kernels whose bits do not depend on the number of heads, columns or threads, or `None`: then PyTorch's."""
    if x.device.type == "cpu":
        return cpu_kernels("heads") if x.dtype in (torch.float32, torch.float64) else None
    return cuda_kernels("products", x.device) if x.dtype in (torch.float32, torch.bfloat16, torch.float16) else None


def _small_gates(x: Tensor, gate: Tensor) -> Any:
    """The kernels for the gates of small heads, or `None`."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64) or gate.size(2) > MAX_KERNEL_WIDTH:
        return None
    return cpu_kernels("small_gates")


def _half_kernels(x: Tensor, gate: Tensor) -> Any:
    """The kernels for both halves of a gate at once, or `None`."""
    return _small_gates(x, gate) if x.device.type == "cpu" else _products(x)


def halves(z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The products of `z` with the two halves of a gate, `[heads, 2d, d]`."""
    kernels = _half_kernels(z, gate)
    if kernels is not None:
        return kernels.halves(z, gate)
    own, other = gate.chunk(2, dim=1)
    return head_matmul(z, own), head_matmul(z, other)


def halves_backward(grad_a: Tensor, grad_b: Tensor, grad: Tensor, z: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `halves`: for `z`, added to `grad` (possibly in place), and for the gate."""
    kernels = _half_kernels(z, gate)
    if kernels is not None:
        return kernels.halves_backward(grad_a, grad_b, grad, z, gate)
    heads, (own, other) = gate.size(0), gate.chunk(2, dim=1)
    grad_gate = torch.cat([head_weight_gradient(z, g, heads) for g in (grad_a, grad_b)], dim=1)
    head_matmul(grad_a, own.transpose(1, 2), onto=grad)
    head_matmul(grad_b, other.transpose(1, 2), onto=grad)
    return grad, grad_gate


def neighbor_gate(z: Tensor, mean: Tensor, gate: Tensor) -> Tensor:
    """`σ([z ‖ mean] W_s)`, one `W_s` per head."""
    own, other = gate.chunk(2, dim=1)
    logits = head_matmul(mean, other, onto=head_matmul(z, own))
    exact = cpu_kernels("dense") if _products(logits) is not None and logits.device.type == "cpu" else None
    return logits.sigmoid_() if exact is None else exact.activate(logits, "sigmoid")  # PyTorch's bits depend on sizes


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`."""
    small = _small_gates(z, gate)
    if small is not None:
        return small.gated_neighbor(z, propagated, mean, gate, lam)
    s = neighbor_gate(z, mean, gate).mul_(lam.to(z.dtype))
    return (propagated - z).mul_(s).add_(z)  # the bits of `lerp` depend on sizes


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
