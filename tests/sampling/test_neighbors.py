"""The neighbour sampler: what it may draw, how often, and behind PyG's loader."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import EdgeSamplerInput
from train.minibatch.blocks import NODES, blocks

from gfgn.sampling import NeighborSampler
from gfgn.sampling.neighbors import Sample

GRAPH = blocks()[1]
SEEDS = torch.tensor([7, 0, 149, 30])


def check(found: Sample, fanouts: list[int]) -> None:
    """Edges are those of the graph, none twice, at most as many a node as asked, each hop from the one before."""
    edge_index = GRAPH.edge_index.numpy()
    assert np.array_equal(edge_index[0][found.edge], found.node[found.row])
    assert np.array_equal(edge_index[1][found.edge], found.node[found.col])
    assert np.unique(found.edge).size == found.edge.size
    assert np.unique(found.node).size == found.node.size
    assert sum(found.nodes_per_hop) == found.node.size
    assert sum(found.edges_per_hop) == found.edge.size
    first, place = 0, 0
    for size, edges, fanout in zip(found.nodes_per_hop, found.edges_per_hop, fanouts, strict=False):
        got = np.bincount(found.col[place : place + edges] - first, minlength=size)
        degree = GRAPH.row_lengths.numpy()[found.node[first : first + size]]
        assert np.array_equal(got, degree if fanout < 0 else np.minimum(degree, fanout))
        first, place = first + size, place + edges


@pytest.mark.parametrize("fanouts", [[3], [4, 2], [1, 1, 1], [-1, 2], [500]])
def test_samples_are_of_the_graph(fanouts: list[int]) -> None:
    sampler = NeighborSampler.from_graph(GRAPH, fanouts)
    found = sampler.sample(SEEDS)
    assert found.node[:4].tolist() == SEEDS.tolist()
    assert len(found.nodes_per_hop) == len(fanouts) + 1
    check(found, fanouts)


def test_every_neighbor_is_as_likely() -> None:
    """Inclusion counts of the hub's neighbours are binomial with probability `fanout / degree`."""
    sampler = NeighborSampler.from_graph(GRAPH, [5])
    degree, trials = int(GRAPH.row_lengths[0]), 4000
    counts = np.zeros(GRAPH.num_edges)
    for step in range(trials):
        counts[sampler.sample(torch.tensor([0]), step).edge] += 1
    own = counts[:degree]  # node 0 comes first
    assert counts[degree:].sum() == 0
    share = 5 / degree
    deviation = (own - trials * share) / np.sqrt(trials * share * (1 - share))
    assert np.abs(deviation).max() < 4.5
    assert abs((deviation**2).mean() - 1) < 0.6


def test_a_sample_depends_on_seed_epoch_and_node_alone() -> None:
    def edges_into(node: int, sampler: NeighborSampler, seeds: list[int]) -> set[int]:
        found = sampler.sample(torch.tensor(seeds))
        return set(found.edge[found.col == found.node.tolist().index(node)].tolist())

    def sampler(seed: int = 3, epoch: int = 0) -> NeighborSampler:
        made = NeighborSampler.from_graph(GRAPH, [4, 4], seed)
        made.set_epoch(epoch)
        return made

    alone = edges_into(0, sampler(), [0])
    assert edges_into(0, sampler(), [5, 9, 0]) == alone
    assert edges_into(0, sampler(4), [0]) != alone
    assert edges_into(0, sampler(3, 1), [0]) != alone


@pytest.mark.parametrize("workers", [0, 2])
def test_behind_pygs_loader(workers: int) -> None:
    x, graph, y, split = blocks(dtype=torch.float32)
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
    with pytest.raises(ValueError, match="nodes must be different, got 3 of which 2 are"):
        sampler.sample(torch.tensor([1, 4, 1]))
    with pytest.raises(TypeError, match="samples around nodes"):
        sampler.sample_from_edges(EdgeSamplerInput(None, torch.tensor([0]), torch.tensor([1])))
