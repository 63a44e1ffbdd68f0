"""GraphSAINT's subgraph samplers: nodes, edges or random walks, and the edges between the sampled nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gfgn.graph import Graph
from gfgn.sampling.counter import derive, key_of, uniform
from gfgn.sampling.neighbors import sample_edges

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def draw_by_weight(cumulative: Floats, count: int, key: int) -> Ints:
    """`count` indices, drawn with replacement in proportion to weights whose running sum is `cumulative`."""
    values = uniform(key, np.arange(count)) * cumulative[-1]
    return np.asarray(np.minimum(np.searchsorted(cumulative, values, side="right"), cumulative.size - 1), np.int64)


def walk(ptr: Ints, idx: Ints, roots: Ints, length: int, key: int) -> Ints:
    """The nodes of walks of `length` steps from the roots, which are included; a node without neighbors is not left."""
    keys = derive(key, np.arange(roots.size))
    nodes = [roots]
    for step in range(length):
        node = nodes[-1]
        size = ptr[node + 1] - ptr[node]
        edge = ptr[node] + (uniform(keys, np.array([step])) * size).astype(np.int64)
        nodes.append(np.where(size > 0, idx[np.where(size > 0, edge, 0)], node) if idx.size else node)
    return np.stack(nodes, 1).ravel()


def induced(ptr: Ints, idx: Ints, nodes: Ints, local: Ints) -> tuple[Ints, Ints, Ints]:
    """The edges between `nodes`: their sources and targets as indices into `nodes`, and their indices in the graph.

    `local` is a buffer of −1, one per node of the graph; it is restored before the function returns.
    """
    local[nodes] = np.arange(nodes.size)
    counts, edges, _ = sample_edges(ptr, nodes, -1, 0)
    row = local[idx[edges]]
    local[nodes] = -1
    kept = row >= 0
    return row[kept], np.repeat(np.arange(nodes.size), counts)[kept], edges[kept]


class Subgraph(NamedTuple):
    """Sampled nodes and the edges between them."""

    node: Ints  # in ascending order
    row: Ints  # the source of each edge, an index into `node`
    col: Ints  # the target of each edge, an index into `node`
    edge: Ints  # the index of each edge in the graph


class SubgraphSampler(ABC):
    """Samples nodes and the edges between them; `budget` nodes, edges or roots of walks are drawn with replacement."""

    default_budget: int  # for large graphs, from the paper

    def __init__(self, graph: Graph, budget: int) -> None:
        check_positive(budget=budget)
        self.budget = budget
        self.num_nodes = graph.num_nodes
        self.ptr: Ints = graph.by_target.ptr.cpu().numpy()
        self.idx: Ints = graph.by_target.idx.cpu().numpy().astype(np.int64)
        self._local = np.full(graph.num_nodes, -1, np.int64)

    @abstractmethod
    def nodes(self, key: int) -> Ints:
        """Distinct nodes in ascending order, a function of the key."""

    def sample(self, key: int) -> Subgraph:
        """A subgraph, a function of the key."""
        nodes = self.nodes(key)
        return Subgraph(nodes, *induced(self.ptr, self.idx, nodes, self._local))

    def _uniform_nodes(self, key: int) -> Ints:
        return draw_by_weight(np.arange(1.0, self.num_nodes + 1), self.budget, key)


class NodeSampler(SubgraphSampler):
    """`budget` nodes with `P(u) ∝ ‖Ã_{:,u}‖²`, where `Ã = D⁻¹A`."""

    default_budget = 6000

    def __init__(self, graph: Graph, budget: int) -> None:
        super().__init__(graph, budget)
        squared = graph.row_norm.double().square().cpu().numpy()
        weight = np.bincount(self.idx, weights=squared, minlength=graph.num_nodes).astype(np.float64)
        self._cumulative = np.cumsum(_probabilities(weight))

    def nodes(self, key: int) -> Ints:
        return np.unique(draw_by_weight(self._cumulative, self.budget, key))


class EdgeSampler(SubgraphSampler):
    """Both ends of `budget` edges with `P(u, v) ∝ 1/d(u) + 1/d(v)`; single nodes if the graph has no edges."""

    default_budget = 4000

    def __init__(self, graph: Graph, budget: int) -> None:
        super().__init__(graph, budget)
        self.source, self.target = graph.edge_index.cpu().numpy()
        inverse: Floats = 1 / np.maximum(graph.row_lengths.double().cpu().numpy(), 1)
        self._cumulative = np.cumsum(_probabilities(inverse[self.source] + inverse[self.target]))

    def nodes(self, key: int) -> Ints:
        if self.source.size == 0:
            return np.unique(self._uniform_nodes(key))
        edges = draw_by_weight(self._cumulative, self.budget, key)
        return np.unique(np.concatenate([self.source[edges], self.target[edges]]))


class WalkSampler(SubgraphSampler):
    """All nodes on random walks of `length` steps from `budget` uniformly drawn roots."""

    default_budget = 3000

    def __init__(self, graph: Graph, budget: int, length: int = 2) -> None:
        super().__init__(graph, budget)
        check_positive(length=length)
        self.length = length

    def nodes(self, key: int) -> Ints:
        roots = self._uniform_nodes(key_of(key, 0))
        return np.unique(walk(self.ptr, self.idx, roots, self.length, key_of(key, 1)))


SAMPLERS: dict[str, type[SubgraphSampler]] = {"node": NodeSampler, "edge": EdgeSampler, "walk": WalkSampler}


def make_sampler(name: str, graph: Graph, budget: int | None = None, length: int = 2) -> SubgraphSampler:
    """The sampler of that name; the default budget is a quarter of the nodes, at most `default_budget`."""
    if name not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(map(repr, SAMPLERS))}, got {name!r}")
    kind = SAMPLERS[name]
    if budget is None:
        budget = max(1, min(graph.num_nodes // 4, kind.default_budget))
    return WalkSampler(graph, budget, length) if kind is WalkSampler else kind(graph, budget)


def check_positive(**values: int) -> None:
    """Raises an error that names the first argument below 1."""
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be 1 or larger, got {value}")


def _probabilities(weight: Floats) -> Floats:
    """Normalized weights; uniform where all are 0."""
    total = float(weight.sum())
    return weight / total if total > 0 else np.full(weight.size, 1 / max(weight.size, 1))
