"""`gaan`: attention heads with a learned gate per node and head."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import leaky_relu

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import UniformConvNetwork, repeat_columns
from gfgn.nn.linear import Linear, Rate, ResettableModule, StackedLinear
from gfgn.ops.attention import attend, edge_dot
from gfgn.ops.edges import edge_softmax

SLOPE = 0.1  # of LeakyReLU, as in the paper


class GaANLayer(ResettableModule):
    """The gated attention aggregator.

        α_ij^k = softmax_j(⟨Q^k h_i, K^k h_j⟩)
        g_i    = σ(W_g [h_i ‖ max_{j∈N(i)} W_m h_j ‖ mean_{j∈N(i)} h_j] + b_g),  one value per head
        h'_i   = W_o [h_i ‖ g_i^1 Σ_j α_ij^1 LeakyReLU(V^1 h_j) ‖ … ‖ g_i^K Σ_j α_ij^K LeakyReLU(V^K h_j)] + b_o

    `Q`, `K`, `V` and `W_m` have biases too. Without neighbors, sums, mean and maximum are 0. `key` is the width of the
    queries and keys of a head, `value` of its values, `pool` of the neighbors' maximum.
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 8, key: int = 24, value: int = 32, pool: int = 64
    ) -> None:
        super().__init__()
        self.heads = heads
        # W_g and W_o are split by the parts of their concatenated inputs.
        sizes = {"query": heads * key, "key": heads * key, "value": heads * value, "pool": pool}
        sizes |= {"gate_own": heads, "out_own": out_channels, "gate_mean": heads}
        self.lin = StackedLinear(in_channels, sizes, bias=sizes.keys() - {"gate_mean"})
        self.gate_max = Linear(pool, heads, bias=False)
        self.out_heads = Linear(heads * value, out_channels, bias=False)

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        query, key, value, pool, gate_own, own, gate_mean = self.lin(x, dropout)
        alpha = edge_softmax(edge_dot(query, key, self.heads, graph), graph)
        attended = attend(alpha, leaky_relu(value, SLOPE), graph)
        gate = gate_own + self.gate_max(ops.neighbor_max(pool, graph)) + ops.neighbor_mean(gate_mean, graph)
        gated = attended * repeat_columns(ops.activate(gate, "sigmoid"), value.size(1) // self.heads)
        return own + self.out_heads(gated)


class GaAN(UniformConvNetwork):
    """*GaAN: Gated Attention Networks for Learning on Large and Spatiotemporal Graphs* (Zhang et al., 2018): layers as
    in `GaANLayer`, which has the further arguments, with LeakyReLU between them."""

    layer = GaANLayer

    def activate(self, x: Tensor) -> Tensor:
        return leaky_relu(x, SLOPE)
