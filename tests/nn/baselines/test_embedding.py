"""Embeddings in the plane: Isomap against scikit-learn's, landmarks, parts of a graph, the cache, gensim."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from nn.baselines.tiny import NODES, edges, graph

from gfgn import Graph
from gfgn.data.diagnosis import connected_components
from gfgn.nn.baselines import embedding
from gfgn.nn.baselines.embedding import embed, isomap, poincare, undirected


def grid(rows: int, columns: int) -> Graph:
    """A grid, which Isomap lays flat."""
    ids = torch.arange(rows * columns).view(rows, columns)
    across = torch.stack([ids[:, :-1].flatten(), ids[:, 1:].flatten()])
    down = torch.stack([ids[:-1].flatten(), ids[1:].flatten()])
    pairs = torch.cat([across, down], 1)
    return Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], 1), rows * columns)


def aligned(first: np.ndarray, second: np.ndarray) -> bool:
    """Equal up to the sign of each axis."""
    return all(
        np.allclose(first[:, k], second[:, k], atol=1e-6) or np.allclose(first[:, k], -second[:, k], atol=1e-6)
        for k in (0, 1)
    )


def test_isomap_is_scikit_learns() -> None:
    from sklearn.manifold import Isomap

    g = grid(5, 9)
    peer = Isomap(n_neighbors=None, radius=1.5, metric="precomputed", n_components=2)
    assert aligned(isomap(g), peer.fit_transform(undirected(g)))


def test_all_nodes_as_landmarks_are_exact() -> None:
    g = grid(5, 9)
    assert aligned(isomap(g, exact=0, landmarks=45), isomap(g))


def test_few_landmarks_keep_the_shape() -> None:
    """Distances in the plane follow those along the grid."""
    g = grid(8, 20)
    exact, few = isomap(g), isomap(g, exact=0, landmarks=40)
    for axis in (0, 1):
        assert abs(np.corrcoef(exact[:, axis], few[:, axis])[0, 1]) > 0.95


def test_it_is_the_same_every_time() -> None:
    np.random.seed(1)  # noqa: NPY002 - that global state does not matter is the point
    first = isomap(grid(20, 15))
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(first, isomap(grid(20, 15)))


def test_parts_are_embedded_apart() -> None:
    """A part lies where it would lie alone, whatever else is in the graph."""
    alone = grid(4, 6)
    both = torch.cat([alone.edge_index + 3, torch.tensor([[0], [1]]), torch.tensor([[27, 28], [28, 29]])], dim=1)
    g = Graph.from_edge_index(both, 30)
    assert connected_components(g).tolist() == [0, 0, 1, *[2] * 24, *[3] * 3]
    points = isomap(g)
    assert np.allclose(points[3:27], isomap(alone))
    assert np.array_equal(points[:3], np.zeros((3, 2)))
    assert np.allclose(sorted(points[27:, 0]), [-1, 0, 1])


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_tiny_graphs(size: int) -> None:
    points = isomap(Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), size))
    assert points.shape == (size, 2)
    assert np.isfinite(points).all()


def test_cache_is_read_and_checked(tmp_path: Path) -> None:
    g = graph()
    first = embed(g, "isomap", tmp_path, "some")
    np.save(tmp_path / "isomap-some.npy", first + 1)
    assert np.array_equal(embed(g, "isomap", tmp_path, "some"), first + 1)
    assert np.array_equal(embed(g, "isomap", tmp_path, None), first)
    np.save(tmp_path / "isomap-some.npy", first[1:])
    with pytest.raises(ValueError, match=r"fingerprint 'some' has places of shape \(11, 2\), expected \(12, 2\)"):
        embed(g, "isomap", tmp_path, "some")
    with pytest.raises(ValueError, match=r"embedding must be one of 'isomap', 'poincare', got 'pca'"):
        embed(g, "pca")


def test_poincare_is_gensims(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for gensim that places node `k` at `(k, −k)`."""

    class PoincareModel:
        def __init__(self, relations: list[tuple[str, str]], **_: object) -> None:
            self.kv = {name: (float(name), -float(name)) for pair in relations for name in pair}

        def train(self, epochs: int) -> None:
            assert epochs > 0

    module = types.ModuleType("gensim.models.poincare")
    module.PoincareModel = PoincareModel
    for name in ("gensim", "gensim.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "gensim.models.poincare", module)
    expected = np.stack([np.arange(NODES), -np.arange(NODES)], axis=1)
    expected[-1] = 0  # no edges
    assert np.array_equal(poincare(graph()), expected)


def test_poincare_without_gensim(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(embedding.importlib, "import_module", missing)
    with pytest.raises(ImportError, match="embedding='poincare' needs gensim, which is not installed"):
        poincare(Graph.from_edge_index(edges(), NODES))
