"""Hashes of data and splits, which identify what a result was measured on.

Everything is converted to one form before hashing (64-bit little-endian numbers, features as non-zero values), so that
machine, device, dtype and layout do not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.columns import Array
from gfgn.data.splits import Split
from gfgn.graph import Graph

VALUES = 2**22  # feature values hashed at a time; part of the definition of a fingerprint


def fingerprint_of(graph: Graph, x: Tensor, y: Tensor, num_classes: int, metric: str) -> str:
    """The hash behind `NodeDataset.fingerprint`."""
    facts = {"nodes": graph.num_nodes, "graphs": graph.num_graphs, "features": x.size(1), "classes": num_classes}
    state = hashlib.blake2b("".join(f"{name}={value};" for name, value in facts.items()).encode(), digest_size=16)
    state.update(f"metric={metric};".encode())
    _add(state, "ptr", graph.by_target.ptr)
    _add(state, "idx", graph.by_target.idx)
    if graph.weight is not None:
        _add(state, "weight", graph.weight.double())
    if graph.batch is not None and graph.num_graphs > 1:
        _add(state, "batch", graph.batch)
    _add(state, "y", y)
    if y.dim() == 2:
        state.update(f"labels={y.size(1)};".encode())
    for present, values in _nonzero(x):
        _add(state, "present", present)
        _add(state, "values", values)
    return state.hexdigest()


def fingerprint_of_split(split: Split) -> str:
    """The hash behind `NodeDataset.split_fingerprint`."""
    state = hashlib.blake2b(f"nodes={split.train.numel()};".encode(), digest_size=16)
    for part, mask in split._asdict().items():
        _add(state, part, mask)
    return state.hexdigest()


def _add(state: hashlib.blake2b, name: str, value: Tensor | Array) -> None:
    """Adds an array with its name, type and shape: booleans as bits, other numbers with 64 little-endian bits."""
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype == np.bool_:
        array = np.packbits(array, axis=-1)
    else:
        array = np.ascontiguousarray(array, dtype="<f8" if array.dtype.kind == "f" else "<i8")
    state.update(f"{name}:{array.dtype.str}{array.shape};".encode())
    state.update(array.data)


def _nonzero(x: Tensor) -> Iterator[tuple[Array, Array]]:
    """The mask and the values of the non-zero entries, a block of rows at a time; the same for both layouts."""
    rows = max(1, VALUES // max(1, x.size(1)))
    if x.layout == torch.sparse_csr:
        parts = (x.values().double(), x.col_indices(), x.crow_indices())
        matrix = scipy.sparse.csr_array(
            tuple(part.detach().cpu().numpy() for part in parts), shape=(x.size(0), x.size(1))
        )
    for low in range(0, x.size(0), rows):
        if x.layout == torch.sparse_csr:
            block = matrix[low : low + rows].toarray()
        else:
            block = x[low : low + rows].detach().cpu().double().numpy()
        yield block != 0, block[block != 0]
