"""`sgc`: simplified graph convolution."""

from __future__ import annotations

from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.linear import Linear, Rate


class SGC(GraphNetwork):
    """*Simplifying Graph Convolutional Networks* (Wu et al., 2019), a linear model.

    `Y = (D̃^(−1/2) Ã D̃^(−1/2))^K X W + b` with `Ã = A + I` and `K = hops`. The product with `W` is computed first, so
    that only one column per class is propagated.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hops: int = 2,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        self.hops = hops
        self.lin = Linear(in_channels, out_channels)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        z = ops.linear(x, self.lin.weight, None, self.input_dropout, self.training)
        for _ in range(self.hops):
            z = ops.propagate(z, looped)
        return z + ops.expand_rows(self.lin.bias, z.size(0))
