"""Products with one small matrix a head: heads lie side by side in the columns, and none is copied to get at it."""

from __future__ import annotations

import torch
from torch import Tensor

MANY_NODES = 16_384
"""Nodes from which on a GPU takes the gradient of a weight as one large product."""
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
    """`x_kᵀ g_k` for every head `k`: `[heads, d, e]`."""
    if not x.is_cuda or x.size(0) < MANY_NODES or heads >= MANY_HEADS:
        return torch.bmm(by_head(x, heads).transpose(1, 2), by_head(grad, heads))
    # A long sum into a few small matrices leaves most of a GPU idle. The product of all heads with all heads does not,
    # and is the faster way to the blocks on its diagonal, though the rest is thrown away.
    blocks = (x.t() @ grad).view(heads, x.size(1) // heads, heads, grad.size(1) // heads)
    return blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1).contiguous()
