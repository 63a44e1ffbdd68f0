"""Graphs in arrays: a NumPy `.npz` file in one of three public layouts, or a PyG `Data`. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gfgn.data.columns import Array, Matrix, array_features, finite_or_missing, sparse_tensor
from gfgn.data.messages import DataError, listed, reading
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.tables import bad_weight, to_float32

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


class GraphArrays(dict[str, Array]):
    """The arrays of a graph; messages say `label` for their source and use their names in the file."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label
        self.given: dict[str, str] = {}

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


def read_npz(path: Path, options: ReadOptions) -> RawGraph:
    """Reads a `.npz` file."""
    label = path.name
    with reading(label, "a .npz file"):
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise DataError(f"{label} is a single array, expected a .npz of named arrays")
    with file:
        names = list(file.files)
        layout = next((layout for keys, layout in LAYOUTS if not set(keys).isdisjoint(names)), None)
        if layout is None:
            raise DataError(f"{label} has an unknown layout: {listed(names, 20) or 'nothing'}; expected {EXPECTED}")
        arrays = GraphArrays(label)
        arrays.given = {here: name for name, here in layout.items()}
        for name in (name for name in names if name in layout):
            if layout[name] in arrays:
                raise DataError(f"{label} has both {arrays.called(layout[name])} and {name}, expected one of them")
            arrays[layout[name]] = _load(file, name, label)
            arrays.given[layout[name]] = name
        texts = {}
        for name in TEXTS:
            if name in names:
                try:
                    texts[name] = _load(file, name, label)
                except DataError:  # Python objects; they are only names
                    continue
    _translate(arrays)
    texts = {name: text for name, text in texts.items() if text.dtype.kind == "U" and text.ndim == 1}
    graph = _graph(arrays, options, texts)
    ignored = [name for name in names if name not in layout and name not in texts]
    if ignored:
        graph.notes.append(f"{label}: unknown arrays ignored: {listed(ignored)}")
    return graph


def _load(file: Mapping[str, Array], name: str, label: str) -> Array:
    with reading(f"{label}: {name}", "an array of numbers, and Python objects are never unpickled"):
        return np.asarray(file[name])


def _translate(arrays: GraphArrays) -> None:
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


def read_data(data: Data, options: ReadOptions) -> RawGraph:
    """Reads a PyG `Data`."""
    import torch

    arrays = GraphArrays("Data")
    for name in ("edge_index", "x", "y", "edge_weight", *MASKS):
        value = data.get(name)
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            raise DataError(f"Data: {name} is of type {type(value).__name__}, expected a Tensor")
        value = value.detach().cpu()
        if name == "x" and value.layout != torch.strided:
            if value.dim() != 2:
                raise DataError(f"Data: x has shape {list(value.shape)}, expected [N, F]")
            x = sparse_tensor(value)
            arrays |= {f"x_{part}": np.asarray(getattr(x, part)) for part in CSR}
        else:
            arrays[name] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return _graph(arrays, options, {})


def _graph(arrays: GraphArrays, options: ReadOptions, texts: Mapping[str, Array]) -> RawGraph:
    values = _features(arrays)
    size, width = values.shape
    if size == 0 or width == 0:
        raise arrays.error("x", f"has shape {[size, width]}, expected one node and one feature or more")
    names = texts.get("attr_names", np.empty(0)).tolist()
    if not len(names) == len(set(names)) == width:
        names = [f"x{k}" for k in range(width)]
    ids = texts.get("node_names", np.empty(0))
    labels, classes = _labels(arrays, size) if "y" in arrays else (None, [])
    words = texts.get("class_names", np.empty(0)).tolist()
    named = 0 < len(words) == len(set(words)) and all(name.isdecimal() and int(name) < len(words) for name in classes)
    classes = [words[int(name)] for name in classes] if named else classes
    label = arrays.called("y")
    expected = None if options.encoder is None else options.encoder.columns
    raw = array_features(values, names, expected, arrays.label, options.unknown_classes(classes, label))
    parts = _parts(arrays, size)
    notes: list[str] = []
    edges, weight = _edges(arrays, size, notes)
    return RawGraph(
        origin=arrays.label,
        edge_origin=arrays.label,
        label=label,
        raw=raw,
        edges=edges,
        weight=weight,
        labels=labels,
        class_names=classes,
        parts=parts,
        node_ids=ids if ids.shape == (size,) and np.unique(ids).size == size else np.arange(size),
        sort_classes=not named,
        notes=notes,
    )


