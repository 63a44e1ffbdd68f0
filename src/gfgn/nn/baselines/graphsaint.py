"""`graphsaint`: a network trained on sampled subgraphs."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Maps, per_graph, reset, widths
from gfgn.nn.baselines.entry import baseline, hidden, layers


class SaintLayer(nn.Module):
    """`h'_v = W_s h_v + W_n Σ_u a_vu h_u + b`, with the weights `a` that the graph has in the place of `Â`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.maps = Maps(in_channels, {"own": out_channels, "neighbor": out_channels}, bias=["own"])

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)

    def forward(self, x: Tensor, weighted: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        own, neighbor = self.maps(x, dropout)
        out: Tensor = own + ops.propagate(neighbor, weighted)
        return out


@per_graph
def mean_weighted(graph: Graph) -> Graph:
    """The graph with `D⁻¹A` in the place of `Â`."""
    return dataclasses.replace(graph, norm=graph.share, reverse_norm=graph.reverse_share)


class GraphSAINT(nn.Module):
    """The network of *GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020).

    `h_v^(l+1) = ReLU(W_s h_v^(l) + W_n Σ_u Ã_vu h_u^(l))` with `Ã = D⁻¹A`; the last layer without ReLU. `forward` takes
    the whole graph; it trains on subgraphs, whose edges weigh `Ã_vu / α_uv` (`gfgn.sampling.SaintBatches`).

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
        self.convs = nn.ModuleList(SaintLayer(*pair) for pair in widths(in_channels, hidden, layers, out_channels))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return self.on_weighted(x, mean_weighted(graph))

    def on_weighted(self, x: Tensor, weighted: Graph) -> Tensor:
        """The logits on a graph that has the weights of the sums in the place of `Â`."""
        for layer, conv in enumerate(self.convs):
            x = conv(x if layer == 0 else x.relu(), weighted, self.dropout)
        return x


ENTRY = baseline(
    GraphSAINT,
    "Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020",
    {"hidden": hidden(), "layers": layers()},
    replicas=False,
    minibatch=True,
)
