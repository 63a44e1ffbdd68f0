"""The generated graph `dimensions`, after the first motivation of the paper: edges form for several reasons.

For each reason (say, where people live, where they work, what they play), nodes are partitioned into groups. Every edge
picks a reason and joins two nodes of the same group under it. Every node also has an attribute that is independent of
its neighbors: the reason the node identifies with. The label combines that reason with the node's group under it.

There are two kinds of feature dimensions:

- *smooth*: the value of the node's group under one reason, with strong noise, visible only after averaging over
  neighbors;
- *own*: whether the attribute is one reason, with weak noise, which averaging over neighbors destroys.

A model that ignores the graph misses the group, a model that smooths all dimensions equally misses the attribute, and
every dimension matters. Which dimensions are smooth is known by construction.
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


def dimensions(
    num_nodes: int = 1200,
    *,
    reasons: int = 3,
    groups: int = 2,
    degree: float = 20.0,
    smooth_per_reason: int = 8,
    own_per_reason: int = 4,
    smooth_noise: float = 3.0,
    own_noise: float = 0.3,
    baseline: float = 1.0,
    splits: int = 10,
    seed: int = 0,
) -> NodeDataset:
    """Generates the graph.

    With the defaults, a neighbor shares a node's group under a given reason with probability
    `1/reasons + (1 − 1/reasons)/groups` = 2/3, so that the groups of twenty neighbors would reveal the node's group in
    about 19 of 20 cases, whereas its own eight noisy dimensions reveal it in about 5 of 6.

    Args:
        reasons: Number of reasons for edges, and of values of a node's attribute.
        groups: Number of groups under each reason.
        degree: Mean degree before repeated edges are merged.
        smooth_noise: Standard deviation of the noise on smooth dimensions, whose signal is in [−1, 1].
        own_noise: Standard deviation of the noise on own dimensions, whose signal is ±1.
        baseline: Added to every feature. The graph-level gate reads the mean features, so that a dimension of mean 0
            would be invisible to it.
    """
    if min(reasons, groups) < 2 or min(smooth_per_reason, own_per_reason) < 1 or num_nodes < 2 * reasons * groups:
        got = f"{num_nodes} nodes, {reasons} reasons, {groups} groups, {smooth_per_reason} and {own_per_reason}"
        least = "reasons and groups 2, num_nodes two per pair of them, smooth_per_reason and own_per_reason 1"
        raise ValueError(f"sizes must be at least: {least}; got {got}")
    if not (degree > 0 and smooth_noise >= 0 and own_noise >= 0):
        got = f"{degree}, {smooth_noise} and {own_noise}"
        raise ValueError(f"degree must be positive and smooth_noise and own_noise not negative, got {got}")
    group = np.stack([Stream(seed, 1, r).permutation(num_nodes) % groups for r in range(reasons)])
    attribute = Stream(seed, 2).permutation(num_nodes) % reasons
    edges = _draw_edges(group, groups, round(num_nodes * degree / 2), Stream(seed, 3))
    smooth = _smooth_features(group, groups, smooth_per_reason, smooth_noise, Stream(seed, 4))
    signals = [np.where(attribute == r, 1.0, -1.0) for r in range(reasons) for _ in range(own_per_reason)]
    stream = Stream(seed, 5)
    own = np.stack([signal + own_noise * stream.normal(num_nodes) for signal in signals])
    label = attribute * groups + group[attribute, np.arange(num_nodes)]

    edge_index = torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1))
    names = [f"reason {r + 1}, no. {k + 1}" for r in range(reasons) for k in range(smooth_per_reason)]
    names += [f"own {r + 1}, no. {k + 1}" for r in range(reasons) for k in range(own_per_reason)]
    return NodeDataset(
        name="dimensions",
        graph=Graph.from_edge_index(edge_index, num_nodes=num_nodes),
        x=torch.from_numpy(np.concatenate([smooth, own]).T + baseline).float().contiguous(),
        y=torch.from_numpy(label),
        num_classes=reasons * groups,
        metric="accuracy",
        feature_names=names,
        splits=random_splits(num_nodes, splits, seed),
        description=f"A generated graph whose edges form for {reasons} reasons; {len(smooth)} feature dimensions "
        f"follow one of them, {len(own)} describe the node alone, and the label needs both.",
        smooth_dimensions=torch.arange(len(names)) < len(smooth),
    )


def _draw_edges(group: Integers, groups: int, count: int, stream: Stream) -> Integers:
    """`[2, count]`: pairs of nodes that share a group under the reason of the edge."""
    reasons, num_nodes = group.shape
    source = stream.integers(num_nodes, count)
    reason = stream.integers(reasons, count)
    pick = stream.uniform(count)
    target = np.empty_like(source)
    for r in range(reasons):
        for g in range(groups):
            members = np.flatnonzero(group[r] == g)
            edges = (reason == r) & (group[r, source] == g)
            target[edges] = members[(pick[edges] * members.size).astype(np.int64)]
    return np.stack([source, target])


def _smooth_features(group: Integers, groups: int, count: int, noise: float, stream: Stream) -> NDArray[np.float64]:
    """`[reasons * count, N]`: evenly spaced values of the groups, in a random order for each dimension."""
    levels = np.linspace(-1.0, 1.0, groups)
    rows = []
    for labels in group:
        for _ in range(count):
            value = levels[stream.permutation(groups)]
            rows.append(value[labels] + noise * stream.normal(labels.size))
    return np.stack(rows)
