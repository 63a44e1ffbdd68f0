"""`arma`: auto-regressive moving average filters."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import UniformConvNetwork, join_heads
from gfgn.nn.linear import Linear, Rate, ResettableModule


class ARMALayer(ResettableModule):
    """The mean of `K` stacks of recurrent filters of depth `T`: PyG's `ARMAConv` with `shared_weights=True`.

        X_k^(t+1) = σ(D^(−1/2) A D^(−1/2) X_k^(t) W_k + X V_k + b_k),    X_k^(0) = X,    X' = 1/K Σ_k X_k^(T)

    The first step has its own `W_k`; the later ones share one. `V_k` and `b_k` are shared by all steps.

    Args:
        stacks: K.
        depth: T.
        act: Whether σ is ReLU or the identity.
    """

    weight: nn.Parameter | None

    def __init__(self, in_channels: int, out_channels: int, stacks: int = 2, depth: int = 1, act: bool = True) -> None:
        super().__init__()
        self.stacks = stacks
        self.depth = depth
        self.act = act
        self.init = Linear(in_channels, stacks * out_channels, bias=False)
        self.root = Linear(in_channels, stacks * out_channels)
        weight = nn.Parameter(torch.empty(stacks, out_channels, out_channels)) if depth > 1 else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters: Glorot for the matrices of each stack."""
        self.init.reset_parameters()
        self.root.reset_parameters()
        for lin in (self.init, self.root):
            for part in lin.weight.chunk(self.stacks):
                glorot(part)
        for part in () if self.weight is None else self.weight:
            glorot(part)

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        """Runs the layer; the filter and the skip connection drop the input independently."""
        root = self.root(x, dropout)
        out = self.init(x, dropout)
        for step in range(self.depth):
            if step > 0:
                assert self.weight is not None
                out = ops.head_linear(out, self.weight)
            out = ops.propagate(out, graph) + root
            if self.act:
                out = out.relu()
        return join_heads(out, self.stacks, concat=False)


class ARMA(UniformConvNetwork):
    """*Graph Neural Networks with Convolutional ARMA Filters* (Bianchi et al., 2019): layers as in `ARMALayer`, which
    has the further arguments, with ReLU, the last without."""

    layer = ARMALayer

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        cast(ARMALayer, self.convs[-1]).act = False

    def activate(self, x: Tensor) -> Tensor:
        return x  # every step inside a layer ends with the activation
