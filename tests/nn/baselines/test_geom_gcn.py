"""`geom-gcn`: its neighbourhoods and layers against loops over scalars."""

import math
from pathlib import Path

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
from gfgn.nn.baselines.geom_gcn import BINS, VIRTUAL, GeomGCN, GeomGCNLayer, geometry, neighborhoods, pairs_in_the_plane


def points() -> np.ndarray:
    """On a coarse grid: equal distances, equal coordinates and two nodes in one place."""
    places = np.random.default_rng(0).integers(-3, 4, (NODES, 2)).astype(float)
    places[4] = places[7]
    return places


def close_pairs(places: np.ndarray, count: int) -> set[tuple[int, int]]:
    part = connected_components(graph())
    distance = {
        (i, j): math.dist(places[i], places[j])
        for i in range(NODES)
        for j in range(NODES)
        if i != j and part[i] == part[j]
    }
    radius = sorted(distance.values())[count - 1]
    return {pair for pair, value in distance.items() if value <= radius}


def binned(directed: bool = False, which: str = "both", directions: int = 4) -> list[list[list[int]]]:
    """For each node and each bin the neighbours in it."""
    places, around = points(), neighbors(edges(directed=directed))
    close = close_pairs(places, sum(map(len, around)))
    if which == "once":
        around = [[j for j in others if (i, j) not in close] for i, others in enumerate(around)]
    around = [others if which != "plane" else [] for others in around]
    close = close if which != "graph" else set()
    found: list[list[list[int]]] = [[[] for _ in range(BINS)] for _ in range(NODES)]
    for i in range(NODES):
        for kind, others in enumerate((around[i], [j for j in range(NODES) if (i, j) in close])):
            for j in others:
                right, upper = places[j][0] >= places[i][0], places[j][1] >= places[i][1]
                found[i][4 * kind + (right + 2 * upper if directions == 4 else 0)].append(j)
    return found


def layer(rows: list[Row], conv: GeomGCNLayer, bins: list[list[list[int]]]) -> list[Row]:
    degree = [1 + sum(map(len, bins[i])) for i in range(NODES)]
    out = []
    for i in range(NODES):
        virtual = []
        for b, members in enumerate([*bins[i], [i]]):
            zero = [0.0] * len(rows[0])
            e = add(zero, *[scale(VIRTUAL / math.sqrt(degree[i] * degree[j]), rows[j]) for j in members])
            virtual.append(linear(e, conv.maps[str(b)].weight))
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
    place = neighborhoods(graph(directed=directed), points())
    assert_matches(conv(features(), place), layer(features().tolist(), conv, binned(directed)))


@pytest.mark.parametrize("directions", [1, 4])
@pytest.mark.parametrize("which", ["both", "once", "graph", "plane"])
def test_which_neighbours_and_whether_directions_count(which: str, directions: int) -> None:
    conv, bins = randomize(GeomGCNLayer(FEATURES, 4, "cat")), binned(which=which, directions=directions)
    place = neighborhoods(graph(), points(), which, directions)
    assert place.bins.num_edges == sum(len(members) for node in bins for members in node) > 0
    assert_matches(conv(features(), place), layer(features().tolist(), conv, bins))


def test_weights_as_they_stand_are_nine_times_those_that_are_learned_otherwise() -> None:
    place = neighborhoods(graph(), points())
    conv, plain = (randomize(GeomGCNLayer(FEATURES, 4, "cat", rescale)) for rescale in (True, False))
    with torch.no_grad():
        plain.maps.weight.copy_(VIRTUAL * conv.maps.weight)
        plain.bias.copy_(conv.bias)
    torch.testing.assert_close(plain(features(), place), conv(features(), place))


def test_model_is_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geom_gcn, "embed", lambda *_: points())
    model = randomize(GeomGCN(FEATURES, CLASSES, 0.0, hidden=4)).eval()
    first, second = model.convs
    hidden = [relu(row) for row in layer(features().tolist(), first, binned())]
    assert_matches(model(features(), graph()), layer(hidden, second, binned()))


def test_sum_over_virtual_nodes_is_one_map_of_their_concatenation() -> None:
    conv = randomize(GeomGCNLayer(FEATURES, 4, "sum"))
    place = neighborhoods(graph(), points())
    eye = GeomGCNLayer(FEATURES, FEATURES, "cat").double()
    with torch.no_grad():
        eye.maps.weight.copy_(torch.eye(FEATURES).repeat(VIRTUAL, 1))
    joined = eye(features(), place)
    weight = torch.cat(conv.maps.weight.chunk(VIRTUAL), dim=1)
    torch.testing.assert_close(conv(features(), place), joined @ weight.t() + conv.bias)


def test_pairs_in_the_plane_are_the_closest() -> None:
    places = points().astype(np.int64)
    for count in (1, 7, 40, (NODES - 1) * (NODES - 2)):  # the last node is a part of its own
        found = pairs_in_the_plane(places, connected_components(graph()), count)
        assert set(map(tuple, found.T.tolist())) == close_pairs(points(), count)
        assert found.shape[1] >= count
    assert pairs_in_the_plane(places, connected_components(graph()), 0).shape == (2, 0)
    nowhere, one, two = np.zeros((5, 2), dtype=np.int64), np.zeros(5, dtype=np.int64), np.array([0, 0, 1, 1, 1])
    assert pairs_in_the_plane(nowhere, one, 3).shape == (2, 20)
    assert set(map(tuple, pairs_in_the_plane(nowhere, two, 100).T.tolist())) == {
        (0, 1),
        (1, 0),
        (2, 3),
        (3, 2),
        (2, 4),
        (4, 2),
        (3, 4),
        (4, 3),
    }


def test_nodes_may_be_renamed_with_their_places() -> None:
    conv = randomize(GeomGCNLayer(FEATURES, 4, "cat"))
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    renamed = Graph.from_edge_index(order.argsort()[edges()], NODES, dtype=torch.float64)
    out = conv(features()[order], neighborhoods(renamed, points()[order.numpy()]))
    torch.testing.assert_close(out, conv(features(), neighborhoods(graph(), points()))[order])


def test_geometry_is_worked_out_once_and_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    g = graph()
    model = GeomGCN(FEATURES, CLASSES, 0.0, cache=tmp_path, fingerprint="abc").double().eval()
    expected = model(features(), g)
    assert [path.name for path in tmp_path.iterdir()] == ["isomap-abc.npy"]
    monkeypatch.setattr(geom_gcn, "neighborhoods", None)  # fails if called again
    torch.testing.assert_close(model(features(), g), expected)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"merge must be one of 'cat', 'sum', 'mean', got 'max'"):
        GeomGCN(4, 2, merge="max")
    with pytest.raises(ValueError, match=r"embedding must be one of 'isomap', 'poincare', got 'struct2vec'"):
        GeomGCN(4, 2, embedding="struct2vec")
    with pytest.raises(ValueError, match=r"neighbors must be one of 'both', 'once', 'graph', 'plane', got 'none'"):
        GeomGCN(4, 2, neighbors="none")
    with pytest.raises(ValueError, match="directions must be 1 or 4, got 2"):
        GeomGCN(4, 2, directions=2)
    several = Graph.from_edge_index(edges(), NODES, batch=torch.zeros(NODES, dtype=torch.int64), batch_size=2)
    with pytest.raises(ValueError, match="graph must be a single one, got 2 graphs"):
        geometry(several, "isomap")
