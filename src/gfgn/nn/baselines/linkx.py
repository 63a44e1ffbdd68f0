"""`linkx`: an MLP of the features and of the rows of the adjacency."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot, reset

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.linear import Linear, Rate
from gfgn.nn.mlp import MLP


class LINKX(GraphNetwork):
    """*Large Scale Learning on Non-Homophilous Graphs* (Lim et al., 2021).

        h_A = A W_A + b_A,    h_X = X W_X + b_X,    Y = MLP(ReLU(W [h_A ‖ h_X] + h_A + h_X))

    with one layer each for `h_A` and `h_X`, as in most of the paper's models, and no batch normalization. `W_A` has one
    row for each of the `num_nodes` nodes, so the model applies to one graph only. `layers` are those of the MLP.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        num_nodes: int,
        hidden: int = 64,
        layers: int = 2,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        self.nodes = nn.Parameter(torch.empty(num_nodes, hidden))
        self.nodes_bias = nn.Parameter(torch.empty(hidden))
        self.features = Linear(in_channels, hidden)
        self.join_nodes = Linear(hidden, hidden)
        self.join_features = Linear(hidden, hidden, bias=False)
        self.mlp = MLP(hidden, out_channels, dropout, hidden=hidden, layers=layers)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Re-initializes all parameters, those of the nodes first."""
        glorot(self.nodes)
        nn.init.zeros_(self.nodes_bias)
        for child in self.children():
            reset(child)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        by_nodes = ops.neighbor_sum(self.nodes, graph) + ops.expand_rows(self.nodes_bias, graph.num_nodes)
        by_features = self.features(x, self.input_dropout)
        joined = self.join_nodes(by_nodes) + self.join_features(by_features) + by_nodes + by_features
        return self.mlp(joined.relu())
