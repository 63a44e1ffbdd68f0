"""The contextual stochastic block model: classes that edges follow or avoid, and features that tell of the class.

It has one dial for each of the two sources of information: `homophily`, the share of edges inside a class, and
`signal`, how far the classes' mean features are from each other (Deshpande et al., Contextual Stochastic Block Models,
NeurIPS 2018; several classes instead of two, and the dial as the share of edges that is measured).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gfgn.data.dataset import Dataset
from gfgn.data.splits import random_splits
from gfgn.data.streams import Stream
from gfgn.graph import Graph

Integers = NDArray[np.int64]


def contextual_sbm(
    num_nodes: int = 1000,
    *,
    classes: int = 2,
    features: int = 16,
    degree: float = 10.0,
    homophily: float = 0.8,
    signal: float = 1.0,
    splits: int = 10,
    seed: int = 0,
) -> Dataset:
    """Generates a graph.

    Every edge is drawn by itself, so that time and memory are those of the edges: a million of them is no matter. The
    same arguments give the same graph on every machine, see `Stream`.

    Args:
        num_nodes: Number of nodes, divided evenly among the classes.
        classes: Number of classes.
        features: Number of feature dimensions.
        degree: Mean degree; met exactly, up to the rounding to whole edges.
        homophily: Share of the edges whose ends are of one class, from 0 to 1; met exactly, up to rounding. With
            `1 / classes` the edges know next to nothing of the classes.
        signal: Distance of every class's mean features from the origin, where the noise around it has standard
            deviation 1 in every dimension; 0 makes features pure noise.
        splits: Number of random splits.
        seed: Seed of graph, features and splits.
    """
    _check(num_nodes, classes, features, degree, homophily, signal)
    label = Stream(seed, 1).permutation(num_nodes) % classes
    count = round(num_nodes * degree / 2)
    inside = round(count * homophily)
    _check_room(np.bincount(label), inside, count - inside, degree, homophily)
    pairs = [_pairs(label, classes, inside, Stream(seed, 2), True)]
    pairs += [_pairs(label, classes, count - inside, Stream(seed, 3), False)]
    source, target = np.divmod(np.concatenate(pairs), num_nodes)
    means = Stream(seed, 4).normal(classes * features).reshape(classes, features)
    means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = means[label] + Stream(seed, 5).normal(num_nodes * features).reshape(num_nodes, features)
    return Dataset(
        name="contextual-sbm",
        graph=Graph.from_undirected(source.astype(np.int32), target.astype(np.int32), num_nodes),
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(label),
        num_classes=classes,
        metric="accuracy",
        feature_names=[f"feature {k + 1}" for k in range(features)],
        splits=random_splits(num_nodes, splits, seed),
        description=f"A contextual stochastic block model of {classes} classes, edge homophily {homophily:g}, features "
        f"of signal {signal:g}.",
    )


def _pairs(label: Integers, classes: int, count: int, stream: Stream, same: bool) -> Integers:
    """`count` different pairs of nodes of one class, or of two, as `smaller * N + larger`."""
    size = np.bincount(label, minlength=classes)
    members = np.argsort(label, kind="stable")
    first = np.cumsum(size) - size
    found = np.empty(0, dtype=np.int64)
    while found.size < count:
        draws = (count - found.size) * 5 // 4 + 16
        one = stream.integers(label.size, draws)
        other_class = label[one] if same else (label[one] + 1 + stream.integers(classes - 1, draws)) % classes
        two = members[first[other_class] + (stream.uniform(draws) * size[other_class]).astype(np.int64)]
        keys = np.minimum(one, two) * label.size + np.maximum(one, two)
        found = _first_of_each(np.concatenate([found, keys[one != two]]))[:count]
    return found


def _first_of_each(keys: Integers) -> Integers:
    """The keys without repetitions, in the order of their first appearance."""
    _, first = np.unique(keys, return_index=True)
    return keys[np.sort(first)]


def _check(num_nodes: int, classes: int, features: int, degree: float, homophily: float, signal: float) -> None:
    if classes < 2:
        raise ValueError(f"classes must be 2 or larger, got {classes}")
    if features < 1:
        raise ValueError(f"features must be 1 or larger, got {features}")
    if num_nodes < 2 * classes:
        raise ValueError(f"num_nodes must be at least two a class, {2 * classes}, got {num_nodes}")
    if not (degree >= 0 and signal >= 0 and np.isfinite([degree, signal]).all()):
        raise ValueError(f"degree and signal must be finite and not negative, got {degree} and {signal}")
    if not 0 <= homophily <= 1:
        raise ValueError(f"homophily must be from 0 to 1, got {homophily}")


def _check_room(size: Integers, inside: int, across: int, degree: float, homophily: float) -> None:
    """Pairs are drawn until enough are different, which takes ever longer as the last ones are sought."""
    pairs = int((size * (size - 1) // 2).sum())
    others = int(size.sum() * (size.sum() - 1) // 2) - pairs
    if 2 * inside > pairs or 2 * across > others:
        raise ValueError(
            f"degree must be small enough that edges take half of the possible pairs at most, got {degree} with "
            f"homophily={homophily}: {inside} of {pairs} pairs inside classes, {across} of {others} across them"
        )
