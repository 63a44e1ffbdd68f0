"""GraphSAINT: how often its samplers draw what, and that its normalised loss and sums are unbiased."""

import numpy as np
import pytest
import torch
from torch import Tensor
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks

from gfgn import Graph, ops
from gfgn.nn.baselines.graphsaint import GraphSAINT, mean_weighted
from gfgn.sampling.counter import key_of
from gfgn.train.minibatch import EdgeSampler, NodeSampler, SaintBatches, WalkSampler

GRAPH = blocks()[1]
TRIALS = 3000
every_sampler = pytest.mark.parametrize("sampler", ["node", "edge", "walk"])


def make(sampler: str, coverage: int = 50) -> tuple[SaintBatches, Tensor, Tensor, Tensor]:
    x, graph, y, split = blocks()
    batches = SaintBatches(x, graph, y, split[0], sampler=sampler, budget=30, coverage=coverage)
    return batches, x, y, split[0]


def rates(sampler: NodeSampler | EdgeSampler | WalkSampler, trials: int = TRIALS) -> np.ndarray:
    """How often each node is in a sample."""
    counts = np.zeros(NODES)
    for trial in range(trials):
        nodes = sampler.nodes(key_of(3, trial))
        assert (np.diff(nodes) > 0).all()
        counts[nodes] += 1
    return counts / trials


def assert_rates(measured: np.ndarray, expected: np.ndarray) -> None:
    """Within 4.5 standard errors of a binomial share, everywhere."""
    error = np.sqrt(expected * (1 - expected) / TRIALS)
    assert (np.abs(measured - expected) <= 4.5 * error + 1e-9).all()


def test_node_sampler_draws_by_the_papers_probability() -> None:
    column = np.zeros(NODES)
    degree = GRAPH.row_lengths.numpy()
    for source, target in GRAPH.edge_index.t().tolist():
        column[source] += (1 / degree[target]) ** 2
    probability = column / column.sum()
    assert_rates(rates(NodeSampler(GRAPH, 30)), 1 - (1 - probability) ** 30)


def test_edge_sampler_draws_by_the_papers_probability() -> None:
    degree = GRAPH.row_lengths.numpy()
    source, target = GRAPH.edge_index.numpy()
    weight = 1 / degree[source] + 1 / degree[target]
    touched = np.zeros(NODES)
    for edge in range(GRAPH.num_edges):
        for node in (source[edge], target[edge]):
            touched[node] += weight[edge] / weight.sum()
    assert_rates(rates(EdgeSampler(GRAPH, 30)), 1 - (1 - touched) ** 30)


def test_walk_sampler_draws_what_walks_reach() -> None:
    """A walk meets a node with a probability that follows from the transition matrix; here of two steps."""
    step = np.zeros((NODES, NODES))
    for source, target in GRAPH.edge_index.t().tolist():
        step[target, source] = 1 / GRAPH.row_lengths[target].item()
    for node in np.flatnonzero(step.sum(1) == 0):
        step[node, node] = 1
    met = np.zeros(NODES)
    for node in range(NODES):
        miss = np.ones(NODES)
        for _ in range(2):  # the chance to miss the node in the steps that remain
            miss = step @ np.where(np.arange(NODES) == node, 0, miss)
        met[node] = 1 - np.where(np.arange(NODES) == node, 0, miss).mean()
    assert_rates(rates(WalkSampler(GRAPH, 25, 2)), 1 - (1 - met) ** 25)


@every_sampler
def test_subgraphs_are_induced(sampler: str) -> None:
    batches, x, y, _ = make(sampler)
    edges = set(map(tuple, GRAPH.edge_index.t().tolist()))
    nodes, row, col, places = batches.subgraph(5, 6)
    found = list(zip(nodes[row].tolist(), nodes[col].tolist(), strict=True))
    assert set(found) == {(u, v) for u, v in edges if u in nodes and v in nodes}
    assert [tuple(pair) for pair in GRAPH.edge_index[:, places].t().tolist()] == found
    batch = batches.batch(5, 6)
    chosen = torch.from_numpy(nodes)
    assert torch.equal(batch.x, x[chosen])
    assert torch.equal(batch.y, y[chosen])
    assert torch.equal(chosen[batch.graph.edge_index], GRAPH.edge_index[:, places])


