"""`OnDiskGraph`: a graph in a folder of memory-mapped arrays, for graphs larger than memory."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gfgn.data.columns import Array
from gfgn.data.dataset import NodeDataset
from gfgn.data.files import atomic_folder, replace_text
from gfgn.data.mapped import MappedGraph, mapped
from gfgn.data.messages import DataError
from gfgn.data.splits import Split, split_masks
from gfgn.ops.features import take_rows

FORMAT, FACTS = 1, "store.json"
ROWS = 2**16  # rows that are written at a time
ARRAYS = {  # the kinds of values that each array may have, and its numbers of dimensions
    "ptr": ("i8", (1,)),
    "idx": ("i4", (1,)),
    "weight": ("f4", (1,)),
    "x": ("f4", (2,)),
    "y": ("i8 b1", (1, 2)),
    "parts": ("i1", (2,)),
}


@dataclass(frozen=True, eq=False, repr=False)
class OnDiskGraph:
    """A graph in a folder, see `OnDiskGraph.open`. All arrays are memory maps: only what is read takes memory.

    Attributes:
        ptr: `[N + 1]`, int64: where the edges into each node begin.
        idx: `[E]`, int32: the source of each edge, in ascending order for each target.
        weight: `[E]`, float32, or `None` where every weight is 1.
        x: `[N, F]`, float32 features.
        y: `[N]`, int64 classes, −1 if unknown; `[N, L]`, bool, for multi-label data.
        parts: `[S, N]`, int8: for every split 0, 1 and 2 for training, validation and test nodes, −1 for others.
    """

    name: str
    num_classes: int
    metric: str
    feature_names: list[str]
    class_names: list[str] | None
    ptr: Array
    idx: Array
    weight: Array | None
    x: Array
    y: Array
    parts: Array

    @staticmethod
    def open(folder: Path | str) -> OnDiskGraph:
        """Opens the folder that `pack` or `gfgn datasets pack` wrote. The edges are read once, to check them."""
        folder = Path(folder)
        try:
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            if facts.pop("format") != FORMAT:
                raise DataError(f"{folder / FACTS} has another format, expected {FORMAT}")
            arrays = {name: _open(folder, name) for name in ARRAYS if facts["weighted"] or name != "weight"}
            del facts["weighted"]
            store = OnDiskGraph(**{"weight": None} | facts | arrays)
        except DataError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{folder} is not a graph store, expected a folder with {FACTS}: {error!r}") from None
        store._check(folder)
        return store

    def _check(self, folder: Path) -> None:
        """Compiled code reads the edges without looking: offsets and sources outside of the graph are refused."""
        ptr, idx, nodes = self.ptr, self.idx, self.num_nodes
        if nodes < 0 or ptr[0] != 0 or ptr[-1] != idx.size or any((np.diff(part) < 0).any() for part in _blocks(ptr)):
            raise DataError(f"{folder}/ptr.npy must ascend from 0 to {idx.size}, the number of edges")
        if any(part.min() < 0 or part.max() >= nodes for part in _blocks(idx)):
            raise DataError(f"{folder}/idx.npy must have sources from 0 to {nodes - 1}")
        sizes = {"x": len(self.x), "y": len(self.y), "parts": self.parts.shape[1]}
        for name, size in sizes.items():
            if size != nodes:
                raise DataError(f"{folder}/{name}.npy is of {size} nodes, expected {nodes}")
        if self.weight is not None and self.weight.size != idx.size:
            raise DataError(f"{folder}/weight.npy has {self.weight.size} entries, expected {idx.size}")

    @property
    def num_nodes(self) -> int:
        return self.ptr.size - 1

    @property
    def num_edges(self) -> int:
        return self.idx.size

    @property
    def num_features(self) -> int:
        return int(self.x.shape[1])

    @property
    def splits(self) -> list[Split]:
        """Boolean masks as in `NodeDataset.splits`."""
        return split_masks(self.parts)

    def dataset(self, splits: list[Split] | None = None) -> NodeDataset:
        """The store as a dataset: features and edges stay in files as long as nothing needs all of them.

        Training on samples (`train_distributed`) and `infer_layerwise` do not. `splits` replace those of the store.
        """
        return NodeDataset(
            name=self.name,
            graph=MappedGraph.of(self.ptr, self.idx, self.weight),
            x=mapped(self.x),
            y=torch.from_numpy(np.array(self.y)),
            num_classes=self.num_classes,
            metric=self.metric,
            feature_names=self.feature_names,
            splits=self.splits if splits is None else splits,
            class_names=self.class_names,
        )

    def __repr__(self) -> str:
        return (
            f"OnDiskGraph({self.name!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes}, splits={len(self.parts)})"
        )


def pack(data: NodeDataset, folder: Path | str) -> OnDiskGraph:
    """Writes a dataset of one graph into a folder, which must be new or empty, and opens it."""
    if data.graph.batch is not None:
        raise ValueError(f"data must be one graph, got {data.graph.num_graphs} graphs")
    edges, weight = data.graph.by_target, data.graph.weight
    arrays = {"ptr": edges.ptr, "idx": edges.idx, "y": data.y} | ({} if weight is None else {"weight": weight.float()})
    with atomic_folder(folder) as unfinished:
        for name, values in arrays.items():
            np.save(unfinished / f"{name}.npy", values.cpu().numpy())
        with create(unfinished, "x", (data.num_nodes, data.num_features), np.float32) as x:
            for low in range(0, data.num_nodes, ROWS):
                rows = torch.arange(low, min(low + ROWS, data.num_nodes), device=data.x.device)
                x[low : low + ROWS] = take_rows(data.x, rows).to_dense().cpu().numpy()
        parts = np.full((len(data.splits), data.num_nodes), -1, dtype=np.int8)
        for part, split in zip(parts, data.splits, strict=True):
            for code, mask in enumerate(split):
                part[mask.cpu().numpy()] = code
        np.save(unfinished / "parts.npy", parts)
        names = data.feature_names, data.class_names
        write_facts(unfinished, data.name, data.num_classes, data.metric, *names, weight is not None)
    return OnDiskGraph.open(folder)


@contextmanager
def create(folder: Path, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Iterator[Array]:
    """A new array of a store, a memory map to be filled; an array of no values is written at once."""
    path = folder / f"{name}.npy"
    if 0 in shape:
        np.save(path, np.empty(shape, dtype))
        yield np.empty(shape, dtype)
        return
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    yield array
    array.flush()


def release(array: object) -> None:
    """Takes the pages of a memory map out of this process: it has read or written them and needs them no more. The
    system keeps them as long as memory is free. Other arrays stay as they are."""
    pages: object = array.base if isinstance(array, np.memmap) else None
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def write_facts(
    folder: Path,
    name: str,
    num_classes: int,
    metric: str,
    feature_names: Sequence[str],
    class_names: Sequence[str] | None,
    weighted: bool,
) -> None:
    """Writes the last file of a store, without which it cannot be opened."""
    facts = {"format": FORMAT, "name": name, "num_classes": num_classes, "metric": metric, "weighted": weighted}
    names = {"feature_names": list(feature_names), "class_names": class_names and list(class_names)}
    replace_text(folder / FACTS, json.dumps(facts | names) + "\n")


def _blocks(array: Array) -> Iterator[Array]:
    """Parts that overlap by one value."""
    return (array[low : low + 64 * ROWS + 1] for low in range(0, array.size, 64 * ROWS))


def _open(folder: Path, name: str) -> Array:
    path, (kinds, dimensions) = folder / f"{name}.npy", ARRAYS[name]
    try:
        try:
            array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError:  # an array of no values cannot be mapped
            array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if array.dtype.str[1:] not in kinds.split() or array.ndim not in dimensions:
        raise DataError(f"{path} has another type, {array.dtype} with {array.ndim} dimensions")
    return array
