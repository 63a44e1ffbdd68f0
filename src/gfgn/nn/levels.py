"""The three levels of gating: from `z = HW` to the gated aggregation and its scores, as in the paper's equations.

A level is one function and one line in `LEVELS`. The columns of `z` are the heads one after the other; the gate
matrices are `[heads, d or 2d, d]`, and each reads the columns of its own head only. A gate of shape `[1, D or 2D, 1]`
with `D = heads·d` is one scalar for all dimensions of all heads; with zeros in it, `σ(0)` makes it the constant λ/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph

Lam: TypeAlias = float | Tensor
Pool: TypeAlias = str | Callable[[Tensor, Graph], Tensor]  # a function only at graph level


@dataclass(frozen=True)
class Level:
    """One level of gating."""

    aggregate: Callable[[Tensor, Tensor, Tensor | None, Lam, Graph, Pool, bool], tuple[Tensor, Tensor | None]]
    """`(z, gate, gate_bias, lam, graph, pool, return_scores) → (output, scores)`; `gate_bias` is not in the paper."""
    gate_inputs: int
    """Number of `d`-wide representations that the gate reads: 1 for `z̄`, 2 for a concatenation."""
    pools: bool
    """Whether the gate pools nodes, so that `pool` has an effect."""


def pool_nodes(z: Tensor, graph: Graph, pool: Pool) -> Tensor:
    """Pools the nodes of each graph, its targets if it is bipartite, or the seeds of a sample: `[num_graphs, D]`, 0 for
    a graph without nodes."""
    if not isinstance(pool, str):
        return pool(z, graph)
    batch = graph.batch
    first = graph.num_targets if graph.num_seeds is None else graph.num_seeds
    if first is not None:
        z, batch = z[:first], None if batch is None else batch[:first]
    if batch is None:  # a plain reduction
        if pool == "max":
            return z.amax(0, keepdim=True) if z.size(0) else z.new_zeros(1, z.size(1))
        return ops.sum_rows(z) if pool == "sum" else ops.sum_rows(z) / max(z.size(0), 1)
    if pool == "max":
        index = batch.unsqueeze(1).expand_as(z)
        return z.new_zeros(graph.num_graphs, z.size(1)).scatter_reduce(0, index, z, "amax", include_self=False)
    wide = z.to(ops.compute_dtype(z.dtype))
    total = wide.new_zeros(graph.num_graphs, z.size(1)).index_add(0, batch, wide)
    if pool == "mean":
        count = wide.new_zeros(graph.num_graphs).index_add(0, batch, wide.new_ones(z.size(0)))
        total = total / count.clamp(min=1).unsqueeze(1)
    return total.to(z.dtype)


def graph_level(
    z: Tensor, gate: Tensor, gate_bias: Tensor | None, lam: Lam, graph: Graph, pool: Pool, return_scores: bool
) -> tuple[Tensor, Tensor | None]:
    """`(1 − s) z_i + s Σ_j Â_ij z_j` with `s = λ σ(Pool_i(z_i) W_s)`, one `s` per graph."""
    plain = pool == "mean" and gate_bias is None and not return_scores and _is_per_dimension(z, gate)
    if plain and graph.batch is None and graph.num_targets is None and graph.num_seeds is None:
        return ops.gated_graph(z, gate, graph, lam), None
    logit = add_bias(ops.head_linear(pool_nodes(z, graph, pool), gate), gate_bias)
    s = for_columns(z, lam * ops.activate(logit, "sigmoid"))
    s_of_node = s if graph.batch is None else s.index_select(0, graph.batch)
    return ops.gated_propagate(z, s_of_node, graph), s


def neighbor_level(
    z: Tensor, gate: Tensor, gate_bias: Tensor | None, lam: Lam, graph: Graph, pool: Pool, return_scores: bool
) -> tuple[Tensor, Tensor | None]:
    """`(1 − s_i) z_i + s_i Σ_j Â_ij z_j` with `s_i = λ σ([z_i ‖ Pool_{j∈N(i)}(z_j)] W_s)`."""
    assert isinstance(pool, str)
    plain = gate_bias is None and not return_scores and _is_per_dimension(z, gate)
    if pool == "mean":
        if plain:
            return ops.gated_neighborhood(z, gate, graph, lam), None
        propagated, pooled = ops.propagate_and_mean(z, graph)
    else:
        propagated, pooled = ops.propagate(z, graph), ops.NEIGHBOR_POOL[pool](z, graph)
        if plain:
            return ops.gated_neighbor(z, propagated, pooled, gate, lam), None
    own, other = gate.chunk(2, dim=1)
    logit = add_bias(ops.head_linear(z, own) + ops.head_linear(pooled, other), gate_bias)
    s = for_columns(z, lam * ops.activate(logit, "sigmoid"))
    return torch.lerp(z, propagated, s), s


def pair_level(
    z: Tensor, gate: Tensor, gate_bias: Tensor | None, lam: Lam, graph: Graph, pool: Pool, return_scores: bool
) -> tuple[Tensor, Tensor | None]:
    """`(1 − Σ_j s_ij A_ij/d_i) z_i + Σ_j s_ij Â_ij z_j` with `s_ij = λ σ([z_i ‖ z_j] W_s)`.

    `[z_i ‖ z_j] W_s = z_i U + z_j V`, so that only node tensors reach the operator.
    """
    fused = gate_bias is None and _is_per_dimension(z, gate)
    if fused and not return_scores:
        return ops.gated_pair(z, gate, graph, lam), None
    own, other = gate.chunk(2, dim=1)
    a = for_columns(z, add_bias(ops.head_linear(z, own), gate_bias))
    b = for_columns(z, ops.head_linear(z, other))
    out = ops.gated_pair(z, gate, graph, lam) if fused else ops.pair_aggregate(a, b, z, graph, lam)
    return out, ops.pair_scores(a, b, graph, lam) if return_scores else None


def _is_per_dimension(z: Tensor, gate: Tensor) -> bool:
    return gate.size(0) * gate.size(2) == z.size(1)


def for_columns(z: Tensor, score: Tensor) -> Tensor:
    """A score per column of `z` as it is; a single one repeated, by a product with ones: the gradient, a sum over
    columns, then has the same bits for a replica alone and among others."""
    if score.size(1) == z.size(1):
        return score
    return ops.head_linear(score, torch.ones(1, 1, z.size(1), dtype=score.dtype, device=score.device))


def add_bias(score: Tensor, gate_bias: Tensor | None) -> Tensor:
    return score if gate_bias is None else score + ops.expand_rows(gate_bias, score.size(0))


LEVELS = {
    "graph": Level(graph_level, gate_inputs=1, pools=True),
    "neighbor": Level(neighbor_level, gate_inputs=2, pools=True),
    "pair": Level(pair_level, gate_inputs=2, pools=False),
}
POOLS = ("mean", "max", "sum")
GATE_FORMS = ("dimension", "scalar", "constant")
