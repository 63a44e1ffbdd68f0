"""The operators of GFGN: sums over neighbours, plain and gated, linear maps and dropout.

Each has a plain PyTorch reference and fused kernels for the CPU (Numba) and CUDA (Triton) that never hold a tensor
with a row an edge. The backend is chosen by device; `backend=` or the environment variable `GFGN_BACKEND` overrides it
(`"reference"`, `"numba"`, `"triton"`), and `backends()` tells what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from gfgn.ops import reference, registration
from gfgn.ops.dense import dropout, is_batched, linear
from gfgn.ops.dispatch import Backend, backends, choose
from gfgn.ops.random import keyed
from gfgn.ops.reference import compute_dtype
from gfgn.ops.sparse import sparse_linear

if TYPE_CHECKING:
    from gfgn.graph import Graph

__all__ = [
    "NEIGHBOR_POOL",
    "Backend",
    "backends",
    "compute_dtype",
    "dropout",
    "gated_neighbor",
    "gated_pair",
    "gated_propagate",
    "head_linear",
    "keyed",
    "linear",
    "neighbor_max",
    "neighbor_mean",
    "neighbor_sum",
    "pair_aggregate",
    "pair_scores",
    "propagate",
    "propagate_and_mean",
    "sparse_linear",
]


def propagate(x: Tensor, graph: Graph, backend: str | None = None) -> Tensor:
    """`out_i = Σ_j Â_ij x_j`: features `[N, D]` summed over neighbours with normalised weights."""
    _check("propagate", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend, _needs_reference(graph))
    if backend == "reference":
        return reference.spmm(x, graph.by_target, graph.norm)
    return _spmm(x, graph, graph.norm, graph.reverse_norm, backend)


def neighbor_sum(x: Tensor, graph: Graph, backend: str | None = None) -> Tensor:
    """`out_i = Σ_{j∈N(i)} x_j`."""
    _check("neighbor_sum", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend)
    if backend == "reference":
        return reference.spmm(x, graph.by_target, None)
    return _spmm(x, graph, None, None, backend)


def neighbor_mean(x: Tensor, graph: Graph, backend: str | None = None) -> Tensor:
    """`out_i = Σ_{j∈N(i)} x_j / |N(i)|`, 0 where a node has no neighbours; weights do not count."""
    return neighbor_sum(x, graph, backend) * _inverse_count(graph).to(x.dtype).unsqueeze(1)


def neighbor_max(x: Tensor, graph: Graph, backend: str | None = None) -> Tensor:
    """`out_i = max_{j∈N(i)} x_j` a dimension, 0 where a node has no neighbours. There is no fused kernel for it."""
    _check("neighbor_max", graph, x=x)
    return reference.neighbor_max(x, graph.by_target)


def propagate_and_mean(x: Tensor, graph: Graph, backend: str | None = None) -> tuple[Tensor, Tensor]:
    """`propagate` and `neighbor_mean` of the same features from one walk over the edges."""
    _check("propagate_and_mean", graph, x=x)
    backend = choose(x.device.type, x.dtype, backend, _needs_reference(graph))
    if backend == "reference":
        return propagate(x, graph, backend), neighbor_mean(x, graph, backend)
    rows, reverse_rows = list(graph.by_target), list(graph.by_source)
    inverse = _inverse_count(graph)
    both: tuple[Tensor, Tensor] = registration.propagate_and_mean(
        x, rows, graph.norm, inverse, reverse_rows, graph.reverse_norm, backend
    )
    return both


def gated_propagate(z: Tensor, s: Tensor, graph: Graph, backend: str | None = None) -> Tensor:
    """`(1 − s) z + s Âz`, the output of the graph level.

    Args:
        z: `[N, D]`, the features that are gated.
        s: `[N, D]` gates, a row a node, or `[1, D]`, the same for all.
        graph: The edges.
        backend: `None` for the automatic choice.
    """
    _check("gated_propagate", graph, z=z)
    if s.dim() != 2 or s.size(0) not in (1, z.size(0)) or s.size(1) != z.size(1):
        raise ValueError(f"gated_propagate: s must have shape {list(z.shape)} or [1, {z.size(1)}], got {list(s.shape)}")
    backend = choose(z.device.type, z.dtype, backend, _needs_reference(graph))
    if backend != "triton":
        return torch.lerp(z, propagate(z, graph, backend), s)
    save = _is_differentiated(z, s)
    rows, reverse = list(graph.by_target), list(graph.by_source)
    out: Tensor = registration.gated_propagate(
        z, s.to(z.dtype), rows, graph.norm, reverse, graph.reverse_norm, save, backend
    )[0]
    return out


def pair_aggregate(
    a: Tensor, b: Tensor, z: Tensor, graph: Graph, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The gated sum of the pair level.

    `out_i = (1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j` with `s_ij = λ σ(a_i + b_j)`, every product element-wise.
    The gates are recomputed inside the kernel, forward and backward, and never stored.

    Args:
        a: `[N, D]`, what the target adds to the gate.
        b: `[N, D]`, what the source adds to the gate.
        z: `[N, D]`, the features that are gated.
        graph: The edges.
        lam: λ, one number or a `[D]` tensor with a value a column.
        backend: `None` for the automatic choice.
    """
    _check("pair_aggregate", graph, z=z, a=a, b=b)
    backend = choose(z.device.type, z.dtype, backend, _needs_reference(graph, lam))
    if backend == "reference":
        return reference.pair_aggregate(a, b, z, lam, graph.norm, graph.row_norm, graph.by_target)
    save = _is_differentiated(a, b, z)
    edges = _pair_edges(lam, z, graph)
    out: Tensor = registration.pair_aggregate(a.to(z.dtype), b.to(z.dtype), z, *edges, save, backend)[0]
    return out


