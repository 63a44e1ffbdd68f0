"""Places for the nodes of a graph in the plane, for `geom-gcn`: Isomap and Poincaré embeddings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse.csgraph import connected_components, shortest_path

from gfgn.graph import Graph

Points: TypeAlias = npt.NDArray[np.float64]

EXACT = 4096
"""Nodes up to which Isomap holds all distances; larger graphs take landmarks."""
LANDMARKS = 1024


def embed(graph: Graph, method: str, cache: Path | None = None, fingerprint: str | None = None) -> Points:
    """`[N, 2]`: a place for each node.

    Args:
        graph: The graph.
        method: `"isomap"` or `"poincare"`.
        cache: Folder in which embeddings are kept, or `None`.
        fingerprint: What identifies the graph there; nothing is kept without it.
    """
    if method not in EMBEDDINGS:
        raise ValueError(f"embedding must be one of {', '.join(map(repr, EMBEDDINGS))}, got {method!r}")
    path = None if cache is None or fingerprint is None else Path(cache) / f"{method}-{fingerprint}.npy"
    if path is not None and path.exists():
        points: Points = np.load(path, allow_pickle=False)
        if points.shape != (graph.num_nodes, 2):
            raise ValueError(
                f"fingerprint {fingerprint!r} has places of shape {points.shape}, expected {(graph.num_nodes, 2)}"
            )
        return points
    points = EMBEDDINGS[method](graph)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{np.random.SeedSequence().entropy}.tmp")
        with partial.open("wb") as file:
            np.save(file, points)
        partial.replace(path)  # another process never reads half a file
    return points


def isomap(graph: Graph, exact: int = EXACT, landmarks: int = LANDMARKS) -> Points:
    """Isomap (Tenenbaum et al., 2000) on the graph itself: the plane in which distances are nearest to the numbers of
    steps between nodes.

    Edges count in both directions and without weights. Parts that no path joins are hung onto the largest: an edge
    joins the node of most neighbours in each with that of the largest. Up to `exact` nodes, all distances are taken;
    beyond, those from `landmarks` nodes drawn at random with a fixed seed, by which the others are placed (de Silva
    and Tenenbaum, 2004), in memory that grows with `landmarks · N` rather than `N²`.
    """
    adjacency = connected(graph)
    size = graph.num_nodes
    if size <= 2:
        return np.zeros((size, 2))
    if size <= exact:
        from sklearn.decomposition import KernelPCA

        distance = shortest_path(adjacency, unweighted=True)
        np.square(distance, out=distance)
        distance *= -0.5
        pca = KernelPCA(n_components=2, kernel="precomputed", random_state=0)
        return np.asarray(pca.fit_transform(distance), dtype=np.float64)
    chosen = np.sort(np.random.default_rng(0).permutation(size)[:landmarks])
    distance = shortest_path(adjacency, unweighted=True, indices=chosen)
    return place_by_landmarks(np.square(distance, out=distance), chosen)


def place_by_landmarks(squared: Points, chosen: npt.NDArray[np.int64]) -> Points:
    """Landmark multidimensional scaling in two dimensions, from squared distances `[landmarks, N]`."""
    among = squared[:, chosen]
    mean = among.mean(1)
    gram = -0.5 * (among - mean[:, None] - mean[None, :] + mean.mean())
    value, vector = np.linalg.eigh(gram)
    value, vector = value[:-3:-1], vector[:, :-3:-1]
    vector = vector * np.sign(vector[np.abs(vector).argmax(0), [0, 1]])
    inverse = np.where(value > 0, 1 / np.sqrt(np.maximum(value, np.finfo(np.float64).tiny)), 0)
    points: Points = -0.5 * (squared - mean[:, None]).T @ (vector * inverse)
    return points


def poincare(graph: Graph) -> Points:
    """Poincaré embedding (Nickel and Kiela, 2017) in the unit disc, by gensim."""
    try:
        module: Any = importlib.import_module("gensim.models.poincare")
    except ImportError as error:
        raise ImportError("embedding='poincare' needs gensim, which is not installed") from error
    edges = connected(graph).tocoo()
    relations = [(str(u), str(v)) for u, v in zip(edges.row, edges.col, strict=True)]
    if not relations:
        return np.zeros((graph.num_nodes, 2))
    model = module.PoincareModel(relations, size=2, seed=0, workers=1)
    model.train(epochs=50)
    return np.stack([np.asarray(model.kv[str(node)], dtype=np.float64) for node in range(graph.num_nodes)])


def connected(graph: Graph) -> Any:
    """The undirected adjacency as a SciPy CSR array, its parts joined by one edge each; see `isomap`."""
    source, target = graph.edge_index.cpu().numpy()
    size = graph.num_nodes
    count, part = _parts(source, target, size)
    if count > 1:
        degree = np.bincount(np.concatenate([source, target]), minlength=size)
        by_degree = np.argsort(-degree, kind="stable")
        _, first = np.unique(part[by_degree], return_index=True)
        hubs = by_degree[first]
        centre = hubs[np.bincount(part).argmax()]
        hubs = hubs[hubs != centre]
        source, target = np.concatenate([source, hubs]), np.concatenate([target, np.full_like(hubs, centre)])
    return _undirected(source, target, size)


def _parts(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], size: int) -> tuple[int, Any]:
    count, part = connected_components(_undirected(source, target, size), directed=False)
    return int(count), part


def _undirected(source: npt.NDArray[np.int64], target: npt.NDArray[np.int64], size: int) -> Any:
    both = np.concatenate([source, target]), np.concatenate([target, source])
    matrix = scipy.sparse.csr_array((np.ones(both[0].size), both), shape=(size, size))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


EMBEDDINGS: dict[str, Callable[[Graph], Points]] = {"isomap": isomap, "poincare": poincare}
