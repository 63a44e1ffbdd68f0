"""Hashes of data and splits, which identify what a result was measured on.

Everything is converted to one form before hashing (64-bit little-endian numbers, features as non-zero values), so that
machine, device, dtype and layout do not matter.
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
"""Feature values hashed at a time; part of the definition of a fingerprint."""


class _Hash:
    """A hash of named arrays that includes their names, types and shapes."""

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
    """Booleans as packed bits; integers and floats as 64-bit little-endian numbers."""
    if value.dtype == np.bool_:
        return np.packbits(value, axis=-1)
    return np.ascontiguousarray(value, dtype="<f8" if value.dtype.kind == "f" else "<i8")


def fingerprint_of(graph: Graph, x: Tensor, y: Tensor, num_classes: int, metric: str) -> str:
    """The hash behind `Dataset.fingerprint`."""
    state = _Hash()
    state.add("nodes", graph.num_nodes)
    state.add("graphs", graph.num_graphs)
    state.add("features", x.size(1))
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


def fingerprint_of_split(split: Split) -> str:
    """The hash behind `Dataset.split_fingerprint`."""
    state = _Hash()
    state.add("nodes", split.train.numel())
    for part, mask in split._asdict().items():
        state.add(part, mask)
    return state.hexdigest()


def _nonzero(x: Tensor) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The mask and the values of the non-zero entries, a block of rows at a time; the same for both layouts."""
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
    position = np.repeat(np.arange(high - low), np.diff(pointers)) * x.size(1) + column
    position, value = position[value != 0], value[value != 0]
    if (position[1:] < position[:-1]).any():  # the columns of a row may be stored in any order
        order = np.argsort(position)
        position, value = position[order], value[order]
    present = np.zeros((high - low, x.size(1)), dtype=bool)
    present.reshape(-1)[position] = True
    return present, value
