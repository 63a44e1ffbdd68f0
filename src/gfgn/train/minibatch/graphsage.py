"""GraphSAGE in mini-batches: a fixed number of sampled neighbors per node and layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.metrics import node_losses
from gfgn.ops.features import take_rows
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.train.minibatch.batches import NodeBatches

FANOUTS = (25, 10)  # in the last layers, from the paper; further layers below have the last number


class NeighborBatch(NamedTuple):
    """Training nodes and a sample of their neighborhood."""

    x: Tensor  # features of all sampled nodes, the training nodes first
    graphs: list[Graph]  # one per layer: all sampled edges for the first layer, one hop less for each further one
    y: Tensor  # labels of the training nodes


class NeighborBatches(NodeBatches):
    """Training nodes in batches, each with a sample of its neighborhood (Hamilton et al., 2017, Algorithm 2).

    Args:
        net, data, train, seed: See `Minibatches`; `net.on_layers(x, graphs)` takes one graph per layer of `net.convs`.
        fanouts: Neighbors per node, one number per layer, from the last layer down; by default those of the paper.
        batch_size: Training nodes per step.
    """

    requires = ("convs", "on_layers")

    def __init__(
        self,
        net: Any,
        data: NodeDataset,
        train: Tensor,
        *,
        fanouts: Sequence[int] | None = None,
        batch_size: int = 512,
        seed: int = 0,
    ) -> None:
        super().__init__(net, data, train, batch_size, seed)
        layers = len(net.convs)
        if fanouts is None:
            fanouts = (*FANOUTS, *[FANOUTS[-1]] * layers)[:layers]
        if len(fanouts) != layers:
            raise ValueError(f"fanouts must be {layers} numbers, one per layer, got {len(fanouts)}")
        self.dtype = data.graph.dtype
        self.sampler = NeighborSampler.from_graph(data.graph, fanouts, seed)

    def batch(self, nodes: Tensor, epoch: int, step: int) -> NeighborBatch:
        self.sampler.set_epoch(epoch)
        sample = self.sampler.sample(nodes, step)
        sampled = torch.from_numpy(sample.node).to(self.x.device)
        edges = torch.from_numpy(np.stack([sample.row, sample.col])).to(self.x.device)
        num_edges, num_nodes = np.cumsum(sample.edges_per_hop), np.cumsum(sample.nodes_per_hop)
        graphs = [
            Graph.from_edge_index(edges[:, : num_edges[hop]], int(num_nodes[hop + 1]), dtype=self.dtype)
            for hop in reversed(range(len(sample.edges_per_hop)))
        ]
        return NeighborBatch(take_rows(self.x, sampled), graphs, self.y[nodes])

    def loss(self, batch: NeighborBatch) -> Tensor:
        """The mean loss of the training nodes."""
        logits = self.net.on_layers(batch.x, batch.graphs)
        return node_losses(logits[: batch.y.size(0)], batch.y).mean()
