"""Products with one small matrix a head: heads lie side by side in the columns, and none is copied to get at it."""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 2048
"""Nodes whose share of a weight's gradient is one product, where there are many nodes and few heads."""
MANY_HEADS = 64
"""Heads from which on their number alone keeps a GPU busy."""


def by_head(x: Tensor, heads: int) -> Tensor:
    """`[N, heads·d]` seen as `[heads, N, d]`."""
    return x.view(x.size(0), heads, x.size(1) // heads).transpose(0, 1)


def head_matmul(x: Tensor, weight: Tensor, onto: Tensor | None = None) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`, added to `onto`."""
    heads, _, width = weight.shape
    out = x.new_empty(x.size(0), heads * width) if onto is None else onto
    if onto is None:
        torch.bmm(by_head(x, heads), weight, out=by_head(out, heads))
    else:
        by_head(out, heads).baddbmm_(by_head(x, heads), weight)
    return out


def head_weight_gradient(x: Tensor, grad: Tensor, heads: int) -> Tensor:
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`.

    The sum runs over all nodes into matrices so small that a GPU would leave most of itself idle: nodes are cut into
    chunks whose sums are worked out side by side and then added.
    """
    chunks = x.size(0) // CHUNK if heads < MANY_HEADS else 0
    if chunks < 2:
        return torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad, heads))
    cut = chunks * CHUNK
    d, e = x.size(1) // heads, grad.size(1) // heads
    x_chunks, grad_chunks = x[:cut].view(chunks, CHUNK, -1), grad[:cut].view(chunks, CHUNK, -1)
    out = torch.bmm(by_head(x[cut:], heads).transpose(1, 2), by_head(grad[cut:], heads))
    for k in range(heads):
        left, right = x_chunks[..., k * d : (k + 1) * d], grad_chunks[..., k * e : (k + 1) * e]
        out[k] += torch.bmm(left.transpose(1, 2), right).sum(0)
    return out
