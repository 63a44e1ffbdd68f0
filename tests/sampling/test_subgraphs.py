"""GraphSAINT's samplers: exact inclusion probabilities of nodes and edges, and induced subgraphs."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from train.minibatch.blocks import NODES, blocks

from gfgn import Graph
from gfgn.sampling import EdgeSampler, NodeSampler, WalkSampler
from gfgn.sampling.counter import key_of
from gfgn.sampling.subgraphs import SubgraphSampler, make_sampler

GRAPH = blocks().graph
SOURCE, TARGET = GRAPH.edge_index.numpy()
DEGREE = GRAPH.row_lengths.numpy()
BUDGET, TRIALS = 30, 3000
every_sampler = pytest.mark.parametrize("name", ["node", "edge", "walk"])


def met_by_one_draw(name: str, *nodes: np.ndarray) -> np.ndarray:
    """The probability that a single draw meets one of the nodes `nodes[0][k], nodes[1][k], …`, for every `k`."""
    chosen = np.zeros((nodes[0].size, NODES), bool)
    for each in nodes:
        chosen[np.arange(each.size), each] = True
    if name == "node":
        weight = np.bincount(SOURCE, 1 / DEGREE[TARGET] ** 2.0, NODES)
        return chosen @ (weight / weight.sum())
    if name == "edge":
        weight = 1 / DEGREE[SOURCE] + 1 / DEGREE[TARGET]
        return (chosen[:, SOURCE] | chosen[:, TARGET]) @ (weight / weight.sum())
    step = np.zeros((NODES, NODES))
    step[TARGET, SOURCE] = 1 / DEGREE[TARGET]
    step[DEGREE == 0, DEGREE == 0] = 1
    missed = ~chosen * 1.0  # by the steps that remain, from each node
    for _ in range(2):
        missed = ~chosen * (missed @ step.T)
    return 1 - missed.mean(1)


def assert_rates(counts: np.ndarray, expected: np.ndarray, trials: int = TRIALS) -> None:
    """Within 4.5 standard errors of a binomial fraction, everywhere."""
    error = np.sqrt(expected * (1 - expected) / trials)
    assert (np.abs(counts / trials - expected) <= 4.5 * error + 1e-9).all()


def counts(sampler: SubgraphSampler, trials: int = TRIALS) -> tuple[np.ndarray, np.ndarray]:
    """How often each node and each edge is in a subgraph."""
    nodes, edges = np.zeros(NODES), np.zeros(sampler.idx.size)
    for trial in range(trials):
        subgraph = sampler.sample(key_of(3, trial))
        assert all(first < second for first, second in pairwise(subgraph.node[:3]))
        nodes[subgraph.node] += 1
        edges[subgraph.edge] += 1
    return nodes, edges


@every_sampler
def test_inclusion_probabilities_are_those_of_the_paper(name: str) -> None:
    """A subgraph is the union of independent draws: `P(v) = 1 − (1 − p_v)^budget`, and an edge is in it if both ends
    are."""
    nodes, edges = counts(make_sampler(name, GRAPH, BUDGET))
    missed = (1 - met_by_one_draw(name, np.arange(NODES))) ** BUDGET
    neither = (1 - met_by_one_draw(name, SOURCE, TARGET)) ** BUDGET
    assert_rates(nodes, 1 - missed)
    assert_rates(edges, 1 - missed[SOURCE] - missed[TARGET] + neither)


@every_sampler
def test_subgraphs_are_induced(name: str) -> None:
    nodes, row, col, edges = make_sampler(name, GRAPH, BUDGET).sample(key_of(5, 6))
    assert (np.diff(nodes) > 0).all()
    inside = np.isin(SOURCE, nodes) & np.isin(TARGET, nodes)
    assert np.array_equal(edges, np.flatnonzero(inside))
    assert np.array_equal(nodes[row], SOURCE[edges])
    assert np.array_equal(nodes[col], TARGET[edges])


def test_without_edges_nodes_are_drawn_uniformly() -> None:
    empty = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES)
    for sampler in (NodeSampler(empty, 20), EdgeSampler(empty, 20), WalkSampler(empty, 20)):
        nodes, _ = counts(sampler, 1000)
        assert_rates(nodes, np.full(NODES, 1 - (1 - 1 / NODES) ** 20), 1000)


def test_default_budget_and_bad_arguments() -> None:
    assert make_sampler("walk", GRAPH).budget == NODES // 4
    with pytest.raises(ValueError, match=r"sampler must be one of 'node', 'edge', 'walk', got 'forest'"):
        make_sampler("forest", GRAPH)
    with pytest.raises(ValueError, match="budget must be 1 or larger, got 0"):
        EdgeSampler(GRAPH, 0)
    with pytest.raises(ValueError, match="length must be 1 or larger, got 0"):
        WalkSampler(GRAPH, 5, 0)
