"""`graphsaint`: a network trained on sampled subgraphs."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Convolutions, Maps, apply, glorot_linear, per_graph, reset, widths
from gfgn.nn.entry import Parameter, baseline, hidden, layers


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
    return dataclasses.replace(graph, norm=graph.row_norm, reverse_norm=graph.reverse_row_norm)


class ConcatLayer(nn.Module):
    """`h'_v = N(ReLU(W_s h_v + b_s)) ‖ N(ReLU(W_n Σ_u a_vu h_u + b_n))`, with `N` the normalisation over units
    (`LayerNorm`), each with its own parameters."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.maps = Maps(in_channels, {"own": out_channels, "neighbor": out_channels}, bias=["own"])
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.norms = nn.ModuleList(nn.LayerNorm(out_channels) for _ in range(2))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps, *self.norms)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, weighted: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        own, neighbor = self.maps(x, dropout)
        around = ops.propagate(neighbor, weighted) + self.bias
        return torch.cat([norm(part.relu()) for norm, part in zip(self.norms, (own, around), strict=True)], dim=1)


class Head(nn.Module):
    """What follows the last `ConcatLayer`: a layer without neighbours, vectors of length 1, and a linear map."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.lin, self.norm = glorot_linear(in_channels, hidden), nn.LayerNorm(hidden)
        self.classifier = glorot_linear(hidden, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.lin, self.norm, self.classifier)

    def forward(self, x: Tensor, weighted: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        h = self.norm(apply(self.lin, x, dropout, self.training).relu())
        return apply(self.classifier, normalize(h, dim=1), dropout, self.training)


class GraphSAINT(Convolutions):
    """The network of *GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020).

    `h_v^(l+1) = ReLU(W_s h_v^(l) + W_n Σ_u Ã_vu h_u^(l))` with `Ã = D⁻¹A`; the last layer without ReLU. `forward` takes
    the whole graph; it trains on subgraphs, whose edges weigh `Ã_vu / α_uv` (`gfgn.sampling.SaintBatches`).

    With `concat` it is what the authors train on PPI: `layers` of `ConcatLayer`, and `Head` after them.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers that take from neighbours.
        concat: Whether what comes from the node and from its neighbours is added, or normalised and put side by side.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        concat: bool = False,
    ) -> None:
        convs: list[nn.Module]
        if concat:
            sizes = widths(in_channels, 2 * hidden, layers, 2 * hidden)
            convs = [*(ConcatLayer(size, hidden) for size, _ in sizes), Head(2 * hidden, hidden, out_channels)]
        else:
            convs = [SaintLayer(*pair) for pair in widths(in_channels, hidden, layers, out_channels)]
        super().__init__(convs, dropout)
        self.concat = concat

    def prepare(self, graph: Graph) -> Graph:
        return mean_weighted(graph)

    def activate(self, x: Tensor) -> Tensor:
        return x if self.concat else x.relu()


ENTRY = baseline(
    GraphSAINT,
    "Zeng et al., GraphSAINT: Graph Sampling Based Inductive Learning Method, ICLR 2020",
    {
        "hidden": hidden(),
        "layers": layers(),
        "concat": Parameter(False, (False, True), "own values and those of neighbours normalised and side by side"),
    },
    replicas=False,
    minibatch=True,
)
