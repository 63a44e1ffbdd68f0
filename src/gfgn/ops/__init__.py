"""The operators of GFGN: sums over neighbours, plain and gated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gfgn.ops import reference
from gfgn.ops.reference import compute_dtype

if TYPE_CHECKING:
    from gfgn.graph import Graph

__all__ = ["NEIGHBOR_POOL", "compute_dtype", "neighbor_mean", "neighbor_sum", "neighbor_max", "pair_aggregate", "pair_scores", "propagate"]


def propagate(x: Tensor, graph: Graph) -> Tensor:
    return reference.spmm(x, graph.by_target, graph.norm)


def neighbor_sum(x: Tensor, graph: Graph) -> Tensor:
    return reference.spmm(x, graph.by_target, None)


def neighbor_mean(x: Tensor, graph: Graph) -> Tensor:
    length = graph.row_lengths.clamp(min=1).to(x.dtype)
    return neighbor_sum(x, graph) / length.unsqueeze(1)


def neighbor_max(x: Tensor, graph: Graph) -> Tensor:
    return reference.neighbor_max(x, graph.by_target)


def pair_aggregate(a: Tensor, b: Tensor, z: Tensor, graph: Graph, lam: float | Tensor = 1.0) -> Tensor:
    return reference.pair_aggregate(a, b, z, lam, graph.norm, graph.share, graph.by_target)


def pair_scores(a: Tensor, b: Tensor, graph: Graph, lam: float | Tensor = 1.0) -> Tensor:
    s = reference.pair_gate(a, b, lam, graph.by_target.idx, graph.targets)
    nothing = s.new_zeros(1, s.size(1))  # slot −1, a removed self-loop, reads this last row
    return torch.cat([s, nothing]).index_select(0, graph.slot % (s.size(0) + 1))


NEIGHBOR_POOL = {"mean": neighbor_mean, "max": neighbor_max, "sum": neighbor_sum}