def head_linear(x: Tensor, weight: Tensor, backend: str | None = None) -> Tensor:
    """`x_k W_k` for every head `k`: `[N, heads·d]` times `[heads, d, e]` gives `[N, heads·e]`."""
    if weight.dim() != 3 or x.dim() != 2 or x.size(1) != weight.size(0) * weight.size(1):
        raise ValueError(f"head_linear: x {list(x.shape)} must have heads·d columns for weight {list(weight.shape)}")
    if choose(x.device.type, x.dtype, backend) == "reference":
        return reference.head_linear(x, weight.to(x.dtype))
    return cast(Tensor, registration.head_linear(x, weight.to(x.dtype)))


def gated_pair(z: Tensor, gate: Tensor, graph: Graph, lam: float | Tensor = 1.0, backend: str | None = None) -> Tensor:
    """The output of the pair level: `pair_aggregate` with `a` and `b` from `z` by the two halves of the gate.

    As one operator it keeps neither `a` nor `b` for the backward pass.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        gate: `[heads, 2d, d]`, what each head makes of `[z_i ‖ z_j]`.
        graph: The edges.
        lam: λ, one number or a `[heads·d]` tensor with a value a column.
        backend: `None` for the automatic choice.
    """
    _check("gated_pair", graph, z=z)
    if gate.dim() != 3 or gate.size(1) != 2 * gate.size(2) or z.size(1) != gate.size(0) * gate.size(2):
        raise ValueError(
            f"gated_pair: gate must have shape [heads, 2d, d] with heads·d = {z.size(1)}, got {list(gate.shape)}"
        )
    backend = choose(z.device.type, z.dtype, backend, _needs_reference(graph, lam))
    gate = gate.to(z.dtype)
    if backend == "reference":
        a, b = (reference.head_linear(z, half) for half in gate.chunk(2, dim=1))
        return reference.pair_aggregate(a, b, z, lam, graph.norm, graph.row_norm, graph.by_target)
    save = _is_differentiated(z, gate)
    out: Tensor = registration.gated_pair(z, gate, *_pair_edges(lam, z, graph), save, backend)[0]
    return out


def gated_neighbor(
    z: Tensor, propagated: Tensor, mean: Tensor, gate: Tensor, lam: float | Tensor = 1.0, backend: str | None = None
) -> Tensor:
    """The output of the neighbour level, `(1 − s) z + s propagated` with `s = λ σ([z ‖ mean] W_s)`.

    Args:
        z: `[N, heads·d]`, the features that are gated.
        propagated: `[N, heads·d]`, what the neighbours give: `propagate` of `z`.
        mean: `[N, heads·d]`, what the gate sees of the neighbours: `neighbor_mean` of `z`.
        gate: `[heads, 2d, d]`, what each head makes of `[z ‖ mean]`.
        lam: λ, one number or a `[heads·d]` tensor with a value a column.
        backend: `None` for the automatic choice.
    """
    if gate.dim() != 3 or gate.size(1) != 2 * gate.size(2) or z.size(1) != gate.size(0) * gate.size(2):
        raise ValueError(
            f"gated_neighbor: gate must have shape [heads, 2d, d] with heads·d = {z.size(1)}, got {list(gate.shape)}"
        )
    for name, value in (("propagated", propagated), ("mean", mean)):
        if value.shape != z.shape:
            raise ValueError(f"gated_neighbor: {name} must have shape {list(z.shape)}, got {list(value.shape)}")
    needs_reference = "lam" if isinstance(lam, Tensor) and lam.requires_grad else None
    backend = choose(z.device.type, z.dtype, backend, needs_reference)
    if backend == "reference":
        return reference.gated_neighbor(z, propagated, mean, gate, lam)
    lam = _lam_by_column(lam, z, compute_dtype(z.dtype))
    out: Tensor = registration.gated_neighbor(z, propagated, mean, gate.to(z.dtype), lam, backend)
    return out


