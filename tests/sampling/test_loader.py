"""Sampled neighborhoods in every mode: what is drawn, that sums are unbiased, and that workers change nothing."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from gfgn import Graph
from gfgn.nn import GFGN, GFGNConv
from gfgn.sampling import NeighborLoader, NeighborSampler
from gfgn.sampling.neighbors import Sample

NODES, TRIALS = 40, 2000
MODES = list(itertools.product([False, True], repeat=4))  # replace, disjoint, probability, edge_weight


def graph_of(weighted: bool = False) -> Graph:
    """A directed graph with degrees from 0 to 39."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES - 1, (2, 300), generator=generator)
    hub = torch.stack([torch.arange(1, NODES), torch.zeros(NODES - 1, dtype=torch.int64)])
    edges = torch.cat([edges, hub, hub.flip(0)], dim=1)
    weight = torch.rand(edges.size(1), generator=generator) + 0.1 if weighted else None
    return Graph.from_edge_index(edges, NODES, weight)


def data_of(graph: Graph) -> Data:
    x = torch.randn(NODES, 6, generator=torch.Generator().manual_seed(1))
    return Data(x=x, edge_index=graph.edge_index, edge_weight=graph.weight)


def dense(sampler: NeighborSampler, sample: Sample, which: int) -> np.ndarray:
    """The weights of a sample as a matrix of the whole graph; of disjoint trees, the rows of the seeds."""
    out = np.zeros((NODES, NODES))
    np.add.at(out, (sample.node[sample.col], sample.node[sample.row]), sampler.weights(sample)[which].double().numpy())
    return out


def exact(graph: Graph, values: Tensor) -> np.ndarray:
    out = np.zeros((NODES, NODES))
    source, target = graph.edge_index.numpy()
    out[target, source] = values.numpy()
    return out


@pytest.mark.parametrize(("replace", "disjoint", "likely", "weighted"), MODES)
def test_sums_are_unbiased(replace: bool, disjoint: bool, likely: bool, weighted: bool) -> None:
    """The mean of many draws is `Âz`, and `Az/d`, within the error of a mean; every entry has a standard deviation."""
    graph = graph_of(weighted)
    probability = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(2)) + 0.05 if likely else None
    sampler = NeighborSampler.from_graph(graph, [4], replace=replace, disjoint=disjoint, probability=probability)
    z = np.random.default_rng(3).normal(size=NODES) + 1
    for which, truth in enumerate((graph.norm, graph.row_norm)):
        draws = np.stack(
            [dense(sampler, sampler.sample(torch.arange(NODES), step), which) @ z for step in range(TRIALS // 4)]
        )
        error = draws.std(0, ddof=1) / np.sqrt(len(draws))
        bias = draws.mean(0) - exact(graph, truth) @ z
        sampled = error > 1e-9
        assert sampled.sum() > 20
        assert np.abs(bias[~sampled]).max(initial=0) < 1e-6
        assert np.abs(bias[sampled] / error[sampled]).max() < 4.5
        assert ((bias[sampled] / error[sampled]) ** 2).mean() < 2


def test_two_layers_are_unbiased() -> None:
    """`Â(Âz)` of the seeds, where the first layer's sums are sampled too."""
    graph = graph_of()
    sampler = NeighborSampler.from_graph(graph, [3, 3])
    seeds, z = torch.arange(5), np.random.default_rng(3).normal(size=NODES)
    draws = []
    for step in range(TRIALS):
        once = dense(sampler, sampler.sample(seeds, step), 0)
        draws.append((once @ (once @ z))[:5])
    full = exact(graph, graph.norm)
    deviation = (np.mean(draws, 0) - (full @ (full @ z))[:5]) / (np.std(draws, 0) / np.sqrt(TRIALS))
    assert np.abs(deviation).max() < 4.5


@pytest.mark.parametrize("replace", [False, True])
def test_edges_are_drawn_in_proportion_to_their_probability(replace: bool) -> None:
    graph = graph_of()
    probability = torch.ones(graph.num_edges)
    probability[0], probability[1] = 30.0, 0.0  # of the hub
    sampler = NeighborSampler.from_graph(graph, [2], replace=replace, probability=probability)
    counts = np.zeros(graph.num_edges)
    for step in range(500):
        counts[sampler.sample(torch.tensor([0]), step).edge] += 1
    assert counts[1] == 0
    assert counts[0] > 10 * counts[2:39].max()


def test_disjoint_trees_share_nothing() -> None:
    sampler = NeighborSampler.from_graph(graph_of(), [3, 2], disjoint=True, seed=4)
    together = sampler.sample(torch.tensor([5, 0, 5]))
    assert np.array_equal(together.tree[together.row], together.tree[together.col])
    for tree, seed in enumerate([5, 0, 5]):
        alone = sampler.sample(torch.tensor([seed]))
        assert set(together.edge[together.tree[together.col] == tree]) == set(alone.edge)
        assert together.node[together.tree == tree].tolist() == alone.node.tolist()


@pytest.mark.parametrize("options", [{}, {"replace": True, "weight_attr": "edge_weight"}, {"disjoint": True}])
def test_workers_change_nothing(options: dict) -> None:
    data = data_of(graph_of(weighted=True))

    def passes(workers: int) -> list[list[Tensor]]:
        shared = {"batch_size": 7, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
        loader = NeighborLoader(data, [3, 2], seed=5, **shared, **options)
        return [[part for b in loader for part in (b.n_id, b.e_id, b.edge_index, b.norm, b.x)] for _ in range(2)]

    first = passes(0)
    for workers in (1, 3):
        again = passes(workers)
        for mine, other in zip(first, again, strict=True):
            assert all(map(torch.equal, mine, other))
    assert not all(map(torch.equal, *first))  # another epoch
    state = torch.random.get_rng_state()
    passes(0)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_all_neighbors_give_the_output_of_the_whole_graph(level: str, weighted: bool) -> None:
    graph = graph_of(weighted)
    data = data_of(graph)
    model = GFGN(6, 8, 2, 3, level=level, heads=2, dropout=0.0)
    expected = model(data.x, graph)
    batch_size = NODES if level == "graph" else 9  # the seeds are what the gate pools
    for batch in NeighborLoader(data, [-1, -1], batch_size=batch_size):
        hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes}
        hops["num_sampled_edges_per_hop"] = batch.num_sampled_edges
        for trimmed in ({}, hops):
            out = model(batch.x, Graph.from_sample(batch), **trimmed)[: batch.batch_size]
            assert torch.allclose(out, expected[batch.n_id[: batch.batch_size]], atol=1e-5)


def test_a_pyg_layer_of_ones_own() -> None:
    graph = graph_of()
    data, conv = data_of(graph), GCNConv(6, 3, normalize=False, bias=False)
    expected = torch.from_numpy(exact(graph, graph.norm)).float() @ conv.lin(data.x)
    for batch in NeighborLoader(data, [-1], batch_size=9):
        out = conv(batch.x, batch.edge_index, batch.norm)[: batch.batch_size]
        assert torch.allclose(out, expected[batch.n_id[: batch.batch_size]], atol=1e-5)


def test_repeated_edges_and_self_loops_are_those_of_the_layers() -> None:
    edges = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 1, 1, 0]])
    data = Data(x=torch.randn(3, 4), edge_index=edges)
    batch = next(iter(NeighborLoader(data, [-1], batch_size=3)))
    assert sorted(batch.e_id.tolist()) == [1, 3, 4]
    conv = GFGNConv(4, 2)
    assert torch.allclose(conv(batch.x, Graph.from_sample(batch)), conv(data.x, edges)[batch.n_id], atol=1e-6)


