"""`h2gcn`: design for heterophily, with separate one- and two-hop neighborhoods."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph, per_graph
from gfgn.nn.baselines.common import GraphNetwork
from gfgn.nn.linear import Linear, Rate


class H2GCN(GraphNetwork):
    """*Beyond Homophily in Graph Neural Networks* (Zhu et al., 2020).

    With `N_1` the neighbors of a node and `N_2` the nodes exactly two hops away, both without the node itself, and
    `Ā_k` the symmetrically normalized adjacency of each:

        R^(0) = ReLU(X W_e),    R^(k) = [Ā_1 R^(k−1) ‖ Ā_2 R^(k−1)],    Y = [R^(0) ‖ R^(1) ‖ … ‖ R^(K)] W_c

    with `K = rounds`. `Ā_2` is computed once per `Graph` and has far more entries than `A`, up to nearly `N²`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 64,
        rounds: int = 2,
        input_dropout: Rate | None = None,
    ) -> None:
        super().__init__(dropout, input_dropout)
        self.rounds = rounds
        self.embed = Linear(in_channels, hidden)
        self.out = Linear(hidden * (2 ** (rounds + 1) - 1), out_channels)

    def logits(self, x: Tensor, graph: Graph) -> Tensor:
        further = two_hop_graph(graph)
        r = self.embed(x, self.input_dropout).relu()
        rounds = [r]
        for _ in range(self.rounds):
            r = torch.cat([ops.propagate(r, graph), ops.propagate(r, further)], dim=1)
            rounds.append(r)
        return self.out(torch.cat(rounds, dim=1), self.dropout)


@per_graph
def two_hop_graph(graph: Graph) -> Graph:
    """The graph in which the neighbors of a node are the nodes exactly two hops away."""
    source, target = graph.edge_index.cpu().numpy()
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = scipy.sparse.csr_array((np.ones(source.size, dtype=np.float32), (target, source)), shape=shape)
    near = adjacency + scipy.sparse.eye_array(graph.num_nodes, dtype=np.float32, format="csr")
    reached = (adjacency @ adjacency).sign()
    far = (reached - reached.multiply(near.sign())).tocoo()
    far.eliminate_zeros()
    edge_index = torch.from_numpy(np.stack([far.col, far.row]).astype(np.int64)).to(graph.device)
    return Graph.from_edge_index(edge_index, graph.num_nodes, batch=graph.batch, dtype=graph.dtype)
