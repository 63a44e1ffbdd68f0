"""GraphSAGE in mini-batches: a fixed number of neighbours a node and layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gfgn.graph import Graph
from gfgn.nn.baselines.graphsage import GraphSAGE
from gfgn.ops.features import take_rows
from gfgn.sampling.counter import key_of
from gfgn.sampling.neighbors import NeighborSampler, Sample
from gfgn.train.minibatch.loop import check_labels, node_losses, shuffled


class NeighborBatch(NamedTuple):
    """Some nodes and a sample of what lies around them."""

    x: Tensor
    """Features of all nodes of the sample, first of those asked for."""
    graphs: list[Graph]
    """The sampled edges, a graph a layer: all of them for the first, and for each one after it a hop less."""
    y: Tensor
    """Labels of the nodes asked for."""


class NeighborBatches:
    """Training nodes in batches, each with a sample of its neighbourhood (Hamilton et al., 2017, Algorithm 2).

    It suits every model that takes the mean of its neighbours, in particular `graphsage`.

    Args:
        x: `[N, F]`, dense or sparse CSR.
        graph: The whole graph.
        y: Labels, see `train_minibatch`.
        train: `[N]`, mask of the training nodes.
        fanouts: Neighbours of a node, one number a layer, from the last layer down; the paper's are 25 and 10.
        batch_size: Training nodes in a step.
        seed: Of order and samples.
    """

    def __init__(
        self,
        x: Tensor,
        graph: Graph,
        y: Tensor,
        train: Tensor,
        *,
        fanouts: Sequence[int] = (25, 10),
        batch_size: int = 512,
        seed: int = 0,
    ) -> None:
        check_labels(y, train, graph)
        self.x, self.y = x, y
        self.dtype = graph.dtype
        self.nodes = torch.nonzero(train).view(-1)
        self.batch_size = batch_size
        self.seed = seed
        self.sampler = NeighborSampler.from_graph(graph, fanouts, seed)

    def steps(self, epoch: int) -> Iterator[NeighborBatch]:
        """The batches of an epoch."""
        self.sampler.set_epoch(epoch)
        order = int(key_of(self.seed, epoch)) >> 1
        for step, nodes in enumerate(shuffled(self.nodes, self.batch_size, order)):
            found = self.sampler.sample(nodes, step)
            around = torch.from_numpy(found.node).to(self.x.device)
            yield NeighborBatch(take_rows(self.x, around), self._graphs(found), self.y[nodes])

    def _graphs(self, found: Sample) -> list[Graph]:
        edges = torch.stack([torch.from_numpy(found.row), torch.from_numpy(found.col)]).to(self.x.device)
        num_edges, num_nodes = np.cumsum(found.edges_per_hop), np.cumsum(found.nodes_per_hop)
        return [
            Graph.from_edge_index(edges[:, : num_edges[hop]], int(num_nodes[hop + 1]), dtype=self.dtype)
            for hop in reversed(range(len(found.edges_per_hop)))
        ]

    def loss(self, net: nn.Module, batch: NeighborBatch) -> Tensor:
        """The mean loss of the nodes asked for."""
        if isinstance(net, GraphSAGE):
            if len(net.convs) != len(batch.graphs):
                raise ValueError(f"fanouts must be {len(net.convs)} numbers, one a layer, got {len(batch.graphs)}")
            logits = net.on_layers(batch.x, batch.graphs)
        else:
            logits = net(batch.x, batch.graphs[0])
        return node_losses(logits[: batch.y.size(0)], batch.y).mean()