def test_a_mask_of_integers_is_a_mask() -> None:
    mask = torch.arange(NODES) % 3 == 0
    loaders = [
        NeighborLoader(data_of(graph_of()), [2], mask.to(dtype), batch_size=1) for dtype in (torch.bool, torch.int64)
    ]
    assert [[int(batch.n_id[0]) for batch in loader] for loader in loaders] == [mask.nonzero().view(-1).tolist()] * 2


def test_the_graph_gate_reads_a_running_mean() -> None:
    graph = graph_of()
    data, conv = data_of(graph), GFGNConv(6, 4, level="graph", momentum=0.25)
    expected = torch.zeros(1, 4)
    for count, batch in enumerate(NeighborLoader(data, [3], batch_size=5), start=1):
        sample = Graph.from_sample(batch)
        _, s = conv(batch.x, sample, return_scores=True)
        pooled = conv.lin(batch.x[: batch.batch_size]).mean(0, keepdim=True)
        expected = torch.lerp(expected, pooled, max(0.25, 1 / count)).detach()
        assert torch.allclose(conv.running_pool, expected, atol=1e-6)
        assert torch.allclose(s, torch.sigmoid(expected @ conv.gate[0]), atol=1e-6)
    conv.eval()
    _, s = conv(batch.x, sample, return_scores=True)
    assert torch.allclose(s, torch.sigmoid(expected @ conv.gate[0]), atol=1e-6)
    for mode in (True, False):
        _, s = conv.train(mode)(data.x, graph, return_scores=True)
        assert torch.allclose(s, torch.sigmoid(conv.lin(data.x).mean(0, keepdim=True) @ conv.gate[0]), atol=1e-6)
    assert torch.equal(conv.running_pool, expected)
    assert "running_pool" not in GFGNConv(6, 4, level="pair", momentum=0.25).state_dict()


def test_a_sample_keeps_its_weights_in_another_dtype() -> None:
    batch = next(iter(NeighborLoader(data_of(graph_of()), [3], batch_size=9)))
    graph = Graph.from_sample(batch)
    assert torch.equal(graph.to(torch.float64).norm, graph.norm.double())
    assert graph.to(torch.float64).num_seeds == 9


def test_bad_arguments_are_named() -> None:
    graph = graph_of()
    with pytest.raises(ValueError, match=r"probability must have shape \[\d+\], one per edge, got \[3\]"):
        NeighborSampler.from_graph(graph, [2], probability=torch.ones(3))
    with pytest.raises(ValueError, match=r"probability must be finite and not negative, got -1.0 at edge 0"):
        NeighborSampler.from_graph(graph, [2], probability=-torch.ones(graph.num_edges))
    with pytest.raises(ValueError, match="nodes must be 0 to 39, got 40"):
        NeighborSampler.from_graph(graph, [2]).sample(torch.tensor([40]))
    with pytest.raises(ValueError, match="momentum must be above 0 and at most 1, or None, got 0"):
        GFGNConv(4, 2, level="graph", momentum=0)
    with pytest.raises(ValueError, match=r"batch must come from gfgn.sampling.NeighborLoader, got one without norm"):
        Graph.from_sample(data_of(graph))
