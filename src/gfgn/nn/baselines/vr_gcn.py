"""`vr-gcn`: GCN trained by neighbor sampling with historical activations as control variates."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import ConvNetwork
from gfgn.nn.baselines.gcn import GCNLayer
from gfgn.nn.baselines.graphsaint import SaintLayer, mean_weighted
from gfgn.nn.linear import Rate
from gfgn.nn.mlp import layer_sizes


class SumLayer(GCNLayer):
    """GCN's layer, `Â H W + b`."""

    def combine(self, own: Tensor, propagated: Tensor, dropout: Rate = 0.0) -> Tensor:
        """The output from `ÂH`, `propagated`; the nodes' `own` values are ignored."""
        return self.lin(propagated, dropout)


class ConcatLayer(SaintLayer):
    """`N([H ‖ D⁻¹A H] W + b)`, with `N` a `LayerNorm` in all layers but the last."""

    def __init__(self, in_channels: int, out_channels: int, last: bool) -> None:
        super().__init__(in_channels, out_channels)
        self.norm = None if last else nn.LayerNorm(out_channels)

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        return self._normalize(super().forward(x, graph, dropout))

    def combine(self, own: Tensor, propagated: Tensor, dropout: Rate = 0.0) -> Tensor:
        """The output from the nodes' `own` values and from `D⁻¹A H`, `propagated`."""
        first, second = self.lin["own"], self.lin["neighbor"]
        out = ops.linear(own, first.weight, first.bias, dropout, self.training)
        return self._normalize(out + ops.linear(propagated, second.weight, None, dropout, self.training))

    def _normalize(self, out: Tensor) -> Tensor:
        return out if self.norm is None else self.norm(out)


class VRGCN(ConvNetwork):
    """*Stochastic Training of Graph Convolutional Networks with Variance Reduction* (Chen et al., 2018).

    It is GCN, `H^(l+1) = ReLU(Â H^(l) W^(l))`, and `forward` computes it exactly, as the paper does for testing. In
    training, `gfgn.train.minibatch.ControlVariateBatches` samples two neighbors per node and estimates `Â H` by
    `P̂ (H − H̄) + Â H̄`, where `H̄` are the last known activations.

    With `concat` it is the network that the authors train on PPI and Reddit,
    `H^(l+1) = ReLU(N([H^(l) ‖ D⁻¹A H^(l)] W^(l)))`, with `N` a `LayerNorm`.
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
        sizes = layer_sizes(in_channels, hidden, layers, out_channels)
        convs = [
            ConcatLayer(*size, last=layer == layers) if concat else SumLayer(*size)
            for layer, size in enumerate(sizes, 1)
        ]
        super().__init__(convs, dropout, input_dropout)
        self.hidden, self.concat = hidden, concat

    @property
    def layers(self) -> list[SumLayer | ConcatLayer]:
        """The layers, typed."""
        return cast("list[SumLayer | ConcatLayer]", list(self.convs))

    def prepare(self, graph: Graph) -> Graph:
        return mean_weighted(graph) if self.concat else with_self_loops(graph)
