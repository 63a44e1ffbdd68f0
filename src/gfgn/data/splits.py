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


def is_mask(values: Tensor | NDArray[np.generic], num_nodes: int) -> bool:
    """Whether an array or a tensor is a mask of the nodes: booleans, or 0 and 1 for each of more than two nodes, which
    as indices would repeat these two."""
    if tuple(values.shape) != (num_nodes,):
        return False
    return "bool" in str(values.dtype) or (num_nodes > 2 and bool(((values == 0) | (values == 1)).all()))


def random_splits(
    num_nodes: int,
    count: int = 10,
    seed: int = 0,
    train: float = 0.48,
    val: float = 0.32,
    *,
    stratify: Tensor | None = None,
) -> list[Split]:
    """Draws `count` disjoint splits that cover all nodes; nodes in neither `train` nor `val` are test nodes.

    The default fractions are those of the paper; if `train` and `val` sum to 1, there are no test nodes; if `val` is 0,
    no validation nodes. Split `k` depends on `(seed, k)` only: drawing more splits does not change the first ones.

    Args:
        stratify: `[N]`, int64: the class of each node. Every class is then split by these fractions, up to rounding;
            nodes of class −1 (unknown) are in no part.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not (0 < train <= 1 and 0 <= val < 1 and train + val < 1 + 1e-9):
        raise ValueError(
            f"train and val must be fractions, train above 0, that sum to at most 1, got {train} and {val}"
        )
    y = np.zeros(num_nodes, dtype=np.int64) if stratify is None else stratify.cpu().numpy()
    if y.shape != (num_nodes,) or y.dtype != np.int64:
        raise ValueError(f"stratify must be [{num_nodes}] of int64, got {list(y.shape)} of {y.dtype}")
    if (y < -1).any():
        raise ValueError(f"stratify must hold classes from 0, or −1 if unknown, got {y.min()}")
    parts = np.stack([_draw(y, Stream(seed, k), (train, min(train + val, 1.0))) for k in range(count)])
    wanted = [part for part, some in enumerate((True, val > 0, train + val <= 1 - 1e-9)) if some]
    if not all((row == part).any() for row in parts for part in wanted):
        name, got = ("num_nodes", num_nodes) if stratify is None else ("stratify", np.bincount(y[y >= 0]).tolist())
        raise ValueError(f"{name} must be large enough for non-empty parts, got {got} with train={train}, val={val}")
    return split_masks(parts)


def _draw(y: NDArray[np.int64], stream: Stream, bounds: tuple[float, float]) -> NDArray[np.int64]:
    """`[N]`: the part of each node. Nodes in random order, class by class, each class cut at its own `bounds`."""
    order = stream.permutation(y.size)
    order = order[np.argsort(y[order], kind="stable")]
    order = order[y[order] >= 0]
    sizes = np.bincount(y[order])
    size = sizes[y[order]]
    rank = np.arange(order.size) - (np.cumsum(sizes) - sizes)[y[order]]
    part = np.full(y.size, -1)
    part[order] = sum((rank >= np.round(bound * size)).astype(np.int64) for bound in bounds)
    return part


def labelled_splits(y: Tensor, count: int, fractions: tuple[float, float], stratify: bool = False) -> list[Split]:
    """Random splits of the nodes with a label; others, whose `y` is −1, are in no part."""
    labelled = torch.nonzero(y >= 0).view(-1) if y.dim() == 1 else torch.arange(y.size(0))
    splits = random_splits(labelled.numel(), count, 0, *fractions, stratify=y[labelled] if stratify else None)
    masks = torch.zeros(count, 3, y.size(0), dtype=torch.bool)
    masks[..., labelled] = torch.stack([torch.stack(list(split)) for split in splits])
    return [Split(*split) for split in masks]


def split_masks(parts: NDArray[np.integer]) -> list[Split]:
    """The masks of `[S, N]` numbers: 0, 1 and 2 for training, validation and test nodes, −1 for others."""
    return [Split(*(torch.from_numpy(part == k) for k in range(3))) for part in parts]
