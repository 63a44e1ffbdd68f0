"""The operators in plain PyTorch, written straight from the equations: every fast path is tested against them.

Any device and any floating dtype (half precision is summed in float32), differentiable any number of times, in the
features as well as in the edge weights and λ. They hold tensors of shape `[E, D]`; the fused kernels never do.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gfgn.ops.csr import CSR

CHUNK_BYTES = 256 << 20  # memory for the messages of the heads that `attend` and `edge_dot` process at a time


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums are kept: float32 for half precision, else the dtype itself."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def gradient(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of `function(*inputs)`, which can be differentiated again; `None` for inputs that have none."""
    inputs = [x.clone() for x in inputs]
    needed = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(function(*inputs), needed, grad, create_graph=True))
    return tuple(next(found) if x.requires_grad else None for x in inputs)


def spmm(x: Tensor, rows: CSR, values: Tensor | None) -> Tensor:
    """`out_i = Σ_j v_ij x_j`, with `v = 1` where `values` is `None`."""
    wide = x.to(compute_dtype(x.dtype))
    message = wide.index_select(0, rows.idx)
    if values is not None:
        message = values.to(wide.dtype).unsqueeze(1) * message
    out = wide.new_zeros(rows.ptr.numel() - 1, x.size(1)).index_add(0, rows.row_of_each_entry(), message)
    return out.to(x.dtype)


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
    source, target = rows.idx, rows.row_of_each_entry()
    s = pair_gate(a.to(dtype), b.to(dtype), lam, source, target)
    zeros = torch.zeros_like(wide)
    kept = 1 - zeros.index_add(0, target, s * row_norm.to(dtype).unsqueeze(1))
    taken = zeros.index_add(0, target, s * norm.to(dtype).unsqueeze(1) * wide.index_select(0, source))
    return (kept * wide + taken).to(z.dtype)


def gated_neighbor(z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: float | Tensor) -> Tensor:
    """`(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`, one `W_s` per head."""
    own, other = gate.to(z.dtype).chunk(2, dim=1)
    s = lam * torch.sigmoid(head_linear(z, own) + head_linear(mean, other))
    return ((1 - s) * z + s * propagated).to(z.dtype)


def gated_two_hops(own: Tensor, one: Tensor, two: Tensor, first: Tensor, second: Tensor, lam: float | Tensor) -> Tensor:
    """`(1 − s_1 − s_2) own + s_1 one + s_2 two` with `s_k = λ exp(l_k) / (1 + exp(l_1) + exp(l_2))`."""
    logits = torch.stack([torch.zeros_like(first), first, second]).to(compute_dtype(own.dtype))
    s = lam * logits.softmax(0)[1:]
    return ((1 - s[0] - s[1]) * own + s[0] * one + s[1] * two).to(own.dtype)


def attend(alpha: Tensor, z: Tensor, rows: CSR, entry: Tensor) -> Tensor:
    """`out_i = Σ_e α[entry_e] z[idx_e]` over the entries of row `i`, with one weight per head."""
    heads, width = alpha.size(1), z.size(1) // alpha.size(1)
    messages = rows._replace(idx=torch.arange(entry.numel(), device=z.device, dtype=torch.int32))
    out = z.new_empty(rows.ptr.numel() - 1, z.size(1))
    for chunk in head_chunks(entry.numel(), heads, z):
        columns = slice(chunk.start * width, chunk.stop * width)
        message = z[:, columns].index_select(0, rows.idx).view(entry.numel(), chunk.stop - chunk.start, width)
        message = (message * alpha[:, chunk].index_select(0, entry).unsqueeze(2)).flatten(1)
        out[:, columns] = spmm(message, messages, None)
    return out


def edge_dot(q: Tensor, k: Tensor, rows: CSR, entry: Tensor, width: int) -> Tensor:
    """`out[entry_e] = ⟨q_i, k[idx_e]⟩` for the entries of every row `i` and every head of `width` columns."""
    heads, row = q.size(1) // width, rows.row_of_each_entry()
    out = q.new_empty(entry.numel(), heads)
    for chunk in head_chunks(entry.numel(), heads, q):
        columns = slice(chunk.start * width, chunk.stop * width)
        product = q[:, columns].index_select(0, row) * k[:, columns].index_select(0, rows.idx)
        out[entry, chunk] = product.view(entry.numel(), chunk.stop - chunk.start, width).sum(2)
    return out


def additive_attention(z: Tensor, weight: Tensor, kept: Tensor | None, rows: CSR, slope: float) -> Tensor:
    """`out_i = Σ_j α_ij z_j` with `α_ij = softmax_j(LeakyReLU(a_s · z_j + a_t · z_i))` for every head.

    `weight` is `[heads, d, 2]`: `a_s` and `a_t`. Dropout multiplies `α` by `kept`, `[entries, heads]`.
    """
    dtype, heads = compute_dtype(z.dtype), weight.size(0)
    wide, source, target = z.to(dtype), rows.idx, rows.row_of_each_entry()
    of_source, of_target = (head_linear(wide, a.to(dtype).unsqueeze(2)) for a in weight.unbind(2))
    u = of_source.index_select(0, source) + of_target.index_select(0, target)
    scores = torch.where(u > 0, u, slope * u)
    index = target.unsqueeze(1).expand(-1, heads)
    top = scores.new_zeros(z.size(0), heads).scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
    power = torch.exp(scores - top.index_select(0, target))
    total = torch.zeros_like(top).index_add(0, target, power)
    alpha = power / total.index_select(0, target)
    if kept is not None:
        alpha = alpha * kept.to(dtype)
    message = wide.index_select(0, source).unflatten(1, (heads, -1)) * alpha.unsqueeze(2)
    return torch.zeros_like(wide).index_add(0, target, message.flatten(1)).to(z.dtype)


def head_chunks(entries: int, heads: int, x: Tensor) -> list[slice]:
    """The heads in groups whose messages fit into `CHUNK_BYTES`."""
    width = x.size(1) // heads
    size = max(1, CHUNK_BYTES // max(1, entries * width * x.element_size()))
    return [slice(first, min(first + size, heads)) for first in range(0, heads, size)]
