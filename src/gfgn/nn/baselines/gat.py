"""`gat`: graph attention network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import ConvNetwork, ResettableModule, join_heads
from gfgn.nn.entry import Model, Parameter, layers
from gfgn.nn.linear import Linear
from gfgn.nn.mlp import check_at_least_one
from gfgn.ops.attention import attend
from gfgn.ops.edges import edge_softmax, from_source, from_target

SLOPE = 0.2
"""Slope of LeakyReLU in the attention, as in the papers of `gat` and `gatv2`."""


class GATLayer(ResettableModule):
    """Attention over the neighbors and the node itself, per head: PyG's `GATConv`.

        α_ij = softmax_j(LeakyReLU(a_t · W h_i + a_s · W h_j)),    h'_i = Σ_j α_ij W h_j + b

    Args:
        in_channels: Input width.
        out_channels: Output width per head.
        heads: Number of heads.
        concat: Whether heads are concatenated or averaged.
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

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        super().reset_parameters()
        glorot(self.source)
        glorot(self.target)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, looped: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops; dropout applies to the input and to the attention."""
        z = self.lin(x, dropout)
        by_head = z.unflatten(1, (self.heads, -1))
        source, target = ((by_head * a).sum(2) for a in (self.source, self.target))
        scores = leaky_relu(from_source(source, looped) + from_target(target, looped), SLOPE)
        alpha = ops.dropout(edge_softmax(scores, looped), dropout, self.training)
        return join_heads(attend(alpha, z, looped), self.heads, self.concat) + self.bias


class GAT(ConvNetwork):
    """The network of *Graph Attention Networks* (Veličković et al., 2018): layers as in `GATLayer` with heads
    concatenated and ELU between them; the last layer averages its heads.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Dropout rate of the input of every layer and of the attention.
        hidden: Hidden units per head.
        layers: Number of layers.
        heads: Heads of the hidden layers.
        output_heads: Heads of the last layer.
    """

    layer: ClassVar[type[nn.Module]] = GATLayer

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
        check_at_least_one("layers", layers)
        sizes = [in_channels, *[hidden * heads] * (layers - 1)]
        convs = [self.layer(size, hidden, heads, concat=True) for size in sizes[:-1]]
        super().__init__([*convs, self.layer(sizes[-1], out_channels, output_heads, concat=False)], dropout)

    def prepare(self, graph: Graph) -> Graph:
        return with_self_loops(graph)

    def activate(self, x: Tensor) -> Tensor:
        return nn.functional.elu(x)


HEAD_PARAMETERS = {
    "hidden": Parameter(8, (8, 16, 32), "hidden units per head"),
    "layers": layers(),
    "heads": Parameter(8, (1, 4, 8), "heads of the hidden layers"),
    "output_heads": Parameter(1, (1, 8), "heads of the last layer, averaged"),
}

ENTRY = Model(GAT, "Veličković et al., Graph Attention Networks, ICLR 2018", HEAD_PARAMETERS)
