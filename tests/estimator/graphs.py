"""Small graphs with labels that features and edges explain together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def make_graph(num_nodes: int = 120, classes: int = 3, seed: int = 0, noise: float = 1.0) -> Arrays:
    """Features, classes and edges; four of five edges join nodes of the same class."""
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=num_nodes)
    x = random.normal(scale=noise, size=(num_nodes, 6)).astype(np.float32)
    x[np.arange(num_nodes), y] += 1.5
    source = random.integers(num_nodes, size=4 * num_nodes)
    target = random.integers(num_nodes, size=4 * num_nodes)
    same = random.random(source.size) < 0.8
    for k in range(classes):
        members, picks = np.flatnonzero(y == k), same & (y[source] == k)
        target[picks] = random.choice(members, picks.sum())
    return x, y, np.stack([source, target])
