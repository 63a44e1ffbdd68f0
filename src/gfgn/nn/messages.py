"""The gated sum edge by edge, in the order of the given edges: what explanations read and mask.

The kernels of a layer never form messages. Here `out_i = own_i + Σ_j s_ij (Â_ij z_j − r_ij z_i)` with one message per
given edge: `r_ij = A_ij/d_i` at pair level and 0 at the others, whose own part `(1 − s) z_i` is no sum over edges.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from gfgn.graph import Graph
from gfgn.nn.levels import LEVELS, Lam, Pool


class Messages(NamedTuple):
    """The terms of every message, one row per given edge, and the rest of the output.

    A removed self-loop has weights of 0. Repeated edges, which the graph merges, share their message equally.
    """

    edge_index: Tensor  # [2, E], source and target; 0 and 0 for a removed self-loop
    gate: Tensor  # [E, D], s_ij
    norm: Tensor  # [E, 1], Â_ij
    row_norm: Tensor  # [E, 1], r_ij
    own: Tensor  # [N, D], own_i
    scores: Tensor  # the gates as the layer returns them


def build_messages(
    level: str, z: Tensor, gate: Tensor, gate_bias: Tensor | None, lam: Lam, graph: Graph, pool: Pool
) -> Messages:
    """The messages of one layer."""
    stored = dataclasses.replace(graph, given_order=None)  # so that the pair level's scores are those of stored edges
    _, s = LEVELS[level].aggregate(z, gate, gate_bias, lam, stored, pool, True)
    assert s is not None
    source, target = graph.edge_index
    if level == "pair":
        gates, own = s, z
    else:
        s_of_node = s if level == "neighbor" else s.expand_as(z) if graph.batch is None else s[graph.batch]
        gates, own = s_of_node[target], (1 - s_of_node) * z
    norm, row_norm = graph.norm.unsqueeze(1), graph.row_norm.unsqueeze(1)
    if level != "pair":
        row_norm = torch.zeros_like(row_norm)

    position = graph.edge_position
    copies = torch.bincount(position[position >= 0], minlength=graph.num_edges)
    added = torch.nonzero(copies == 0).view(-1)  # self-loops that the graph added: no given edge is theirs
    if added.numel():
        i, j = target[added], source[added]
        own = own.index_add(0, i, (gates[added] * (norm[added] * z[j] - row_norm[added] * z[i])).to(own.dtype))
    copies = copies.clamp(min=1).unsqueeze(1)

    def given(values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(1, *values.shape[1:])])[position]  # position −1 reads the zeros

    edge_index = torch.stack([given(source), given(target)])
    gates = given(gates)
    return Messages(
        edge_index, gates, given(norm / copies), given(row_norm / copies), own, gates if level == "pair" else s
    )
