"""Hashes of data and of splits, by which results know what they were measured on.

Everything is brought into one form before it is hashed (64-bit numbers in little-endian bytes, features by their
non-zero values), so that neither machine nor device, dtype nor layout shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.splits import Split
from gfgn.graph import Graph

VALUES = 2**22
"""Feature values that are hashed at a time; a part of the definition."""


class _Hash:
    """A hash of named arrays; their names, types and shapes are a part of it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, name: str, value: Tensor | NDArray[Any] | int | str) -> None:
        if isinstance(value, int | str):
            self._hash.update(f"{name}={value};".encode())
            return
        array = _canonical(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
        self._hash.update(f"{name}:{array.dtype.str}{array.shape};".encode())
        self._hash.update(array.data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _canonical(value: NDArray[Any]) -> NDArray[Any]:
    """Booleans as packed bits, integers and floats in 64 bits, little-endian."""
    if value.dtype == np.bool_:
        return np.packbits(value, axis=-1)
    return np.ascontiguousarray(value, dtype="<f8" if value.dtype.kind == "f" else "<i8")


def fingerprint_of(graph: Graph, x: Tensor, y: Tensor, num_classes: int, metric: str) -> str:
    """The hash behind `Dataset.fingerprint`."""
    state = _Hash()
    for name, value in (("nodes", graph.num_nodes), ("graphs", graph.num_graphs), ("features", x.size(1))):
        state.add(name, value)
    state.add("classes", num_classes)
    state.add("metric", metric)
    state.add("ptr", graph.by_target.ptr)
    state.add("idx", graph.by_target.idx)
    if graph.weight is not None:
        state.add("weight", graph.weight.double())
    if graph.batch is not None and graph.num_graphs > 1:
        state.add("batch", graph.batch)
    state.add("y", y)
    if y.dim() == 2:
        state.add("labels", y.size(1))
    for present, values in _nonzero(x):
        state.add("present", present)
        state.add("values", values)
    return state.hexdigest()


def _nonzero(x: Tensor) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Where values are that are not 0, and these in order, some rows at a time; the same for both layouts."""
    rows = max(1, VALUES // max(1, x.size(1)))
    for low in range(0, x.size(0), rows):
        yield (_sparse_rows if x.layout == torch.sparse_csr else _dense_rows)(x, low, min(low + rows, x.size(0)))


def _dense_rows(x: Tensor, low: int, high: int) -> tuple[NDArray[Any], NDArray[Any]]:
    block = x[low:high].detach().cpu().double().numpy()
    present = block != 0
    return present, block[present]


def _sparse_rows(x: Tensor, low: int, high: int) -> tuple[NDArray[Any], NDArray[Any]]:
    pointers = x.crow_indices()[low : high + 1].cpu().numpy()
    stored = slice(int(pointers[0]), int(pointers[-1]))
    column, value = x.col_indices()[stored].cpu().numpy(), x.values()[stored].detach().cpu().double().numpy()
    place = np.repeat(np.arange(high - low), np.diff(pointers)) * x.size(1) + column
    place, value = place[value != 0], value[value != 0]
    if (place[1:] < place[:-1]).any():  # columns of a row may be stored in any order
        order = np.argsort(place)
        place, value = place[order], value[order]
    present = np.zeros((high - low, x.size(1)), dtype=bool)
    present.reshape(-1)[place] = True
    return present, value


def fingerprint_of_split(split: Split) -> str:
    """The hash behind `Dataset.split_fingerprint`."""
    state = _Hash()
    state.add("nodes", split.train.numel())
    for part, mask in split._asdict().items():
        state.add(part, mask)
    return state.hexdigest()
