"""`vr-gcn`: the graph convolutional network, trained by sampling with historical activations as control variates."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Convolutions, apply, reset, widths, with_self_loops
from gfgn.nn.baselines.gcn import GCNLayer
from gfgn.nn.baselines.graphsaint import SaintLayer, mean_weighted
from gfgn.nn.entry import Parameter, baseline, hidden, layers


class SumLayer(GCNLayer):
    """GCN's layer, `Â H W + b`."""

    def combine(self, own: Tensor, around: Tensor, dropout: float | Tensor = 0.0) -> Tensor:
        """What the layer makes of `ÂH`, `around`; of the nodes' `own` values it makes nothing."""
        return apply(self.lin, around, dropout, self.training)


class ConcatLayer(SaintLayer):
    """`N([H ‖ D⁻¹A H] W + b)`, with `N` the normalisation over units (`LayerNorm`) in all layers but the last."""

    def __init__(self, in_channels: int, out_channels: int, last: bool) -> None:
        super().__init__(in_channels, out_channels)
        self.norm = None if last else nn.LayerNorm(out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps, *([] if self.norm is None else [self.norm]))

    def forward(self, x: Tensor, weighted: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        return self._normalized(super().forward(x, weighted, dropout))

    def combine(self, own: Tensor, around: Tensor, dropout: float | Tensor = 0.0) -> Tensor:
        """What the layer makes of the nodes' `own` values and of `D⁻¹A H`, `around`."""
        first, second = self.maps["own"], self.maps["neighbor"]
        out = ops.linear(own, first.weight, first.bias, dropout, self.training)
        return self._normalized(out + ops.linear(around, second.weight, None, dropout, self.training))

    def _normalized(self, out: Tensor) -> Tensor:
        return out if self.norm is None else self.norm(out)


class VRGCN(Convolutions):
    """The network of *Stochastic Training of Graph Convolutional Networks with Variance Reduction* (Chen et al., 2018).

    It is GCN, `H^(l+1) = ReLU(Â H^(l) W^(l))`, which `forward` works out exactly, as the paper does to test. What is
    new is how it trains: `gfgn.sampling.ControlVariateBatches` takes two neighbours a node and estimates `Â H` by
    `P̂ (H − H̄) + Â H̄`, with `H̄` the activations that nodes had when they were last met.

    With `concat` it is what the authors train on PPI and Reddit, `H^(l+1) = ReLU(N([H^(l) ‖ D⁻¹A H^(l)] W^(l)))`: own
    values go beside the mean over neighbours, and `N` normalises over units.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
        concat: Whether own values go beside the mean over neighbours, or into it.
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
        sizes = widths(in_channels, hidden, layers, out_channels)
        convs = [
            ConcatLayer(*pair, last=number == layers) if concat else SumLayer(*pair)
            for number, pair in enumerate(sizes, 1)
        ]
        super().__init__(convs, dropout)
        self.hidden, self.concat = hidden, concat

    @property
    def layers(self) -> list[SumLayer | ConcatLayer]:
        """The layers."""
        return cast("list[SumLayer | ConcatLayer]", list(self.convs))

    def prepare(self, graph: Graph) -> Graph:
        return mean_weighted(graph) if self.concat else with_self_loops(graph)


ENTRY = baseline(
    VRGCN,
    "Chen et al., Stochastic Training of Graph Convolutional Networks with Variance Reduction, ICML 2018",
    {
        "hidden": hidden(),
        "layers": layers(values=(2, 3)),
        "concat": Parameter(
            False, (False, True), "own values beside the mean over neighbours, and layer normalisation"
        ),
    },
    replicas=False,
    minibatch=True,
)
