"""`NeighborSampler`: a few neighbours of each node, without replacement, behind PyG's `BaseSampler`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NegativeSampling

from gfgn.graph import Graph
from gfgn.sampling.counter import compiled, derive, key_of, uniform

Ints = NDArray[np.int64]


class Sample(NamedTuple):
    """A sampled neighbourhood, in local numbers."""

    node: Ints
    """The nodes: first those asked for, then those found."""
    row: Ints
    """Of each edge its source, a place in `node`."""
    col: Ints
    """Of each edge its target, a place in `node`."""
    edge: Ints
    """Of each edge its place in the graph."""
    nodes_per_hop: list[int]
    edges_per_hop: list[int]


@compiled
def choose(key: Any, size: int, count: int, chosen: Any) -> None:
    """Writes `count` different numbers below `size` into `chosen` (Floyd's algorithm): every subset is as likely."""
    for k in range(count):
        top = size - count + k
        number = int(uniform(key, k) * (top + 1))
        for before in range(k):
            if chosen[before] == number:
                number = top
                break
        chosen[k] = number


@compiled
def sample_edges(ptr: Any, nodes: Any, fanout: int, key: Any) -> Any:
    """For each node up to `fanout` of its edges (all if it is −1): their number a node, and their places."""
    counts = np.empty(nodes.size, np.int64)
    total = 0
    for k in range(nodes.size):
        size = ptr[nodes[k] + 1] - ptr[nodes[k]]
        counts[k] = size if fanout < 0 else min(size, fanout)
        total += counts[k]
    edges = np.empty(total, np.int64)
    place = 0
    for k in range(nodes.size):
        node, count = nodes[k], counts[k]
        first, size = ptr[node], ptr[node + 1] - ptr[node]
        own = edges[place : place + count]
        if count == size:
            own[:] = np.arange(size)
        else:
            choose(derive(key, node), size, count, own)
        own += first
        place += count
    return counts, edges


@compiled
def number_nodes(idx: Any, edges: Any, local: Any, known: int) -> Any:
    """Gives a local number to every source that has none yet: the numbers of all, and the new nodes."""
    row = np.empty(edges.size, np.int64)
    found = np.empty(edges.size, np.int64)
    count = 0
    for k in range(edges.size):
        node = idx[edges[k]]
        if local[node] < 0:
            local[node] = known + count
            found[count] = node
            count += 1
        row[k] = local[node]
    return row, found[:count]


class NeighborSampler(BaseSampler):  # type: ignore[misc] # PyG has no types
    """Samples up to `fanouts[h]` of the in-neighbours of every node that hop `h` reaches, without replacement.

    It serves PyG's loaders, whose own sampler needs packages that PyPI has no wheels for:

        sampler = NeighborSampler.from_edge_index(data.edge_index, data.num_nodes, fanouts=[25, 10])
        loader = NodeLoader(data, node_sampler=sampler, input_nodes=data.train_mask, batch_size=512, shuffle=True)

    What is sampled for a node depends on the seed, the epoch (`set_epoch`), the hop and the node, and on nothing else:
    neither on the batch the node is in nor on the number of workers.

    Args:
        ptr: `[N + 1]`, where each target's edges begin.
        idx: `[E]`, the source of each edge.
        fanouts: Neighbours a node, one number a hop; −1 takes all.
        seed: Of the random numbers.
        edge_id: `[E]`, what an edge is called in the output; by default its place.
    """

    def __init__(
        self, ptr: Tensor, idx: Tensor, fanouts: Sequence[int], seed: int = 0, edge_id: Tensor | None = None
    ) -> None:
        super().__init__()
        if not fanouts or any(fanout < -1 or fanout == 0 for fanout in fanouts):
            raise ValueError(f"fanouts must be positive numbers or -1, one or more, got {list(fanouts)}")
        self.ptr: Ints = ptr.cpu().numpy().astype(np.int64)
        self.idx: Ints = idx.cpu().numpy().astype(np.int64)
        self.fanouts = tuple(fanouts)
        self.seed = seed
        self.epoch = 0
        self.edge_id = edge_id

    @classmethod
    def from_graph(cls, graph: Graph, fanouts: Sequence[int], seed: int = 0) -> NeighborSampler:
        """A sampler of a graph; edges are called by their place in `graph.edge_index`."""
        return cls(graph.by_target.ptr, graph.by_target.idx, fanouts, seed)

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int, fanouts: Sequence[int], seed: int = 0
    ) -> NeighborSampler:
        """A sampler of the edges of a PyG `Data`, repeated edges and self-loops included as they are."""
        target, order = torch.sort(edge_index[1].cpu(), stable=True)
        ptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(target, minlength=num_nodes), 0, out=ptr[1:])
        return cls(ptr, edge_index[0].cpu()[order], fanouts, seed, edge_id=order)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next samples those of another epoch."""
        self.epoch = epoch

    def sample(self, nodes: Tensor, *numbers: int) -> Sample:
        """Samples around `nodes`, which must be different; `numbers` (a step, say) vary it beside the epoch."""
        seeds: Ints = nodes.cpu().numpy().astype(np.int64)
        local = np.full(self.ptr.size - 1, -1, np.int64)
        local[seeds] = np.arange(seeds.size)
        if not np.array_equal(local[seeds], np.arange(seeds.size)):
            raise ValueError(f"nodes must be different, got {seeds.size} of which {np.unique(seeds).size} are")
        frontier, all_nodes, sampled = seeds, [seeds], []
        known, first = seeds.size, 0
        for hop, fanout in enumerate(self.fanouts):
            counts, edges = sample_edges(self.ptr, frontier, fanout, key_of(self.seed, self.epoch, *numbers, hop))
            col = np.repeat(np.arange(first, first + frontier.size), counts)
            first, known_before = known, known
            row, frontier = number_nodes(self.idx, edges, local, known_before)
            known += frontier.size
            all_nodes.append(frontier)
            sampled.append((row, col, edges))
        row, col, edge = (np.concatenate(parts) for parts in zip(*sampled, strict=True))
        sizes = [part.size for part in all_nodes]
        return Sample(np.concatenate(all_nodes), row, col, edge, sizes, [part[2].size for part in sampled])

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """What PyG's `NodeLoader` calls."""
        found = self.sample(index.node)
        edge = torch.from_numpy(found.edge)
        return SamplerOutput(
            node=torch.from_numpy(found.node),
            row=torch.from_numpy(found.row),
            col=torch.from_numpy(found.col),
            edge=edge if self.edge_id is None else self.edge_id[edge],
            batch=None,
            num_sampled_nodes=found.nodes_per_hop,
            num_sampled_edges=found.edges_per_hop,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Refuses: this sampler is for node classification."""
        raise TypeError(
            "NeighborSampler samples around nodes; PyG's link loaders need a sampler that starts from edges"
        )
