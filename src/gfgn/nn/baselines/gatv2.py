"""`gatv2`: attention whose ranking of the neighbours depends on the node that asks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.attention import attend
from gfgn.nn.baselines.common import Maps, merge, reset, with_self_loops
from gfgn.nn.baselines.edges import edge_softmax, from_source, from_target
from gfgn.nn.baselines.entry import baseline
from gfgn.nn.baselines.gat import HEAD_PARAMETERS, SLOPE, head_widths


class GATv2Layer(nn.Module):
    """Attention over the neighbours and the node itself, a head at a time: PyG's `GATv2Conv`.

        α_ij = softmax_j(a · LeakyReLU(W_t h_i + W_s h_j)),    h'_i = Σ_j α_ij W_s h_j + b

    Args:
        in_channels: Input width.
        out_channels: Output width of a head.
        heads: Number of heads.
        concat: Whether heads are concatenated or averaged.
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int, concat: bool) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        names = ("source", "target")
        self.maps = Maps(in_channels, dict.fromkeys(names, heads * out_channels), bias=names)
        self.attention = nn.Parameter(torch.empty(1, heads, out_channels))
        self.bias = nn.Parameter(torch.empty(heads * out_channels if concat else out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)
        glorot(self.attention)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, looped: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops; input and attention are dropped."""
        source, target = self.maps(x, dropout)
        pair = leaky_relu(from_source(source, looped) + from_target(target, looped), SLOPE).unflatten(
            1, (self.heads, -1)
        )
        alpha = edge_softmax((pair * self.attention).sum(2), looped)
        alpha = ops.dropout(alpha, dropout, self.training)
        return merge(attend(alpha, source, looped), self.heads, self.concat) + self.bias


class GATv2(nn.Module):
    """The network of *How Attentive are Graph Attention Networks?* (Brody et al., 2022): `gat` with layers as in
    `GATv2Layer`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer and on the attention.
        hidden: Hidden units of a head.
        layers: Number of layers.
        heads: Heads of the hidden layers.
        output_heads: Heads of the last layer.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.6,
        *,
        hidden: int = 8,
        layers: int = 2,
        heads: int = 8,
        output_heads: int = 1,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        sizes = head_widths(in_channels, hidden, heads, layers, out_channels, output_heads)
        self.convs = nn.ModuleList(GATv2Layer(*size) for size in sizes)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        for layer, conv in enumerate(self.convs):
            x = conv(x if layer == 0 else nn.functional.elu(x), looped, self.dropout)
        return x


ENTRY = baseline(
    GATv2, "Brody et al., How Attentive are Graph Attention Networks?, ICLR 2022", HEAD_PARAMETERS, group="beyond"
)
