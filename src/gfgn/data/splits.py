"""Random splits into training, validation and test nodes, the same on every machine and with every release."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.streams import Stream


class Split(NamedTuple):
    """Three boolean masks over the nodes."""

    train: Tensor
    val: Tensor
    test: Tensor


def random_splits(
    num_nodes: int,
    count: int = 10,
    seed: int = 0,
    train: float = 0.48,
    val: float = 0.32,
    *,
    stratify: Tensor | None = None,
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
        stratify: `[N]`, int64: the class of each node. The shares are then met in every class, up to rounding; a
            node of class −1 (unknown) is in no part.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not (0 < train < 1 and 0 < val < 1 and train + val < 1):
        raise ValueError(f"train and val must be positive shares with a sum below 1, got {train} and {val}")
    bounds = train, train + val
    if stratify is not None:
        y = _classes(stratify, num_nodes)
        return [_stratified(y, Stream(seed, k), bounds) for k in range(count)]
    first, second = (round(bound * num_nodes) for bound in bounds)
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


def _classes(y: Tensor, num_nodes: int) -> NDArray[np.int64]:
    if y.shape != (num_nodes,) or y.dtype != torch.int64:
        raise ValueError(f"stratify must be [{num_nodes}] of int64, got {list(y.shape)} of {y.dtype}")
    if y.numel() and int(y.min()) < -1:
        raise ValueError(f"stratify must hold classes from 0, or −1 where one is unknown, got {int(y.min())}")
    return np.asarray(y.cpu().numpy())


def _stratified(y: NDArray[np.int64], stream: Stream, bounds: tuple[float, float]) -> Split:
    """The nodes in random order, class after class, each class cut at its own `bounds`."""
    order = stream.permutation(y.size)
    order = order[np.argsort(y[order], kind="stable")]
    order = order[y[order] >= 0]
    sizes = np.bincount(y[order])
    size = sizes[y[order]]
    rank = np.arange(order.size) - (np.cumsum(sizes) - sizes)[y[order]]
    part = np.full(y.size, -1)
    part[order] = sum((rank >= np.round(bound * size)).astype(np.int64) for bound in bounds)
    split = Split(*(torch.from_numpy(part == which) for which in range(3)))
    if not all(mask.any() for mask in split):
        raise ValueError(f"stratify must have a class of 3 nodes or more to fill three parts, got classes of {sizes}")
    return split
