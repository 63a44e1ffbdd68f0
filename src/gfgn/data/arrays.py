"""Graphs in arrays: a NumPy `.npz` file in one of three public layouts, or a PyG `Data`. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from gfgn.data.columns import Array, Matrix, named_columns, read_matrix, to_float32
from gfgn.data.messages import DataError, listed, reading
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.tables import bad_weight, label_codes

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
            raise self.error(name, f"has shape {list(self[name].shape)} of {self[name].dtype}, expected {expected}")

    def column(self, name: str, size: int, expected: str) -> Array:
        """Numbers of shape `[size]` or `[size, 1]` as an array of shape `[size]`."""
        array = self[name]
        ok = array.shape in ((size,), (size, 1)) and array.dtype.kind in "fiub"
        self.expect(ok, name, f"{expected} of shape [{size}]")
        return array.reshape(size)


def read_npz(path: Path, options: ReadOptions) -> RawGraph:
    """Reads a `.npz` file."""
    label = path.name
    with reading(label, "a .npz file"):
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise DataError(f"{label} is a single array, expected a .npz of named arrays")
    arrays, texts = GraphArrays(label), {}
    with file:
        names = list(file.files)
        layout = next((layout for keys, layout in LAYOUTS if not set(keys).isdisjoint(names)), None)
        if layout is None:
            raise DataError(f"{label} has an unknown layout: {listed(names, 20) or 'nothing'}; expected {EXPECTED}")
        arrays.given = {here: name for name, here in layout.items()}
        for name in (name for name in names if name in layout or name in TEXTS):
            try:
                with reading(f"{label}: {name}", "an array of numbers, and Python objects are never unpickled"):
                    array = np.asarray(file[name])
            except DataError:
                if name in layout:
                    raise
                continue
            if name in layout:
                arrays[layout[name]], arrays.given[layout[name]] = array, name
            elif array.dtype.kind == "U" and array.ndim == 1:
                texts[name] = array.tolist()
    _translate(arrays)
    graph = _graph(arrays, options, texts)
    ignored = [name for name in names if name not in layout and name not in texts]
    if ignored:
        graph.notes.append(f"{label}: unknown arrays ignored: {listed(ignored)}")
    return graph


def _translate(arrays: GraphArrays) -> None:
    """Turns edges in rows and an adjacency matrix into `edge_index`, and masks of `[S, N]` into `[N, S]`."""
    for name in MASKS:
        if f"{name}s" in arrays:
            arrays[name], arrays.given[name] = arrays.pop(f"{name}s").T, f"{name}s"
    source = "edges" if "edges" in arrays.given else "adj_data"
    if "edges" in arrays:
        ok = arrays["edges"].ndim == 2 and arrays["edges"].shape[1] == 2
        arrays.expect(ok, "edges", "integers of shape [E, 2]")
        arrays["edge_index"] = arrays.pop("edges").T
    arrays.given.setdefault("edge_index", arrays.called(source))
    if any(name.startswith("adj_") for name in arrays):
        matrix = _csr("adj", arrays)
        if matrix.shape[0] != matrix.shape[1]:
            raise arrays.error("adj_shape", f"is {list(matrix.shape)}, expected as many rows as columns")
        matrix.eliminate_zeros()
        arrays["edge_index"] = np.stack(matrix.tocoo().coords).astype(np.int64)
        if (matrix.data != 1).any():
            arrays["edge_weight"], arrays.given["edge_weight"] = matrix.data, arrays.called("adj_data")


def read_data(data: Data, options: ReadOptions) -> RawGraph:
    """Reads a PyG `Data`."""
    import torch

    arrays = GraphArrays("Data")
    for name in ("edge_index", "x", "y", "edge_weight", *MASKS):
        value = data.get(name)
        if value is not None and not isinstance(value, torch.Tensor):
            raise DataError(f"Data: {name} is of type {type(value).__name__}, expected a Tensor")
        if value is not None and name != "x":
            value = value.detach().cpu()
            arrays[name] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    graph = _graph(arrays, options, {}, data.get("x"))
    graph.name = "data"
    return graph


def _graph(arrays: GraphArrays, options: ReadOptions, texts: dict[str, list[str]], x: object = None) -> RawGraph:
    label, y = arrays.label, arrays.called("y")
    for name in ("id", "label", "split", "drop", "source_column", "target_column"):
        if getattr(options, name):
            raise DataError(f"{name} is {getattr(options, name)!r}, but {label} has no columns with names to choose")
    values = read_matrix(x, f"{label}: x") if x is not None else _features(arrays)
    size, width = values.shape
    names, ids, words = (texts.get(name, []) for name in ("attr_names", "node_names", "class_names"))
    if not len(names) == len(set(names)) == width:
        names = [f"x{k}" for k in range(width)]
    labels, classes = None, list[str]()
    if "y" in arrays:
        given = arrays.column("y", size, "integers")
        given = given.astype(np.int64) if given.dtype.kind == "b" else given
        labels, classes = label_codes(pd.Series(given), f"{label}: {y}", typed=True)
    named = 0 < len(words) == len(set(words)) and all(name.isdecimal() and int(name) < len(words) for name in classes)
    classes = [words[int(name)] for name in classes] if named else classes
    expected = None if options.encoder is None else options.encoder.columns
    raw = named_columns(values, names, expected, label, options.unknown_classes(classes, y))
    parts = _parts(arrays, size)
    edges, weight = _edges(arrays, size)
    return RawGraph(
        origin=label,
        edge_origin=label,
        label=y,
        named_classes=named,
        raw=raw,
        edges=edges,
        weight=weight,
        labels=labels,
        class_names=classes,
        parts=parts,
        node_ids=np.array(ids) if len(ids) == len(set(ids)) == size else np.arange(size),
        notes=[] if edges.size else [f"{arrays.called('edge_index')} holds no edge: a graph without edges"],
    )


def _features(arrays: GraphArrays) -> Matrix:
    """The raw features; NaN is a missing value in dense features."""
    sparse = [name for name in arrays if name.startswith("x_")]
    if sparse and "x" in arrays:
        both = f"{arrays.called('x')} and {arrays.called(sparse[0])}"
        raise DataError(f"{arrays.label} has both {both}, expected either dense or sparse features")
    x = _csr("x", arrays) if sparse else arrays.required("x")
    return read_matrix(x, f"{arrays.label}: {arrays.called('x_data' if sparse else 'x')}")


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


def _edges(arrays: GraphArrays, size: int) -> tuple[NDArray[np.integer], NDArray[np.float32] | None]:
    index = arrays.required("edge_index")
    ok = index.ndim == 2 and index.shape[0] == 2 and (index.dtype.kind in "iu" or not index.size)
    arrays.expect(ok, "edge_index", "integers of shape [2, E]")
    if index.size and (index.min() < 0 or index.max() >= size):
        edge = int(np.flatnonzero(((index < 0) | (index >= size)).any(0))[0])
        pair = " to ".join(map(str, index[:, edge].tolist()))
        raise arrays.error("edge_index", f"joins {pair} in edge {edge}, expected nodes 0 to {size - 1}")
    if "edge_weight" not in arrays:
        return index.astype(np.int32), None
    weight = arrays.column("edge_weight", index.shape[1], "numbers")
    values = to_float32(weight)
    bad = bad_weight(values)
    if bad is not None:
        raise arrays.error("edge_weight", f"holds {weight[bad]} at edge {bad}, expected a finite number, 0 or larger")
    return index.astype(np.int32), values


def _parts(arrays: GraphArrays, size: int) -> NDArray[np.int64] | None:
    """`[S, N]`: 0, 1 and 2 for training, validation and test nodes, −1 for others."""
    if not any(name in arrays for name in MASKS):
        return None
    masks = []
    for name in MASKS:
        mask = arrays.required(name)
        wide = mask[:, None] if mask.ndim == 1 else mask
        ok = wide.ndim == 2 and wide.shape[0] == size and wide.shape[1] > 0 and np.isin(mask, (0, 1)).all()
        arrays.expect(bool(ok), name, f"booleans, or 0 and 1, of shape [{size}] or [{size}, S]")
        masks.append(wide.astype(bool))
    count = max(mask.shape[1] for mask in masks)
    for name, mask in zip(MASKS, masks, strict=True):
        if mask.shape[1] not in (1, count):
            raise arrays.error(name, f"has {mask.shape[1]} splits, expected {count} as in the other masks")
    stacked = np.stack(np.broadcast_arrays(*masks)).transpose(2, 0, 1)  # splits, parts, nodes
    for k, node in np.argwhere(stacked.sum(1) > 1)[:1]:
        names = " and ".join(arrays.called(MASKS[part]) for part in np.flatnonzero(stacked[k, :, node]))
        raise DataError(f"{arrays.label}: {names} overlap at node {node} in split {k}, expected disjoint masks")
    return np.where(stacked.any(1), stacked.argmax(1), -1)
