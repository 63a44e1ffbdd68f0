"""Readers of the raw files of published datasets, and makers of the embedded ones.

PyG's dataset classes parse where they exist; they find every raw file in place, so that they never download.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph

NEIGHBOURS = 5
"""Nearest neighbours that each image of `digits` is joined with."""
CHUNK = 2**20
"""Rows of a table of OGB that are read at once."""
PPI_PARTS = ("train", "val", "test")


class Raw(NamedTuple):
    """A dataset as its files have it: edges undirected, features not normalised. Fields as in `Dataset`."""

    graph: Graph
    x: Tensor
    y: Tensor
    splits: list[Split]
    feature_names: list[str] | None = None


def _undirected(edge_index: Tensor, num_nodes: int, batch: Tensor | None = None) -> Graph:
    source, target = edge_index.int().numpy()
    return Graph.from_undirected(source, target, num_nodes, batch)


# --- by PyG's classes ------------------------------------------------------------------------------------------------


def build(root: Path, cls: str, folder: str = "", *, reload: bool = True, **options: Any) -> Any:
    """An instance of PyG's dataset class `cls`, read from the raw files anew."""
    import torch_geometric.datasets

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # of a CSR tensor that PyG makes
        return getattr(torch_geometric.datasets, cls)(str(root / folder), force_reload=reload, **options)


def from_pyg(root: Path, make: Callable[[Path], Any], directed: bool = False) -> Raw:
    """One graph of a class of PyG's, with its splits or else ten random ones; `directed` keeps edges as the files have
    them."""
    data = make(root)[0]
    if "train_mask" in data:
        masks = (data.train_mask.bool(), data.val_mask.bool(), data.test_mask.bool())
        splits = [Split(*(mask[:, k].clone() for mask in masks)) for k in range(masks[0].size(1))]
    else:
        splits = random_splits(data.num_nodes)
    graph = (Graph.from_edge_index if directed else _undirected)(data.edge_index, data.num_nodes)
    return Raw(graph, data.x.float(), data.y.long(), splits)


def ppi(root: Path, folder: str) -> Raw:
    """All graphs of PPI side by side, and the public split, which is one of graphs, as masks of their nodes."""
    parts = [list(build(root, "PPI", folder, split=part, reload=part == "train")) for part in PPI_PARTS]
    graphs = [data for part in parts for data in part]
    sizes = torch.tensor([data.num_nodes for data in graphs])
    batch = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    first = (sizes.cumsum(0) - sizes).tolist()
    edges = torch.cat([data.edge_index + start for data, start in zip(graphs, first, strict=True)], dim=1)
    part = torch.repeat_interleave(torch.arange(3), torch.tensor([len(part) for part in parts]))[batch]
    return Raw(
        _undirected(edges, batch.numel(), batch),
        torch.cat([data.x for data in graphs]).float(),
        torch.cat([data.y for data in graphs]).bool(),
        [Split(*(part == k for k in range(3)))],
    )


# --- from files directly ---------------------------------------------------------------------------------------------


def filtered(root: Path, file: str) -> Raw:
    """A graph in the layout of the heterophilous graphs of Platonov et al.; nothing in it is unpickled."""
    with np.load(root / file, allow_pickle=False) as arrays:
        x, y = torch.from_numpy(arrays["node_features"]).float(), torch.from_numpy(arrays["node_labels"]).long()
        edge_index = torch.from_numpy(arrays["edges"]).t()
        masks = [torch.from_numpy(arrays[f"{part}_masks"]).bool() for part in ("train", "val", "test")]
    return Raw(_undirected(edge_index, y.numel()), x, y, [Split(*split) for split in zip(*masks, strict=True)])


def ogb(root: Path, folder: str, split: str) -> Raw:
    """Reads the raw files of an OGB dataset of node classes with one public split, some rows at a time."""
    base = root / folder
    y = torch.from_numpy(np.concatenate(list(_rows(base / "raw/node-label.csv.gz", np.int64))).reshape(-1))
    x = _features(base / "raw/node-feat.csv.gz", y.numel())
    masks = torch.zeros(3, y.numel(), dtype=torch.bool)
    for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
        for nodes in _rows(base / f"split/{split}/{part}.csv.gz", np.int64):
            mask[torch.from_numpy(nodes).view(-1)] = True
    # Columns apart, so that neither is copied again.
    chunks = [np.ascontiguousarray(edges.T) for edges in _rows(base / "raw/edge.csv.gz", np.int32)]
    source, target = (np.concatenate([chunk[end] for chunk in chunks]) for end in (0, 1))
    del chunks
    _check_edges(source, target, y.numel(), base / "raw/edge.csv.gz")
    return Raw(Graph.from_undirected(source, target, y.numel()), x, y, [Split(*masks)])


def _rows(path: Path, dtype: type[np.generic]) -> Iterator[NDArray[Any]]:
    import pandas

    with pandas.read_csv(path, header=None, dtype=dtype, chunksize=CHUNK) as chunks:
        for chunk in chunks:
            yield chunk.to_numpy(copy=True)


def _features(path: Path, num_nodes: int) -> Tensor:
    x, row = torch.empty(0), 0
    for values in _rows(path, np.float32):
        if row == 0:
            x = torch.empty(num_nodes, values.shape[1])
        if row + len(values) > num_nodes:
            break  # one row too many is enough to know
        x[row : row + len(values)] = torch.from_numpy(values)
        row += len(values)
    else:
        if row == num_nodes:
            return x
    raise ValueError(f"{path.name} must hold a row for each of the {num_nodes} labels, found another number")


def _check_edges(source: NDArray[Any], target: NDArray[Any], num_nodes: int, path: Path) -> None:
    low, high = min(source.min(), target.min()), max(source.max(), target.max())
    if low < 0 or high >= num_nodes:
        raise ValueError(f"{path.name} must hold nodes from 0 to {num_nodes - 1}, found {low} to {high}")


# --- embedded --------------------------------------------------------------------------------------------------------


def karate(root: Path) -> Raw:
    """The karate club that PyG carries."""
    from torch_geometric.datasets import KarateClub

    data = KarateClub()[0]
    names = [f"is member {k + 1}" for k in range(34)]
    return Raw(_undirected(data.edge_index, 34), data.x, data.y, random_splits(34), names)


def digits(root: Path) -> Raw:
    """Distances between images are compared as integers, ties going to the earlier image: the same graph anywhere."""
    from sklearn.datasets import load_digits

    images = load_digits()
    pixels, count = images.data.astype(np.int64), len(images.data)
    squares = (pixels**2).sum(1)
    distance = squares[:, None] + squares - 2 * (pixels @ pixels.T)
    np.fill_diagonal(distance, np.iinfo(np.int64).max)
    nearest = torch.from_numpy(np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS].copy())
    edge_index = torch.stack([nearest.reshape(-1), torch.arange(count).repeat_interleave(NEIGHBOURS)])
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(images.target).long()
    names = [f"row {k // 8 + 1}, column {k % 8 + 1}" for k in range(64)]
    return Raw(_undirected(edge_index, count), x, y, random_splits(count), names)
