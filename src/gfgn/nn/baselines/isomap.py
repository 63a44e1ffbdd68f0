"""Isomap: a point in the plane for each node of a graph, for `geom-gcn`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path

from gfgn.data.diagnosis import connected_components, undirected_adjacency
from gfgn.graph import Graph

Points: TypeAlias = npt.NDArray[np.float64]


def isomap(graph: Graph, exact: int = 4096, landmarks: int = 1024) -> Points:
    """Isomap (Tenenbaum et al., 2000) of the shortest-path distances in the graph: `[N, 2]`, one point per node.

    Edges count in both directions and without weights. Each connected component is embedded separately around `(0, 0)`.
    Components of up to `exact` nodes use all distances; larger ones use those from `landmarks` nodes, drawn with a
    fixed seed (de Silva and Tenenbaum, 2004), in memory that grows with `landmarks · N` rather than `N²`.
    """
    adjacency = undirected_adjacency(graph)
    points = np.zeros((graph.num_nodes, 2))
    component = connected_components(graph)
    order = np.argsort(component, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(component[order])) + 1):
        if members.size > 2:
            points[members] = _embed_component(adjacency[members][:, members], exact, landmarks)
    return points


def _embed_component(adjacency: Any, exact: int, landmarks: int) -> Points:
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
    return _landmark_mds(np.square(distance, out=distance), chosen)


def _landmark_mds(squared: Points, chosen: npt.NDArray[np.int64]) -> Points:
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
