"""Noise has the requested size, keeps graphs simple, and is the same on every machine."""

import itertools

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgn import Graph
from gfgn.data import add_feature_noise, add_random_edges, remove_random_edges

Pairs = set[tuple[int, int]]
SEEDS = st.integers(0, 2**32)
EXAMPLES = settings(max_examples=40, deadline=None)
ADDED = [(0, 4), (4, 6), (4, 7), (5, 7)]
REMOVED = [(0, 1), (1, 2), (2, 3), (3, 4)]
NOISE = [0.1241709, -0.2921495, 0.0281189]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num_nodes = draw(st.integers(1, 12))
    every = [(low, high) for high in range(num_nodes) for low in range(high)]
    chosen = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return undirected(num_nodes, chosen)


def undirected(num_nodes: int, pairs: list[tuple[int, int]], weight: list[float] | None = None) -> Graph:
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    weights = None if weight is None else torch.tensor(weight * 2)
    return Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes, weights)


def pairs(graph: Graph) -> Pairs:
    """The edges as pairs; each must exist exactly once in each direction."""
    edges = set(map(tuple, graph.edge_index.t().tolist()))
    assert len(edges) == graph.num_edges
    assert all((v, u) in edges and u != v for u, v in edges)
    return {(u, v) for u, v in edges if u < v}


@given(graphs(), st.floats(0, 3), SEEDS)
@EXAMPLES
def test_added_edges_are_new(graph: Graph, ratio: float, seed: int) -> None:
    before = pairs(graph)
    count, room = round(ratio * len(before)), graph.num_nodes * (graph.num_nodes - 1) // 2 - len(before)
    if count > room:
        with pytest.raises(ValueError, match=f"{count} new edges, where {room} pairs are free"):
            add_random_edges(graph, ratio, seed)
        return
    noisy = add_random_edges(graph, ratio, seed)
    after = pairs(noisy)
    assert before <= after
    assert len(after) == len(before) + count
    assert noisy.num_nodes == graph.num_nodes
    assert torch.equal(noisy.edge_index, add_random_edges(graph, ratio, seed).edge_index)


@given(graphs(), st.floats(0, 1), SEEDS)
@EXAMPLES
def test_removed_edges_are_gone_in_both_directions(graph: Graph, ratio: float, seed: int) -> None:
    before, after = pairs(graph), pairs(remove_random_edges(graph, ratio, seed))
    assert after <= before
    assert len(after) == len(before) - round(ratio * len(before))


@given(SEEDS)
@settings(max_examples=8, deadline=None)
def test_larger_ratios_change_a_superset(seed: int) -> None:
    graph = Graph.from_networkx(nx.gnm_random_graph(40, 60, seed=1))
    added = [pairs(add_random_edges(graph, ratio, seed)) for ratio in (0.1, 0.2, 0.5, 1.0)]
    left = [pairs(remove_random_edges(graph, ratio, seed)) for ratio in (0.1, 0.2, 0.5, 1.0)]
    assert all(less <= more for less, more in itertools.pairwise(added))
    assert all(less >= more for less, more in itertools.pairwise(left))
    assert left[-1] == set()


def test_free_pairs_are_equally_likely() -> None:
    graph = undirected(6, [(0, 1), (2, 3), (4, 5)])
    seen: dict[tuple[int, int], int] = {}
    for seed in range(150):
        (new,) = pairs(add_random_edges(graph, 1 / 3, seed)) - pairs(graph)
        seen[new] = seen.get(new, 0) + 1
    assert len(seen) == 12
    assert 2 < min(seen.values()) <= max(seen.values()) < 26  # 12.5 expected, with a standard deviation of 3.4


def test_the_draw_is_fixed() -> None:
    """Published results depend on these edges."""
    ring = undirected(8, [(k, (k + 1) % 8) for k in range(8)])
    assert sorted(pairs(add_random_edges(ring, 0.5, 7)) - pairs(ring)) == ADDED
    assert sorted(pairs(ring) - pairs(remove_random_edges(ring, 0.5, 7))) == REMOVED
    noise = add_feature_noise(torch.zeros(1, 3), 1.0, 7)
    torch.testing.assert_close(noise, torch.tensor([NOISE]), rtol=0, atol=1e-6)


def test_weights_stay_with_their_edges() -> None:
    graph = undirected(5, [(0, 1), (1, 2), (2, 3), (3, 4)], [2.0, 3.0, 4.0, 5.0])
    given = {frozenset(e): w for e, w in zip([(0, 1), (1, 2), (2, 3), (3, 4)], [2.0, 3.0, 4.0, 5.0], strict=True)}
    for noisy in (add_random_edges(graph, 1.0), remove_random_edges(graph, 0.5)):
        assert noisy.weight is not None
        for (u, v), w in zip(noisy.edge_index.t().tolist(), noisy.weight.tolist(), strict=True):
            assert w == given.get(frozenset((u, v)), 1.0)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]])), "undirected .* 2 pairs"),
        (Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), self_loops="add"), "self-loops"),
        (Graph.from_edge_index(torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]]), duplicates="keep"), "duplicate .* 1 pairs"),
        (
            Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), batch=torch.tensor([0, 0, 1]), num_nodes=3),
            "batch of 2",
        ),
    ],
)
def test_unsupported_graphs(graph: Graph, words: str) -> None:
    for change in (add_random_edges, remove_random_edges):
        with pytest.raises(ValueError, match=words):
            change(graph, 0.5)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_bad_amounts(bad: float) -> None:
    graph = undirected(3, [(0, 1)])
    for change in (add_random_edges, remove_random_edges):
        with pytest.raises(ValueError, match="ratio must be 0"):
            change(graph, bad)
    with pytest.raises(ValueError, match="std must be 0"):
        add_feature_noise(torch.zeros(2, 2), bad)


def test_codes_of_pairs_of_many_nodes() -> None:
    """Even where rounding of the square root is off by one, every new edge is free and new."""
    size = 2**20
    graph = undirected(size, [(0, size - 1), (size - 2, size - 1), (5, 2**19)])
    for seed in range(20):
        after = pairs(add_random_edges(graph, 40, seed))
        assert len(after) == 123
        assert max(high for _, high in after) < size


def test_feature_noise() -> None:
    x = torch.ones(400, 50, dtype=torch.float64)
    noisy = add_feature_noise(x, 0.5, seed=3)
    assert noisy.dtype == torch.float64
    assert abs((noisy - x).std().item() - 0.5) < 0.01
    assert abs((noisy - x).mean().item()) < 0.015
    assert torch.equal(noisy, add_feature_noise(x, 0.5, seed=3))
    assert not torch.equal(noisy, add_feature_noise(x, 0.5, seed=4))
    assert torch.equal(add_feature_noise(x, 0.0), x)
    assert x.eq(1).all()


@pytest.mark.parametrize("x", [torch.eye(3).to_sparse_coo(), torch.ones(3, 3, dtype=torch.int64)])
def test_unsupported_features(x: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="x must be dense and floating point, got layout"):
        add_feature_noise(x, 1.0)
