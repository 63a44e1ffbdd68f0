"""`graphsage`: sample and aggregate, with the mean aggregator."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import normalize

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Maps, reset, widths
from gfgn.nn.entry import Parameter, baseline, hidden, layers


class SAGELayer(nn.Module):
    """`h'_i = W_s h_i + W_n mean_{j∈N(i)} h_j + b`: PyG's `SAGEConv`, the mean taken after the product with `W_n`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.maps = Maps(in_channels, {"own": out_channels, "neighbor": out_channels}, bias=["own"])

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)

    def forward(self, x: Tensor, graph: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        own, neighbor = self.maps(x, dropout)
        out: Tensor = own + ops.neighbor_mean(neighbor, graph)
        return out


class GraphSAGE(nn.Module):
    """The network of *Inductive Representation Learning on Large Graphs* (Hamilton et al., 2017), mean aggregator.

    `h_i^(l+1) = ReLU(W^(l) [h_i^(l) ‖ mean_{j∈N(i)} h_j^(l)])`, then scaled to length 1 as in the paper's Algorithm 1;
    the last layer gives the logits as they are. On a graph it takes the whole neighbourhood; in mini-batches
    (`gfgn.sampling`) a sample of it.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
        normalize: Whether hidden vectors are scaled to length 1.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.normalize = normalize
        self.convs = nn.ModuleList(SAGELayer(*pair) for pair in widths(in_channels, hidden, layers, out_channels))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.on_layers(x, [graph] * len(self.convs))

    def on_layers(self, x: Tensor, graphs: Sequence[Graph]) -> Tensor:
        """The logits where each layer has a graph of its own: on the first of the nodes that the layer below has."""
        for layer, (conv, graph) in enumerate(zip(self.convs, graphs, strict=True)):
            if layer > 0:
                x = x[: graph.num_nodes].relu()
                x = normalize(x, dim=1) if self.normalize else x
            x = conv(x, graph, self.dropout)
        return x


ENTRY = baseline(
    GraphSAGE,
    "Hamilton et al., Inductive Representation Learning on Large Graphs, NeurIPS 2017",
    {
        "hidden": hidden(),
        "layers": layers(),
        "normalize": Parameter(True, (True, False), "whether hidden vectors are scaled to length 1"),
    },
    minibatch=True,
)
