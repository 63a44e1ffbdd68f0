"""Labels as users have them: their classes, which nodes have one, and validation nodes drawn from these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from sklearn.utils import column_or_1d

from gfgn.data.columns import Array
from gfgn.data.splits import is_mask
from gfgn.data.streams import Stream
from gfgn.estimator.inputs import Indices, Labels, Mask, to_numpy

if TYPE_CHECKING:
    from gfgn.estimator.inputs import MaskLike, TargetLike


def read_labels(y: TargetLike, num_nodes: int, nodes: Indices | None = None) -> Labels:
    """Reads the labels of all nodes, or of `nodes` only; −1, NaN, `None` and `pd.NA` mark a node without a label."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None; X has no labels of its own either")
    values, position = as_target(y), np.arange(num_nodes) if nodes is None else nodes
    if len(values) != position.size:
        raise ValueError(f"y must have one value per node, {position.size:,}, got {len(values):,}")
    present = ~is_missing(values)
    known = np.zeros(num_nodes, dtype=bool)
    known[position[present]] = True
    if values.ndim == 2:
        if not np.isin(values[present].astype(np.float64), (0, 1)).all():
            raise ValueError("y must hold 0 and 1 where it has several columns, one per label, got other values")
        labels = np.zeros((num_nodes, values.shape[1]), dtype=bool)
        labels[position[present]] = values[present].astype(np.float64) == 1
        return Labels(torch.from_numpy(labels), np.arange(values.shape[1]), known)
    values = values[present]
    if values.dtype.kind == "f" and (np.floor(values) != values).any():
        got = values[np.floor(values) != values][0]
        raise ValueError(f"y must hold classes, got the fraction {got}. Unknown label type: continuous")
    if values.dtype.kind == "f" and not present.all():
        values = values.astype(np.int64)  # NaN made floats of integers
    if values.dtype.kind == "O":  # because of the missing ones
        kinds = {type(value) for value in values.tolist()}
        values = values.astype(next(iter(kinds)) if kinds in ({bool}, {int}, {str}) else object)
    classes, codes = np.unique(values, return_inverse=True)
    if classes.size < 2:
        got = f"one class ({classes[0]!r})" if classes.size else "no label"
        raise ValueError(f"y must hold at least two classes, got {got}: classifier can't train on one class")
    all_codes = np.full(num_nodes, -1, dtype=np.int64)
    all_codes[position[present]] = codes
    return Labels(torch.from_numpy(all_codes), classes, known)


def as_target(y: TargetLike) -> Array:
    """Labels as an array: `[N]`, or `[N, L]` for several labels per node."""
    values = np.asarray(to_numpy(y))
    if values.ndim == 2 and values.shape[1] > 1:
        return values
    column: Array = column_or_1d(values, warn=True)
    return column


def is_missing(values: Array) -> Mask:
    """Which nodes have no label; of several labels per node, which lack one of them."""
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold classes")
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError("y must hold classes, got infinity")
    missing: Mask = np.array(pd.isna(values))
    missing[~missing] = values[~missing] == -1
    return np.asarray(missing.any(1)) if values.ndim == 2 else missing


def draw_validation(labels: Labels, fraction: float, seed: int) -> Mask:
    """Draws validation nodes from the labeled ones, the same fraction of every class, at least one node in all."""
    nodes = np.flatnonzero(labels.known)
    if nodes.size < 2:
        raise ValueError(
            f"y must have at least 2 labeled nodes, to train and to validate on, got n_samples={nodes.size}"
        )
    order = nodes[Stream(seed, 7).permutation(nodes.size)]
    chosen = np.zeros(labels.known.size, dtype=bool)
    groups = labels.y.numpy()[order] if labels.y.dim() == 1 else np.zeros(order.size, dtype=np.int64)
    for group in np.unique(groups):
        members = order[groups == group]
        chosen[members[: int(fraction * members.size)]] = True
    if not chosen.any():
        sizes = np.bincount(groups, minlength=1)
        chosen[order[groups == sizes.argmax()][0]] = True  # of the largest class, which keeps a training node if it can
    return chosen


def read_validation(mask: MaskLike, labels: Labels) -> Mask:
    """The given validation nodes, as a mask or as indices; those without a label are left out."""
    array = np.asarray(to_numpy(mask))
    size, kind = labels.known.size, array.dtype.kind
    if kind == "b" and array.shape != (size,):
        raise ValueError(f"val_mask must have shape [{size}], one value per node, got {list(array.shape)}")
    if kind not in "biu" or array.ndim != 1:
        got = f"{list(array.shape)} of {array.dtype}"
        raise ValueError(f"val_mask must be [{size}] booleans or indices of nodes, got {got}")
    if is_mask(array, size):
        array = array.astype(bool)
    else:
        indices, counts = np.unique(array, return_counts=True)
        bad = indices[(counts > 1) | (indices < 0) | (indices >= size)]
        if bad.size:
            got = f"{bad[0]}, {counts[indices == bad[0]][0]} times"
            raise ValueError(f"val_mask must be [{size}] booleans or distinct indices, 0 to {size - 1}, got {got}")
        array = np.isin(np.arange(size), array)
    chosen = array & labels.known
    for name, part in (("labeled nodes inside", chosen), ("labeled nodes outside", labels.known & ~chosen)):
        if not part.any():
            raise ValueError(f"val_mask must leave {name} of it, got none")
    return chosen
