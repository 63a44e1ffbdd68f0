"""`acm-gcn`: adaptive mixing of a low-pass, a high-pass and an identity channel."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph, with_self_loops
from gfgn.nn.baselines.common import UniformConvNetwork, repeat_columns, sum_of
from gfgn.nn.linear import Rate, ResettableModule, StackedLinear

CHANNELS = 3


class ACMLayer(ResettableModule):
    """Three channels, mixed by learned weights per node.

    H_L = ReLU(P H W_L),    H_H = ReLU((I − P) H W_H),    H_I = ReLU(H W_I),    P = D̃⁻¹ Ã
    [α_L α_H α_I] = softmax([σ(H_L w_L) σ(H_H w_H) σ(H_I w_I)] W_mix / 3)
    H' = α_L H_L + α_H H_H + α_I H_I
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = StackedLinear(in_channels, dict.fromkeys(("low", "high", "own"), out_channels))
        self.score = nn.Parameter(torch.empty(CHANNELS, out_channels))
        self.mix = nn.Parameter(torch.empty(CHANNELS, CHANNELS))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters."""
        self.lin.reset_parameters()
        for row in self.score:
            glorot(row.view(-1, 1))
        glorot(self.mix)

    def forward(self, x: Tensor, looped: Graph, dropout: Rate = 0.0) -> Tensor:
        low, high, own = self.lin(x, dropout)
        smooth_low, smooth_high = random_walk(torch.cat([low, high], dim=1), looped).chunk(2, dim=1)
        channels = torch.cat([smooth_low, high - smooth_high, own], dim=1).relu()
        scores = ops.activate(ops.head_linear(channels, self.score.unsqueeze(2)), "sigmoid")
        alpha = softmax_of_columns(ops.linear(scores, self.mix.t()) / CHANNELS)
        return sum_of((channels * repeat_columns(alpha, own.size(1))).chunk(CHANNELS, dim=1))


def softmax_of_columns(x: Tensor) -> Tensor:
    """The softmax over a few columns, one column at a time: PyTorch's order depends on the shapes."""
    top = functools.reduce(torch.maximum, x.split(1, dim=1)).detach()
    weights = ops.activate(x - top, "exp")
    return weights / torch.cat([sum_of(weights.split(1, dim=1))] * x.size(1), dim=1)


def random_walk(x: Tensor, graph: Graph) -> Tensor:
    """`D⁻¹A x`, 0 where a degree is 0, computed as `D^(−1/2) Â D^(1/2) x`."""
    root = graph.degree.clamp(min=torch.finfo(graph.dtype).tiny).sqrt().to(x.dtype).unsqueeze(1)
    return ops.propagate(x * root, graph) / root


class ACMGCN(UniformConvNetwork):
    """*Revisiting Heterophily For Graph Neural Networks* (Luan et al., 2022)."""

    layer = ACMLayer

    def prepare(self, graph: Graph) -> Graph:
        return with_self_loops(graph)
