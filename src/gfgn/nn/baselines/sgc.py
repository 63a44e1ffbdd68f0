"""`sgc`: simplified graph convolution."""

from __future__ import annotations

from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import glorot_linear, reset, with_self_loops
from gfgn.nn.entry import Parameter, baseline


class SGC(nn.Module):
    """The model of *Simplifying Graph Convolutional Networks* (Wu et al., 2019): a linear one.

    `Y = (D̃^(−1/2) Ã D̃^(−1/2))^K X W + b` with `Ã = A + I`. The product with `W` comes first, which changes nothing
    and leaves a column a class to propagate; dropout is of `X`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the features.
        hops: K.
    """

    def __init__(self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hops: int = 2) -> None:
        super().__init__()
        self.dropout = dropout
        self.hops = hops
        self.lin = glorot_linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.lin)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        z = ops.linear(x, self.lin.weight, None, self.dropout, self.training)
        for _ in range(self.hops):
            z = ops.propagate(z, looped)
        out: Tensor = z + self.lin.bias
        return out


ENTRY = baseline(
    SGC,
    "Wu et al., Simplifying Graph Convolutional Networks, ICML 2019",
    {"hops": Parameter(2, (1, 2, 3, 4), "times the features are propagated, K")},
    # One linear map of row-normalised features needs large weights; its paper looks for an L2 penalty below 1e-4.
    training={"lr": (0.2,), "weight_decay": (5e-5, 5e-6)},
)
