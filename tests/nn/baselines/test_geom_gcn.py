"""`geom-gcn`: neighborhoods and layers against loops over scalars."""

import math

import numpy as np
import pytest
import torch
from nn.baselines.tiny import (
    CLASSES,
    FEATURES,
    NODES,
    Row,
    add,
    assert_matches,
    edges,
    features,
    graph,
    linear,
    neighbors,
    randomize,
    relu,
    scale,
)

from gfgn import Graph
from gfgn.data.diagnosis import connected_components
from gfgn.nn.baselines import geom_gcn
from gfgn.nn.baselines.geom_gcn import BINS, VIRTUAL, GeomGCN, GeomGCNLayer, geometry, pairs_in_plane, sort_neighbors


def points() -> np.ndarray:
    """On a coarse grid: equal distances, equal coordinates and two nodes at the same position."""
    positions = np.random.default_rng(0).integers(-3, 4, (NODES, 2)).astype(float)
    positions[4] = positions[7]
    return positions


def close_pairs(positions: np.ndarray, count: int) -> set[tuple[int, int]]:
    component = connected_components(graph())
    distance = {
        (i, j): math.dist(positions[i], positions[j])
        for i in range(NODES)
        for j in range(NODES)
        if i != j and component[i] == component[j]
    }
    radius = sorted(distance.values())[count - 1]
    return {pair for pair, value in distance.items() if value <= radius}


def binned(directed: bool = False, which: str = "both", directions: int = 4) -> list[list[list[int]]]:
    """The neighbors in each bin of each node."""
    positions, in_graph = points(), neighbors(edges(directed=directed))
    close = close_pairs(positions, sum(map(len, in_graph)))
    if which == "once":
        in_graph = [[j for j in others if (i, j) not in close] for i, others in enumerate(in_graph)]
    in_graph = [others if which != "plane" else [] for others in in_graph]
    close = close if which != "graph" else set()
    bins: list[list[list[int]]] = [[[] for _ in range(BINS)] for _ in range(NODES)]
    for i in range(NODES):
        for kind, others in enumerate((in_graph[i], [j for j in range(NODES) if (i, j) in close])):
            for j in others:
                right, upper = positions[j][0] >= positions[i][0], positions[j][1] >= positions[i][1]
                bins[i][4 * kind + (right + 2 * upper if directions == 4 else 0)].append(j)
    return bins


def layer(rows: list[Row], conv: GeomGCNLayer, bins: list[list[list[int]]]) -> list[Row]:
    degree = [1 + sum(map(len, bins[i])) for i in range(NODES)]
    out = []
    for i in range(NODES):
        virtual = []
        for b, members in enumerate([*bins[i], [i]]):
            zero = [0.0] * len(rows[0])
            e = add(zero, *[scale(VIRTUAL / math.sqrt(degree[i] * degree[j]), rows[j]) for j in members])
            virtual.append(linear(e, conv.lin[str(b)].weight))
        if conv.merge == "cat":
            row = [value for e in virtual for value in e]
        else:
            row = scale(1 / len(virtual) if conv.merge == "mean" else 1.0, add(*virtual))
        out.append(add(row, conv.bias.tolist()))
    return out


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("merge", ["cat", "sum", "mean"])
def test_layer_is_the_papers_equation(merge: str, directed: bool) -> None:
    conv = randomize(GeomGCNLayer(FEATURES, 4, merge))
    bins_of = sort_neighbors(graph(directed=directed), points())
    assert_matches(conv(features(), bins_of), layer(features().tolist(), conv, binned(directed)))


@pytest.mark.parametrize("directions", [1, 4])
@pytest.mark.parametrize("which", ["both", "once", "graph", "plane"])
def test_kinds_of_neighbors_and_directions(which: str, directions: int) -> None:
    conv, bins = randomize(GeomGCNLayer(FEATURES, 4, "cat")), binned(which=which, directions=directions)
    bins_of = sort_neighbors(graph(), points(), which, directions)
    assert bins_of.bins.num_edges == sum(len(members) for node in bins for members in node) > 0
    assert_matches(conv(features(), bins_of), layer(features().tolist(), conv, bins))


def test_model_is_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geom_gcn, "isomap", lambda _: points())
    model = randomize(GeomGCN(FEATURES, CLASSES, 0.0, hidden=4)).eval()
    first, second = model.convs
    hidden = [relu(row) for row in layer(features().tolist(), first, binned())]
    assert_matches(model(features(), graph()), layer(hidden, second, binned()))


def test_pairs_in_plane_are_the_closest() -> None:
    positions = points().astype(np.int64)
    for count in (1, 7, 40, (NODES - 1) * (NODES - 2)):  # the last node is a component of its own
        pairs = pairs_in_plane(positions, connected_components(graph()), count)
        assert set(map(tuple, pairs.T.tolist())) == close_pairs(points(), count)
        assert pairs.shape[1] >= count
    assert pairs_in_plane(positions, connected_components(graph()), 0).shape == (2, 0)
    nowhere, one, two = np.zeros((5, 2), dtype=np.int64), np.zeros(5, dtype=np.int64), np.array([0, 0, 1, 1, 1])
    assert pairs_in_plane(nowhere, one, 3).shape == (2, 20)
    within = {(i, j) for i in range(5) for j in range(5) if i != j and two[i] == two[j]}
    assert set(map(tuple, pairs_in_plane(nowhere, two, 100).T.tolist())) == within


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"merge must be one of 'cat', 'sum', 'mean', got 'max'"):
        GeomGCN(4, 2, merge="max")
    with pytest.raises(ValueError, match=r"neighbors must be one of 'both', 'once', 'graph', 'plane', got 'none'"):
        GeomGCN(4, 2, neighbors="none")
    with pytest.raises(ValueError, match="directions must be 1 or 4, got 2"):
        GeomGCN(4, 2, directions=2)
    several = Graph.from_edge_index(edges(), NODES, batch=torch.zeros(NODES, dtype=torch.int64), batch_size=2)
    with pytest.raises(ValueError, match="graph must be a single one, got 2 graphs"):
        geometry(several)
