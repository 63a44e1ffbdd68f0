"""Loaders of published datasets from their raw files, and of the datasets that ship with other packages.

Arrays are read without objects, so that nothing in a file is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.columns import Array
from gfgn.data.dataset import NodeDataset
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph
from gfgn.ops.features import sparse_csr

NEAREST = 5  # number of nearest neighbors of each image of `digits`
CHUNK = 2**20  # number of rows of an OGB table that are read at once


class RawData(NamedTuple):
    """A dataset as in its files, with undirected edges and features that are not normalized; see `NodeDataset`."""

    graph: Graph
    x: Tensor
    y: Tensor
    splits: list[Split]
    feature_names: list[str] | None = None


def _undirected(edge_index: Tensor, num_nodes: int) -> Graph:
    _check_nodes("edges", num_nodes, edge_index.numpy())
    source, target = edge_index.int().numpy()
    return Graph.from_undirected(source, target, num_nodes)


def _check_nodes(name: str, num_nodes: int, *nodes: Array) -> None:
    low, high = min(int(part.min(initial=0)) for part in nodes), max(int(part.max(initial=0)) for part in nodes)
    if low < 0 or high >= num_nodes:
        raise ValueError(f"{name} must hold nodes from 0 to {num_nodes - 1}, got {low} to {high}")


def _arrays(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def geom_gcn(root: Path, folder: str, name: str, words: bool = False, directed: bool = False) -> RawData:
    """A graph of Geom-GCN: two tables and ten splits. With `words`, features are lists of the words of a node."""
    import pandas

    base = root / folder / "raw"
    nodes = pandas.read_csv(base / "out1_node_feature_label.txt", sep="\t", dtype={1: str})
    order = nodes.iloc[:, 0].to_numpy() if words else np.arange(len(nodes))
    if not np.array_equal(np.sort(order), np.arange(len(nodes))):
        raise ValueError("out1_node_feature_label.txt must hold every node once")
    lists = [
        np.array(line.split(","), dtype=np.int64 if words else np.float32) for line in nodes.iloc[:, 1].astype(str)
    ]
    if words:
        x = torch.zeros(len(nodes), max(int(columns.max()) for columns in lists) + 1)
        for node, columns in zip(order, lists, strict=True):
            x[node, columns] = 1.0
    else:
        x = torch.from_numpy(np.stack(lists))
    y = torch.empty(len(nodes), dtype=torch.int64)
    y[order] = torch.from_numpy(nodes.iloc[:, 2].to_numpy(np.int64, copy=True))
    edges = pandas.read_csv(base / "out1_graph_edges.txt", sep="\t").to_numpy(np.int64)
    _check_nodes("out1_graph_edges.txt", len(nodes), edges)
    edge_index = torch.from_numpy(np.ascontiguousarray(np.unique(edges, axis=0).T))
    graph = (Graph.from_edge_index if directed else _undirected)(edge_index, len(nodes))
    return RawData(graph, x, y, _geom_gcn_splits(base, name))


def _geom_gcn_splits(base: Path, name: str) -> list[Split]:
    splits = []
    for k in range(10):
        masks = _arrays(base / f"{name}_split_0.6_0.2_{k}.npz")
        splits.append(Split(*(torch.from_numpy(masks[f"{part}_mask"]).bool() for part in Split._fields)))
    return splits


def planetoid(root: Path, folder: str, name: str) -> RawData:
    """A citation graph of Planetoid with the splits of Geom-GCN. Its files are pickles, whose checksums `load` has
    verified before."""
    from torch_geometric.io import read_planetoid_data

    base = root / folder / "raw"
    data = read_planetoid_data(str(base), name)
    splits = _geom_gcn_splits(base, name)
    return RawData(_undirected(data.edge_index, data.num_nodes), data.x.to_dense(), data.y, splits)


def attributed(root: Path, folder: str) -> RawData:
    """An attributed graph of the authors of PANE, with ten random splits."""
    import pandas

    base = root / folder / "raw"
    stored: Any = scipy.sparse.load_npz(base / "attrs.npz")
    words = stored.tocsr()
    words.check_format(full_check=True)
    edges = pandas.read_csv(base / "edgelist.txt", header=None, sep=r"\s+").to_numpy(np.int64)
    labels = [line.split() for line in (base / "labels.txt").read_text("utf-8").splitlines()]
    y = torch.tensor([int(label) - 1 for _, label in labels])
    pointers, columns = (torch.from_numpy(part.astype(np.int64)) for part in (words.indptr, words.indices))
    x = sparse_csr(pointers, columns, torch.from_numpy(words.data.astype(np.float32)), torch.Size(words.shape))
    return RawData(_undirected(torch.from_numpy(edges.T.copy()), y.numel()), x, y, random_splits(y.numel()))


def ppi(root: Path, folder: str) -> RawData:
    """All graphs of PPI as one batch; the public split by graphs becomes masks over the nodes."""
    xs, ys, edges, batches, parts = [], [], [], [], []
    num_nodes = num_graphs = 0
    for k, part in enumerate(("train", "valid", "test")):
        stem = str(root / folder / "raw" / part)
        graph_id = np.load(f"{stem}_graph_id.npy", allow_pickle=False)
        links = json.loads(Path(f"{stem}_graph.json").read_text())["links"]
        xs.append(np.load(f"{stem}_feats.npy", allow_pickle=False).astype(np.float32))
        ys.append(np.load(f"{stem}_labels.npy", allow_pickle=False).astype(bool))
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
    arrays = _arrays(root / file)
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
    _check_nodes(path.name, y.numel(), source, target)
    return RawData(Graph.from_undirected(source, target, y.numel()), x, y, [Split(*masks)])


def _chunks(path: Path, dtype: type[np.generic]) -> Iterator[Array]:
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


def dimensions(root: Path) -> NodeDataset:
    """The generated graph with known smooth feature dimensions."""
    from gfgn.data.generators import dimensions as generate

    return generate()


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
