"""The operators in plain PyTorch, written straight from the equations: the truth every fast path is tested against.

Any device, any floating dtype (half precision is summed in float32), differentiable any number of times, in the
features as well as in the edge weights and λ. It holds tensors of shape `[E, D]`; the fused kernels never do.
"""

import torch
from torch import Tensor

from gfgn.ops.csr import CSR


def targets(rows: CSR) -> Tensor:
    """`[E]`: the row that each entry belongs to."""
    nodes = torch.arange(rows.ptr.numel() - 1, device=rows.ptr.device)
    return torch.repeat_interleave(nodes, rows.ptr.diff(), output_size=rows.idx.numel())


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float32 for half precision, else the dtype itself."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def spmm(x: Tensor, rows: CSR, values: Tensor | None) -> Tensor:
    """`out_i = Σ_j v_ij x_j`, with `v = 1` where `values` is `None`."""
    wide = x.to(compute_dtype(x.dtype))
    message = wide.index_select(0, rows.idx)
    if values is not None:
        message = values.to(wide.dtype).unsqueeze(1) * message
    out = wide.new_zeros(rows.ptr.numel() - 1, x.size(1)).index_add(0, targets(rows), message)
    return out.to(x.dtype)


def neighbor_max(x: Tensor, rows: CSR) -> Tensor:
    """`out_i = max_j x_j` over the neighbours of `i`, 0 where there are none."""
    place = targets(rows).unsqueeze(1).expand(-1, x.size(1))
    out = x.new_zeros(rows.ptr.numel() - 1, x.size(1))
    return out.scatter_reduce(0, place, x.index_select(0, rows.idx), "amax", include_self=False)


def head_linear(x: Tensor, weight: Tensor) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`."""
    heads, width, _ = weight.shape
    by_head = x.reshape(x.size(0), heads, width).transpose(0, 1)
    return torch.bmm(by_head, weight).transpose(0, 1).flatten(1)


def pair_gate(a: Tensor, b: Tensor, lam: float | Tensor, source: Tensor, target: Tensor) -> Tensor:
    """`s_ij = λ σ(a_i + b_j)` for each of the given edges."""
    return lam * torch.sigmoid(a.index_select(0, target) + b.index_select(0, source))


def pair_aggregate(
    a: Tensor, b: Tensor, z: Tensor, lam: float | Tensor, norm: Tensor, row_norm: Tensor, rows: CSR
) -> Tensor:
    """`out_i = (1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j` with `s_ij = λ σ(a_i + b_j)`."""
    dtype = compute_dtype(z.dtype)
    wide = z.to(dtype)
    source, target = rows.idx, targets(rows)
    s = pair_gate(a.to(dtype), b.to(dtype), lam, source, target)
    zeros = torch.zeros_like(wide)
    kept = 1 - zeros.index_add(0, target, s * row_norm.to(dtype).unsqueeze(1))
    taken = zeros.index_add(0, target, s * norm.to(dtype).unsqueeze(1) * wide.index_select(0, source))
    return (kept * wide + taken).to(z.dtype)


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: float | Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`, one `W_s` a head."""
    own, other = gate.to(z.dtype).chunk(2, dim=1)
    s = lam * torch.sigmoid(head_linear(z, own) + head_linear(mean, other))
    return ((1 - s) * z + s * propagated).to(z.dtype)
