"""The cache of the registry: one file a dataset, which holds plain arrays and replaces the old one in one step."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.datasets.loaders import Raw
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.csr import CSR
from gfgn.ops.features import row_normalize, sparse_csr

Arrays = dict[str, NDArray[Any]]

VERSION = 1
REQUIRED = {"indptr", "indices", "transpose", "y", "masks", "num_features", "stamp"}
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""What reading a file can raise that is damaged or missing."""
SPARSE_FROM = 0.9
"""Share of zeros above which a bag of words is kept as a sparse CSR tensor."""


def stamp(paths: Sequence[Path]) -> str:
    """Changes when a raw file does."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def read_cache(path: Path) -> Arrays:
    """The arrays of a file that `write_cache` has written; raises one of `DAMAGED`."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    missing = REQUIRED - arrays.keys()
    if missing:
        raise ValueError(f"{path} must hold {', '.join(sorted(missing))}")
    return arrays


def write_cache(path: Path, arrays: Arrays) -> None:
    """Writes the arrays elsewhere and moves them into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


# --- to arrays and back ----------------------------------------------------------------------------------------------


def pack(raw: Raw, sparse: bool) -> Arrays:
    """The dataset as arrays; `sparse` says to leave zeros out of the features, whichever their layout is."""
    graph, x = raw.graph, raw.x
    masks = torch.stack([torch.stack(list(split)) for split in raw.splits])
    tensors = {"indptr": graph.by_target.ptr, "indices": graph.by_target.idx, "y": raw.y}
    tensors["transpose"] = graph.transpose.int()  # half the size on disk
    if graph.batch is not None:
        tensors["batch"] = graph.batch
    if sparse:
        x = _to_csr(x)
        tensors |= {"x_indptr": x.crow_indices(), "x_indices": x.col_indices().int(), "x_data": x.values()}
    else:
        tensors["x"] = x
    arrays: Arrays = {key: value.numpy() for key, value in tensors.items()}
    return {**arrays, "masks": np.packbits(masks.numpy(), axis=-1), "num_features": np.array(x.size(1))}


def unpack(arrays: Arrays, normalize: bool) -> Raw:
    """What `pack` was given; `normalize` divides the rows of a bag of words by their sums."""
    with _one_thread():
        y = torch.from_numpy(arrays["y"])
        masks = np.unpackbits(arrays["masks"], axis=-1, count=y.size(0)).astype(bool)
        splits = [Split(*map(torch.from_numpy, split)) for split in masks]
        x = torch.from_numpy(arrays["x"]) if "x" in arrays else _unpack_words(arrays, normalize)
        return Raw(_unpack_graph(arrays), x, y, splits)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Unpacking is many short operations, which threads that wait for each other on a busy machine hold up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _unpack_words(arrays: Arrays, normalize: bool) -> Tensor:
    """A bag of words, sparse where most of it is zero."""
    pointers, columns, values = (torch.from_numpy(arrays[f"x_{key}"]) for key in ("indptr", "indices", "data"))
    size = torch.Size([pointers.numel() - 1, int(arrays["num_features"])])
    x = sparse_csr(pointers, columns.long(), values, size)
    x = row_normalize(x) if normalize else x
    if values.numel() < (1 - SPARSE_FROM) * size.numel():
        return x
    stored = (x.values().numpy(), arrays["x_indices"], arrays["x_indptr"])
    dense = scipy.sparse.csr_array(stored, shape=(size[0], size[1])).toarray()  # faster than `to_dense`
    return torch.from_numpy(dense)


def _unpack_graph(arrays: Arrays) -> Graph:
    """The graph without sorting its edges again: they were stored in order, and both directions of each."""
    rows = CSR.from_pointers(torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]))
    batch = torch.from_numpy(arrays["batch"]) if "batch" in arrays else None
    return Graph.from_rows(rows, rows, torch.from_numpy(arrays.pop("transpose")), symmetric=True, batch=batch)


def _to_csr(x: Tensor) -> Tensor:
    if x.layout == torch.sparse_csr:
        return sparse_csr(x.crow_indices().long(), x.col_indices().long(), x.values(), x.shape)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()
