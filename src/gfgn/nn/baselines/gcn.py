"""`gcn`: graph convolutional network."""

from __future__ import annotations

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import ConvolutionStack, glorot_linear, reset, with_self_loops
from gfgn.nn.entry import baseline, hidden, layers


class GCNLayer(nn.Module):
    """`H' = D̃^(−1/2) Ã D̃^(−1/2) H W + b` with `Ã = A + I`: PyG's `GCNConv`, through `gfgn.ops.propagate`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = glorot_linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.lin)

    def forward(self, x: Tensor, looped: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        """Runs the layer on a graph with self-loops."""
        z = ops.linear(x, self.lin.weight, None, dropout, self.training)
        out: Tensor = ops.propagate(z, looped) + self.lin.bias
        return out


class GCN(ConvolutionStack):
    """The network of *Semi-Supervised Classification with Graph Convolutional Networks* (Kipf and Welling, 2017).

    `H^(l+1) = ReLU(D̃^(−1/2) Ã D̃^(−1/2) H^(l) W^(l))` with `Ã = A + I`, without ReLU in the last layer.

    Arguments are those of `ConvolutionStack`.
    """

    layer = GCNLayer

    def prepare(self, graph: Graph) -> Graph:
        return with_self_loops(graph)


ENTRY = baseline(
    GCN,
    "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
    {"hidden": hidden(values=(16, 32, 64, 128, 256)), "layers": layers()},
)
