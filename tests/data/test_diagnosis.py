"""Homophily, degrees and smoothness agree with plain loops, NetworkX and NumPy."""

import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gfgn.data.diagnosis as diagnosis
from gfgn import Graph
from gfgn.data import (
    NodeDataset,
    adjusted_homophily,
    degree_profile,
    describe,
    dimensions,
    edge_homophily,
    load,
    node_homophily,
    smoothness,
)

EXAMPLES = settings(max_examples=30, deadline=None)


@st.composite
def labelled(draw: st.DrawFn) -> tuple[nx.Graph, Tensor]:
    num_nodes = draw(st.integers(1, 10))
    graph = nx.empty_graph(num_nodes)
    node = st.integers(0, num_nodes - 1)
    graph.add_edges_from((u, v) for u, v in draw(st.lists(st.tuples(node, node), max_size=20)) if u != v)
    labels = draw(st.lists(st.integers(0, 2), min_size=num_nodes, max_size=num_nodes))
    return graph, torch.tensor(labels)


def close(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


@given(labelled())
@EXAMPLES
def test_edge_and_node_homophily_by_loops(case: tuple[nx.Graph, Tensor]) -> None:
    known, y = case
    graph = Graph.from_networkx(known)
    same = [float(y[u] == y[v]) for u, v in known.edges]
    assert close(edge_homophily(graph, y), float(np.mean(same)) if same else math.nan)
    fractions = [float(np.mean([float(y[u] == y[v]) for v in known[u]])) for u in known if known.degree(u)]
    assert close(node_homophily(graph, y), float(np.mean(fractions)) if fractions else math.nan)


@given(labelled())
@EXAMPLES
def test_adjusted_homophily_is_the_assortativity_of_classes(case: tuple[nx.Graph, Tensor]) -> None:
    """Newman's assortativity coefficient of a categorical attribute is the same quantity."""
    known, y = case
    adjusted = adjusted_homophily(Graph.from_networkx(known), y)
    ends = {int(y[node]) for edge in known.edges for node in edge}
    if len(ends) < 2:
        assert math.isnan(adjusted)
        return
    nx.set_node_attributes(known, {node: int(y[node]) for node in known}, "label")
    assert close(adjusted, nx.attribute_assortativity_coefficient(known, "label"))


@given(labelled(), st.integers(1, 3), st.integers(0, 2**31))
@EXAMPLES
def test_multilabel_homophily_by_loops(case: tuple[nx.Graph, Tensor], num_labels: int, seed: int) -> None:
    known, _ = case
    y = torch.rand(len(known), num_labels, generator=torch.Generator().manual_seed(seed)) < 0.4
    labels = [set(row.nonzero().view(-1).tolist()) for row in y]

    def overlaps(edges: list[tuple[int, int]]) -> list[float]:
        sets = [(labels[u] & labels[v], labels[u] | labels[v]) for u, v in edges]
        return [len(both) / len(either) for both, either in sets if either]

    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else math.nan

    graph = Graph.from_networkx(known)
    assert close(edge_homophily(graph, y), mean(overlaps(list(known.edges))))
    by_node = [overlaps([(u, v) for v in known[u]]) for u in known]
    assert close(node_homophily(graph, y), mean([mean(values) for values in by_node if values]))
    assert math.isnan(adjusted_homophily(graph, y))


def test_describe_multilabel_data_and_several_graphs() -> None:
    y = torch.tensor([[1, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 1]], dtype=torch.bool)
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    graph = Graph.from_edge_index(edges, num_nodes=4, batch=torch.tensor([0, 0, 1, 1]))
    result = describe(NodeDataset("two", graph, torch.rand(4, 2), y, 3, "micro_f1", ["a", "b"], []))
    assert result.classes == [3, 0, 2]
    assert (result.unlabelled, result.num_graphs, result.num_edges) == (0, 2, 2)
    assert result.edge_homophily == 0.25
    with pytest.raises(ValueError, match=r"y must be \[4, L\] of bool, got \[4, 3\] of torch.int64"):
        edge_homophily(graph, y.long())


def test_unknown_labels_are_left_out() -> None:
    graph = Graph.from_networkx(nx.path_graph(4))
    y = torch.tensor([0, 0, -1, 1])
    assert edge_homophily(graph, y) == 1
    assert node_homophily(graph, y) == 1
    with pytest.raises(ValueError, match=r"y must be \[4\], one label per node, got \[3\]"):
        edge_homophily(graph, y[:3])


@given(labelled())
@EXAMPLES
def test_degree_profile(case: tuple[nx.Graph, Tensor]) -> None:
    known, _ = case
    degrees = [degree for _, degree in known.degree]
    profile = degree_profile(Graph.from_networkx(known))
    assert close(profile.mean, float(np.mean(degrees)))
    assert np.allclose(profile.quantiles, np.quantile(degrees, [0, 0.25, 0.5, 0.75, 1]))
    assert profile.isolated == degrees.count(0)
    assert sum(count for *_, count in profile.bins) == len(degrees)
    for low, high, count in profile.bins:
        assert count == sum(low <= degree <= high for degree in degrees)


def test_the_profile_of_a_directed_graph_is_that_of_in_degrees() -> None:
    profile = degree_profile(Graph.from_edge_index(torch.tensor([[0, 0, 1, 3], [1, 2, 2, 2]]), num_nodes=5))
    assert (profile.directed, profile.isolated, profile.sources) == (True, 3, 2)
    assert profile.mean == pytest.approx(0.8)


def test_a_graph_without_nodes_has_no_profile() -> None:
    with pytest.raises(ValueError, match="graph must have nodes, got none"):
        degree_profile(Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=0))


