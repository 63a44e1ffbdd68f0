"""`graphsage`: sample and aggregate, with the mean aggregator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import UniformConvNetwork, repeat_columns
from gfgn.nn.linear import Rate, ResettableModule, StackedLinear


class SAGELayer(ResettableModule):
    """`h'_i = W_s h_i + W_n mean_{j∈N(i)} h_j + b`: PyG's `SAGEConv`, the mean taken after the product with `W_n`."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = StackedLinear(in_channels, {"own": out_channels, "neighbor": out_channels}, bias=["own"])

    def forward(self, x: Tensor, graph: Graph, dropout: Rate = 0.0) -> Tensor:
        own, neighbor = self.lin(x, dropout)
        return own + ops.neighbor_mean(neighbor, graph)


def scale_to_length_one(x: Tensor) -> Tensor:
    """Every row divided by its Euclidean length; a row of zeros stays."""
    squares = ops.linear(x.square(), x.new_ones(1, x.size(1)))
    return x * repeat_columns(squares.clamp(min=1e-24).rsqrt(), x.size(1))


class GraphSAGE(UniformConvNetwork):
    """*Inductive Representation Learning on Large Graphs* (Hamilton et al., 2017), mean aggregator.

    `h_i^(l+1) = ReLU(W^(l) [h_i^(l) ‖ mean_{j∈N(i)} h_j^(l)])`, scaled to length 1 with `normalize` as in the paper's
    Algorithm 1; the last layer gives the logits. `forward` uses all neighbors; in mini-batches (`gfgn.sampling`) each
    layer has a sample of them.
    """

    layer = SAGELayer

    def __init__(self, *args: Any, normalize: bool = True, **options: Any) -> None:
        super().__init__(*args, **options)
        self.normalize = normalize

    def activate(self, x: Tensor) -> Tensor:
        return scale_to_length_one(x.relu()) if self.normalize else x.relu()

    def on_layers(self, x: Tensor, graphs: Sequence[Graph]) -> Tensor:
        """Computes the logits with one graph per layer, whose nodes are the first nodes of the previous one."""
        for layer, (conv, graph) in enumerate(zip(self.convs, graphs, strict=True)):
            x = self.activate(x[: graph.num_nodes]) if layer else x
            x = conv(x, graph, self.dropout if layer else self.input_dropout)
        return x
