"""`ggnn`: gated graph neural network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import uniform

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.conv import check_positive
from gfgn.nn.linear import Linear, Rate


class GatedGraphLayer(nn.Module):
    """`T` steps of a gated recurrent unit whose input is the sum over neighbors: PyG's `GatedGraphConv`.

        m_i = Σ_{j∈N(i)} W^(t) h_j,    r = σ(W_r m + U_r h),    u = σ(W_u m + U_u h)
        n = tanh(W_n m + r ⊙ U_n h),   h' = (1 − u) ⊙ n + u ⊙ h

    Every map of the unit has a bias.
    """

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.empty(steps, channels, channels))
        self.input = Linear(channels, 3 * channels)
        self.hidden = Linear(channels, 3 * channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters uniformly within `±1/√channels`, as PyTorch's recurrent units."""
        for parameter in self.parameters():
            uniform(self.channels, parameter)

    def forward(self, h: Tensor, graph: Graph) -> Tensor:
        for weight in self.weight:
            m = ops.neighbor_sum(ops.linear(h, weight.t()), graph)
            of_input, of_hidden = self.input(m).chunk(3, dim=1), self.hidden(h).chunk(3, dim=1)
            reset = ops.activate(of_input[0] + of_hidden[0], "sigmoid")
            update = ops.activate(of_input[1] + of_hidden[1], "sigmoid")
            new = ops.activate(of_input[2] + reset * of_hidden[2], "tanh")
            h = new + update * (h - new)
        return h


class GGNN(GraphNetwork):
    """*Gated Graph Sequence Neural Networks* (Li et al., 2016) for node classification.

    A linear map brings the features to the width of the gated unit (the paper pads them with zeros, which needs more
    hidden units than features), `GatedGraphLayer` follows, and a linear map of `ReLU(h)` gives the logits. Dropout is
    applied to the input of both linear maps.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        steps: int = 2,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        check_positive("steps", steps)
        self.embed = Linear(in_channels, hidden)
        self.gated = GatedGraphLayer(hidden, steps)
        self.out = Linear(hidden, out_channels)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        h = self.gated(self.embed(x, self.input_dropout), graph)
        return self.out(h.relu(), self.dropout)