@every_sampler
def test_normalised_loss_is_unbiased(sampler: str) -> None:
    """With losses of the nodes given, the mean of the weighted sum over many subgraphs is the mean over the training
    nodes; without the normalisation it is not."""
    batches, _, _, train = make(sampler, coverage=1500)
    losses = torch.rand(NODES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = losses + GRAPH.row_lengths / 5  # depends on the degree, as sampling does
    normalised, plain = [], []
    for trial in range(TRIALS):
        nodes = torch.from_numpy(batches.subgraph(1, trial)[0])
        weight = batches.batch(1, trial).weight
        normalised.append((weight * losses[nodes]).sum())
        plain.append(losses[nodes][train[nodes]].mean())
    exact = losses[train].mean()
    values = torch.stack(normalised)
    # The rates are themselves counted, in as many subgraphs or more: their error adds to that of the mean.
    error = values.std() * (1 / TRIALS + 1 / batches.samples) ** 0.5
    assert abs(values.mean() - exact) < 3.5 * error
    assert error < 0.02 * exact
    assert abs(torch.stack(plain).mean() - exact) > 5 * error


@every_sampler
def test_normalised_sum_over_neighbors_is_unbiased(sampler: str) -> None:
    """Given that a node is in the subgraph, the mean of its normalised sum is the mean over all its neighbours."""
    batches, x, _, _ = make(sampler, coverage=1500)
    exact = ops.propagate(x, mean_weighted(batches.graph))
    total, squares = torch.zeros_like(x), torch.zeros_like(x)
    seen = torch.zeros(NODES, 1, dtype=torch.float64)
    for trial in range(TRIALS):
        nodes = torch.from_numpy(batches.subgraph(1, trial)[0])
        batch = batches.batch(1, trial)
        out = ops.propagate(batch.x, batch.graph)
        total[nodes] += out
        squares[nodes] += out.square()
        seen[nodes] += 1
    often = seen.view(-1) > 300
    mean = (total / seen)[often]
    spread = (squares / seen)[often] - mean.square()
    error = (spread.clamp(min=0) / seen[often]).sqrt() * 2**0.5 + 1e-12
    ratio = (
        ((mean - exact[often]) / error)[error.squeeze() > 1e-9] if error.dim() == 1 else (mean - exact[often]) / error
    )
    assert often.sum() > NODES // 3
    assert ratio.abs().max() < 5
    assert ratio.square().mean() < 2


@every_sampler
def test_counts_are_of_the_subgraphs(sampler: str) -> None:
    batches, _, _, _ = make(sampler, coverage=5)
    nodes, edges = np.zeros(NODES, int), np.zeros(GRAPH.num_edges, int)
    for sample in range(batches.samples):
        own, _, _, places = batches.subgraph(0, sample)
        nodes[own] += 1
        edges[places] += 1
    assert np.array_equal(nodes, batches.node_count)
    assert np.array_equal(edges, batches.edge_count)
    assert nodes.sum() >= 5 * NODES
    assert len(list(batches.steps(0))) == batches.num_steps


@every_sampler
@pytest.mark.parametrize("concat", [False, True])
def test_a_sample_with_every_node_is_the_whole_graph(sampler: str, concat: bool) -> None:
    x, graph, y, split = blocks()
    batches = SaintBatches(x, graph, y, split[0], sampler=sampler, budget=60_000, coverage=3)
    net = GraphSAINT(FEATURES, CLASSES, 0.0, hidden=6, concat=concat).double()
    batch = batches.batch(1, 0, 0)
    isolated = 1 if sampler != "walk" else 0  # neither edges nor columns of Ã lead to a node without edges
    assert batch.graph.num_nodes == NODES - isolated
    exact = net(x, graph)[: NODES - isolated]
    torch.testing.assert_close(net.convolve(batch.x, batch.graph), exact)


def test_without_edges_nodes_are_drawn_evenly() -> None:
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES)
    for sampler in (NodeSampler(none, 20), EdgeSampler(none, 20), WalkSampler(none, 20)):
        assert_rates(rates(sampler), np.full(NODES, 1 - (1 - 1 / NODES) ** 20))


def test_of_many_graphs_those_trained_on_are_sampled() -> None:
    x, graph, y, split = blocks()
    twice = torch.cat([graph.edge_index, graph.edge_index + NODES], dim=1)
    both = Graph.from_edge_index(twice, 2 * NODES, batch=torch.arange(2).repeat_interleave(NODES), dtype=torch.float64)
    train = torch.cat([torch.zeros(NODES, dtype=torch.bool), split[0]])
    marked = torch.cat([x - 100, x])
    batches = SaintBatches(marked, both, y.repeat(2), train, budget=30)
    assert batches.graph.num_nodes == NODES
    assert all(batch.x.min() > -50 for batch in batches.steps(0))


def test_bad_arguments_are_named() -> None:
    x, graph, y, split = blocks()
    with pytest.raises(ValueError, match=r"sampler must be one of 'node', 'edge', 'walk', got 'forest'"):
        SaintBatches(x, graph, y, split[0], sampler="forest")
    for name in ("budget", "coverage"):
        with pytest.raises(ValueError, match=f"{'roots' if name == 'budget' else name} must be 1 or larger, got 0"):
            SaintBatches(x, graph, y, split[0], **{name: 0})