def _features(arrays: GraphArrays) -> Matrix:
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
    return finite_or_missing(x, f"{arrays.label}: {arrays.called('x')}")


def _csr(prefix: str, arrays: GraphArrays) -> scipy.sparse.csr_array:
    """The CSR matrix in the arrays `prefix_data`, `prefix_indices`, `prefix_indptr` and `prefix_shape`."""
    names = [f"{prefix}_{part}" for part in CSR]
    data, indices, indptr, shape = map(arrays.required, names)
    for name in names:
        kinds, expected = ("fiub", "numbers") if name == names[0] else ("iu", "integers")
        ok = arrays[name].ndim == 1 and arrays[name].dtype.kind in kinds
        arrays.expect(ok, name, f"{expected} in one dimension")
    if shape.size != 2:
        raise arrays.error(names[3], f"is {listed(shape.tolist())}, expected the numbers of rows and columns")
    try:
        parts: tuple[Array, Array, Array] = (to_float32(data), indices.astype(np.int64), indptr.astype(np.int64))
        matrix = scipy.sparse.csr_array(parts, shape=(int(shape[0]), int(shape[1])))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise arrays.error(names[0], f"and its indices are no CSR matrix: {error}") from None
    matrix.sum_duplicates()
    return matrix


def _edges(arrays: GraphArrays, size: int, notes: list[str]) -> tuple[NDArray[np.integer], NDArray[np.float32] | None]:
    index = arrays.required("edge_index")
    ok = index.ndim == 2 and index.shape[0] == 2 and index.dtype.kind in "iu"
    arrays.expect(ok or (index.size == 0 and index.shape[0] == 2), "edge_index", "integers of shape [2, E]")
    if index.size == 0:
        notes.append(f"{arrays.called('edge_index')} holds no edge: a graph without edges")
    elif index.min() < 0 or index.max() >= size:
        edge = int(np.flatnonzero(((index < 0) | (index >= size)).any(0))[0])
        pair = " to ".join(map(str, index[:, edge].tolist()))
        raise arrays.error("edge_index", f"joins {pair} in edge {edge}, expected nodes 0 to {size - 1}")
    edges = index.astype(np.int32)
    if "edge_weight" not in arrays:
        return edges, None
    weight = arrays.column("edge_weight", index.shape[1], "fiub", "numbers")
    values = to_float32(weight)
    bad = bad_weight(values)
    if bad is not None:
        raise arrays.error("edge_weight", f"holds {weight[bad]} at edge {bad}, expected a finite number, 0 or larger")
    return edges, values


def _labels(arrays: GraphArrays, size: int) -> tuple[NDArray[np.int64], list[str]]:
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


def _parts(arrays: GraphArrays, size: int) -> NDArray[np.int64] | None:
    """`[S, N]`: 0, 1 and 2 for training, validation and test nodes, −1 for others."""
    if not any(name in arrays for name in MASKS):
        return None
    masks = [_mask(arrays, name, size) for name in MASKS]
    count = max(mask.shape[1] for mask in masks)
    for name, mask in zip(MASKS, masks, strict=True):
        if mask.shape[1] not in (1, count):
            raise arrays.error(name, f"has {mask.shape[1]} splits, expected {count} as in the other masks")
    stacked = np.stack(np.broadcast_arrays(*masks)).transpose(2, 0, 1)  # splits, parts, nodes
    for k, node in np.argwhere(stacked.sum(1) > 1)[:1]:
        names = " and ".join(arrays.called(MASKS[part]) for part in np.flatnonzero(stacked[k, :, node]))
        raise DataError(f"{arrays.label}: {names} overlap at node {node} in split {k}, expected disjoint masks")
    return np.where(stacked.any(1), stacked.argmax(1), -1)


def _mask(arrays: GraphArrays, name: str, size: int) -> NDArray[np.bool_]:
    """The mask as `[N, S]` booleans."""
    mask = arrays.required(name)
    wide = mask[:, None] if mask.ndim == 1 else mask
    ok = wide.ndim == 2 and wide.shape[0] == size and wide.shape[1] > 0 and mask.dtype.kind in "biu"
    arrays.expect(ok, name, f"booleans of shape [{size}] or [{size}, S]")
    if mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all():
        raise arrays.error(name, "holds numbers other than 0 and 1, expected booleans")
    return wide.astype(bool)
