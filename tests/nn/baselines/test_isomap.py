"""Isomap against scikit-learn's, landmarks, connected components."""

import numpy as np
import torch

from gfgn import Graph
from gfgn.data.diagnosis import connected_components, undirected_adjacency
from gfgn.nn.baselines.isomap import isomap


def grid(rows: int, columns: int) -> Graph:
    """A grid, which Isomap embeds without folds."""
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


def test_isomap_is_that_of_scikit_learn() -> None:
    from sklearn.manifold import Isomap

    g = grid(5, 9)
    peer = Isomap(n_neighbors=None, radius=1.5, metric="precomputed", n_components=2)
    assert aligned(isomap(g), peer.fit_transform(undirected_adjacency(g)))


def test_all_nodes_as_landmarks_are_exact() -> None:
    g = grid(5, 9)
    assert aligned(isomap(g, exact=0, landmarks=45), isomap(g))


def test_few_landmarks_keep_the_shape() -> None:
    """Distances in the plane follow those along the grid."""
    g = grid(8, 20)
    exact, few = isomap(g), isomap(g, exact=0, landmarks=40)
    for axis in (0, 1):
        assert abs(np.corrcoef(exact[:, axis], few[:, axis])[0, 1]) > 0.95


def test_components_are_embedded_separately() -> None:
    """A component has the points that it has alone."""
    alone = grid(4, 6)
    both = torch.cat([alone.edge_index + 3, torch.tensor([[0], [1]]), torch.tensor([[27, 28], [28, 29]])], dim=1)
    g = Graph.from_edge_index(both, 30)
    assert connected_components(g).tolist() == [0, 0, 1, *[2] * 24, *[3] * 3]
    points = isomap(g)
    assert np.allclose(points[3:27], isomap(alone))
    assert np.array_equal(points[:3], np.zeros((3, 2)))
    assert np.allclose(sorted(points[27:, 0]), [-1, 0, 1])
