"""`geniepath`: paths chosen by attention in breadth and by a long short-term memory in depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from gfgn.graph import Graph
from gfgn.nn.baselines.common import Maps, apply, glorot_linear, reset, with_self_loops
from gfgn.nn.entry import Parameter, baseline, hidden, layers
from gfgn.ops.attention import attend
from gfgn.ops.edges import edge_softmax, from_source, from_target


class Breadth(nn.Module):
    """Which neighbours matter.

    h'_i = tanh(W Σ_{j∈N(i)∪{i}} α_ij h_j),    α_ij = softmax_j(v · tanh(W_s h_i + W_d h_j))
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.maps = Maps(channels, dict.fromkeys(("own", "other", "value"), channels))
        self.score = nn.Parameter(torch.empty(1, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)
        glorot(self.score)

    def forward(self, h: Tensor, looped: Graph) -> Tensor:
        own, other, value = self.maps(h)
        pair = torch.tanh(from_target(own, looped) + from_source(other, looped))
        alpha = edge_softmax((pair * self.score).sum(1, keepdim=True), looped)
        return attend(alpha, value, looped).tanh()


class Depth(nn.Module):
    """A long short-term memory along the layers: which of them matter.

    i, f, o = σ(W_i u), σ(W_f u), σ(W_o u),    C' = f ⊙ C + i ⊙ tanh(W_c u),    h = o ⊙ tanh(C')
    """

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.maps = Maps(in_channels, dict.fromkeys(("taken", "kept", "shown", "new"), channels))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)

    def forward(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        taken, kept, shown, new = self.maps(u)
        memory = kept.sigmoid() * memory + taken.sigmoid() * new.tanh()
        return shown.sigmoid() * memory.tanh(), memory


class GeniePath(nn.Module):
    """The network of *GeniePath: Graph Neural Networks with Adaptive Receptive Paths* (Liu et al., 2019).

    From `h^(0) = X W_x` and `C^(0) = 0`, each layer is `Breadth`, then `Depth` of what it gives; a linear map of the
    last `h` classifies. In the lazy variant all of breadth comes first, `h^(t+1) = Breadth(h^(t))`, and depth follows
    with `u = [h^(t+1) ‖ μ^(t)]`, `μ^(0) = h^(0)`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the features and on the input of the last linear map.
        hidden: Hidden units.
        layers: Number of layers.
        lazy: Whether it is the paper's GeniePath-lazy.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        lazy: bool = False,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be 1 or larger, got {layers}")
        self.dropout = dropout
        self.lazy = lazy
        self.embed = glorot_linear(in_channels, hidden, bias=False)
        self.breadth = nn.ModuleList(Breadth(hidden) for _ in range(layers))
        self.depth = nn.ModuleList(Depth(2 * hidden if lazy else hidden, hidden) for _ in range(layers))
        self.out = glorot_linear(hidden, out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.embed, *self.breadth, *self.depth, self.out)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        looped = with_self_loops(graph)
        h = path = apply(self.embed, x, self.dropout, self.training)
        memory = torch.zeros_like(h)
        for breadth, depth in zip(self.breadth, self.depth, strict=True):
            h = breadth(h, looped)
            path, memory = depth(torch.cat([h, path], dim=1) if self.lazy else h, memory)
            h = h if self.lazy else path
        return apply(self.out, path, self.dropout, self.training)


ENTRY = baseline(
    GeniePath,
    "Liu et al., GeniePath: Graph Neural Networks with Adaptive Receptive Paths, AAAI 2019",
    {
        "hidden": hidden(),
        "layers": layers(),
        "lazy": Parameter(False, (False, True), "whether all of breadth comes before depth"),
    },
)
