"""`ggnn`: gated graph neural network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import uniform

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import apply, glorot_linear, reset
from gfgn.nn.entry import Parameter, baseline, hidden


class GatedGraphLayer(nn.Module):
    """`T` steps of a gated recurrent unit that is fed with the sum of the neighbours: PyG's `GatedGraphConv`.

        m_i = Σ_{j∈N(i)} W^(t) h_j,    r = σ(W_r m + U_r h),    u = σ(W_u m + U_u h)
        n = tanh(W_n m + r ⊙ U_n h),   h' = (1 − u) ⊙ n + u ⊙ h

    (every map of the unit with a bias).
    """

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.empty(steps, channels, channels))
        self.fed = glorot_linear(channels, 3 * channels)
        self.kept = glorot_linear(channels, 3 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, uniformly within `±1/√channels` as PyTorch's recurrent units and PyG's layer."""
        for parameter in self.parameters():
            uniform(self.channels, parameter)

    def forward(self, h: Tensor, graph: Graph) -> Tensor:
        for weight in self.weight:
            m = ops.neighbor_sum(ops.linear(h, weight.t()), graph)
            fed, kept = apply(self.fed, m).chunk(3, dim=1), apply(self.kept, h).chunk(3, dim=1)
            reset_gate = (fed[0] + kept[0]).sigmoid()
            update = (fed[1] + kept[1]).sigmoid()
            new = (fed[2] + reset_gate * kept[2]).tanh()
            h = new + update * (h - new)
        return h


class GGNN(nn.Module):
    """The network of *Gated Graph Sequence Neural Networks* (Li et al., 2016) for node classification.

    A linear map brings the features to the width of the gated unit (the paper pads them with zeros, which needs more
    hidden units than features), `steps` steps of `GatedGraphLayer` follow, and a linear map of `ReLU(h)` classifies.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of both linear maps.
        hidden: Width of the gated unit.
        steps: T.
    """

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hidden: int = 64, steps: int = 2
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps must be 1 or larger, got {steps}")
        self.dropout = dropout
        self.embed = glorot_linear(in_channels, hidden)
        self.gated = GatedGraphLayer(hidden, steps)
        self.out = glorot_linear(hidden, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.embed, self.gated, self.out)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        h = apply(self.embed, x, self.dropout, self.training)
        return apply(self.out, self.gated(h, graph).relu(), self.dropout, self.training)


ENTRY = baseline(
    GGNN,
    "Li et al., Gated Graph Sequence Neural Networks, ICLR 2016",
    {"hidden": hidden(), "steps": Parameter(2, (1, 2, 3, 5), "steps of the gated unit, T")},
)
