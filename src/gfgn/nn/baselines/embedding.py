"""Places for the nodes of a graph in the plane, for `geom-gcn`: Isomap and Poincaré embeddings."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path

from gfgn.data.diagnosis import connected_components, undirected_adjacency
from gfgn.data.files import atomic_write
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
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.save(file, points)
    return points


def isomap(graph: Graph, exact: int = EXACT, landmarks: int = LANDMARKS) -> Points:
    """Isomap (Tenenbaum et al., 2000) on the graph itself: the plane in which distances are nearest to the numbers of
    steps between nodes.

    Edges count in both directions and without weights. Parts of the graph that no path joins have no distance from one
    another: each has a plane of its own around `(0, 0)`. Up to `exact` nodes, all distances are taken; beyond, those
    from `landmarks` nodes drawn at random with a fixed seed, by which the others are placed (de Silva and Tenenbaum,
    2004), in memory that grows with `landmarks · N` rather than `N²`.
    """
    adjacency = undirected_adjacency(graph)
    points = np.zeros((graph.num_nodes, 2))
    part = connected_components(graph)
    order = np.argsort(part, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
        if members.size > 2:
            points[members] = _isomap_of_one(adjacency[members][:, members], exact, landmarks)
    return points


def _isomap_of_one(adjacency: Any, exact: int, landmarks: int) -> Points:
    size = adjacency.shape[0]
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
    """Poincaré embedding (Nickel and Kiela, 2017) in the unit disc, by gensim; `(0, 0)` for a node without edges."""
    try:
        module: Any = importlib.import_module("gensim.models.poincare")
    except ImportError as error:
        raise ImportError("embedding='poincare' needs gensim, which is not installed") from error
    edges = undirected_adjacency(graph).tocoo()
    points = np.zeros((graph.num_nodes, 2))
    if edges.nnz > 0:
        relations = [(str(u), str(v)) for u, v in zip(edges.row, edges.col, strict=True)]
        model = module.PoincareModel(relations, size=2, seed=0, workers=1)
        model.train(epochs=50)
        for node in np.unique(edges.row):
            points[node] = model.kv[str(node)]
    return points


EMBEDDINGS: dict[str, Callable[[Graph], Points]] = {"isomap": isomap, "poincare": poincare}
