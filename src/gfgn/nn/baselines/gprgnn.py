"""`gprgnn`: generalized PageRank with learned weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.appnp import APPNP


class GPRGNN(APPNP):
    """*Adaptive Universal Generalized PageRank Graph Neural Network* (Chien et al., 2021).

    An MLP predicts, `H = MLP(X)`, and the prediction is propagated with a learned weight for each number of steps:

        Z = Σ_{k=0…K} γ_k P^k H,    P = D̃^(−1/2) Ã D̃^(−1/2),    Ã = A + I

    `γ` starts as personalized PageRank's `α (1 − α)^k`, with `(1 − α)^K` for the last, and may become negative. The
    arguments are those of `APPNP`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.gamma = nn.Parameter(torch.empty(self.steps + 1))
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
        hops = [h]
        for _ in range(self.steps):
            hops.append(ops.propagate(hops[-1], looped))
        by_value = torch.stack(hops, dim=2).flatten(0, 1)  # one row per node and class
        return ops.linear(by_value, self.gamma.unsqueeze(0)).view_as(h)
