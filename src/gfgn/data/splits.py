"""Random splits into training, validation and test nodes, the same on every machine and with every
release."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gfgn.data.streams import Stream


class Split(NamedTuple):
    """Three boolean masks over the nodes."""

    train: Tensor
    val: Tensor
    test: Tensor


def random_splits(
    num_nodes: int, count: int = 10, seed: int = 0, train: float = 0.48, val: float = 0.32
) -> list[Split]:
    """Draws `count` splits that are disjoint and cover all nodes; what `train` and `val` leave is the test
    part.

    The default shares are the paper's. Split `k` depends on `(seed, k)` alone: asking for more splits does
    not change the first ones. Nodes are ordered by raw bits of PCG64, whose stream NumPy guarantees, see
    `Stream`.

    Args:
        num_nodes: Number of nodes.
        count: Number of splits.
        seed: Seed of the draw.
        train: Share of the nodes to train on.
        val: Share of the nodes to validate on.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not (0 < train < 1 and 0 < val < 1 and train + val < 1):
        raise ValueError(f"train and val must be positive shares with a sum below 1, got {train} and {val}")
    first, second = round(train * num_nodes), round((train + val) * num_nodes)
    if not 0 < first < second < num_nodes:
        raise ValueError(
            f"num_nodes must be large enough for three non-empty parts, got {num_nodes} with train={train}, val={val}"
        )
    splits = []
    for k in range(count):
        order = torch.from_numpy(Stream(seed, k).permutation(num_nodes))
        parts = (order[:first], order[first:second], order[second:])
        splits.append(Split(*(_mask(part, num_nodes) for part in parts)))
    return splits


def _mask(nodes: Tensor, num_nodes: int) -> Tensor:
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[nodes] = True
    return mask
