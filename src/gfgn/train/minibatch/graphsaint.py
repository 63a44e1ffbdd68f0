"""GraphSAINT: training on sampled subgraphs, normalized so that sums over neighbors and losses are unbiased."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.metrics import node_losses
from gfgn.ops.features import take_rows
from gfgn.sampling.counter import key_of
from gfgn.sampling.subgraphs import Ints, Subgraph, check_positive, make_sampler
from gfgn.train.minibatch.batches import Minibatches
from gfgn.train.task import graphs_with


class SaintBatch(NamedTuple):
    """A subgraph with its normalization."""

    x: Tensor
    graph: Graph  # its norm is Ã_vu / α_uv: the expected sum over sampled neighbors is the mean over all neighbors
    y: Tensor
    weight: Tensor  # 1 / (λ_v T) for the T training nodes, 0 for others: the expected sum of losses is their mean


class SaintBatches(Minibatches):
    """Normalized subgraphs of *GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020).

    Before training, nodes and edges are counted in `M` subgraphs that contain every node `coverage` times on average:
    `C_v` and `C_uv`. Then

        ζ_v = Σ_u (Ã_vu / α_uv) h_u,    α_uv = C_uv / C_v        (aggregator normalization, Ã = D⁻¹A)
        L   = Σ_{v ∈ sample} L_v / (λ_v T),    λ_v = C_v / M     (loss normalization, T training nodes)

    so that sums over neighbors and the loss are unbiased, although hubs are drawn more often than other nodes. Of many
    graphs, only those with training nodes are sampled.

    Args:
        net, data, train, seed: See `Minibatches`; `net.convolve(x, graph)` uses the weights `graph.norm`.
        sampler: `"node"`, `"edge"` or `"walk"`.
        budget: Nodes, edges or roots of walks per subgraph; by default a quarter of the nodes, at most 6000 nodes,
            4000 edges or 3000 roots.
        length: Steps of a walk.
        coverage: How often a node is counted on average.
    """

    options = ("sampler", "budget", "length", "coverage")
    requires = ("convolve",)

    def __init__(
        self,
        net: Any,
        data: NodeDataset,
        train: Tensor,
        *,
        sampler: str = "walk",
        budget: int | None = None,
        length: int = 2,
        coverage: int = 50,
        seed: int = 0,
    ) -> None:
        super().__init__(net, data, train, seed)
        check_positive(coverage=coverage)
        self.graph = data.graph
        if data.graph.batch is not None:
            part = graphs_with(data, train)
            self.x, self.graph, self.y, self.train = part.x, part.graph, part.y, part.masks[0]
        self.sampler = make_sampler(sampler, self.graph, budget, length)
        self.node_count, self.edge_count, self.samples = self._count(coverage)
        self.num_steps = max(1, round(self.graph.num_nodes * self.samples / max(int(self.node_count.sum()), 1)))

    def _count(self, coverage: int) -> tuple[Ints, Ints, int]:
        """How often each node and each edge was sampled, and in how many subgraphs."""
        node_count = np.zeros(self.graph.num_nodes, np.int64)
        edge_count = np.zeros(self.graph.num_edges, np.int64)
        samples, drawn = 0, 0
        while drawn < coverage * self.graph.num_nodes:
            subgraph = self.subgraph(0, samples)
            node_count[subgraph.node] += 1
            edge_count[subgraph.edge] += 1
            samples, drawn = samples + 1, drawn + subgraph.node.size
        return node_count, edge_count, samples

    def subgraph(self, *numbers: int) -> Subgraph:
        """A subgraph that depends on the seed and on `numbers`."""
        return self.sampler.sample(key_of(self.seed, *numbers))

    def steps(self, epoch: int) -> Iterator[SaintBatch]:
        """The batches of an epoch; together they contain every node once on average."""
        for step in range(self.num_steps):
            yield self.batch(1, epoch, step)  # the counted subgraphs have a first number of 0

    def batch(self, *numbers: int) -> SaintBatch:
        """A normalized subgraph that depends on the seed and on `numbers`."""
        nodes, row, col, edges = self.subgraph(*numbers)
        device = self.graph.device
        row_norm = self.graph.row_norm.cpu().numpy()[edges]
        # A node or an edge that was never counted is rarer than one that was counted once.
        alpha = np.maximum(self.edge_count[edges], 1) / np.maximum(self.node_count[nodes[col]], 1)
        sampled = torch.from_numpy(nodes).to(device)
        edge_index = torch.from_numpy(np.stack([row, col])).to(device)
        graph = Graph.from_edge_index(edge_index, nodes.size, dtype=self.graph.dtype)
        norm = torch.zeros_like(graph.norm)
        norm[graph.edge_position] = torch.from_numpy(row_norm / alpha).to(norm)
        graph = dataclasses.replace(graph, norm=norm, reverse_norm=norm[graph.transpose])
        rate = np.maximum(self.node_count[nodes], 1) / self.samples
        weight = torch.from_numpy(1 / rate).to(norm) * self.train[sampled] / self.train.sum()
        return SaintBatch(take_rows(self.x, sampled), graph, self.y[sampled], weight)

    def loss(self, batch: SaintBatch) -> Tensor:
        """The normalized loss of a subgraph."""
        y = batch.y if batch.y.dim() == 2 else batch.y.clamp(min=0)  # −1, a node without a label, has weight 0
        losses = node_losses(self.net.convolve(batch.x, batch.graph), y)
        return (losses * batch.weight.to(losses.dtype)).sum()
