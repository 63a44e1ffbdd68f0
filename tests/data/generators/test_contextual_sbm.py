"""The contextual stochastic block model follows its parameters and is the same on every machine."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgn.data import contextual_sbm, edge_homophily


@pytest.mark.parametrize("homophily", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_measured_homophily_is_the_requested_one(homophily: float, classes: int) -> None:
    data = contextual_sbm(1500, classes=classes, degree=8, homophily=homophily)
    assert edge_homophily(data.graph, data.y) == pytest.approx(homophily, abs=1 / (1500 * 8 / 2))


@given(
    num_nodes=st.integers(40, 300),
    classes=st.integers(2, 4),
    degree=st.floats(0, 4),
    homophily=st.floats(0, 1),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=30, deadline=None)
def test_sizes(num_nodes: int, classes: int, degree: float, homophily: float, seed: int) -> None:
    data = contextual_sbm(num_nodes, classes=classes, features=3, degree=degree, homophily=homophily, seed=seed)
    assert data.graph.num_edges == 2 * round(num_nodes * degree / 2)
    assert (data.num_nodes, data.num_features, data.num_classes) == (num_nodes, 3, classes)
    source, target = data.graph.edge_index
    assert (source != target).all()
    assert data.graph.by_source is data.graph.by_target
    sizes = torch.bincount(data.y, minlength=classes)
    assert int(sizes.max() - sizes.min()) <= 1


def test_signal_is_the_distance_of_the_means_from_the_origin() -> None:
    for signal in (0.0, 2.5):
        data = contextual_sbm(15_000, classes=3, features=4, degree=1, signal=signal, splits=1)
        for k in range(3):
            own = data.x[data.y == k]
            assert own.mean(0).norm().item() == pytest.approx(signal, abs=0.06)
            assert own.std(0) == pytest.approx(torch.ones(4).numpy(), abs=0.04)


def test_the_draw_is_pinned() -> None:
    """These edges and labels are the same with every release."""
    data = contextual_sbm(12, degree=1, features=2, seed=3)
    assert data.y.tolist() == [0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1]
    pairs = [(a, b) for a, b in data.graph.edge_index.t().tolist() if a < b]
    assert sorted(pairs) == [(0, 3), (0, 7), (1, 2), (1, 9), (3, 8), (4, 9)]
    torch.testing.assert_close(data.x[:2], torch.tensor([[-0.0992, 1.1070], [0.5888, -0.5327]]), rtol=1e-4, atol=1e-4)


def test_seeds_differ_and_homophily_changes_edges_only() -> None:
    one, other = contextual_sbm(200, seed=0), contextual_sbm(200, seed=1)
    assert not torch.equal(one.y, other.y)
    assert one.fingerprint == contextual_sbm(200, seed=0).fingerprint
    rewired = contextual_sbm(200, seed=0, homophily=0.2)
    assert torch.equal(one.x, rewired.x)
    assert torch.equal(one.y, rewired.y)
    assert rewired.fingerprint != one.fingerprint


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"classes": 1}, "classes.* 1 classes"),
        ({"features": 0}, "features.* 0 features"),
        ({"num_nodes": 3}, "num_nodes.* 3 nodes"),
        ({"degree": -1.0}, "degree.* degree=-1.0"),
        ({"signal": float("nan")}, "signal.* signal=nan"),
        ({"homophily": 1.1}, "homophily.* homophily=1.1"),
        ({"num_nodes": 20}, "degree .* 80 of 90 pairs within classes, 20 of 100 between them"),
    ],
)
def test_bad_arguments(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        contextual_sbm(**arguments)  # type: ignore[arg-type]
