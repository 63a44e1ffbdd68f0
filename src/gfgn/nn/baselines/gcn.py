"""`gcn`: graph convolutional network."""

from __future__ import annotations

from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import UniformConvNetwork
from gfgn.nn.linear import Linear, Rate, ResettableModule


class GCNLayer(ResettableModule):
    """`H' = D̃^(−1/2) Ã D̃^(−1/2) H W + b` with `Ã = A + I`: PyG's `GCNConv`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = Linear(in_channels, out_channels)

    def forward(self, x: Tensor, looped: Graph, dropout: Rate = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops."""
        z = ops.linear(x, self.lin.weight, None, dropout, self.training)
        return ops.propagate(z, looped) + ops.expand_rows(self.lin.bias, z.size(0))


class GCN(UniformConvNetwork):
    """*Semi-Supervised Classification with Graph Convolutional Networks* (Kipf and Welling, 2017)."""

    layer = GCNLayer

    def prepare(self, graph: Graph) -> Graph:
        return with_self_loops(graph)
