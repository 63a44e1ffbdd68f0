"""`gcnii`: deep graph convolution with initial residual and identity mapping."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.conv import check_positive
from gfgn.nn.linear import Linear, Rate


class GCNII(GraphNetwork):
    """*Simple and Deep Graph Convolutional Networks* (Chen et al., 2020).

    `H^(0) = ReLU(X W_in)`, then with `P = D̃^(−1/2) Ã D̃^(−1/2)`, `Ã = A + I`, for `l = 1 … layers`

        H^(l) = ReLU(((1 − α) P H^(l−1) + α H^(0)) ((1 − β_l) I + β_l W^(l))),    β_l = log(θ / l + 1)

    and a linear map to the classes.

    Args:
        alpha: α, the fraction of the initial features.
        theta: θ, the strength of the weight matrices (λ in the paper).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        layers: int = 64,
        alpha: float = 0.2,
        theta: float = 0.5,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        check_positive("layers", layers)
        self.alpha = alpha
        self.theta = theta
        self.embed = Linear(in_channels, hidden)
        self.weight = nn.Parameter(torch.empty(layers, hidden, hidden))
        self.out = Linear(hidden, out_channels)
        self.reset_parameters()

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = self.embed(x, self.input_dropout).relu()
        initial = self.alpha * h
        for layer, weight in enumerate(self.weight, start=1):
            beta = math.log(self.theta / layer + 1)
            h = ops.dropout(h, self.dropout, self.training)
            mixed = (1 - self.alpha) * ops.propagate(h, looped) + initial
            h = ((1 - beta) * mixed + beta * ops.linear(mixed, weight)).relu()
        return self.out(h, self.dropout)
