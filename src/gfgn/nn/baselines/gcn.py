"""`gcn`: graph convolutional network."""

from __future__ import annotations

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import glorot_linear, reset, widths, with_self_loops
from gfgn.nn.baselines.entry import baseline, hidden, layers


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


class GCN(nn.Module):
    """The network of *Semi-Supervised Classification with Graph Convolutional Networks* (Kipf and Welling, 2017).

    `H^(l+1) = ReLU(D̃^(−1/2) Ã D̃^(−1/2) H^(l) W^(l))` with `Ã = A + I`, without ReLU in the last layer.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
    """

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hidden: int = 64, layers: int = 2
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.convs = nn.ModuleList(GCNLayer(*pair) for pair in widths(in_channels, hidden, layers, out_channels))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        for layer, conv in enumerate(self.convs):
            x = conv(x if layer == 0 else x.relu(), looped, self.dropout)
        return x


ENTRY = baseline(
    GCN,
    "Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017",
    {"hidden": hidden(values=(16, 32, 64, 128, 256)), "layers": layers()},
)
