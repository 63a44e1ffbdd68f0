"""`read` on arrays: `.npz` files of the public layouts and PyG `Data`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from gfgn.data import DataError, read, read_with_notes

SIZE = 40
X = np.random.default_rng(1).normal(size=(SIZE, 3)).astype(np.float32)
Y = np.arange(SIZE) % 3
IDS = [f"n{k}" for k in range(SIZE)]
INDEX = np.array([np.arange(SIZE), (np.arange(SIZE) * 7 + 3) % SIZE])
PARTS = np.stack([np.stack([(np.arange(SIZE) + shift) % 3 == k for shift in range(2)]) for k in range(3)])
MASKS = dict(zip(("train_mask", "val_mask", "test_mask"), PARTS[:, 0], strict=True))
MANY_MASKS = dict(zip(("train_masks", "val_masks", "test_masks"), PARTS, strict=True))


def csr(name: str, matrix: Any) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(matrix)
    return {f"{name}{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}


ADJACENCY = scipy.sparse.csr_array((np.ones(SIZE), (INDEX[0], INDEX[1])), shape=(SIZE, SIZE))
PYG = {"edge_index": INDEX, "x": X, "y": Y}
SPARSE = {"edge_index": INDEX, "y": Y} | csr("x_", X)
HETEROPHILOUS = {"node_features": X, "node_labels": Y, "edges": INDEX.T}
ATTRIBUTED = csr("adj_", ADJACENCY) | csr("attr_", X) | {"labels": Y}
LAYOUTS: dict[str, dict[str, Any]] = {
    "PyG": PYG,
    "sparse": SPARSE,
    "splits": HETEROPHILOUS | MANY_MASKS,
    "split": HETEROPHILOUS | MASKS,
    "attributed": ATTRIBUTED,
    "dotted": csr("adj_matrix.", ADJACENCY) | csr("attr_matrix.", X) | {"labels": Y},
    "dense": csr("adj_", ADJACENCY) | {"attr_matrix": X, "labels": Y},
}


def data(**arrays: Any) -> Data:
    return Data(**{name: torch.from_numpy(np.asarray(value)) for name, value in (PYG | arrays).items()})


def save(folder: Path, content: dict[str, Any]) -> Path:
    np.savez(folder / "graph.npz", **content)
    return folder / "graph.npz"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(tmp_path: Path, layout: str) -> None:
    dataset = read(save(tmp_path, LAYOUTS[layout]), scale="none")
    assert dataset.fingerprint == read(data(), scale="none").fingerprint
    assert (dataset.name, dataset.class_names, dataset.graph.weight) == ("graph", ["0", "1", "2"], None)
    assert (dataset.x.layout == torch.sparse_csr) == (layout in ("sparse", "attributed", "dotted"))
    assert len(dataset.splits) == {"splits": 2, "split": 1}.get(layout, 10)
    if layout == "splits":
        assert [split.train.tolist() for split in dataset.splits] == MANY_MASKS["train_masks"].tolist()


def test_data_of_every_kind() -> None:
    x = X.copy()
    x[3, 1] = np.nan
    dataset = read(data(x=x, train_mask=PARTS[0].T, val_mask=PARTS[1].T, test_mask=PARTS[2].T))
    assert dataset.feature_names == ["x0", "x1", "x1 missing", "x2"]
    assert dataset.x[3, 1:3].tolist() == [0, 1]
    assert len(dataset.splits) == 2
    sparse, half = data(), data()
    sparse.x, half.x = torch.from_numpy(X).to_sparse_coo(), torch.from_numpy(X).bfloat16()
    torch.testing.assert_close(read(sparse, scale="row").x.to_dense(), read(data(), scale="row").x)
    torch.testing.assert_close(read(half, scale="none").x, half.x.float())
    repeated = torch.tensor([[0], [1]]).repeat(1, 256)  # 256 wraps to 0 in eight bits
    reading = read_with_notes(Data(x=torch.ones(3, 1), edge_index=repeated))
    assert (reading.dataset.graph.num_edges, reading.dataset.num_classes) == (2, 0)


def test_directed_and_weighted_adjacency(tmp_path: Path) -> None:
    matrix = ADJACENCY * 2.5
    matrix.data[0] = 0  # no edge
    graph = read(save(tmp_path, csr("adj_", matrix) | {"attr_matrix": X}), undirected=False).graph
    pairs = [pair for pair in sorted(map(tuple, INDEX.T[1:].tolist())) if pair[0] != pair[1]]
    assert sorted(map(tuple, graph.edge_index.T.tolist())) == pairs
    assert graph.weight is not None
    assert set(graph.weight.tolist()) == {2.5}


def test_names_in_a_layout(tmp_path: Path) -> None:
    names = {
        "class_names": ["zebra", "ant", "mole"],
        "attr_names": list("abc"),
        "node_names": IDS,
    }
    content = ATTRIBUTED | {name: np.array(value) for name, value in names.items()}
    reading = read_with_notes(save(tmp_path, content | {"extra": np.array({0: "zebra"}, dtype=object)}))
    dataset = reading.dataset
    assert dataset.class_names == ["zebra", "ant", "mole"]  # in the order of the labels
    assert (dataset.y.tolist(), dataset.feature_names) == (Y.tolist(), ["a", "b", "c"])
    assert dataset.node_ids is not None
    assert dataset.node_ids.tolist() == IDS
    assert "graph.npz: unknown arrays ignored: extra" in reading.notes
    objects = ATTRIBUTED | {"class_names": np.array(["a", 1, None], dtype=object)}
    assert read(save(tmp_path, objects)).class_names == ["0", "1", "2"]


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"graph": INDEX, "values": X}, ["layout: graph, values", "edge_index and x"]),
    ({"edge_index": INDEX}, ["no x", "edge_index"]),
    ({"x": X}, ["no edge_index"]),
    (PYG | {"x": X[0]}, ["x has shape [3]", "[N, F]"]),
    (PYG | {"x": np.full((SIZE, 2), "a")}, ["x is of type <U1", "numbers"]),
    (PYG | {"x": np.where(X > 1, np.inf, X)}, ["x holds inf", "row", "column"]),
    (PYG | {"edge_index": np.zeros((3, 4), dtype=int)}, ["edge_index has shape [3, 4]"]),
    (PYG | {"edge_index": np.zeros((2, 4))}, ["edge_index", "float64", "integers"]),
    (PYG | {"edge_index": np.array([[0, 1], [1, 40]])}, ["edge_index", "1 to 40", "edge 1", "0 to 39"]),
    (PYG | {"edge_weight": np.ones(4)}, ["edge_weight has shape [4]"]),
    (PYG | {"edge_weight": -np.ones(SIZE)}, ["edge_weight", "-1.0", "edge 0"]),
    (PYG | {"y": np.full(SIZE, 1j)}, ["y has shape", "complex128"]),
    (PYG | {"y": np.full(SIZE, np.inf)}, ["y holds inf"]),
    (PYG | {"y": np.ones(SIZE)}, ["one class", "'1'"]),
    (PYG | {"y": np.arange(SIZE) / 7}, ["y has 40 distinct values", "regression"]),
    (PYG | MASKS | {"train_mask": np.ones(5, dtype=bool)}, ["train_mask has shape [5]"]),
    (PYG | MASKS | {"train_mask": np.full(SIZE, 3)}, ["train_mask", "0 and 1"]),
    (PYG | MASKS | {"test_mask": MASKS["train_mask"]}, ["train_mask and test_mask", "node 0", "split 0"]),
    (PYG | MASKS | {"train_mask": np.zeros(SIZE, dtype=bool)}, ["split 0", "train"]),
    (PYG | {"train_mask": MASKS["train_mask"]}, ["no val_mask"]),
    (SPARSE | {"x": X}, ["both x and x_data"]),
    (SPARSE | {"x_indices": np.full(3 * SIZE, 3)}, ["x_data", "CSR"]),
    (SPARSE | {"x_data": np.full(3 * SIZE, np.inf)}, ["x_data holds inf"]),
    (SPARSE | {"x_shape": np.array([3])}, ["x_shape is 3"]),
    (PYG | {"y": np.array([{"a": 1}] * SIZE, dtype=object)}, ["y cannot be read", "never unpickled"]),
    (HETEROPHILOUS | {"edges": INDEX.T + 1}, ["edges joins", "0 to 39"]),
    (HETEROPHILOUS | {"node_labels": Y[:3]}, ["node_labels has shape [3]"]),
    (csr("adj_", ADJACENCY) | {"labels": Y}, ["no attr_matrix, only adj_data"]),
    (csr("adj_", X) | {"attr_matrix": X}, ["adj_shape is [40, 3]"]),
    (ATTRIBUTED | {"attr_matrix": X}, ["both attr_matrix and attr_data"]),
]


@pytest.mark.parametrize(("content", "words"), BAD)
def test_bad_arrays(tmp_path: Path, content: dict[str, Any], words: list[str]) -> None:
    sources: list[tuple[str, Path | Data]] = [("graph.npz", save(tmp_path, content))]
    if {"x", "edge_index"} <= content.keys() and all(value.dtype.kind not in "UO" for value in content.values()):
        plain = {name: torch.from_numpy(value) for name, value in content.items() if not name.startswith("x_")}
        sources += [("Data", Data(**plain))] if "x_data" not in content else []
    for name, source in sources:
        with pytest.raises(DataError) as caught:
            read(source)
        assert [word for word in (name, *words) if word not in str(caught.value)] == [], str(caught.value)


def test_bad_data_and_options(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Data: y is of type list"):
        read(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), y=[1]))
    for option in ({"id": "a"}, {"label": "a"}, {"drop": ["a"]}, {"target_column": "a"}):
        for source in (save(tmp_path, PYG), data()):
            with pytest.raises(DataError, match=f"{next(iter(option))} is .*no columns with names"):
                read(source, **option)  # type: ignore[arg-type]


def test_arrays_for_a_model() -> None:
    trained = read(data())
    model: dict[str, Any] = {"encoder": trained.encoder, "class_names": trained.class_names}
    dataset = read(data(x=X[:20], edge_index=INDEX % 20, y=np.full(20, 2)), **model)
    assert torch.equal(dataset.x, trained.x[:20])
    assert dataset.y.tolist() == [2] * 20
    with pytest.raises(DataError, match=r"2 columns, expected 3 \(x0, x1, x2\); y has unknown classes '3'"):
        read(data(x=X[:, :2], y=np.full(SIZE, 3)), **model)


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trap = np.array([Malicious(tmp_path / "sprung")], dtype=object)
    read(save(tmp_path, PYG | {"extra": trap}))  # never loaded
    with pytest.raises(DataError, match=r"graph.npz: x .*never unpickled"):
        read(save(tmp_path, PYG | {"x": trap}))
    for content in (trap.dumps(), b"", b"nonsense", b"PK\x03\x04" + b"\0" * 50):  # a bare pickle, damaged files
        (tmp_path / "graph.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"graph.npz cannot be read"):
            read(tmp_path / "graph.npz")
    assert not (tmp_path / "sprung").exists()
