"""`resgated`: residual gated graph convolution, the closest relative of GFGN at pair level."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, per_graph
from gfgn.nn.baselines.common import UniformConvNetwork
from gfgn.nn.linear import Rate, ResettableModule, StackedLinear


class ResGatedLayer(ResettableModule):
    """`h'_i = W_1 h_i + Σ_{j∈N(i)} σ(W_2 h_i + W_3 h_j) ⊙ W_4 h_j + b`: PyG's `ResGatedGraphConv`.

    The gates are computed inside GFGN's pair operator, so no `[E, D]` tensor is stored.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        names = ("skip", "key", "query", "value")
        self.lin = StackedLinear(in_channels, dict.fromkeys(names, out_channels), bias=names)

    def forward(self, x: Tensor, unscaled: Graph, dropout: Rate = 0.0) -> Tensor:
        """Runs the layer on a graph that `unscaled` returned."""
        skip, key, query, value = self.lin(x, dropout)
        # With norm = 1 and row_norm = 0 the pair operator gives z_i + Σ_j σ(a_i + b_j) z_j.
        return skip + ops.pair_aggregate(key, query, value, unscaled) - value


@per_graph
def unscaled(graph: Graph) -> Graph:
    """The graph with `norm` 1 and `row_norm` 0 on every edge."""
    ones, zeros = torch.ones_like(graph.norm), torch.zeros_like(graph.row_norm)
    return dataclasses.replace(graph, norm=ones, reverse_norm=ones, row_norm=zeros, reverse_row_norm=zeros)


class ResGated(UniformConvNetwork):
    """*Residual Gated Graph ConvNets* (Bresson and Laurent, 2017)."""

    layer = ResGatedLayer

    def prepare(self, graph: Graph) -> Graph:
        return unscaled(graph)
