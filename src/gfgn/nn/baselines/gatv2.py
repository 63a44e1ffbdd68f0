"""`gatv2`: graph attention whose ranking of the neighbors depends on the target node."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import join_heads
from gfgn.nn.baselines.gat import GAT, SLOPE
from gfgn.nn.linear import Rate, ResettableModule, StackedLinear
from gfgn.ops.attention import attend
from gfgn.ops.edges import edge_softmax, from_source, from_target


class GATv2Layer(ResettableModule):
    """Attention over the neighbors and the node itself, per head: PyG's `GATv2Conv`; arguments as for `GATLayer`.

    α_ij = softmax_j(a · LeakyReLU(W_t h_i + W_s h_j)),    h'_i = Σ_j α_ij W_s h_j + b
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int, concat: bool) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        names = ("source", "target")
        self.lin = StackedLinear(in_channels, dict.fromkeys(names, heads * out_channels), bias=names)
        self.attention = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if concat else out_channels))
        self.reset_parameters()

    def forward(self, x: Tensor, looped: Graph, dropout: Rate = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops."""
        source, target = self.lin(x, dropout)
        pair = leaky_relu(from_source(source, looped) + from_target(target, looped), SLOPE)
        scores = ops.head_linear(pair, self.attention.view(self.heads, -1, 1))
        alpha = ops.dropout(edge_softmax(scores, looped), dropout, self.training)
        out = join_heads(attend(alpha, source, looped), self.heads, self.concat)
        return out + ops.expand_rows(self.bias, out.size(0))


class GATv2(GAT):
    """*How Attentive are Graph Attention Networks?* (Brody et al., 2022): `GAT` with another layer."""

    layer = GATv2Layer
