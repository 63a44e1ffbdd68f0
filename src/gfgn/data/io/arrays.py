"""Graphs in arrays: a NumPy `.npz` file or a PyG `Data`. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.io.assemble import Array, Contents, Edges, bad_weight, reading, to_float32
from gfgn.data.messages import DataError, listed, reason
from gfgn.data.splits import Split
from gfgn.graph import MAX_NODES
from gfgn.ops.features import sparse_csr

if TYPE_CHECKING:
    from torch_geometric.data import Data

MASKS = ("train_mask", "val_mask", "test_mask")
CSR = ("x_data", "x_indices", "x_indptr", "x_shape")
KNOWN = ("edge_index", "x", *CSR, "y", "edge_weight", *MASKS)


def read_npz(path: Path) -> Contents:
    """Reads a `.npz` file."""
    label = path.name
    # NumPy does not close a file that it opens itself if the file is damaged.
    with reading(label, "a .npz file"), path.open("rb") as handle:
        file = np.load(handle, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{label} is a single array, expected a .npz of named arrays")
        names = list(file.files)
        arrays = {name: _load(file, name, label) for name in KNOWN if name in names}
    contents = _contents(arrays, label)
    ignored = [name for name in names if name not in KNOWN]
    if ignored:
        contents.notes.append(f"{label}: unknown arrays ignored: {listed(ignored)}")
    return contents


def _load(file: Mapping[str, Array], name: str, label: str) -> Array:
    try:
        array = file[name]
    except Exception as error:
        if "allow_pickle" in str(error):
            message = f"{label}: {name} is an array of Python objects, which are never unpickled, expected numbers"
            raise DataError(message) from error
        raise DataError(f"{label}: {name} is damaged ({reason(error)}), expected a NumPy array") from error
    if not isinstance(array, np.ndarray):  # a member in another format is returned as bytes
        raise DataError(f"{label}: {name} is not in NumPy's format, expected a NumPy array")
    return array


def read_data(data: Data) -> Contents:
    """Reads a PyG `Data`."""
    arrays: dict[str, Array] = {}
    for name in ("edge_index", "x", "y", "edge_weight", *MASKS):
        value = data.get(name)
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise DataError(f"Data: {name} is of type {type(value).__name__}, expected a Tensor")
        value = value.detach().cpu()
        if name == "x" and value.layout != torch.strided:
            if value.dim() != 2:
                raise DataError(f"Data: x has shape {list(value.shape)}, expected [N, F]")
            x = value.to_sparse_csr()
            parts = (x.values().float(), x.col_indices(), x.crow_indices(), torch.tensor(x.shape))
            arrays |= {key: part.numpy() for key, part in zip(CSR, parts, strict=True)}
        else:
            arrays[name] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return _contents(arrays, "Data")


def _contents(arrays: Mapping[str, Array], label: str) -> Contents:
    x = _features(arrays, label)
    size = x.size(0)
    if size == 0 or x.size(1) == 0:
        raise DataError(f"{label}: x has shape {list(x.shape)}, expected one node and one feature or more")
    edges = _edges(arrays, label, size)
    labels, class_names = _labels(arrays["y"], label, size) if "y" in arrays else (None, [])
    kind = "numeric, sparse" if x.layout == torch.sparse_csr else "numeric"
    return Contents(
        origin=label,
        edges=edges,
        x=x,
        feature_names=[f"x{k}" for k in range(x.size(1))],
        kinds={kind: x.size(1)},
        labels=labels,
        class_names=class_names,
        splits=_splits(arrays, label, size),
        node_ids=np.arange(size),
    )


def _expect(ok: bool, array: Array, name: str, label: str, expected: str) -> None:
    if not ok:
        raise DataError(f"{label}: {name} has shape {list(array.shape)} of {array.dtype}, expected {expected}")


def _required(arrays: Mapping[str, Array], name: str, label: str) -> Array:
    if name not in arrays:
        raise DataError(f"{label} has no {name}, only {listed(list(arrays), 12) or 'nothing'}")
    return arrays[name]


def _features(arrays: Mapping[str, Array], label: str) -> Tensor:
    sparse = [name for name in CSR if name in arrays]
    if sparse and "x" in arrays:
        raise DataError(f"{label} has both x and {sparse[0]}, expected either dense or sparse features")
    if sparse:
        return _sparse_features(arrays, label)
    x = _required(arrays, "x", label)
    _expect(x.ndim == 2 and x.dtype.kind in "fiub", x, "x", label, "numbers of shape [N, F]")
    values = to_float32(x)
    for row, column in np.argwhere(~np.isfinite(values))[:1]:
        raise DataError(f"{label}: x holds {x[row, column]} at row {row}, column {column}, expected a finite number")
    return torch.from_numpy(np.ascontiguousarray(values))


def _sparse_features(arrays: Mapping[str, Array], label: str) -> Tensor:
    data, indices, indptr, shape = (_required(arrays, name, label) for name in CSR)
    for name, array in zip(CSR, (data, indices, indptr, shape), strict=True):
        kinds, expected = ("fiub", "numbers") if name == "x_data" else ("iu", "integers")
        _expect(array.ndim == 1 and array.dtype.kind in kinds, array, name, label, f"{expected} in one dimension")
    if shape.size != 2 or (shape < 0).any() or (shape > MAX_NODES).any():
        raise DataError(f"{label}: x_shape is {listed(shape.tolist())}, expected the numbers of nodes and features")
    rows, columns = map(int, shape)
    if indptr.size != rows + 1 or indptr[0] != 0 or indptr[-1] != data.size or (indptr[1:] < indptr[:-1]).any():
        raise DataError(f"{label}: x_indptr must be {rows + 1} non-decreasing offsets from 0 to {data.size}")
    if indices.size != data.size:
        raise DataError(f"{label}: x_indices has {indices.size} entries, expected {data.size} as in x_data")
    bad = np.flatnonzero((indices < 0) | (indices >= columns))
    if bad.size:
        raise DataError(f"{label}: x_indices holds {indices[bad[0]]} at {bad[0]}, expected 0 to {columns - 1}")
    parts = (to_float32(data), indices.astype(np.int64), indptr.astype(np.int64))
    matrix = scipy.sparse.csr_array(parts, shape=(rows, columns))
    matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        raise DataError(f"{label}: x_data holds {matrix.data[bad[0]]}, expected finite numbers")
    crow, col = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return sparse_csr(crow, col, torch.from_numpy(matrix.data), torch.Size([rows, columns]))


def _edges(arrays: Mapping[str, Array], label: str, size: int) -> Edges:
    index = _required(arrays, "edge_index", label)
    ok = index.ndim == 2 and index.shape[0] == 2 and index.dtype.kind in "iu"
    _expect(ok, index, "edge_index", label, "integers of shape [2, E]")
    if index.shape[1] == 0:
        raise DataError(f"{label}: edge_index holds no edge, expected one or more")
    if index.min() < 0 or index.max() >= size:
        edge = int(np.flatnonzero(((index < 0) | (index >= size)).any(0))[0])
        pair = " to ".join(map(str, index[:, edge].tolist()))
        raise DataError(f"{label}: edge_index column {edge} joins {pair}, expected nodes 0 to {size - 1}")
    source, target = index.astype(np.int32)
    if "edge_weight" not in arrays:
        return Edges(source, target)
    weight = _column(arrays["edge_weight"], "edge_weight", label, source.size, "fiub", "numbers")
    values = to_float32(weight)
    bad = bad_weight(values)
    if bad is not None:
        raise DataError(
            f"{label}: edge_weight holds {weight[bad]} at edge {bad}, expected a finite number, 0 or larger"
        )
    return Edges(source, target, values)


def _column(array: Array, name: str, label: str, size: int, kinds: str, expected: str) -> Array:
    """An array of shape `[size]` or `[size, 1]` as one of shape `[size]`."""
    ok = array.shape in ((size,), (size, 1)) and array.dtype.kind in kinds
    _expect(ok, array, name, label, f"{expected} of shape [{size}]")
    return array.reshape(size)


def _labels(y: Array, label: str, size: int) -> tuple[NDArray[np.int64], list[str]]:
    values = _column(y, "y", label, size, "iub", "integers")
    bad = np.flatnonzero(values < -1) if y.dtype.kind == "i" else np.empty(0)
    if bad.size:
        raise DataError(f"{label}: y holds {values[bad[0]]} at node {bad[0]}, expected classes from 0, or -1 for none")
    if y.dtype.kind == "b":
        values = values.astype(np.int64)
    classes, codes = np.unique(values, return_inverse=True)
    missing = int(y.dtype.kind == "i" and classes.size > 0 and classes[0] == -1)
    return codes.astype(np.int64) - missing, [str(name) for name in classes[missing:].tolist()]


def _splits(arrays: Mapping[str, Array], label: str, size: int) -> list[Split] | None:
    if not any(name in arrays for name in MASKS):
        return None
    masks = [_mask(_required(arrays, name, label), name, label, size) for name in MASKS]
    count = max(mask.shape[1] for mask in masks)
    for name, mask in zip(MASKS, masks, strict=True):
        if mask.shape[1] not in (1, count):
            raise DataError(f"{label}: {name} has {mask.shape[1]} splits, expected {count} as in the other masks")
    parts = np.stack(np.broadcast_arrays(*masks)).transpose(2, 0, 1)  # splits, parts, nodes
    for k, node in np.argwhere(parts.sum(1) > 1)[:1]:
        names = " and ".join(np.array(MASKS)[parts[k, :, node]])
        raise DataError(f"{label}: {names} overlap at node {node} in split {k}, expected disjoint masks")
    return [Split(*torch.from_numpy(split.copy())) for split in parts]


def _mask(mask: Array, name: str, label: str, size: int) -> NDArray[np.bool_]:
    """The mask as `[N, S]` booleans."""
    wide = mask[:, None] if mask.ndim == 1 else mask
    ok = wide.ndim == 2 and wide.shape[0] == size and wide.shape[1] > 0 and mask.dtype.kind in "biu"
    _expect(ok, mask, name, label, f"booleans of shape [{size}] or [{size}, S]")
    if mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all():
        raise DataError(f"{label}: {name} holds numbers other than 0 and 1, expected booleans")
    return wide.astype(bool)
