"""Labels as users have them: their classes, which nodes have one, and validation nodes drawn from these."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.splits import is_mask
from gfgn.data.streams import Stream
from gfgn.estimator.inputs import to_numpy

Mask = NDArray[np.bool_]


class Labels(NamedTuple):
    """Labels of all nodes.

    Attributes:
        y: `[N]`, int64, the index of the class, −1 if unknown; or `[N, L]`, bool, for several labels per node.
        classes: The classes in sorted order; the numbers of the labels for several labels per node.
        known: `[N]`, bool: which nodes have a label.
    """

    y: Tensor
    classes: NDArray[Any]
    known: Mask


def read_labels(y: Any, num_nodes: int, nodes: NDArray[np.int64] | None = None) -> Labels:
    """Reads the labels of all nodes, or of `nodes` only; −1, NaN and `None` mark a node without a label."""
    from sklearn.utils import column_or_1d

    if y is None:
        raise ValueError("requires y to be passed, but the target y is None; X has no labels of its own either")
    values = np.asarray(to_numpy(y))
    if values.ndim == 2 and values.shape[1] > 1:
        return _multilabel(values, num_nodes, nodes)
    values = column_or_1d(values, warn=True)
    position = np.arange(num_nodes) if nodes is None else nodes
    if values.size != position.size:
        raise ValueError(f"y must have one value per node, {position.size:,}, got {values.size:,}")
    present = ~_is_missing(values)
    if values.dtype.kind == "f" and (np.floor(values[present]) != values[present]).any():
        got = values[present][np.floor(values[present]) != values[present]][0]
        raise ValueError(f"y must hold classes, got the fraction {got}. Unknown label type: continuous")
    classes, codes = np.unique(values[present], return_inverse=True)
    if values.dtype.kind == "f" and classes.size:
        classes = classes.astype(np.int64) if not present.all() else classes  # NaN made floats of integers
    if classes.size < 2:
        got = f"one class ({classes[0]!r})" if classes.size else "no label"
        raise ValueError(f"y must hold at least two classes, got {got}: classifier can't train on one class")
    all_codes = np.full(num_nodes, -1, dtype=np.int64)
    all_codes[position[present]] = codes
    return Labels(torch.from_numpy(all_codes), classes, all_codes >= 0)


def _is_missing(values: NDArray[Any]) -> Mask:
    if values.dtype.kind == "f":
        if np.isinf(values).any():
            raise ValueError("y must hold classes, got infinity")
        return np.asarray(np.isnan(values) | (values == -1))
    if values.dtype.kind == "O":
        return np.array([value is None or value != value or value == -1 for value in values.tolist()], dtype=bool)
    if values.dtype.kind == "i":
        return np.asarray(values == -1)
    if values.dtype.kind == "c":
        raise ValueError("Complex data not supported: y must hold classes")
    return np.zeros(values.shape, dtype=bool)


def _multilabel(values: NDArray[Any], num_nodes: int, nodes: NDArray[np.int64] | None) -> Labels:
    position = np.arange(num_nodes) if nodes is None else nodes
    if len(values) != position.size:
        raise ValueError(f"y must have one row per node, {position.size:,}, got {len(values):,}")
    numbers = values.astype(np.float64)
    present = ~(np.isnan(numbers) | (numbers == -1)).any(1)
    if not np.isin(numbers[present], (0, 1)).all():
        raise ValueError("y must hold 0 and 1 where it has several columns, one per label, got other values")
    known = np.zeros(num_nodes, dtype=bool)
    known[position[present]] = True
    labels = np.zeros((num_nodes, values.shape[1]), dtype=bool)
    labels[position[present]] = numbers[present] == 1
    return Labels(torch.from_numpy(labels), np.arange(values.shape[1]), known)


def draw_validation(labels: Labels, fraction: float, seed: int) -> Mask:
    """Draws validation nodes from the labelled ones, the same fraction of every class, at least one node in all."""
    nodes = np.flatnonzero(labels.known)
    if nodes.size < 2:
        raise ValueError(
            f"y must have at least 2 labelled nodes, to train and to validate on, got n_samples={nodes.size}"
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


def read_validation(mask: Any, labels: Labels) -> Mask:
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
    for name, part in (("labelled nodes inside", chosen), ("labelled nodes outside", labels.known & ~chosen)):
        if not part.any():
            raise ValueError(f"val_mask must leave {name} of it, got none")
    return chosen
