"""`appnp`: an MLP whose prediction is propagated by personalized PageRank."""

from __future__ import annotations

from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.linear import Rate
from gfgn.nn.mlp import MLP


class APPNP(GraphNetwork):
    """*Predict then Propagate: Graph Neural Networks meet Personalized PageRank* (Klicpera et al., 2019).

    An MLP predicts, `Z^(0) = H = MLP(X)`, and `K` steps propagate the prediction:

        Z^(k+1) = (1 − α) D̃^(−1/2) Ã D̃^(−1/2) Z^(k) + α H,    Ã = A + I

    As in PyG's layer by default, entries of the adjacency are not dropped in training, unlike in the paper.

    Args:
        steps: K.
        alpha: α, the fraction of its own prediction that a node keeps at each step.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        steps: int = 10,
        alpha: float = 0.1,
        input_dropout: Rate | None = None,
        **mlp_options: int,
    ) -> None:
        super().__init__(dropout, input_dropout)
        self.steps = steps
        self.alpha = alpha
        self.mlp = MLP(in_channels, out_channels, dropout, input_dropout=input_dropout, **mlp_options)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = self.mlp(x)
        z, kept = h, self.alpha * h
        for _ in range(self.steps):
            z = (1 - self.alpha) * ops.propagate(z, looped) + kept
        return z