def test_smoothness_is_the_rayleigh_quotient() -> None:
    data = dimensions(60, degree=6)
    source, target = data.graph.edge_index
    adjacency = torch.zeros(60, 60, dtype=torch.float64)
    adjacency[target, source] = 1
    root = adjacency.sum(1).clamp(min=1).rsqrt()
    laplacian = torch.eye(60, dtype=torch.float64) - root[:, None] * adjacency * root
    f = data.x.double() - data.x.double().mean(0)
    expected = torch.stack([column @ laplacian @ column / (column @ column) for column in f.t()])
    torch.testing.assert_close(smoothness(data).double(), expected, rtol=1e-4, atol=1e-5)
    constant = dataclasses.replace(data, x=torch.ones_like(data.x))
    assert torch.equal(smoothness(constant), torch.zeros(data.num_features))


@pytest.mark.parametrize("block", [1, 200, 2**24])
def test_smoothness_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dimensions(60, degree=6)
    expected = smoothness(data)
    monkeypatch.setattr(diagnosis, "BLOCK", block)
    torch.testing.assert_close(smoothness(data), expected)
    torch.testing.assert_close(smoothness(dataclasses.replace(data, x=data.x.to_sparse_csr())), expected)


def test_describe() -> None:
    data = load("karate")
    result = describe(data)
    assert (result.name, result.num_nodes, result.num_edges, result.num_features) == ("karate", 34, 78, 34)
    assert result.classes == torch.bincount(data.y).tolist()
    assert (result.unlabelled, result.splits, result.metric, result.constant) == (0, 10, "accuracy", 0)
    assert result.nonzero == pytest.approx(1 / 34)
    assert result.edge_homophily == edge_homophily(data.graph, data.y)
    assert torch.equal(result.smoothness, smoothness(data))
    counts, edges = result.smoothness_histogram(6)
    assert counts.sum() == 34
    assert len(counts) == 6
    assert edges[0] == 0


def test_describe_counts_pairs_and_constants() -> None:
    small = dimensions(60, degree=6)
    x = small.x.clone()
    x[:, 0] = 0
    directed = Graph.from_edge_index(torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=60)
    result = describe(dataclasses.replace(small, graph=directed, x=x))
    assert result.num_edges == 2
    assert result.constant == 1
    assert math.isclose(result.nonzero, 35 / 36)
