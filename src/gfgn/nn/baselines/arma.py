"""`arma`: auto-regressive moving average filters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Convolutions, apply, glorot_linear, merge, reset, widths
from gfgn.nn.entry import Parameter, baseline, hidden, layers


class ARMALayer(nn.Module):
    """The mean of `K` stacks of recurrent filters of depth `T`.

        X_k^(t+1) = σ(D^(−1/2) A D^(−1/2) X_k^(t) W_k + X V_k + b_k),    X_k^(0) = X,    X' = 1/K Σ_k X_k^(T)

    The first `W_k` is one of its own; the later ones, `V_k` and `b_k` are the same at every depth, as in the paper.
    It is PyG's `ARMAConv` with `shared_weights=True`.

    Args:
        in_channels: Input width.
        out_channels: Output width.
        stacks: K.
        depth: T.
        act: Whether σ is ReLU; else there is none.
    """

    weight: nn.Parameter | None

    def __init__(self, in_channels: int, out_channels: int, stacks: int, depth: int, act: bool) -> None:
        super().__init__()
        self.stacks = stacks
        self.depth = depth
        self.act = act
        self.init = glorot_linear(in_channels, stacks * out_channels, bias=False)
        self.root = glorot_linear(in_channels, stacks * out_channels)
        if depth > 1:
            self.weight = nn.Parameter(torch.empty(stacks, out_channels, out_channels))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew: Glorot for each stack's matrices."""
        reset(self.init, self.root)
        for lin in (self.init, self.root):
            for part in lin.weight.chunk(self.stacks):
                glorot(part)
        if self.weight is not None:
            for part in self.weight:
                glorot(part)

    def forward(self, x: Tensor, graph: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        """Runs the layer; the input is dropped for the filter and, anew, for the skip connection."""
        root = apply(self.root, x, dropout, self.training)
        out = apply(self.init, x, dropout, self.training)
        for depth in range(self.depth):
            if depth > 0:
                assert self.weight is not None
                out = ops.head_linear(out, self.weight)
            out = ops.propagate(out, graph) + root
            if self.act:
                out = out.relu()
        return merge(out, self.stacks, concat=False)


class ARMA(Convolutions):
    """The network of *Graph Neural Networks with Convolutional ARMA Filters* (Bianchi et al., 2019): layers as in
    `ARMALayer` with ReLU, the last without.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer and of its skip connection.
        hidden: Hidden units.
        layers: Number of layers.
        stacks: K.
        depth: T.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        stacks: int = 2,
        depth: int = 1,
    ) -> None:
        pairs = widths(in_channels, hidden, layers, out_channels)
        convs = (ARMALayer(*pair, stacks, depth, act=layer < layers - 1) for layer, pair in enumerate(pairs))
        super().__init__(convs, dropout)

    def activate(self, x: Tensor) -> Tensor:
        return x  # every step inside a layer ends with it


ENTRY = baseline(
    ARMA,
    "Bianchi et al., Graph Neural Networks with Convolutional ARMA Filters, 2019",
    {
        "hidden": hidden(),
        "layers": layers(),
        "stacks": Parameter(2, (1, 2, 3), "parallel stacks of filters, K"),
        "depth": Parameter(1, (1, 2, 3), "depth of the recurrence, T"),
    },
)
