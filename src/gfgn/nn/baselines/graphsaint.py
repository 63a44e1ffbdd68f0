"""`graphsaint`: a network trained on sampled subgraphs."""

from __future__ import annotations

import dataclasses

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import ConvolutionStack, Maps, per_graph, reset
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


class GraphSAINT(ConvolutionStack):
    """The network of *GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020).

    `h_v^(l+1) = ReLU(W_s h_v^(l) + W_n Σ_u Ã_vu h_u^(l))` with `Ã = D⁻¹A`; the last layer without ReLU. `forward` takes
    the whole graph; it trains on subgraphs, whose edges weigh `Ã_vu / α_uv` (`gfgn.sampling.SaintBatches`).

    Arguments are those of `ConvolutionStack`.
    """

    layer = SaintLayer

    def prepare(self, graph: Graph) -> Graph:
        return mean_weighted(graph)


ENTRY = baseline(
    GraphSAINT,
    "Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020",
    {"hidden": hidden(), "layers": layers()},
    replicas=False,
    minibatch=True,
)
