"""`appnp`: an MLP whose prediction is propagated by personalized PageRank."""

from __future__ import annotations

from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.entry import Model, Parameter, hidden, layers
from gfgn.nn.mlp import MLP


class APPNP(GraphNetwork):
    """The model of *Predict then Propagate* (Klicpera et al., 2019).

    An MLP predicts, `Z^(0) = H = MLP(X)`, and `K` steps propagate the prediction:

        Z^(k+1) = (1 − α) D̃^(−1/2) Ã D̃^(−1/2) Z^(k) + α H,    Ã = A + I

    As in PyG's layer by default, entries of the adjacency are not dropped in training, unlike in the paper.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Dropout rate of the input of every layer of the MLP.
        hidden: Hidden units of the MLP.
        layers: Layers of the MLP.
        steps: K.
        alpha: α, the fraction of its own prediction that a node keeps at each step.
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
        self.steps = steps
        self.alpha = alpha
        self.mlp = MLP(in_channels, out_channels, dropout, hidden=hidden, layers=layers)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = self.mlp(x)
        z, kept = h, self.alpha * h
        for _ in range(self.steps):
            z = (1 - self.alpha) * ops.propagate(z, looped) + kept
        return z


ENTRY = Model(
    APPNP,
    "Klicpera et al., Predict then Propagate: Graph Neural Networks meet Personalized PageRank, ICLR 2019",
    {
        "hidden": hidden(),
        "layers": layers(),
        "steps": Parameter(10, (5, 10, 20), "steps of propagation, K"),
        "alpha": Parameter(0.1, (0.05, 0.1, 0.2, 0.5), "fraction of its own prediction that a node keeps, α"),
    },
)
