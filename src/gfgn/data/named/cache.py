"""The cache of loaded datasets: one `.npz` file of plain arrays per dataset."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

from gfgn.data.columns import Array, sparse_tensor
from gfgn.data.files import atomic_write
from gfgn.data.named.loaders import RawData
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.ops.features import sparse_csr

DAMAGED = (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError)  # raised by `read_cache`


def _stamp(paths: Sequence[Path]) -> str:
    """A hash of the names, sizes and modification times of the raw files."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def write_cache(path: Path, paths: Sequence[Path], raw: RawData) -> None:
    """Stores a dataset that was read from these files."""
    masks = torch.stack([torch.stack(list(split)) for split in raw.splits])
    rows, batch = raw.graph.by_target, raw.graph.batch
    tensors = {"indptr": rows.ptr, "indices": rows.idx, "y": raw.y} | ({} if batch is None else {"batch": batch})
    arrays: dict[str, Array] = {key: value.numpy() for key, value in tensors.items()}
    arrays |= {"masks": np.packbits(masks.numpy(), axis=-1), "stamp": np.array(_stamp(paths))}
    if raw.x.layout == torch.strided:
        arrays["x"] = raw.x.numpy()
    else:
        words = sparse_tensor(raw.x)
        arrays |= {"x_indptr": words.indptr.astype(np.int64), "x_indices": words.indices.astype(np.int32)}
        arrays |= {"x_data": words.data, "num_features": np.array(raw.x.size(1))}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_cache(path: Path, paths: Sequence[Path]) -> RawData:
    """The dataset that `write_cache` stored; raises one of `DAMAGED`, also if the files have changed since. The cache
    remains valid if they are deleted."""
    with np.load(path, allow_pickle=False) as file:
        arrays: dict[str, Array] = {name: file[name] for name in file.files}
    if all(file.is_file() for file in paths) and str(arrays["stamp"]) != _stamp(paths):
        raise ValueError(f"{path} is older than the raw files")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "fiub"}
    masks = np.unpackbits(arrays["masks"], axis=-1, count=len(arrays["y"])).astype(bool)
    size, ones = len(arrays["y"]), np.ones(len(arrays["indices"]), np.int8)
    edges = scipy.sparse.csr_array((ones, arrays["indices"], arrays["indptr"]), shape=(size, size))
    graph = Graph.from_csr(edges, undirected=True, batch=tensors.get("batch"))
    if "x" in tensors:
        x = tensors["x"]
    else:
        shape = torch.Size([size, int(arrays["num_features"])])
        x = sparse_csr(tensors["x_indptr"], tensors["x_indices"].long(), tensors["x_data"], shape)
    return RawData(graph, x, tensors["y"], [Split(*map(torch.from_numpy, split)) for split in masks])
