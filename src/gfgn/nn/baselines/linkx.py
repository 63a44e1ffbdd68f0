"""`linkx`: a perceptron of the features and of the rows of the adjacency."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.appnp import Perceptron
from gfgn.nn.baselines.common import apply, glorot_linear, reset
from gfgn.nn.entry import Parameter, baseline, hidden


class LINKX(nn.Module):
    """The model of *Large Scale Learning on Non-Homophilous Graphs* (Lim et al., 2021).

        h_A = A W_A + b_A,    h_X = X W_X + b_X,    Y = MLP(ReLU(W [h_A ‖ h_X] + h_A + h_X))

    with one layer each for `h_A` and `h_X`, as in most of the paper's models, and no batch normalisation. `W_A` has a
    row a node: the model knows the nodes of one graph only.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the features and on the input of every layer of the last perceptron.
        num_nodes: Number of nodes of the graph.
        hidden: Hidden units.
        layers: Linear layers of the last perceptron.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        num_nodes: int,
        hidden: int = 64,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.nodes = nn.Parameter(torch.empty(num_nodes, hidden))
        self.nodes_bias = nn.Parameter(torch.empty(hidden))
        self.features = glorot_linear(in_channels, hidden)
        self.join_nodes = glorot_linear(hidden, hidden)
        self.join_features = glorot_linear(hidden, hidden, bias=False)
        self.mlp = Perceptron(hidden, hidden, layers, out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        glorot(self.nodes)
        nn.init.zeros_(self.nodes_bias)
        reset(self.features, self.join_nodes, self.join_features, self.mlp)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        by_nodes = ops.neighbor_sum(self.nodes, graph) + self.nodes_bias
        by_features = apply(self.features, x, self.dropout, self.training)
        joined = apply(self.join_nodes, by_nodes) + apply(self.join_features, by_features) + by_nodes + by_features
        logits: Tensor = self.mlp(joined.relu(), self.dropout)
        return logits


ENTRY = baseline(
    LINKX,
    "Lim et al., Large Scale Learning on Non-Homophilous Graphs: New Benchmarks and Strong Simple Methods, "
    "NeurIPS 2021",
    {
        "hidden": hidden(),
        "layers": Parameter(2, (1, 2, 3), "linear layers of the last perceptron"),
    },
    inductive=False,
    group="beyond",
    needs=("num_nodes",),
)
