"""GraphSAINT: training on sampled subgraphs, with what sampling does to sums and losses divided out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gfgn.graph import Graph
from gfgn.nn.baselines.graphsaint import GraphSAINT
from gfgn.ops.features import take_rows
from gfgn.sampling.counter import compiled, derive, key_of, uniform
from gfgn.train.minibatch.loop import check_labels, node_losses

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@compiled
def draw_by_weight(cumulated: Any, count: int, key: Any) -> Any:
    """`count` places, with replacement, in proportion to weights whose running sum is `cumulated`."""
    out = np.empty(count, np.int64)
    top = cumulated[-1]
    for k in range(count):
        out[k] = min(np.searchsorted(cumulated, uniform(key, k) * top, side="right"), cumulated.size - 1)
    return out


@compiled
def walk(ptr: Any, idx: Any, roots: Any, length: int, key: Any) -> Any:
    """The nodes that random walks of `length` steps from the roots come to, the roots among them; a walk that can go
    nowhere stays."""
    out = np.empty((roots.size, length + 1), np.int64)
    for k in range(roots.size):
        own = derive(key, k)
        node = roots[k]
        out[k, 0] = node
        for step in range(length):
            size = ptr[node + 1] - ptr[node]
            if size > 0:
                node = idx[ptr[node] + int(uniform(own, step) * size)]
            out[k, step + 1] = node
    return out.ravel()


@compiled
def induced(ptr: Any, idx: Any, nodes: Any, local: Any) -> Any:
    """The edges between `nodes`: source and target as places in `nodes`, and places in the graph. `local` holds −1
    for every node, and does so again in the end."""
    for k in range(nodes.size):
        local[nodes[k]] = k
    count = 0
    for k in range(nodes.size):
        for edge in range(ptr[nodes[k]], ptr[nodes[k] + 1]):
            count += local[idx[edge]] >= 0
    row, col, edges = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    place = 0
    for k in range(nodes.size):
        for edge in range(ptr[nodes[k]], ptr[nodes[k] + 1]):
            source = local[idx[edge]]
            if source >= 0:
                row[place], col[place], edges[place] = source, k, edge
                place += 1
    for k in range(nodes.size):
        local[nodes[k]] = -1
    return row, col, edges


class SubgraphSampler(Protocol):
    """Draws the nodes of a subgraph."""

    def nodes(self, key: np.uint64) -> Ints:
        """Different nodes in ascending order, a function of the key."""
        ...


class NodeSampler:
    """`budget` nodes with replacement, `P(u) ∝ ‖Ã_{:,u}‖²` with `Ã = D⁻¹A`."""

    def __init__(self, graph: Graph, budget: int) -> None:
        _positive("budget", budget)
        squared = graph.row_norm.double().square().cpu().numpy()
        sources = graph.by_target.idx.cpu().numpy()
        weight: Floats = np.bincount(sources, weights=squared, minlength=graph.num_nodes).astype(np.float64)
        self.probability: Floats = _normalized(weight)
        self.budget = budget
        self._cumulated = np.cumsum(self.probability)

    def nodes(self, key: np.uint64) -> Ints:
        """See `SubgraphSampler`."""
        return np.unique(draw_by_weight(self._cumulated, self.budget, key))


class EdgeSampler:
    """Both ends of `budget` edges with replacement, `P(u, v) ∝ 1/d(u) + 1/d(v)`. A graph without edges gives single
    nodes."""

    def __init__(self, graph: Graph, budget: int) -> None:
        _positive("budget", budget)
        self.source, self.target = graph.edge_index.cpu().numpy()
        inverse: Floats = 1 / np.maximum(graph.row_lengths.double().cpu().numpy(), 1)
        self.probability: Floats = _normalized(inverse[self.source] + inverse[self.target])
        self.budget = budget
        self.size = graph.num_nodes
        self._cumulated = np.cumsum(self.probability)

    def nodes(self, key: np.uint64) -> Ints:
        """See `SubgraphSampler`."""
        if self.source.size == 0:
            return np.unique(draw_by_weight(np.arange(1.0, self.size + 1), self.budget, key))
        edges = draw_by_weight(self._cumulated, self.budget, key)
        return np.unique(np.concatenate([self.source[edges], self.target[edges]]))


class WalkSampler:
    """All nodes on random walks of `length` steps from `roots` nodes, drawn evenly with replacement."""

    def __init__(self, graph: Graph, roots: int, length: int = 2) -> None:
        _positive("roots", roots)
        _positive("length", length)
        self.ptr: Ints = graph.by_target.ptr.cpu().numpy()
        self.idx: Ints = graph.by_target.idx.cpu().numpy().astype(np.int64)
        self.roots, self.length, self.size = roots, length, graph.num_nodes
        self._cumulated = np.arange(1.0, self.size + 1)

    def nodes(self, key: np.uint64) -> Ints:
        """See `SubgraphSampler`."""
        roots = draw_by_weight(self._cumulated, self.roots, key_of(int(key), 0))
        return np.unique(walk(self.ptr, self.idx, roots, self.length, key_of(int(key), 1)))


SAMPLERS = {"node": NodeSampler, "edge": EdgeSampler, "walk": WalkSampler}


class SaintBatch(NamedTuple):
    """A subgraph with what normalises it."""

    x: Tensor
    graph: Graph
    """Its `norm` is `Ã_vu / α_uv`: the sum over sampled neighbours has the mean over all as its expectation."""
    y: Tensor
    weight: Tensor
    """`1 / (λ_v T)` for the `T` training nodes, 0 for others: the weighted sum of losses has the mean loss of the
    training nodes as its expectation."""


class SaintBatches:
    """Subgraphs of *GraphSAINT: Graph Sampling Based Inductive Learning Method* (Zeng et al., 2020), normalised.

    How often a node and an edge come up in a subgraph is counted beforehand, in subgraphs that hold every node
    `coverage` times on average: `C_v` and `C_uv` of `M`. Then

        ζ_v = Σ_u (Ã_vu / α_uv) h_u,    α_uv = C_uv / C_v        (aggregator normalisation, Ã = D⁻¹A)
        L   = Σ_{v ∈ sample} L_v / (λ_v T),    λ_v = C_v / M     (loss normalisation, T training nodes)

    so that sums over neighbours and the loss are unbiased, though hubs are drawn more often than others. Of many
    graphs, only those with training nodes are sampled.

    Args:
        x: `[N, F]`, dense or sparse CSR.
        graph: The whole graph.
        y: Labels, see `train_minibatch`.
        train: `[N]`, mask of the training nodes.
        sampler: `"node"`, `"edge"` or `"walk"`.
        budget: Nodes, edges or roots of walks in a subgraph; by default a quarter of the nodes, at most 6000 nodes,
            4000 edges or 3000 roots.
        length: Steps of a walk.
        coverage: How often the counting draws a node on average.
        seed: Of the samples.
    """

    def __init__(
        self,
        x: Tensor,
        graph: Graph,
        y: Tensor,
        train: Tensor,
        *,
        sampler: str = "walk",
        budget: int | None = None,
        length: int = 2,
        coverage: int = 50,
        seed: int = 0,
    ) -> None:
        check_labels(y, train, graph)
        if sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {', '.join(map(repr, SAMPLERS))}, got {sampler!r}")
        _positive("coverage", coverage)
        if graph.batch is not None:
            x, graph, y, train = _graphs_with(train, x, graph, y)
        self.x, self.graph, self.y, self.train = x, graph, y, train
        self.seed = seed
        if budget is None:
            budget = max(1, min(graph.num_nodes // 4, {"node": 6000, "edge": 4000, "walk": 3000}[sampler]))
        self.sampler = make_sampler(sampler, graph, budget, length)
        self._ptr: Ints = graph.by_target.ptr.cpu().numpy()
        self._idx: Ints = graph.by_target.idx.cpu().numpy().astype(np.int64)
        self._local = np.full(graph.num_nodes, -1, np.int64)
        self.node_count, self.edge_count, self.samples = self._count(coverage)
        self.num_steps = max(1, round(graph.num_nodes * self.samples / max(int(self.node_count.sum()), 1)))

    def _count(self, coverage: int) -> tuple[Ints, Ints, int]:
        """How often each node and each edge came up, and in how many subgraphs."""
        nodes_seen = np.zeros(self.graph.num_nodes, np.int64)
        edges_seen = np.zeros(self.graph.num_edges, np.int64)
        samples, drawn = 0, 0
        while drawn < coverage * self.graph.num_nodes:
            nodes, _, _, edges = self.subgraph(0, samples)
            nodes_seen[nodes] += 1
            edges_seen[edges] += 1
            samples, drawn = samples + 1, drawn + nodes.size
        return nodes_seen, edges_seen, samples

    def subgraph(self, *numbers: int) -> tuple[Ints, Ints, Ints, Ints]:
        """A subgraph that depends on the seed and on `numbers`: its nodes, of its edges the source and target as
        places among them, and the places of its edges in the graph."""
        nodes = self.sampler.nodes(key_of(self.seed, *numbers))
        return nodes, *induced(self._ptr, self._idx, nodes, self._local)

    def steps(self, epoch: int) -> Iterator[SaintBatch]:
        """The batches of an epoch, as many as hold every node once on average."""
        for step in range(self.num_steps):
            yield self.batch(1, epoch, step)  # 0 is where the counting drew

    def batch(self, *numbers: int) -> SaintBatch:
        """A normalised subgraph that depends on the seed and on `numbers`."""
        nodes, row, col, edges = self.subgraph(*numbers)
        device = self.graph.device
        share = self.graph.row_norm.cpu().numpy()[edges]
        # A node or an edge that the counting never met is rarer than one it met once.
        alpha = np.maximum(self.edge_count[edges], 1) / np.maximum(self.node_count[nodes[col]], 1)
        chosen = torch.from_numpy(nodes).to(device)
        graph = Graph.from_edge_index(
            torch.from_numpy(np.stack([row, col])).to(device), nodes.size, dtype=self.graph.dtype
        )
        norm = torch.zeros_like(graph.norm)
        norm[graph.edge_position] = torch.from_numpy(share / alpha).to(norm)
        graph = dataclasses.replace(graph, norm=norm, reverse_norm=norm[graph.transpose])
        rate = np.maximum(self.node_count[nodes], 1) / self.samples
        weight = torch.from_numpy(1 / rate).to(norm) * self.train[chosen] / self.train.sum()
        return SaintBatch(take_rows(self.x, chosen), graph, self.y[chosen], weight)

    def loss(self, net: nn.Module, batch: SaintBatch) -> Tensor:
        """The normalised loss of a subgraph."""
        if not isinstance(net, GraphSAINT):
            raise TypeError(f"net must be a GraphSAINT, got {type(net).__name__}")
        y = batch.y if batch.y.dim() == 2 else batch.y.clamp(min=0)  # −1, a node without a label, weighs nothing
        losses = node_losses(net.convolve(batch.x, batch.graph), y)
        return (losses * batch.weight.to(losses.dtype)).sum()


def make_sampler(name: str, graph: Graph, budget: int, length: int) -> SubgraphSampler:
    """The sampler of that name."""
    return WalkSampler(graph, budget, length) if name == "walk" else SAMPLERS[name](graph, budget)


def _graphs_with(train: Tensor, x: Tensor, graph: Graph, y: Tensor) -> tuple[Tensor, Graph, Tensor, Tensor]:
    """Only those of many graphs that have training nodes."""
    assert graph.batch is not None
    wanted = torch.isin(graph.batch, graph.batch[train].unique())
    nodes = torch.nonzero(wanted).view(-1)
    place = wanted.long().cumsum(0) - 1
    kept = wanted[graph.targets]
    weight = None if graph.weight is None else graph.weight[kept]
    smaller = Graph.from_edge_index(place[graph.edge_index[:, kept]], nodes.numel(), weight, dtype=graph.dtype)
    return take_rows(x, nodes), smaller, y[nodes], train[nodes]


def _normalized(weight: Floats) -> Floats:
    """Weights as probabilities; all alike where all are 0."""
    total = float(weight.sum())
    return weight / total if total > 0 else np.full(weight.size, 1 / max(weight.size, 1))


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be 1 or larger, got {value}")
