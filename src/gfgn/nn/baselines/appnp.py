"""`appnp`: predict, then propagate by personalised PageRank."""

from __future__ import annotations

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import apply, glorot_linear, reset, widths, with_self_loops
from gfgn.nn.entry import Parameter, baseline, hidden, layers


class Perceptron(nn.Module):
    """Linear layers with ReLU between them, dropout on the input of each."""

    def __init__(self, in_channels: int, hidden: int, layers: int, out_channels: int) -> None:
        super().__init__()
        self.lins = nn.ModuleList(glorot_linear(*pair) for pair in widths(in_channels, hidden, layers, out_channels))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.lins)

    def forward(self, x: Tensor, dropout: float | Tensor = 0.0) -> Tensor:
        for layer, lin in enumerate(self.lins):
            x = apply(lin, x if layer == 0 else x.relu(), dropout, self.training)
        return x


class APPNP(nn.Module):
    """The model of *Predict then Propagate* (Klicpera et al., 2019).

    A perceptron predicts, `Z^(0) = H = f(X)`; `K` steps spread the prediction:

        Z^(k+1) = (1 − α) D̃^(−1/2) Ã D̃^(−1/2) Z^(k) + α H,    Ã = A + I

    The paper also drops entries of the adjacency in training; PyG's layer leaves that out by default, and so does this.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every linear layer.
        hidden: Hidden units of the perceptron.
        layers: Linear layers of the perceptron.
        steps: K.
        alpha: α, the share of its own prediction that a node keeps at each step.
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
        self.steps = steps
        self.alpha = alpha
        self.mlp = Perceptron(in_channels, hidden, layers, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.mlp)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h: Tensor = self.mlp(x, self.dropout)
        z, kept = h, self.alpha * h
        for _ in range(self.steps):
            z = (1 - self.alpha) * ops.propagate(z, looped) + kept
        return z


ENTRY = baseline(
    APPNP,
    "Klicpera et al., Predict then Propagate: Graph Neural Networks meet Personalized PageRank, ICLR 2019",
    {
        "hidden": hidden(),
        "layers": layers(),
        "steps": Parameter(10, (5, 10, 20), "steps of propagation, K"),
        "alpha": Parameter(0.1, (0.05, 0.1, 0.2, 0.5), "share of its own prediction that a node keeps, α"),
    },
)
