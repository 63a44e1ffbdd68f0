"""The cache of loaded datasets: one `.npz` file of plain arrays per dataset."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.columns import Array, sparse_tensor
from gfgn.data.files import atomic_write
from gfgn.data.named.loaders import RawData
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.csr import CSR
from gfgn.ops.features import row_normalize, sparse_csr
from gfgn.ops.thread_count import num_threads

Arrays = dict[str, Array]

VERSION = 1
REQUIRED = {"indptr", "indices", "transpose", "y", "masks", "num_features", "stamp"}
DAMAGED = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)  # raised by `read_cache`
SPARSE_FROM = 0.9  # fraction of zeros above which a bag of words is a sparse CSR tensor


def stamp(paths: Sequence[Path]) -> str:
    """A hash of the names, sizes and modification times of the raw files."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def read_cache(path: Path) -> Arrays:
    """The arrays of a file written by `write_cache`; raises one of `DAMAGED`."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    missing = REQUIRED - arrays.keys()
    if missing:
        raise ValueError(f"{path} must hold {', '.join(sorted(missing))}")
    return arrays


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
    words = scipy.sparse.csr_array(x.numpy()) if x.layout == torch.strided else sparse_tensor(x)
    pointers, columns = words.indptr.astype(np.int64), words.indices.astype(np.int32)
    return {**arrays, "x_indptr": pointers, "x_indices": columns, "x_data": words.data}


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
    return torch.from_numpy(sparse_tensor(x).toarray())  # faster than `to_dense`
