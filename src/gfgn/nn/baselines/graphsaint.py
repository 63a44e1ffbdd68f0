"""`graphsaint`: a network trained on sampled subgraphs."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gfgn import ops
from gfgn.graph import Graph, per_graph
from gfgn.nn.baselines.common import ConvNetwork
from gfgn.nn.baselines.graphsage import SAGELayer
from gfgn.nn.linear import Linear, Rate, ResettableModule
from gfgn.nn.mlp import layer_sizes


class SaintLayer(SAGELayer):
    """`h'_v = W_s h_v + W_n Σ_u a_vu h_u + b`, where the graph's `norm` holds the weights `a`."""

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        own, neighbor = self.lin(x, dropout)
        return own + ops.propagate(neighbor, graph)


@per_graph
def mean_weighted(graph: Graph) -> Graph:
    """The graph with `D⁻¹A` instead of `Â`."""
    return dataclasses.replace(graph, norm=graph.row_norm, reverse_norm=graph.reverse_row_norm)


class ConcatLayer(SAGELayer):
    """`h'_v = N(ReLU(W_s h_v + b_s)) ‖ N(ReLU(W_n Σ_u a_vu h_u + b_n))`, with a `LayerNorm` `N` for each half."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.norms = nn.ModuleList(nn.LayerNorm(out_channels) for _ in range(2))

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        own, neighbor = self.lin(x, dropout)
        propagated = ops.propagate(neighbor, graph) + self.bias
        return torch.cat([norm(part.relu()) for norm, part in zip(self.norms, (own, propagated), strict=True)], dim=1)


class Head(ResettableModule):
    """Classifier after the last `ConcatLayer`: a linear layer with `LayerNorm`, vectors of length 1, a linear map."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.lin, self.norm = Linear(in_channels, hidden), nn.LayerNorm(hidden)
        self.classifier = Linear(hidden, out_channels)

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        h = self.norm(self.lin(x, dropout).relu())
        return self.classifier(normalize(h, dim=1), dropout)


class GraphSAINT(ConvNetwork):
    """*GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020).

    `h_v^(l+1) = ReLU(W_s h_v^(l) + W_n Σ_u Ã_vu h_u^(l))` with `Ã = D⁻¹A`; the last layer without ReLU. `forward` takes
    the whole graph; training takes subgraphs with edge weights `Ã_vu / α_uv` (`gfgn.train.minibatch.SaintBatches`).

    With `concat` it is the network that the authors train on PPI: `layers` of `ConcatLayer` and a `Head`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        concat: bool = False,
        input_dropout: Rate | None = None,
    ) -> None:
        convs: list[nn.Module]
        if concat:
            sizes = layer_sizes(in_channels, 2 * hidden, layers, 2 * hidden)
            convs = [*(ConcatLayer(size, hidden) for size, _ in sizes), Head(2 * hidden, hidden, out_channels)]
        else:
            convs = [SaintLayer(*size) for size in layer_sizes(in_channels, hidden, layers, out_channels)]
        super().__init__(convs, dropout, input_dropout)
        self.concat = concat

    def prepare(self, graph: Graph) -> Graph:
        return mean_weighted(graph)

    def activate(self, x: Tensor) -> Tensor:
        return x if self.concat else x.relu()
