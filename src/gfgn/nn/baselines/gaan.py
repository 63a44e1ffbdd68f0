"""`gaan`: attention heads, each with a gate that a node sets by what it and its neighbours look like."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Convolutions, Maps, apply, glorot_linear, reset, widths
from gfgn.nn.entry import Parameter, baseline, hidden, layers
from gfgn.ops.attention import attend, edge_dot
from gfgn.ops.edges import edge_softmax

SLOPE = 0.1
"""Of LeakyReLU, as in the paper."""


class GaANLayer(nn.Module):
    """The gated attention aggregator.

        α_ij^k = softmax_j(⟨Q^k h_i, K^k h_j⟩)
        g_i    = σ(W_g [h_i ‖ max_{j∈N(i)} W_m h_j ‖ mean_{j∈N(i)} h_j] + b_g),  one value a head
        h'_i   = W_o [h_i ‖ g_i^1 Σ_j α_ij^1 LeakyReLU(V^1 h_j) ‖ … ‖ g_i^K Σ_j α_ij^K LeakyReLU(V^K h_j)] + b_o

    `Q`, `K`, `V` and `W_m` have biases too. Without neighbours, sums, mean and maximum are 0.

    Args:
        in_channels: Input width.
        out_channels: Output width.
        heads: K.
        key: Width of a head's queries and keys.
        value: Width of a head's values.
        pool: Width of what the gate sees of the neighbours' maximum.
    """

    def __init__(self, in_channels: int, out_channels: int, heads: int, key: int, value: int, pool: int) -> None:
        super().__init__()
        self.heads = heads
        # W_g and W_o in the parts that their concatenated inputs meet.
        sizes = {"query": heads * key, "key": heads * key, "value": heads * value, "pool": pool}
        sizes |= {"gate_own": heads, "out_own": out_channels, "gate_mean": heads}
        self.maps = Maps(in_channels, sizes, bias=sizes.keys() - {"gate_mean"})
        self.gate_max = glorot_linear(pool, heads, bias=False)
        self.out_heads = glorot_linear(heads * value, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.children())

    def forward(self, x: Tensor, graph: Graph, dropout: float | Tensor = 0.0) -> Tensor:
        query, key, value, pool, gate_own, own, gate_mean = self.maps(x, dropout)
        alpha = edge_softmax(edge_dot(query, key, self.heads, graph), graph)
        attended = attend(alpha, leaky_relu(value, SLOPE), graph).unflatten(1, (self.heads, -1))
        gate = gate_own + apply(self.gate_max, ops.neighbor_max(pool, graph)) + ops.neighbor_mean(gate_mean, graph)
        gated = attended * torch.sigmoid(gate).unsqueeze(2)
        out: Tensor = own + apply(self.out_heads, gated.flatten(1))
        return out


class GaAN(Convolutions):
    """The network of *GaAN: Gated Attention Networks for Learning on Large and Spatiotemporal Graphs* (Zhang et al.,
    2018): layers as in `GaANLayer` with LeakyReLU between them.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
        heads: Heads of every layer.
        key: Width of a head's queries and keys.
        value: Width of a head's values.
        pool: Width of what the gate sees of the neighbours' maximum.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 64,
        layers: int = 2,
        heads: int = 8,
        key: int = 24,
        value: int = 32,
        pool: int = 64,
    ) -> None:
        pairs = widths(in_channels, hidden, layers, out_channels)
        super().__init__((GaANLayer(*pair, heads, key, value, pool) for pair in pairs), dropout)

    def activate(self, x: Tensor) -> Tensor:
        return leaky_relu(x, SLOPE)


ENTRY = baseline(
    GaAN,
    "Zhang et al., GaAN: Gated Attention Networks for Learning on Large and Spatiotemporal Graphs, UAI 2018",
    {
        "hidden": hidden(),
        "layers": layers(),
        "heads": Parameter(8, (1, 4, 8), "attention heads"),
        "key": Parameter(24, (8, 16, 24), "width of a head's queries and keys"),
        "value": Parameter(32, (8, 16, 32), "width of a head's values"),
        "pool": Parameter(64, (16, 64), "width of what the gate sees of the neighbours' maximum"),
    },
)
