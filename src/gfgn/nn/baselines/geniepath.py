"""`geniepath`: receptive paths chosen by attention in breadth and by an LSTM in depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.conv import check_positive
from gfgn.nn.linear import Linear, Rate, ResettableModule, StackedLinear
from gfgn.ops.attention import attend
from gfgn.ops.edges import edge_softmax, from_source, from_target


class Breadth(ResettableModule):
    """Attention over the neighbors and the node itself.

    h'_i = tanh(W Σ_{j∈N(i)∪{i}} α_ij h_j),    α_ij = softmax_j(v · tanh(W_s h_i + W_d h_j))
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lin = StackedLinear(channels, dict.fromkeys(("own", "other", "value"), channels))
        self.score = nn.Parameter(torch.empty(1, channels))
        self.reset_parameters()

    def forward(self, h: Tensor, looped: Graph) -> Tensor:
        own, other, value = self.lin(h)
        pair = ops.activate(from_target(own, looped) + from_source(other, looped), "tanh")
        alpha = edge_softmax(ops.linear(pair, self.score), looped)
        return ops.activate(attend(alpha, value, looped), "tanh")


class Depth(ResettableModule):
    """An LSTM cell along the layers.

    i, f, o = σ(W_i u), σ(W_f u), σ(W_o u),    C' = f ⊙ C + i ⊙ tanh(W_c u),    h = o ⊙ tanh(C')
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.lin = StackedLinear(in_channels, dict.fromkeys(("input", "forget", "output", "cell"), channels))

    def forward(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        *gates, cell = self.lin(u)
        input_gate, forget_gate, output_gate = (ops.activate(gate, "sigmoid") for gate in gates)
        memory = forget_gate * memory + input_gate * ops.activate(cell, "tanh")
        return output_gate * ops.activate(memory, "tanh"), memory


class GeniePath(GraphNetwork):
    """*GeniePath: Graph Neural Networks with Adaptive Receptive Paths* (Liu et al., 2019).

    From `h^(0) = X W_x` and `C^(0) = 0`, each layer applies `Breadth`, then `Depth` to its output; a linear map of the
    last `h` gives the logits. With `lazy`, the paper's GeniePath-lazy, all `Breadth` layers come first,
    `h^(t+1) = Breadth(h^(t))`, and then `Depth` with `u = [h^(t+1) ‖ μ^(t)]`, `μ^(0) = h^(0)`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        lazy: bool = False,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        check_positive("layers", layers)
        self.lazy = lazy
        self.embed = Linear(in_channels, hidden, bias=False)
        self.breadth = nn.ModuleList(Breadth(hidden) for _ in range(layers))
        self.depth = nn.ModuleList(Depth(2 * hidden if lazy else hidden, hidden) for _ in range(layers))
        self.out = Linear(hidden, out_channels)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = path = self.embed(x, self.input_dropout)
        memory = torch.zeros_like(h)
        for breadth, depth in zip(self.breadth, self.depth, strict=True):
            h = breadth(h, looped)
            path, memory = depth(torch.cat([h, path], dim=1) if self.lazy else h, memory)
            h = h if self.lazy else path
        return self.out(path, self.dropout)
