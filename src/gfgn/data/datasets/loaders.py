"""Loaders of published datasets from their raw files, and of the datasets that ship with other packages.

PyG's dataset classes parse the files where they exist. They find every raw file in its folder and never download.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph

NEAREST = 5  # number of nearest neighbors of each image of `digits`
CHUNK = 2**20  # number of rows of an OGB table that are read at once


class RawData(NamedTuple):
    """A dataset as in its files, with undirected edges and features that are not normalized; fields as in `Dataset`."""

    graph: Graph
    x: Tensor
    y: Tensor
    splits: list[Split]
    feature_names: list[str] | None = None


def _undirected(edge_index: Tensor, num_nodes: int) -> Graph:
    source, target = edge_index.int().numpy()
    return Graph.from_undirected(source, target, num_nodes)


def from_pyg(root: Path, cls: str, folder: str = "", directed: bool = False, **options: Any) -> RawData:
    """The graph of PyG's dataset class `cls` in `root / folder`, with its own splits or ten random ones."""
    import torch_geometric.datasets

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # PyG makes CSR tensors, which PyTorch calls a beta feature
        data = getattr(torch_geometric.datasets, cls)(str(root / folder), force_reload=True, **options)[0]
    if "train_mask" in data:
        masks = torch.stack([data.train_mask, data.val_mask, data.test_mask]).bool()
        splits = [Split(*masks[..., k].clone()) for k in range(masks.size(2))]
    else:
        splits = random_splits(data.num_nodes)
    graph = (Graph.from_edge_index if directed else _undirected)(data.edge_index, data.num_nodes)
    return RawData(graph, data.x.float(), data.y.long(), splits)


def ppi(root: Path, folder: str) -> RawData:
    """All graphs of PPI as one batch; the public split by graphs becomes masks over the nodes."""
    xs, ys, edges, batches, parts = [], [], [], [], []
    num_nodes = num_graphs = 0
    for k, part in enumerate(("train", "valid", "test")):
        stem = str(root / folder / "raw" / part)
        graph_id = np.load(f"{stem}_graph_id.npy")
        links = json.loads(Path(f"{stem}_graph.json").read_text())["links"]
        xs.append(np.load(f"{stem}_feats.npy").astype(np.float32))
        ys.append(np.load(f"{stem}_labels.npy").astype(bool))
        edges.append(np.array([(link["source"], link["target"]) for link in links], dtype=np.int32) + num_nodes)
        batches.append(graph_id - graph_id.min() + num_graphs)
        parts.append(np.full(len(graph_id), k))
        num_nodes, num_graphs = num_nodes + len(graph_id), int(batches[-1].max()) + 1
    batch, part_of = torch.from_numpy(np.concatenate(batches)).long(), torch.from_numpy(np.concatenate(parts))
    source, target = np.concatenate(edges).T
    graph = Graph.from_undirected(source, target, num_nodes, batch)
    x, y = (torch.from_numpy(np.concatenate(values)) for values in (xs, ys))
    return RawData(graph, x, y, [Split(*(part_of == k for k in range(3)))])


def heterophilous_npz(root: Path, file: str) -> RawData:
    """A `.npz` file of Platonov et al.; nothing in it is unpickled."""
    with np.load(root / file, allow_pickle=False) as arrays:
        x, y = torch.from_numpy(arrays["node_features"]).float(), torch.from_numpy(arrays["node_labels"]).long()
        edge_index = torch.from_numpy(arrays["edges"]).t()
        masks = [torch.from_numpy(arrays[f"{part}_masks"]).bool() for part in ("train", "val", "test")]
    return RawData(_undirected(edge_index, y.numel()), x, y, [Split(*split) for split in zip(*masks, strict=True)])


def ogb(root: Path, folder: str, split: str) -> RawData:
    """The raw files of an OGB dataset for node classification with one public split, read in chunks of rows."""
    base = root / folder
    y = torch.from_numpy(np.concatenate(list(_chunks(base / "raw/node-label.csv.gz", np.int64))).reshape(-1))
    x = _features(base / "raw/node-feat.csv.gz", y.numel())
    masks = torch.zeros(3, y.numel(), dtype=torch.bool)
    for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
        for nodes in _chunks(base / f"split/{split}/{part}.csv.gz", np.int64):
            mask[torch.from_numpy(nodes).view(-1)] = True
    path = base / "raw/edge.csv.gz"
    chunks = [np.ascontiguousarray(edges.T) for edges in _chunks(path, np.int32)]
    source, target = (np.concatenate([chunk[end] for chunk in chunks]) for end in (0, 1))
    del chunks
    low, high = min(source.min(), target.min()), max(source.max(), target.max())
    if low < 0 or high >= y.numel():
        raise ValueError(f"{path.name} must hold nodes from 0 to {y.numel() - 1}, got {low} to {high}")
    return RawData(Graph.from_undirected(source, target, y.numel()), x, y, [Split(*masks)])


def _chunks(path: Path, dtype: type[np.generic]) -> Iterator[NDArray[Any]]:
    import pandas

    with pandas.read_csv(path, header=None, dtype=dtype, chunksize=CHUNK) as chunks:
        for chunk in chunks:
            yield chunk.to_numpy(copy=True)


def _features(path: Path, num_nodes: int) -> Tensor:
    x, rows = torch.empty(0), 0
    for values in _chunks(path, np.float32):
        if rows == 0:
            x = torch.empty(num_nodes, values.shape[1])
        x[rows : rows + len(values)] = torch.from_numpy(values[: max(0, num_nodes - rows)])
        rows += len(values)
    if rows != num_nodes:
        raise ValueError(f"{path.name} must hold one row for each of the {num_nodes} labels, got {rows}")
    return x


def karate(root: Path) -> RawData:
    """Zachary's karate club, which comes with PyG."""
    from torch_geometric.datasets import KarateClub

    data = KarateClub()[0]
    names = [f"is member {k + 1}" for k in range(34)]
    return RawData(_undirected(data.edge_index, 34), data.x, data.y, random_splits(34), names)


def digits(root: Path) -> RawData:
    """scikit-learn's handwritten digits, each joined with its nearest neighbors.

    Distances are integers and ties go to the earlier image, so that the graph is the same on every machine.
    """
    from sklearn.datasets import load_digits

    images = load_digits()
    pixels, count = images.data.astype(np.int64), len(images.data)
    squares = (pixels**2).sum(1)
    distance = squares[:, None] + squares - 2 * (pixels @ pixels.T)
    np.fill_diagonal(distance, np.iinfo(np.int64).max)
    nearest = torch.from_numpy(np.argsort(distance, axis=1, kind="stable")[:, :NEAREST].copy())
    edge_index = torch.stack([nearest.reshape(-1), torch.arange(count).repeat_interleave(NEAREST)])
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(images.target).long()
    names = [f"row {k // 8 + 1}, column {k % 8 + 1}" for k in range(64)]
    return RawData(_undirected(edge_index, count), x, y, random_splits(count), names)
