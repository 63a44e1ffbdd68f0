"""`gprgnn`: generalised PageRank with learned weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.appnp import Perceptron
from gfgn.nn.baselines.common import reset, with_self_loops
from gfgn.nn.entry import Parameter, baseline, hidden, layers


class GPRGNN(nn.Module):
    """The model of *Adaptive Universal Generalized PageRank Graph Neural Network* (Chien et al., 2021).

    A perceptron predicts, `H = f(X)`, and the prediction is spread with a learned weight for each number of steps:

        Z = Σ_{k=0…K} γ_k P^k H,    P = D̃^(−1/2) Ã D̃^(−1/2),    Ã = A + I

    `γ` begins as personalised PageRank's `α (1 − α)^k`, with `(1 − α)^K` for the last, and may become negative.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every linear layer.
        hidden: Hidden units of the perceptron.
        layers: Linear layers of the perceptron.
        steps: K.
        alpha: α of the initial weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        steps: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.alpha = alpha
        self.mlp = Perceptron(in_channels, hidden, layers, out_channels)
        self.gamma = nn.Parameter(torch.empty(steps + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew; `γ` is personalised PageRank's."""
        reset(self.mlp)
        kept = (1 - self.alpha) ** torch.arange(self.gamma.numel(), dtype=self.gamma.dtype)
        with torch.no_grad():
            self.gamma.copy_(torch.cat([self.alpha * kept[:-1], kept[-1:]]))

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h: Tensor = self.mlp(x, self.dropout)
        out = self.gamma[0] * h
        for k in range(1, self.gamma.size(0)):
            h = ops.propagate(h, looped)
            out = out + self.gamma[k] * h
        return out


ENTRY = baseline(
    GPRGNN,
    "Chien et al., Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021",
    {
        "hidden": hidden(),
        "layers": layers(),
        "steps": Parameter(10, (5, 10, 20), "steps of propagation, K"),
        "alpha": Parameter(0.1, (0.1, 0.2, 0.5, 0.9), "α of the initial weights"),
    },
    group="beyond",
)
