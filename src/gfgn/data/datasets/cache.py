"""The cache of loaded datasets: one `.npz` file of plain arrays per dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.datasets.loaders import RawData
from gfgn.data.files import atomic_write
from gfgn.data.limits import MAX_FEATURES, check_count
from gfgn.data.npz import read_arrays
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.csr import CSR
from gfgn.ops.features import row_normalize, sparse_csr
from gfgn.ops.thread_count import num_threads

Arrays = dict[str, NDArray[Any]]

VERSION = 1
REQUIRED = {"indptr", "indices", "transpose", "y", "masks", "num_features", "stamp"}
DAMAGED = (OSError, ValueError, KeyError, TypeError)  # raised by `read_cache`
SPARSE_FROM = 0.9  # fraction of zeros above which a bag of words is a sparse CSR tensor


def stamp(paths: Sequence[Path]) -> str:
    """A hash of the names, sizes and modification times of the raw files."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def read_cache(path: Path) -> Arrays:
    """The arrays of a file written by `write_cache`; raises one of `DAMAGED`."""
    arrays = read_arrays(path)
    missing = REQUIRED - arrays.keys()
    if missing:
        raise ValueError(f"{path} must hold {', '.join(sorted(missing))}")
    _check(arrays)
    return arrays


def _check(arrays: Arrays) -> None:
    """Raises if an array does not fit the others: kernels read with these indices and do not check them."""
    size, edges, width = len(arrays["y"]), arrays["indices"].size, int(arrays["num_features"])
    check_count("the cache", "features", width, MAX_FEATURES)
    _check_rows(arrays["indptr"], arrays["indices"], size, size)
    transpose = arrays["transpose"]
    ok: Any = (
        transpose.shape == (edges,)
        and transpose.dtype.kind == "i"
        and (edges == 0 or (transpose.min() >= 0 and transpose.max() < edges))
    )
    ok = ok and (np.bincount(transpose, minlength=edges) == 1).all()
    masks = arrays["masks"]
    ok = ok and masks.ndim == 3 and masks.shape[1:] == (3, -(-size // 8)) and masks.dtype == np.uint8
    batch = arrays.get("batch", np.zeros(size, dtype=np.int64))
    ok = ok and batch.shape == (size,) and batch.dtype == np.int64 and batch.min(initial=0) >= 0
    ok = ok and batch.max(initial=0) <= size
    if "x" in arrays:
        ok = ok and arrays["x"].shape == (size, width) and arrays["x"].dtype == np.float32
    else:
        _check_rows(arrays["x_indptr"], arrays["x_indices"], size, width)
        values = arrays["x_data"]
        ok = ok and values.shape == arrays["x_indices"].shape and values.dtype == np.float32
    if not ok:
        raise ValueError("the arrays of the cache do not fit each other")


def _check_rows(pointers: NDArray[Any], columns: NDArray[Any], rows: int, width: int) -> None:
    ok: Any = (
        pointers.shape == (rows + 1,) and columns.ndim == 1 and pointers.dtype == np.int64 and columns.dtype == np.int32
    )
    ok = ok and pointers[0] == 0 and pointers[-1] == columns.size and (pointers[1:] >= pointers[:-1]).all()
    if not ok or (columns.size and not (columns.min() >= 0 and columns.max() < width)):
        raise ValueError("the rows of the cache point outside")


def write_cache(path: Path, arrays: Arrays) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def pack(raw: RawData, sparse: bool) -> Arrays:
    """The dataset as arrays; `sparse` stores the features without their zeros."""
    graph, x = raw.graph, raw.x
    masks = torch.stack([torch.stack(list(split)) for split in raw.splits])
    tensors = {"indptr": graph.by_target.ptr, "indices": graph.by_target.idx, "y": raw.y}
    tensors["transpose"] = graph.transpose.int()  # half the size on disk
    if graph.batch is not None:
        tensors["batch"] = graph.batch
    arrays: Arrays = {key: value.numpy() for key, value in tensors.items()}
    arrays |= {"masks": np.packbits(masks.numpy(), axis=-1), "num_features": np.array(x.size(1))}
    if not sparse:
        return {**arrays, "x": x.numpy()}
    words = scipy.sparse.csr_array(x.numpy()) if x.layout == torch.strided else _to_scipy(x)
    pointers, columns = words.indptr.astype(np.int64), words.indices.astype(np.int32)
    return {**arrays, "x_indptr": pointers, "x_indices": columns, "x_data": words.data}


def _to_scipy(x: Tensor) -> scipy.sparse.csr_array:
    parts = (x.values(), x.col_indices(), x.crow_indices())
    return scipy.sparse.csr_array(tuple(part.numpy() for part in parts), shape=(x.size(0), x.size(1)))


def unpack(arrays: Arrays, normalize: bool) -> RawData:
    """The inverse of `pack`; `normalize` divides the rows of a bag of words by their sums."""
    y = torch.from_numpy(arrays["y"])
    masks = np.unpackbits(arrays["masks"], axis=-1, count=y.size(0)).astype(bool)
    splits = [Split(*map(torch.from_numpy, split)) for split in masks]
    with num_threads(1):  # threads that wait for each other on a busy machine make short operations much slower
        x = torch.from_numpy(arrays["x"]) if "x" in arrays else _unpack_words(arrays, normalize)
        # The edges were stored in order and in both directions.
        rows = CSR.from_pointers(torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]))
        batch = torch.from_numpy(arrays["batch"]) if "batch" in arrays else None
        transpose = torch.from_numpy(arrays.pop("transpose"))
        return RawData(Graph.from_rows(rows, rows, transpose, symmetric=True, batch=batch), x, y, splits)


def _unpack_words(arrays: Arrays, normalize: bool) -> Tensor:
    """A bag of words, sparse if most of it is zero."""
    pointers, columns, values = (torch.from_numpy(arrays[f"x_{key}"]) for key in ("indptr", "indices", "data"))
    size = torch.Size([pointers.numel() - 1, int(arrays["num_features"])])
    x = sparse_csr(pointers, columns.long(), values, size)
    x = row_normalize(x) if normalize else x
    if values.numel() < (1 - SPARSE_FROM) * size.numel():
        return x
    return torch.from_numpy(_to_scipy(x).toarray())  # faster than `to_dense`
