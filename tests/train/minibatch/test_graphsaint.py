"""GraphSAINT in mini-batches: its normalized losses and sums over neighbors are unbiased."""

import numpy as np
import pytest
import torch
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks, two_graphs

from gfgn import ops
from gfgn.nn.baselines.graphsaint import GraphSAINT, mean_weighted
from gfgn.train.minibatch import SaintBatches

DATA = blocks()
GRAPH, TRAIN = DATA.graph, DATA.splits[0].train
TRIALS = 3000
every_sampler = pytest.mark.parametrize("sampler", ["node", "edge", "walk"])


def make(sampler: str, coverage: int = 50) -> SaintBatches:
    return SaintBatches(GraphSAINT(FEATURES, CLASSES), DATA, TRAIN, sampler=sampler, budget=30, coverage=coverage)


def normalization(batches: SaintBatches, nodes: np.ndarray, col: np.ndarray, edges: np.ndarray) -> tuple:
    """`1 / (λ_v T)` of the training nodes and `Ã_vu / α_uv` of the edges, from the counts."""
    weight = TRAIN.numpy()[nodes] / (TRAIN.sum().item() * batches.node_count[nodes] / batches.samples)
    alpha = batches.edge_count[edges] / batches.node_count[nodes[col]]
    return weight, GRAPH.row_norm.numpy()[edges] / alpha


@every_sampler
def test_batches_are_normalized_subgraphs(sampler: str) -> None:
    batches = make(sampler)
    for numbers in ((5, 6), (1, 0, 0)):
        nodes, _, col, edges = batches.subgraph(*numbers)
        batch = batches.batch(*numbers)
        weight, norm = normalization(batches, nodes, col, edges)
        sampled = torch.from_numpy(nodes)
        assert torch.equal(batch.x, DATA.x[sampled])
        assert torch.equal(batch.y, DATA.y[sampled])
        assert torch.equal(sampled[batch.graph.edge_index], GRAPH.edge_index[:, edges])
        torch.testing.assert_close(batch.weight, torch.from_numpy(weight))
        torch.testing.assert_close(batch.graph.norm, torch.from_numpy(norm))
        torch.testing.assert_close(batch.graph.reverse_norm, batch.graph.norm[batch.graph.transpose])


@every_sampler
def test_normalized_losses_and_sums_are_unbiased(sampler: str) -> None:
    """The mean of the weighted sum of given losses over many subgraphs is the mean over the training nodes (without the
    normalization it is not); and if a node is in the subgraph, the mean of its normalized sum is the mean over all its
    neighbors."""
    batches = make(sampler, coverage=1500)
    losses = np.random.default_rng(0).random(NODES) + GRAPH.row_lengths.numpy() / 5  # depend on the degree
    x, train = DATA.x.numpy(), TRAIN.numpy()
    weighted, plain = np.zeros(TRIALS), np.zeros(TRIALS)
    total, squares, seen = np.zeros_like(x), np.zeros_like(x), np.zeros((NODES, 1))
    for trial in range(TRIALS):
        nodes, row, col, edges = batches.subgraph(1, trial)
        weight, norm = normalization(batches, nodes, col, edges)
        weighted[trial], plain[trial] = weight @ losses[nodes], losses[nodes][train[nodes]].mean()
        matrix = np.zeros((nodes.size, nodes.size))
        matrix[col, row] = norm
        sums = matrix @ x[nodes]
        total[nodes] += sums
        squares[nodes] += sums**2
        seen[nodes] += 1
    exact = losses[train].mean()
    # The rates are counted, too, in at least as many subgraphs: their error adds to that of the mean.
    error = weighted.std() * (1 / TRIALS + 1 / batches.samples) ** 0.5
    assert abs(weighted.mean() - exact) < 3.5 * error
    assert error < 0.02 * exact
    assert abs(plain.mean() - exact) > 5 * error

    often = seen[:, 0] > 300
    mean = (total / np.maximum(seen, 1))[often]
    variance = (squares / np.maximum(seen, 1))[often] - mean**2
    error = np.sqrt(2 * np.maximum(variance, 0) / seen[often]) + 1e-12
    ratio = (mean - ops.propagate(DATA.x, mean_weighted(GRAPH)).numpy()[often]) / error
    assert often.sum() > NODES // 3
    assert np.abs(ratio).max() < 5
    assert (ratio**2).mean() < 2


@every_sampler
def test_counts_are_those_of_the_subgraphs(sampler: str) -> None:
    batches = make(sampler, coverage=5)
    nodes, edges = np.zeros(NODES, int), np.zeros(GRAPH.num_edges, int)
    for sample in range(batches.samples):
        subgraph = batches.subgraph(0, sample)
        nodes[subgraph.node] += 1
        edges[subgraph.edge] += 1
    assert np.array_equal(nodes, batches.node_count)
    assert np.array_equal(edges, batches.edge_count)
    assert nodes.sum() >= 5 * NODES
    assert len(list(batches.steps(0))) == batches.num_steps


def test_only_graphs_with_training_nodes_are_sampled() -> None:
    data = two_graphs()
    data.x[NODES:] -= 100
    batches = SaintBatches(GraphSAINT(FEATURES, CLASSES), data, data.splits[0].train, budget=30)
    assert batches.graph.num_nodes == NODES
    assert all(batch.x.min() > -50 for batch in batches.steps(0))


def test_bad_arguments_are_named() -> None:
    net = GraphSAINT(FEATURES, CLASSES)
    with pytest.raises(ValueError, match=r"sampler must be one of 'node', 'edge', 'walk', got 'forest'"):
        SaintBatches(net, DATA, TRAIN, sampler="forest")
    for name in ("budget", "coverage"):
        with pytest.raises(ValueError, match=f"{name} must be 1 or larger, got 0"):
            SaintBatches(net, DATA, TRAIN, **{name: 0})
