"""GFGN in mini-batches: sampled neighbors with weights under which sums over neighbors are unbiased."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.metrics import node_losses
from gfgn.ops.features import take_rows
from gfgn.sampling.neighbors import NeighborSampler
from gfgn.sampling.subgraphs import check_positive
from gfgn.train.minibatch.batches import NodeBatches

MOMENTUM = 0.1  # of the running mean that a graph gate reads


class LevelBatch(NamedTuple):
    """Training nodes and a sample of their neighborhood."""

    x: Tensor  # features of all sampled nodes, the training nodes first
    graph: Graph  # with the weights of the whole graph, corrected for the sampling
    nodes_per_hop: list[int]
    edges_per_hop: list[int]
    y: Tensor  # labels of the training nodes


class LevelBatches(NodeBatches):
    """Training nodes in batches, each with a sample of its neighborhood, for a `GFGN` of any level.

    The graph gate reads a running mean over batches in training; validation and test see whole graphs and the exact
    mean.

    Args:
        net, data, train, seed: See `Minibatches`; the model is a `gfgn.nn.GFGN`.
        fanout: Neighbors per node and layer; −1 takes all.
        batch_size: Training nodes per step.
        replace: Whether neighbors are drawn with replacement.
    """

    options = ("batch_size", "fanout", "replace")
    requires = ("convs",)

    def __init__(
        self,
        net: Any,
        data: NodeDataset,
        train: Tensor,
        *,
        fanout: int = 10,
        batch_size: int = 512,
        replace: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(net, data, train, batch_size, seed)
        if data.graph.batch is not None and any(conv.level == "graph" for conv in net.convs):
            raise ValueError(f"data must be one graph for the samples of a graph gate, got {data.graph.num_graphs}")
        if fanout != -1:
            check_positive(fanout=fanout)
        self.dtype = data.graph.dtype
        self.sampler = NeighborSampler.from_graph(data.graph, [fanout] * len(net.convs), seed, replace=replace)
        for conv in net.convs:
            conv.keep_running_pool(MOMENTUM, persistent=False)  # whole graphs do not need it

    def batch(self, nodes: Tensor, epoch: int, step: int) -> LevelBatch:
        self.sampler.set_epoch(epoch)
        sample = self.sampler.sample(nodes, step)
        device = next(self.net.parameters()).device  # the data may be elsewhere
        graph = self.sampler.graph(sample).to(device, self.dtype)
        x = take_rows(self.x, torch.from_numpy(sample.node).to(self.x.device)).to(device)
        return LevelBatch(x, graph, sample.nodes_per_hop, sample.edges_per_hop, self.y[nodes].to(device))

    def loss(self, batch: LevelBatch) -> Tensor:
        """The mean loss of the training nodes."""
        logits = self.net(
            batch.x,
            batch.graph,
            num_sampled_nodes_per_hop=batch.nodes_per_hop,
            num_sampled_edges_per_hop=batch.edges_per_hop,
        )
        return node_losses(logits[: batch.y.size(0)], batch.y).mean()
