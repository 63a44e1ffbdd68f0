"""`resgated`: residual gated graph convolution, the nearest relative of GFGN at pair level."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import ConvolutionStack, Maps, per_graph, reset
from gfgn.nn.entry import baseline, hidden, layers


class ResGatedLayer(nn.Module):
    """`h'_i = W_1 h_i + Σ_{j∈N(i)} σ(W_2 h_i + W_3 h_j) ⊙ W_4 h_j + b`: PyG's `ResGatedGraphConv`.

    The gates are worked out inside GFGN's pair operator, so nothing is kept for each edge.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        names = ("skip", "key", "query", "value")
        self.maps = Maps(in_channels, dict.fromkeys(names, out_channels), bias=names)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)

    def forward(self, x: Tensor, unscaled: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        """Runs the layer on what `unscaled` makes of a graph."""
        skip, key, query, value = self.maps(x, dropout)
        # With Â of 1 and shares of 0 the pair operator gives z_i + Σ_j σ(a_i + b_j) z_j.
        out: Tensor = skip + ops.pair_aggregate(key, query, value, unscaled) - value
        return out


@per_graph
def unscaled(graph: Graph) -> Graph:
    """The graph with `Â_ij = 1` on every edge and shares of 0."""
    ones, zeros = torch.ones_like(graph.norm), torch.zeros_like(graph.row_norm)
    return dataclasses.replace(graph, norm=ones, reverse_norm=ones, row_norm=zeros, reverse_row_norm=zeros)


class ResGated(ConvolutionStack):
    """The network of *Residual Gated Graph ConvNets* (Bresson and Laurent, 2017): layers as in `ResGatedLayer` with
    ReLU between them.

    Arguments are those of `ConvolutionStack`.
    """

    layer = ResGatedLayer

    def prepare(self, graph: Graph) -> Graph:
        return unscaled(graph)


ENTRY = baseline(
    ResGated,
    "Bresson and Laurent, Residual Gated Graph ConvNets, 2017",
    {"hidden": hidden(), "layers": layers()},
    group="beyond",
)
