"""`gat`: graph attention network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import ConvNetwork, join_heads
from gfgn.nn.linear import Linear, Rate, ResettableModule
from gfgn.nn.mlp import layer_sizes

SLOPE = 0.2  # of LeakyReLU in the attention, as in the papers of `gat` and `gatv2`


class GATLayer(ResettableModule):
    """Attention over the neighbors and the node itself, per head: PyG's `GATConv`.

        α_ij = softmax_j(LeakyReLU(a_t · W h_i + a_s · W h_j)),    h'_i = Σ_j α_ij W h_j + b

    Heads have `out_channels` columns each and are concatenated (`concat`) or averaged. Dropout applies to the input
    and, at the same rate, to the attention.
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int, concat: bool) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        self.lin = Linear(in_channels, heads * out_channels, bias=False)
        self.source = nn.Parameter(torch.empty(1, heads, out_channels))
        self.target = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if concat else out_channels))
        self.reset_parameters()

    def forward(self, x: Tensor, looped: Graph, dropout: Rate = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops."""
        z = self.lin(x, dropout)
        source, target = self.source.squeeze(0), self.target.squeeze(0)
        out = ops.additive_attention(z, source, target, looped, SLOPE, dropout, self.training)
        out = join_heads(out, self.heads, self.concat)
        return out + ops.expand_rows(self.bias, out.size(0))


class GAT(ConvNetwork):
    """*Graph Attention Networks* (Veličković et al., 2018): heads are concatenated, with ELU between the layers; the
    last layer averages its heads.

    Args:
        hidden: Hidden units per head.
        heads: Heads of the hidden layers.
        output_heads: Heads of the last layer.
    """

    layer: ClassVar[type[nn.Module]] = GATLayer

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.6,
        *,
        hidden: int = 8,
        layers: int = 2,
        heads: int = 8,
        output_heads: int = 1,
        input_dropout: Rate | None = None,
    ) -> None:
        *sizes, last = layer_sizes(in_channels, hidden * heads, layers, out_channels)
        convs = [self.layer(size, hidden, heads, concat=True) for size, _ in sizes]
        super().__init__([*convs, self.layer(*last, output_heads, concat=False)], dropout, input_dropout)

    def prepare(self, graph: Graph) -> Graph:
        return with_self_loops(graph)

    def activate(self, x: Tensor) -> Tensor:
        return ops.activate(x, "elu")
