"""`NeighborSampler`: a few neighbors of each node, without replacement, for PyG's loaders."""

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
    """A sampled neighborhood."""

    node: Ints  # first the seeds, then the nodes that each hop adds
    row: Ints  # the source of each edge, an index into `node`
    col: Ints  # the target of each edge, an index into `node`
    edge: Ints  # the index of each edge in the graph
    nodes_per_hop: list[int]
    edges_per_hop: list[int]


@compiled
def choose(key: Any, size: int, count: int, chosen: Any) -> None:
    """Writes `count` distinct numbers below `size` into `chosen`, every subset equally likely (Floyd's algorithm)."""
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
    """Samples up to `fanout` in-edges of each node (all if −1): their number per node, and their indices."""
    counts = np.empty(nodes.size, np.int64)
    total = 0
    for k in range(nodes.size):
        size = ptr[nodes[k] + 1] - ptr[nodes[k]]
        counts[k] = size if fanout < 0 else min(size, fanout)
        total += counts[k]
    edges = np.empty(total, np.int64)
    filled = 0
    for k in range(nodes.size):
        node, count = nodes[k], counts[k]
        first, size = ptr[node], ptr[node + 1] - ptr[node]
        chosen = edges[filled : filled + count]
        if count == size:
            chosen[:] = np.arange(size)
        else:
            choose(derive(key, node), size, count, chosen)
        chosen += first
        filled += count
    return counts, edges


@compiled
def number_nodes(idx: Any, edges: Any, local: Any, known: int) -> Any:
    """Numbers the sources of `edges` that have no number in `local` yet: the numbers of all, and the new nodes."""
    row = np.empty(edges.size, np.int64)
    new = np.empty(edges.size, np.int64)
    count = 0
    for k in range(edges.size):
        node = idx[edges[k]]
        if local[node] < 0:
            local[node] = known + count
            new[count] = node
            count += 1
        row[k] = local[node]
    return row, new[:count]


class NeighborSampler(BaseSampler):  # type: ignore[misc] # PyG has no types
    """Samples up to `fanouts[h]` in-neighbors of every node of hop `h`, without replacement.

    It works with PyG's loaders, whose own samplers need packages that PyPI has no wheels for:

        sampler = NeighborSampler.from_edge_index(data.edge_index, data.num_nodes, fanouts=[25, 10])
        loader = NodeLoader(data, node_sampler=sampler, input_nodes=data.train_mask, batch_size=512, shuffle=True)

    The sample of a node depends on the seed, the epoch (`set_epoch`), the hop and the node only: neither on the other
    nodes of its batch nor on the number of workers.

    Args:
        ptr: `[N + 1]`, offsets of each target's edges.
        idx: `[E]`, the source of each edge.
        fanouts: Neighbors per node, one number per hop; −1 takes all.
        seed: Seed of the samples.
        edge_id: `[E]`, edge ids in the output; by default the index of the edge.
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
        """A sampler of a graph; edge ids are indices into `graph.edge_index`."""
        return cls(graph.by_target.ptr, graph.by_target.idx, fanouts, seed)

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, num_nodes: int, fanouts: Sequence[int], seed: int = 0
    ) -> NeighborSampler:
        """A sampler of the edges of a PyG `Data`; repeated edges and self-loops are kept."""
        target, order = torch.sort(edge_index[1].cpu(), stable=True)
        ptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(target, minlength=num_nodes), 0, out=ptr[1:])
        return cls(ptr, edge_index[0].cpu()[order], fanouts, seed, edge_id=order)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that samples depend on."""
        self.epoch = epoch

    def sample(self, nodes: Tensor, *numbers: int) -> Sample:
        """Samples the neighborhood of distinct `nodes`; it also depends on `numbers`, such as the step."""
        seeds: Ints = nodes.cpu().numpy().astype(np.int64)
        local = np.full(self.ptr.size - 1, -1, np.int64)
        local[seeds] = np.arange(seeds.size)
        if not np.array_equal(local[seeds], np.arange(seeds.size)):
            raise ValueError(f"nodes must be distinct, got {seeds.size} with {np.unique(seeds).size} distinct ones")
        frontier, all_nodes, sampled = seeds, [seeds], []
        known, first = seeds.size, 0
        for hop, fanout in enumerate(self.fanouts):
            counts, edges = sample_edges(self.ptr, frontier, fanout, key_of(self.seed, self.epoch, *numbers, hop))
            col = np.repeat(np.arange(first, first + frontier.size), counts)
            first = known
            row, frontier = number_nodes(self.idx, edges, local, known)
            known += frontier.size
            all_nodes.append(frontier)
            sampled.append((row, col, edges))
        row, col, edge = (np.concatenate(parts) for parts in zip(*sampled, strict=True))
        sizes = [part.size for part in all_nodes]
        return Sample(np.concatenate(all_nodes), row, col, edge, sizes, [part[2].size for part in sampled])

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """Called by PyG's `NodeLoader`."""
        sample = self.sample(index.node)
        node, row, col, edge = map(torch.from_numpy, sample[:4])
        return SamplerOutput(
            node=node,
            row=row,
            col=col,
            edge=edge if self.edge_id is None else self.edge_id[edge],
            batch=None,
            num_sampled_nodes=sample.nodes_per_hop,
            num_sampled_edges=sample.edges_per_hop,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """Raises an error: this sampler is for node classification."""
        raise TypeError("NeighborSampler samples around nodes; PyG's link loaders need a sampler that starts at edges")
