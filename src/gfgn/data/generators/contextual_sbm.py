"""The contextual stochastic block model: edges that depend on the classes, and features that depend on the class.

One parameter controls each source of information: `homophily`, the fraction of edges within a class, and `signal`, the
distance between the mean features of the classes (Deshpande et al., Contextual Stochastic Block Models, NeurIPS 2018;
here with any number of classes).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gfgn.data.dataset import NodeDataset
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
) -> NodeDataset:
    """Generates a graph in time and memory proportional to its edges.

    The same arguments give the same graph on every machine, see `Stream`.

    Args:
        num_nodes: Number of nodes, divided evenly among the classes.
        degree: Mean degree, exact up to rounding to whole edges.
        homophily: Fraction of the edges within a class, from 0 to 1, exact up to rounding. With `1 / classes`, edges
            carry almost no information about the classes.
        signal: Distance of the mean features of each class from the origin, in standard deviations of the noise; with
            0, features are pure noise.
    """
    if classes < 2 or features < 1 or num_nodes < 2 * classes:
        got = f"{num_nodes} nodes, {classes} classes and {features} features"
        raise ValueError(f"num_nodes must be two or more per class, classes 2, features 1 or more, got {got}")
    if not (degree >= 0 and signal >= 0 and np.isfinite([degree, signal]).all() and 0 <= homophily <= 1):
        got = f"degree={degree}, signal={signal} and homophily={homophily}"
        raise ValueError(f"degree and signal must be finite and not negative, homophily from 0 to 1, got {got}")
    label = Stream(seed, 1).permutation(num_nodes) % classes
    count = round(num_nodes * degree / 2)
    inside = round(count * homophily)
    across = count - inside
    sizes = np.bincount(label)
    possible = int((sizes * (sizes - 1) // 2).sum())
    others = num_nodes * (num_nodes - 1) // 2 - possible
    if 2 * inside > possible or 2 * across > others:  # rejection of repeated pairs becomes slow
        raise ValueError(
            f"degree must be small enough that edges use at most half of the possible pairs, got {degree} with "
            f"homophily={homophily}: {inside} of {possible} pairs within classes, {across} of {others} between them"
        )
    pairs = [_draw_pairs(label, classes, inside, Stream(seed, 2), True)]
    pairs += [_draw_pairs(label, classes, across, Stream(seed, 3), False)]
    source, target = np.divmod(np.concatenate(pairs), num_nodes)
    means = Stream(seed, 4).normal(classes * features).reshape(classes, features)
    means *= signal / np.linalg.norm(means, axis=1, keepdims=True)
    x = means[label] + Stream(seed, 5).normal(num_nodes * features).reshape(num_nodes, features)
    return NodeDataset(
        name="contextual-sbm",
        graph=Graph.from_undirected(source.astype(np.int32), target.astype(np.int32), num_nodes),
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(label),
        num_classes=classes,
        metric="accuracy",
        feature_names=[f"feature {k + 1}" for k in range(features)],
        splits=random_splits(num_nodes, splits, seed),
        description=f"A contextual stochastic block model with {classes} classes, edge homophily {homophily:g} and "
        f"feature signal {signal:g}.",
    )


def _draw_pairs(label: Integers, classes: int, count: int, stream: Stream, same: bool) -> Integers:
    """`count` distinct pairs of nodes of the same class or of different ones, encoded as `smaller * N + larger`."""
    size = np.bincount(label, minlength=classes)
    members = np.argsort(label, kind="stable")
    first = np.cumsum(size) - size
    pairs = np.empty(0, dtype=np.int64)
    while pairs.size < count:
        draws = (count - pairs.size) * 5 // 4 + 16
        one = stream.integers(label.size, draws)
        other_class = label[one] if same else (label[one] + 1 + stream.integers(classes - 1, draws)) % classes
        two = members[first[other_class] + (stream.uniform(draws) * size[other_class]).astype(np.int64)]
        drawn = np.minimum(one, two) * label.size + np.maximum(one, two)
        pairs = np.concatenate([pairs, drawn[one != two]])
        pairs = pairs[np.sort(np.unique(pairs, return_index=True)[1])][:count]  # distinct, in order of the draw
    return pairs
