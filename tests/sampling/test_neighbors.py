"""The neighbor sampler: what it can draw, how often, and with PyG's loader."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import EdgeSamplerInput
from train.minibatch.blocks import NODES, blocks

from gfgn.sampling import NeighborSampler
from gfgn.sampling.neighbors import Sample

GRAPH = blocks().graph
SEEDS = torch.tensor([7, 0, 149, 30])


def check(sample: Sample, fanouts: list[int]) -> None:
    """Edges are distinct edges of the graph, at most `fanout` per node, each hop from the one before."""
    edge_index = GRAPH.edge_index.numpy()
    assert np.array_equal(edge_index[0][sample.edge], sample.node[sample.row])
    assert np.array_equal(edge_index[1][sample.edge], sample.node[sample.col])
    assert np.unique(sample.edge).size == sample.edge.size
    assert np.unique(sample.node).size == sample.node.size
    assert sum(sample.nodes_per_hop) == sample.node.size
    assert sum(sample.edges_per_hop) == sample.edge.size
    first, edge = 0, 0
    for size, edges, fanout in zip(sample.nodes_per_hop, sample.edges_per_hop, fanouts, strict=False):
        got = np.bincount(sample.col[edge : edge + edges] - first, minlength=size)
        degree = GRAPH.row_lengths.numpy()[sample.node[first : first + size]]
        assert np.array_equal(got, degree if fanout < 0 else np.minimum(degree, fanout))
        first, edge = first + size, edge + edges


@pytest.mark.parametrize("fanouts", [[3], [4, 2], [1, 1, 1], [-1, 2], [500]])
def test_samples_are_parts_of_the_graph(fanouts: list[int]) -> None:
    sampler = NeighborSampler.from_graph(GRAPH, fanouts)
    sample = sampler.sample(SEEDS)
    assert sample.node[:4].tolist() == SEEDS.tolist()
    assert len(sample.nodes_per_hop) == len(fanouts) + 1
    check(sample, fanouts)


def test_every_neighbor_is_equally_likely() -> None:
    """Inclusion counts of the hub's neighbors are binomial with probability `fanout / degree`."""
    sampler = NeighborSampler.from_graph(GRAPH, [5])
    degree, trials = int(GRAPH.row_lengths[0]), 2000
    counts = np.zeros(GRAPH.num_edges)
    for step in range(trials):
        counts[sampler.sample(torch.tensor([0]), step).edge] += 1
    own = counts[:degree]  # node 0 comes first
    assert counts[degree:].sum() == 0
    rate = 5 / degree
    deviation = (own - trials * rate) / np.sqrt(trials * rate * (1 - rate))
    assert np.abs(deviation).max() < 4.5
    assert abs((deviation**2).mean() - 1) < 0.6


def test_a_sample_depends_on_seed_epoch_and_node_only() -> None:
    def edges_into(node: int, sampler: NeighborSampler, seeds: list[int]) -> set[int]:
        sample = sampler.sample(torch.tensor(seeds))
        return set(sample.edge[sample.col == sample.node.tolist().index(node)].tolist())

    def sampler(seed: int = 3, epoch: int = 0) -> NeighborSampler:
        made = NeighborSampler.from_graph(GRAPH, [4, 4], seed)
        made.set_epoch(epoch)
        return made

    alone = edges_into(0, sampler(), [0])
    assert edges_into(0, sampler(), [5, 9, 0]) == alone
    assert edges_into(0, sampler(4), [0]) != alone
    assert edges_into(0, sampler(3, 1), [0]) != alone


@pytest.mark.parametrize("workers", [0, 2])
def test_with_pygs_loader(workers: int) -> None:
    blocks_data = blocks(dtype=torch.float32)
    x, graph, y, split = blocks_data.x, blocks_data.graph, blocks_data.y, blocks_data.splits[0]
    order = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(0))
    edge_index = graph.edge_index[:, order]
    data = Data(x=x, y=y, edge_index=edge_index, edge_attr=torch.arange(graph.num_edges))
    sampler = NeighborSampler.from_edge_index(edge_index, NODES, [4, 3], seed=1)
    loader = NodeLoader(data, node_sampler=sampler, input_nodes=split[0], batch_size=16, num_workers=workers)
    seen = []
    for batch in loader:
        seen += batch.n_id[: batch.batch_size].tolist()
        assert torch.equal(batch.x, x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, batch.e_id)
        again = sampler.sample(batch.n_id[: batch.batch_size])
        assert np.array_equal(again.node, batch.n_id.numpy())
    assert seen == torch.nonzero(split[0]).view(-1).tolist()


def test_bad_arguments_are_named() -> None:
    for fanouts in ([], [0], [3, -2]):
        with pytest.raises(ValueError, match=r"fanouts must be positive numbers or -1, one or more, got \["):
            NeighborSampler.from_graph(GRAPH, fanouts)
    sampler = NeighborSampler.from_graph(GRAPH, [2])
    with pytest.raises(ValueError, match="nodes must be distinct, got 3 with 2 distinct ones"):
        sampler.sample(torch.tensor([1, 4, 1]))
    with pytest.raises(TypeError, match="samples around nodes"):
        sampler.sample_from_edges(EdgeSamplerInput(None, torch.tensor([0]), torch.tensor([1])))
