"""`gprgnn`: generalized PageRank with learned weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.entry import Model, Parameter, hidden, layers
from gfgn.nn.mlp import MLP


class GPRGNN(GraphNetwork):
    """The model of *Adaptive Universal Generalized PageRank Graph Neural Network* (Chien et al., 2021).

    An MLP predicts, `H = MLP(X)`, and the prediction is propagated with a learned weight for each number of steps:

        Z = Σ_{k=0…K} γ_k P^k H,    P = D̃^(−1/2) Ã D̃^(−1/2),    Ã = A + I

    `γ` starts as personalized PageRank's `α (1 − α)^k`, with `(1 − α)^K` for the last, and may become negative.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Dropout rate of the input of every layer of the MLP.
        hidden: Hidden units of the MLP.
        layers: Layers of the MLP.
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
        super().__init__(dropout)
        self.alpha = alpha
        self.mlp = MLP(in_channels, out_channels, dropout, hidden=hidden, layers=layers)
        self.gamma = nn.Parameter(torch.empty(steps + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        super().reset_parameters()
        kept = (1 - self.alpha) ** torch.arange(self.gamma.numel(), dtype=self.gamma.dtype)
        with torch.no_grad():
            self.gamma.copy_(torch.cat([self.alpha * kept[:-1], kept[-1:]]))

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = self.mlp(x)
        out = self.gamma[0] * h
        for k in range(1, self.gamma.size(0)):
            h = ops.propagate(h, looped)
            out = out + self.gamma[k] * h
        return out


ENTRY = Model(
    GPRGNN,
    "Chien et al., Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021",
    {
        "hidden": hidden(),
        "layers": layers(),
        "steps": Parameter(10, (5, 10, 20), "steps of propagation, K"),
        "alpha": Parameter(0.1, (0.1, 0.2, 0.5, 0.9), "α of the initial weights"),
    },
)
