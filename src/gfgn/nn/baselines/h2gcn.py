"""`h2gcn`: design for heterophily, with the two-step neighbourhood on its own."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.graph import Graph
from gfgn.nn.baselines.common import apply, glorot_linear, per_graph, reset
from gfgn.nn.entry import Parameter, baseline, hidden


class H2GCN(nn.Module):
    """The network of *Beyond Homophily in Graph Neural Networks* (Zhu et al., 2020).

    With `N_1` the neighbours of a node and `N_2` those exactly two steps away, both without the node itself, and
    `Ā_k` the symmetrically normalised adjacency of each:

        R^(0) = ReLU(X W_e),    R^(k) = [Ā_1 R^(k−1) ‖ Ā_2 R^(k−1)],    Y = [R^(0) ‖ R^(1) ‖ … ‖ R^(K)] W_c

    `Ā_2` is worked out once for a graph and has far more entries than `A`: on a dense graph nearly `N²`.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of both linear maps.
        hidden: Hidden units; the last linear map has `hidden (2^(K+1) − 1)` inputs.
        rounds: K.
    """

    def __init__(
        self, in_channels: int, out_channels: int, dropout: float | Tensor = 0.5, *, hidden: int = 64, rounds: int = 2
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.rounds = rounds
        self.embed = glorot_linear(in_channels, hidden)
        self.out = glorot_linear(hidden * (2 ** (rounds + 1) - 1), out_channels)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.embed, self.out)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        further = two_steps_away(graph)
        r = apply(self.embed, x, self.dropout, self.training).relu()
        seen = [r]
        for _ in range(self.rounds):
            r = torch.cat([ops.propagate(r, graph), ops.propagate(r, further)], dim=1)
            seen.append(r)
        return apply(self.out, torch.cat(seen, dim=1), self.dropout, self.training)


@per_graph
def two_steps_away(graph: Graph) -> Graph:
    """Each node takes from those that two steps lead to and neither one nor none does."""
    source, target = graph.edge_index.cpu().numpy()
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = scipy.sparse.csr_array((np.ones(source.size, dtype=np.float32), (target, source)), shape=shape)
    near = adjacency + scipy.sparse.eye_array(graph.num_nodes, dtype=np.float32, format="csr")
    reached = (adjacency @ adjacency).sign()
    far = (reached - reached.multiply(near.sign())).tocoo()
    far.eliminate_zeros()
    edge_index = torch.from_numpy(np.stack([far.col, far.row]).astype(np.int64)).to(graph.device)
    return Graph.from_edge_index(edge_index, graph.num_nodes, batch=graph.batch, dtype=graph.dtype)


ENTRY = baseline(
    H2GCN,
    "Zhu et al., Beyond Homophily in Graph Neural Networks: Current Limitations and Effective Designs, NeurIPS 2020",
    {"hidden": hidden(), "rounds": Parameter(2, (1, 2), "rounds of aggregation, K")},
    group="beyond",
)
