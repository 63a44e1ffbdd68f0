"""Graphs in arrays: a NumPy `.npz` file in one of three public layouts, or a PyG `Data`. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.columns import Column, Matrix, recognize, unlike_array
from gfgn.data.io.assemble import Array, Contents, Edges, Options, bad_weight, check_model, to_float32
from gfgn.data.limits import MAX_FEATURES, check_count
from gfgn.data.messages import DataError, listed
from gfgn.data.npz import open_npz
from gfgn.data.splits import Split
from gfgn.graph import MAX_NODES

if TYPE_CHECKING:
    from torch_geometric.data import Data

MASKS = ("train_mask", "val_mask", "test_mask")
CSR = ("data", "indices", "indptr", "shape")
TEXTS = ("class_names", "node_names", "attr_names")  # used if they are strings

# Names of arrays in a layout, and here. `x_*` and `adj_*` are CSR matrices, `edges` is `[E, 2]`, `*_masks` `[S, N]`.
PYG = {name: name for name in ("edge_index", "x", "y", "edge_weight", *MASKS, *(f"x_{part}" for part in CSR))}
HETEROPHILOUS = {"node_features": "x", "node_labels": "y", "edges": "edges"}
HETEROPHILOUS |= {mask: mask for mask in MASKS} | {f"{mask}s": f"{mask}s" for mask in MASKS}
ATTRIBUTED = {"labels": "y", "attr_matrix": "x"} | {mask: mask for mask in MASKS}
for _name, _here in (("adj_matrix.", "adj"), ("attr_matrix.", "x"), ("adj_", "adj"), ("attr_", "x")):
    ATTRIBUTED |= {f"{_name}{part}": f"{_here}_{part}" for part in CSR}
LAYOUTS = (  # each with the arrays that identify it
    (("edge_index", "x", "x_data"), PYG),
    (("node_features", "node_labels"), HETEROPHILOUS),
    (("adj_data", "adj_matrix.data", "attr_data", "attr_matrix.data", "attr_matrix"), ATTRIBUTED),
)
EXPECTED = (
    "edge_index and x; node_features, node_labels and edges; or adj_data, adj_indices, adj_indptr and adj_shape (or "
    "adj_matrix.data, …) with attr_data, … and labels"
)


class Arrays(dict[str, Array]):
    """The arrays of a graph; messages say `label` for their source and use their names in the file."""

    def __init__(self, label: str, layout: Mapping[str, str]) -> None:
        super().__init__()
        self.label = label
        self.given = {here: name for name, here in layout.items()}

    def called(self, name: str) -> str:
        return self.given.get(name, name)

    def error(self, name: str, problem: str) -> DataError:
        return DataError(f"{self.label}: {self.called(name)} {problem}")

    def required(self, name: str) -> Array:
        if name not in self:
            found = listed([self.called(key) for key in self], 12) or "nothing"
            raise DataError(f"{self.label} has no {self.called(name)}, only {found}")
        return self[name]

    def expect(self, ok: bool, name: str, expected: str) -> None:
        if not ok:
            array = self[name]
            raise self.error(name, f"has shape {list(array.shape)} of {array.dtype}, expected {expected}")

    def column(self, name: str, size: int, kinds: str, expected: str) -> Array:
        """An array of shape `[size]` or `[size, 1]` as one of shape `[size]`."""
        array = self[name]
        ok = array.shape in ((size,), (size, 1)) and array.dtype.kind in kinds
        self.expect(ok, name, f"{expected} of shape [{size}]")
        return array.reshape(size)


def read_npz(path: Path, options: Options) -> Contents:
    """Reads a `.npz` file."""
    label = path.name
    with open_npz(path) as file:
        names = file.names
        layout = next((layout for keys, layout in LAYOUTS if not set(keys).isdisjoint(names)), None)
        if layout is None:
            found = [f"{name} ({file.header(name) or 'not an array'})" for name in names]
            raise DataError(f"{label} has an unknown layout: {listed(found, 20) or 'nothing'}; expected {EXPECTED}")
        arrays = Arrays(label, layout)
        for name in (name for name in names if name in layout):
            if layout[name] in arrays:
                raise DataError(f"{label} has both {arrays.called(layout[name])} and {name}, expected one of them")
            arrays[layout[name]] = file[name]
            arrays.given[layout[name]] = name
        headers = {name: header for name in TEXTS if name in names and (header := file.header(name))}
        texts = {
            name: file[name] for name, header in headers.items() if header.dtype.kind == "U" and len(header.shape) == 1
        }
    _translate(arrays)
    contents = _contents(arrays, options, texts)
    ignored = [name for name in names if name not in layout and name not in texts]
    if ignored:
        contents.notes.append(f"{label}: unknown arrays ignored: {listed(ignored)}")
    return contents


def _translate(arrays: Arrays) -> None:
    """Turns edges in rows and an adjacency matrix into `edge_index`, and masks of `[S, N]` into `[N, S]`."""
    for name in MASKS:
        if f"{name}s" in arrays:
            arrays[name] = arrays.pop(f"{name}s").T
            arrays.given[name] = f"{name}s"
    if "edges" in arrays:
        ok = arrays["edges"].ndim == 2 and arrays["edges"].shape[1] == 2
        arrays.expect(ok, "edges", "integers of shape [E, 2]")
        arrays["edge_index"] = arrays.pop("edges").T
    arrays.given.setdefault("edge_index", arrays.called("edges" if "edges" in arrays.given else "adj_data"))
    if any(name.startswith("adj_") for name in arrays):
        matrix = _csr("adj", arrays)
        rows, columns = matrix.shape
        if rows != columns:
            raise arrays.error("adj_shape", f"is {rows}, {columns}, expected as many rows as columns")
        matrix.eliminate_zeros()
        arrays["edge_index"] = np.stack(matrix.tocoo().coords).astype(np.int64)
        if (matrix.data != 1).any():
            arrays["edge_weight"] = matrix.data
            arrays.given["edge_weight"] = arrays.called("adj_data")


def read_data(data: Data, options: Options) -> Contents:
    """Reads a PyG `Data`."""
    arrays = Arrays("Data", {})
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
            arrays |= {f"x_{key}": part.numpy() for key, part in zip(CSR, parts, strict=True)}
        else:
            arrays[name] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return _contents(arrays, options, {})


def _contents(arrays: Arrays, options: Options, texts: Mapping[str, Array]) -> Contents:
    raw = _features(arrays)
    size, width = raw.shape
    if size == 0 or width == 0:
        raise arrays.error("x", f"has shape {[size, width]}, expected one node and one feature or more")
    check_count(arrays.label, "features", width, MAX_FEATURES)
    names = texts.get("attr_names", np.empty(0)).tolist()
    if not len(names) == len(set(names)) == width:
        names = [f"x{k}" for k in range(width)]
    ids = texts.get("node_names", np.empty(0))
    labels, class_names = _labels(arrays, size) if "y" in arrays else (None, [])
    words = texts.get("class_names", np.empty(0)).tolist()
    named = 0 < len(words) == len(set(words)) and all(
        name.isdecimal() and int(name) < len(words) for name in class_names
    )
    contents = Contents(
        origin=arrays.label,
        raw=raw,
        columns=recognize(raw, [Column(name) for name in names]),
        labels=labels,
        class_names=[words[int(name)] for name in class_names] if named else class_names,
        splits=_splits(arrays, size),
        node_ids=ids if ids.shape == (size,) and np.unique(ids).size == size else np.arange(size),
        label=arrays.called("y"),
        sort_classes=not named,
        differences=[] if options.encoder is None else unlike_array(options.encoder.columns, width),
    )
    check_model(contents, options)
    contents.edges = _edges(arrays, size)
    return contents


def _features(arrays: Arrays) -> Matrix:
    """The raw features; NaN is a missing value in dense features."""
    sparse = [name for name in arrays if name.startswith("x_")]
    if sparse and "x" in arrays:
        both = f"{arrays.called('x')} and {arrays.called(sparse[0])}"
        raise DataError(f"{arrays.label} has both {both}, expected either dense or sparse features")
    if sparse:
        matrix = _csr("x", arrays)
        bad = np.flatnonzero(~np.isfinite(matrix.data))
        if bad.size:
            raise arrays.error("x_data", f"holds {matrix.data[bad[0]]}, expected finite numbers")
        return matrix
    x = arrays.required("x")
    arrays.expect(x.ndim == 2 and x.dtype.kind in "fiub", "x", "numbers of shape [N, F]")
    values = to_float32(x)
    for row, column in np.argwhere(np.isinf(values))[:1]:
        got = f"holds {x[row, column]} at row {row}, column {column}"
        raise arrays.error("x", f"{got}, expected a finite number, or NaN if it is missing")
    return np.ascontiguousarray(values)


def _csr(prefix: str, arrays: Arrays) -> scipy.sparse.csr_array:
    """The CSR matrix in the arrays `prefix_data`, `prefix_indices`, `prefix_indptr` and `prefix_shape`."""
    names = [f"{prefix}_{part}" for part in CSR]
    data, indices, indptr, shape = map(arrays.required, names)
    for name in names:
        kinds, expected = ("fiub", "numbers") if name == names[0] else ("iu", "integers")
        ok = arrays[name].ndim == 1 and arrays[name].dtype.kind in kinds
        arrays.expect(ok, name, f"{expected} in one dimension")
    if shape.size != 2 or (shape < 0).any() or (shape > MAX_NODES).any():
        raise arrays.error(names[3], f"is {listed(shape.tolist())}, expected the numbers of rows and columns")
    rows, columns = map(int, shape)
    if indptr.size != rows + 1 or indptr[0] != 0 or indptr[-1] != data.size or (indptr[1:] < indptr[:-1]).any():
        raise arrays.error(names[2], f"must be {rows + 1} non-decreasing offsets from 0 to {data.size}")
    if indices.size != data.size:
        expected = f"expected {data.size} as in {arrays.called(names[0])}"
        raise arrays.error(names[1], f"has {indices.size} entries, {expected}")
    bad = np.flatnonzero((indices < 0) | (indices >= columns))
    if bad.size:
        raise arrays.error(names[1], f"holds {indices[bad[0]]} at {bad[0]}, expected 0 to {columns - 1}")
    parts = (to_float32(data), indices.astype(np.int64), indptr.astype(np.int64))
    matrix = scipy.sparse.csr_array(parts, shape=(rows, columns))
    matrix.sum_duplicates()
    return matrix


def _edges(arrays: Arrays, size: int) -> Edges:
    index = arrays.required("edge_index")
    ok = index.ndim == 2 and index.shape[0] == 2 and index.dtype.kind in "iu"
    arrays.expect(ok, "edge_index", "integers of shape [2, E]")
    if index.shape[1] == 0:
        raise arrays.error("edge_index", "holds no edge, expected one or more")
    if index.min() < 0 or index.max() >= size:
        edge = int(np.flatnonzero(((index < 0) | (index >= size)).any(0))[0])
        pair = " to ".join(map(str, index[:, edge].tolist()))
        raise arrays.error("edge_index", f"joins {pair} in edge {edge}, expected nodes 0 to {size - 1}")
    source, target = index.astype(np.int32)
    if "edge_weight" not in arrays:
        return Edges(source, target)
    weight = arrays.column("edge_weight", source.size, "fiub", "numbers")
    values = to_float32(weight)
    bad = bad_weight(values)
    if bad is not None:
        raise arrays.error("edge_weight", f"holds {weight[bad]} at edge {bad}, expected a finite number, 0 or larger")
    return Edges(source, target, values)


def _labels(arrays: Arrays, size: int) -> tuple[NDArray[np.int64], list[str]]:
    """The indices of the classes, −1 for −1 or NaN, and the classes as text."""
    values = arrays.column("y", size, "fiub", "integers")
    kind = values.dtype.kind
    if kind == "b":
        values = values.astype(np.int64)
    elif kind == "f":
        if np.isinf(values).any():
            raise arrays.error("y", "holds infinity, expected classes from 0, or -1 or NaN for none")
        values = np.where(np.isnan(values), -1, values)
    bad = np.flatnonzero(values < -1) if kind in "fi" else np.empty(0)
    if bad.size:
        raise arrays.error("y", f"holds {values[bad[0]]} at node {bad[0]}, expected classes from 0, or -1 for none")
    classes, codes = np.unique(values, return_inverse=True)
    missing = int(kind in "fi" and classes.size > 0 and classes[0] == -1)
    return codes.astype(np.int64) - missing, [str(name).removesuffix(".0") for name in classes[missing:].tolist()]


def _splits(arrays: Arrays, size: int) -> list[Split] | None:
    if not any(name in arrays for name in MASKS):
        return None
    masks = [_mask(arrays, name, size) for name in MASKS]
    count = max(mask.shape[1] for mask in masks)
    for name, mask in zip(MASKS, masks, strict=True):
        if mask.shape[1] not in (1, count):
            raise arrays.error(name, f"has {mask.shape[1]} splits, expected {count} as in the other masks")
    parts = np.stack(np.broadcast_arrays(*masks)).transpose(2, 0, 1)  # splits, parts, nodes
    for k, node in np.argwhere(parts.sum(1) > 1)[:1]:
        names = " and ".join(arrays.called(MASKS[part]) for part in np.flatnonzero(parts[k, :, node]))
        raise DataError(f"{arrays.label}: {names} overlap at node {node} in split {k}, expected disjoint masks")
    return [Split(*torch.from_numpy(split.copy())) for split in parts]


def _mask(arrays: Arrays, name: str, size: int) -> NDArray[np.bool_]:
    """The mask as `[N, S]` booleans."""
    mask = arrays.required(name)
    wide = mask[:, None] if mask.ndim == 1 else mask
    ok = wide.ndim == 2 and wide.shape[0] == size and wide.shape[1] > 0 and mask.dtype.kind in "biu"
    arrays.expect(ok, name, f"booleans of shape [{size}] or [{size}, S]")
    if mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all():
        raise arrays.error(name, "holds numbers other than 0 and 1, expected booleans")
    return wide.astype(bool)