def pair_scores(a: Tensor, b: Tensor, graph: Graph, lam: float | Tensor = 1.0) -> Tensor:
    """The gates `s_ij = λ σ(a_i + b_j)` themselves, `[E, D]` in the order of the edges the graph was given; 0 for a
    self-loop that was removed."""
    s = reference.pair_gate(a, b, lam, graph.by_target.idx, graph.targets)
    nothing = s.new_zeros(1, s.size(1))  # the row that edge_position −1, a removed self-loop, reads
    return torch.cat([s, nothing]).index_select(0, graph.edge_position % (s.size(0) + 1))


NEIGHBOR_POOL = {"mean": neighbor_mean, "max": neighbor_max, "sum": neighbor_sum}


def _spmm(x: Tensor, graph: Graph, values: Tensor | None, reverse_values: Tensor | None, backend: str) -> Tensor:
    rows, reverse_rows = list(graph.by_target), list(graph.by_source)
    return cast(Tensor, registration.spmm(x, rows, values, reverse_rows, reverse_values, backend))


def _inverse_count(graph: Graph) -> Tensor:
    """`[N]`: one over the number of neighbours."""
    return graph.row_lengths.clamp(min=1).to(graph.norm.dtype).reciprocal()


def _pair_edges(lam: float | Tensor, z: Tensor, graph: Graph) -> tuple[Tensor | list[Tensor], ...]:
    """λ and the edges as the pair operators take them."""
    lam = _lam_by_column(lam, z, graph.norm.dtype)
    forward = (graph.norm, graph.row_norm, list(graph.by_target))
    return lam, *forward, graph.reverse_norm, graph.reverse_row_norm, list(graph.by_source)


def _lam_by_column(lam: float | Tensor, z: Tensor, dtype: torch.dtype) -> Tensor:
    """`[D]`: λ for every column of `z`."""
    if not isinstance(lam, Tensor):
        return torch.full((z.size(1),), lam, dtype=dtype, device=z.device)
    if lam.dim() > 1 or lam.numel() not in (1, z.size(1)):
        raise ValueError(f"lam must be a number or have shape [{z.size(1)}], got {list(lam.shape)}")
    return lam.to(z.device, dtype).expand(z.size(1)).contiguous()


def _needs_reference(graph: Graph, lam: float | Tensor = 1.0) -> str | None:
    """The argument, if any, that only the reference can differentiate."""
    if isinstance(lam, Tensor) and lam.requires_grad:
        return "lam"
    return "edge_weight" if graph.norm.requires_grad else None


def _is_differentiated(*inputs: Tensor) -> bool:
    """Whether a gradient will be asked for. Under `vmap` the tensors inside know that, not those seen here."""
    if not torch.is_grad_enabled():
        return False
    functorch = torch._C._functorch
    return any(x.requires_grad or (is_batched(x) and functorch.get_unwrapped(x).requires_grad) for x in inputs)


def _check(operator: str, graph: Graph, **features: Tensor) -> None:
    """Refuses features that do not fit the graph or one another."""
    shape = None
    for name, value in features.items():
        if value.dim() != 2 or value.size(0) != graph.num_nodes or (shape is not None and value.shape != shape):
            wanted = f"[{graph.num_nodes}, D]" if shape is None else list(shape)
            raise ValueError(f"{operator}: {name} must have shape {wanted}, got {list(value.shape)}")
        if value.device != graph.device:
            raise ValueError(f"{operator}: {name} is on {value.device}, but the graph is on {graph.device}")
        shape = value.shape
