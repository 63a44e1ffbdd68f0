"""`read`: all formats give the same graph, repairs are noted, and errors are one line that names the position."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gfgn import Graph
from gfgn.data import DataError, NodeDataset, describe_reading, pack_tables, read, read_with_notes

SIZE = 12
SOURCE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 3]
TARGET = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 9]
WEIGHT = [0.5, 1.0, 2.0, 1.0, 3.0, 1.0, 1.0, 0.25, 1.0, 1.0, 4.0, 1.0, 2.0]
X = np.random.default_rng(0).normal(size=(SIZE, 3)).astype(np.float32)
Y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, -1])
PART = ["train", "train", "train", "val", "val", "val", "test", "test", "test", "train", "val", ""]


def columns(ids: list[Any]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    nodes = {"id": ids, "label": [("red", "sky", "tan", "")[k] for k in Y], "split": PART}
    nodes |= {f"f{k}": X[:, k].tolist() for k in range(3)}
    return nodes, {"source": [ids[k] for k in SOURCE], "target": [ids[k] for k in TARGET], "weight": WEIGHT}


def save(folder: Path, name: str, ending: str, content: dict[str, list[Any]]) -> None:
    table = pa.table(content)
    (csv.write_csv if ending == "csv" else pq.write_table)(table, folder / f"{name}.{ending}")


def save_tables(folder: Path, nodes: str = "csv", edges: str = "csv", ids: list[Any] | None = None) -> Path:
    content = columns(ids or [f"n{k}" for k in range(SIZE)])
    save(folder, "nodes", nodes, content[0])
    save(folder, "edges", edges, content[1])
    return folder


def zipped(folder: Path, inner: str = "") -> Path:
    path = folder.parent / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, inner + file.name)
    return path


def arrays() -> dict[str, Any]:
    masks = {f"{part}_mask": np.array([value == part for value in PART]) for part in ("train", "val", "test")}
    return {"edge_index": np.array([SOURCE, TARGET]), "x": X, "y": Y, "edge_weight": np.array(WEIGHT), **masks}


def sparse_arrays() -> dict[str, Any]:
    rest = {name: value for name, value in arrays().items() if name != "x"}
    indices, indptr = np.tile(np.arange(3), SIZE), np.arange(0, 3 * SIZE + 1, 3)
    return rest | {"x_data": X.ravel(), "x_indices": indices, "x_indptr": indptr, "x_shape": np.array([SIZE, 3])}


def save_npz(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "graph.npz"
    np.savez(path, **content)
    return path


def data(**changes: Any) -> Data:
    return Data(**{name: torch.from_numpy(np.asarray(value)) for name, value in (arrays() | changes).items()})


def assert_same_graph(graph: Graph, expected: Graph) -> None:
    assert torch.equal(graph.transpose.long(), expected.transpose)
    for name in (f.name for f in dataclasses.fields(Graph) if f.name not in ("given_order", "transpose")):
        one, two = getattr(graph, name), getattr(expected, name)
        if isinstance(one, tuple):
            assert all(map(torch.equal, one, two)), name
        else:
            assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two, name


def check_dataset(dataset: NodeDataset) -> None:
    both = torch.tensor([SOURCE + TARGET, TARGET + SOURCE])
    assert_same_graph(dataset.graph, Graph.from_edge_index(both, SIZE, torch.tensor(WEIGHT * 2)))
    assert torch.equal(dataset.graph.edge_position.long(), torch.arange(dataset.graph.num_edges))
    torch.testing.assert_close(dataset.x.to_dense(), torch.from_numpy(X), rtol=1e-6, atol=0)
    assert dataset.y.tolist() == Y.tolist()
    assert dataset.num_classes == 3
    assert len(dataset.splits) == 1
    for part, mask in dataset.splits[0]._asdict().items():
        assert mask.tolist() == [value == part for value in PART]


def plain(source: Any, **options: Any) -> NodeDataset:
    return read(source, scale="none", **options)


# --- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", ["csv", "parquet"])
@pytest.mark.parametrize("edges", ["csv", "parquet"])
@pytest.mark.parametrize("ids", ["strings", "integers"])
def test_tables(tmp_path: Path, nodes: str, edges: str, ids: str) -> None:
    names: list[Any] = [f"node {k}, é" for k in range(SIZE)] if ids == "strings" else [7 * k - 20 for k in range(SIZE)]
    dataset = plain(save_tables(tmp_path, nodes, edges, names))
    check_dataset(dataset)
    assert dataset.node_ids is not None
    assert [str(name) for name in dataset.node_ids] == [str(name) for name in names]
    assert dataset.class_names == ["red", "sky", "tan"]
    assert dataset.feature_names == ["f0", "f1", "f2"]
    assert (dataset.node_ids.dtype == np.int64) == ((nodes, ids) == ("parquet", "integers"))


@pytest.mark.parametrize("inner", ["", "my-graph/"])
def test_zip(tmp_path: Path, inner: str) -> None:
    (tmp_path / "folder").mkdir()
    dataset = plain(zipped(save_tables(tmp_path / "folder", "parquet"), inner))
    check_dataset(dataset)
    assert dataset.name == "packed"


@pytest.mark.parametrize("content", [arrays, sparse_arrays])
def test_npz(tmp_path: Path, content: Callable[[], dict[str, Any]]) -> None:
    dataset = plain(str(save_npz(tmp_path, content())))
    check_dataset(dataset)
    assert dataset.name == "graph"
    assert dataset.class_names == ["0", "1", "2"]
    assert dataset.node_ids is not None
    assert dataset.node_ids.tolist() == list(range(SIZE))
    assert (dataset.x.layout == torch.sparse_csr) == (content is sparse_arrays)


def test_data() -> None:
    check_dataset(plain(data()))
    sparse = data()
    sparse.x = torch.from_numpy(X).to_sparse_csr()
    check_dataset(plain(sparse))


def test_directed() -> None:
    dataset = read(data(), undirected=False)
    assert_same_graph(dataset.graph, Graph.from_edge_index(torch.tensor([SOURCE, TARGET]), SIZE, torch.tensor(WEIGHT)))
    plain = Data(x=torch.randn(SIZE, 2), edge_index=torch.tensor([SOURCE, TARGET]), y=torch.from_numpy(Y))
    assert_same_graph(read(plain, undirected=False).graph, Graph.from_edge_index(plain.edge_index, SIZE))
    assert "directed" in describe_reading(read_with_notes(plain, undirected=False))


# --- repairs and notes ----------------------------------------------------------------------------


def test_repairs_of_edges_are_noted() -> None:
    index = np.array([[0, 0, 1, 2, 3, 0], [1, 1, 0, 2, 4, 5]])
    reading = read_with_notes(data(edge_index=index, edge_weight=np.array([1.0, 2, 3, 1, 4, 0])))
    notes = "\n".join(reading.notes)
    assert "1 self-loop dropped" in notes
    assert "1 edge of weight 0 dropped" in notes
    assert "1 duplicate edge merged, their weights added" in notes
    assert "edges made undirected: 1 opposite edge added" in notes
    graph = reading.dataset.graph
    assert graph.edge_index.tolist() == [[1, 0, 4, 3], [0, 1, 3, 4]]
    assert graph.weight is not None
    assert graph.weight.tolist() == [3, 3, 4, 4]


def test_an_edge_repeated_256_times_is_one_edge() -> None:
    index = torch.tensor([[0], [1]]).repeat(1, 256)  # 256 wraps to 0 in eight bits
    assert read(Data(x=torch.ones(3, 1), edge_index=index)).graph.num_edges == 2


def test_weights_that_differ_by_direction_are_refused() -> None:
    given = data(edge_index=np.array([[0, 1], [1, 0]]), edge_weight=np.array([1.0, 2.0]))
    with pytest.raises(DataError, match=r"unless undirected=False \(--directed\), got 2 from 1 to 0 and 1 from 0 to 1"):
        read(given)
    assert read(given, undirected=False).graph.num_edges == 2


def test_the_file_of_two_weights_is_named(tmp_path: Path) -> None:
    write(tmp_path, edges="source,target,weight\na,b,1\nb,a,2\n")
    message = r"edges.csv: the weight must be the same .*, got 2 from 'b' to 'a' and 1 from 'a' to 'b'"
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f\na,1\nb,2\n")
    with pytest.raises(DataError, match=message):
        pack_tables(tmp_path, tmp_path / "store")


NODES = """id,label,age,color,member,score
a,x,1,red,true,1
b,y,,red,FALSE,NA
c,x,3,blue,true,
d,y,5,,,nan
e,,7,blue,false,
f,-1,NA,red,false,
"""
EDGES = "source,target,since\na,b,2020\nb,c,2021\nc,a,2022\n"


def write(folder: Path, nodes: str = NODES, edges: str = EDGES) -> Path:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def test_columns_by_kind_and_missing_values(tmp_path: Path) -> None:
    reading = read_with_notes(write(tmp_path), scale="none")
    dataset = reading.dataset
    x = dict(zip(dataset.feature_names, dataset.x.T.tolist(), strict=True))
    train = torch.stack([split.train for split in dataset.splits]).any(0)
    assert train.tolist() == [True] * 4 + [False] * 2  # every labelled node, over ten splits
    assert x["age"] == [1, 3, 3, 5, 7, 3]  # the mean of 1, 3 and 5
    assert x["age missing"] == [0, 1, 0, 0, 0, 1]
    assert x["color=blue"] == [0, 0, 1, 0, 1, 0]
    assert x["color=red"] == [1, 1, 0, 0, 0, 1]
    assert x["color missing"] == [0, 0, 0, 1, 0, 0]
    assert x["member"] == pytest.approx([1, 0, 1, 2 / 3, 0, 0])
    assert x["score"] == [1] * 6
    assert list(x) == [
        *("age", "age missing", "color=blue", "color=red", "color missing"),
        *("member", "member missing", "score", "score missing"),
    ]
    assert dataset.y.tolist() == [0, 1, 0, 1, -1, -1]
    notes = "\n".join(reading.notes)
    assert (
        "missing values replaced by the training mean, with an indicator feature each: age (1), member (1), score (3)"
        in notes
    )
    assert "missing categories read as none, with an indicator feature each: color (1)" in notes
    assert "2 unlabelled nodes kept" in notes
    assert "classes numbered in sorted order: 'x' is 0, 'y' is 1" in notes
    assert "10 random splits (48% train, 32% val, 20% test) of the labelled nodes made" in notes
    assert "edges.csv: unknown columns ignored: since" in notes
    assert len(dataset.splits) == 10
    assert all(int(torch.stack(list(split)).sum()) == 4 for split in dataset.splits)


def test_description(tmp_path: Path) -> None:
    text = describe_reading(read_with_notes(write(tmp_path)))
    for line in (
        "nodes     6 (ids such as 'a', 'b', 'c')",
        "edges     6, both directions counted",
        "columns   4: 1 numeric, 2 binary, 1 category",
        "features  9: age, age missing, color=blue, color=red, color missing and 4 more; scale standard",
        "classes   2: x (2), y (2)",
        "splits    10; the first: train 2, val 1, test 1",
        "metric    roc_auc",
        "note      1 numeric column standardized by the mean and standard deviation of 4 training nodes: age",
        "note      2 binary columns left as they are: member, score",
        "note      1 category column one-hot encoded: color (2 categories)",
        "note      edges made undirected: 3 opposite edges added",
    ):
        assert line in text


def test_numeric_classes_are_sorted_as_numbers(tmp_path: Path) -> None:
    rows = "".join(f"{k},{label},1\n" for k, label in enumerate([10, 9, 10, 9, 100, 100]))
    dataset = read(write(tmp_path, "id,label,f\n" + rows, "source,target\n0,1\n"))
    assert dataset.class_names == ["9", "10", "100"]
    assert dataset.y.tolist() == [1, 0, 1, 0, 2, 2]


def test_float_labels_with_missing_values(tmp_path: Path) -> None:
    nodes = {"id": [1, 2, 3, 4], "label": [0.0, None, 1.0, 1.0], "f": [True, False, None, True]}
    save(tmp_path, "nodes", "parquet", nodes)
    save(tmp_path, "edges", "parquet", {"source": ["1"], "target": ["2"]})
    assert read(tmp_path).y.tolist() == [0, -1, 1, 1]


def test_no_labels_at_all() -> None:
    reading = read_with_notes(Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]])))
    assert (reading.dataset.num_classes, reading.dataset.class_names, reading.dataset.splits) == (0, None, [])
    assert "no labels: no model can be trained on this graph" in reading.notes
    assert "splits    none" in describe_reading(reading)


def test_stratified_splits() -> None:
    y = np.repeat([0, 1, 2], [50, 100, 25])
    graph = Data(x=torch.ones(175, 1), edge_index=torch.tensor([[0], [1]]), y=torch.from_numpy(y))
    splits = read(graph, stratify=True).splits
    for split in splits:
        assert [np.bincount(y[mask.numpy()]).tolist() for mask in split] == [[24, 48, 12], [16, 32, 8], [10, 20, 5]]
        assert bool((torch.stack(list(split)).sum(0) == 1).all())
    assert not torch.equal(splits[0].train, splits[1].train)


def test_a_class_with_one_member() -> None:
    graph = Data(x=torch.ones(9, 1), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0] * 4 + [1] * 4 + [2]))
    assert "1 class with one member: 2" in read_with_notes(graph).notes
    refused(graph, "class '2'", "stratify", stratify=True)


def test_normalized_rows() -> None:
    dense = data()
    wanted = X / np.abs(X).sum(1, keepdims=True)
    torch.testing.assert_close(read(dense, scale="row").x, torch.from_numpy(wanted))
    dense.x = dense.x.to_sparse_csr()
    torch.testing.assert_close(read(dense, scale="row").x.to_dense(), torch.from_numpy(wanted))


def test_masks_of_many_splits() -> None:
    train = np.zeros((SIZE, 2), dtype=bool)
    train[[0, 1], [0, 1]] = True
    splits = read(data(train_mask=train)).splits
    assert [split.train.nonzero().view(-1).tolist() for split in splits] == [[0], [1]]


def test_unlabelled_nodes_are_removed_from_given_splits() -> None:
    reading = read_with_notes(data(y=np.array([-1, *Y[1:]])))
    assert not reading.dataset.splits[0].train[0]
    assert "1 unlabelled node removed from the given splits" in reading.notes


# --- errors ---------------------------------------------------------------------------------------


def refused(source: Any, *words: str, **options: Any) -> None:
    """Reading fails with one line that has these words: argument or file, position, value."""
    with pytest.raises(DataError) as caught:
        read(source, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == [], message


WEIGHTED = "source,target,weight\n"
BAD_CSV: list[tuple[str, str, list[str]]] = [
    ("", EDGES, ["nodes.csv", "empty"]),
    (NODES, "", ["edges.csv", "empty"]),
    ("id,f\n", EDGES, ["nodes.csv", "no rows"]),
    ("name,f\na,1\n", EDGES, ["nodes.csv", "'id'", "name, f"]),
    (NODES, "source,at,to\na,b,c\n", ["edges.csv", "'target'", "--target"]),
    (NODES, "a,b\nb,c\n", ["edges.csv", "no header", "a, b"]),
    ("id,f\na,1\nb,2\na,3\n", EDGES, ["nodes.csv row 3", "'a'", "row 1"]),
    ("id,f\na,1\n,2\n", EDGES, ["nodes.csv row 2", "id is empty"]),
    (NODES, EDGES + "a,zz,1\n", ["edges.csv row 4", "target 'zz'", "nodes.csv", "--skip-unknown"]),
    (NODES, "source,target\nq,a\na,b\nw,a\n", ["row 1", "source 'q'", "also in rows 3"]),
    (NODES, WEIGHTED + "a,b,1\nb,c,much\n", ["edges.csv row 2", "weight", "'much'"]),
    (NODES, WEIGHTED + "a,b,-1\n", ["edges.csv row 1", "weight", "-1"]),
    (NODES, WEIGHTED + "a,b,inf\n", ["edges.csv row 1", "weight", "inf"]),
    (NODES, WEIGHTED + "a,b,\n", ["edges.csv row 1", "weight", "None"]),
    ("id,f\na,1\nb,inf\nc,2\n", EDGES, ["nodes.csv", "'f'", "inf", "row 2"]),
    ("id,f\na,1\nb,2\nc,1e300\n", EDGES, ["nodes.csv", "'f'", "1e+300", "row 3"]),
    ("id,label,f\na,,1\nb,-1,2\nc,,3\n", EDGES, ["nodes.csv", "no labelled node"]),
    ("id,label,f\na,x,1\nb,x,2\nc,x,3\n", EDGES, ["nodes.csv", "one class", "'x'"]),
    ("id,label,f\na,x,1\nb,y,2\nc,,3\n", EDGES, ["nodes.csv", "2 labelled nodes", "3 or more"]),
    ("id,label,split,f\na,x,train,1\nb,y,dev,2\nc,,,3\n", EDGES, ["nodes.csv row 2", "split", "'dev'"]),
    ("id,label,split,f\na,x,train,1\nb,y,val,2\nc,,,3\n", EDGES, ["split 0", "test"]),
    ("id,f\na,1\nb,2,3\n", EDGES, ["nodes.csv", "CSV"]),
    ("id,f,f\na,1,2\n", EDGES, ["nodes.csv", "'f'", "more than once"]),
    ("id,label\na,x\n", EDGES, ["nodes.csv", "no feature column"]),
    ('id,label,"a\nb\x1b"\n1,x,1\n1,y,2\n', EDGES, ["nodes.csv row 2", "'1'"]),
]


@pytest.mark.parametrize(("nodes", "edges", "words"), BAD_CSV)
def test_bad_csv(tmp_path: Path, nodes: str, edges: str, words: list[str]) -> None:
    refused(write(tmp_path, nodes, edges), *words)


GOOD_NODES: dict[str, list[Any]] = {"id": [1, 2, 3], "f": [0.5, 1.5, 2.5]}
GOOD_EDGES: dict[str, list[Any]] = {"source": [1, 2], "target": [2, 3]}
BAD_PARQUET: list[tuple[dict[str, list[Any]], dict[str, list[Any]], list[str]]] = [
    ({"f": [1.0]}, {}, ["nodes.parquet", "'id'"]),
    ({}, {"source": [1]}, ["edges.parquet", "'target'", "--target"]),
    ({"id": [1, 2, 2], "f": [0.0, 1.0, 2.0]}, {}, ["nodes.parquet row 3", "id 2", "row 2"]),
    ({"id": [1, None, 2], "f": [0.0, 1.0, 2.0]}, {}, ["nodes.parquet row 2", "id is empty"]),
    ({"id": [1.5, 2.5], "f": [0.0, 1.0]}, {}, ["'id'", "double"]),
    ({}, {"source": [1, 9], "target": [2, 3]}, ["edges.parquet row 2", "source 9"]),
    ({}, {"source": [1, 2], "target": [2, None]}, ["edges.parquet row 2", "target is empty"]),
    ({}, GOOD_EDGES | {"weight": [1.0, float("nan")]}, ["edges.parquet row 2", "weight", "nan"]),
    ({}, GOOD_EDGES | {"weight": [-1, 1]}, ["edges.parquet row 1", "weight", "-1"]),
    ({}, GOOD_EDGES | {"weight": ["1", "x"]}, ["edges.parquet row 2", "weight", "'x'"]),
    (GOOD_NODES | {"f": [0.0, float("inf"), 1.0]}, {}, ["nodes.parquet", "'f'", "inf", "row 2"]),
    (GOOD_NODES | {"f": [[1], [2], [3]]}, {}, ["nodes.parquet", "'f'", "object"]),
    (GOOD_NODES | {"label": [0.5, 1.0, float("inf")]}, {}, ["'label'", "infinity"]),
    (GOOD_NODES | {"label": [[0], [1], [1]]}, {}, ["'label'", "object"]),
    (GOOD_NODES | {"label": [None, None, None]}, {}, ["nodes.parquet", "no labelled node"]),
    (GOOD_NODES | {"split": [0, 1, 2]}, {}, ["nodes.parquet row 1", "split", "0"]),
]


@pytest.mark.parametrize(("nodes", "edges", "words"), BAD_PARQUET)
def test_bad_parquet(
    tmp_path: Path, nodes: dict[str, list[Any]], edges: dict[str, list[Any]], words: list[str]
) -> None:
    save(tmp_path, "nodes", "parquet", nodes or GOOD_NODES)
    save(tmp_path, "edges", "parquet", edges or GOOD_EDGES)
    refused(tmp_path, *words)


@pytest.mark.parametrize("content", [b"not parquet", b"PAR1" * 20])
def test_broken_parquet(tmp_path: Path, content: bytes) -> None:
    save_tables(tmp_path, "parquet", "parquet")
    (tmp_path / "edges.parquet").write_bytes(content)
    refused(tmp_path, "edges.parquet", "Parquet")


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in arrays().items() if name not in names}


OBJECTS = np.array([{"a": 1}] * SIZE, dtype=object)
BAD_ARRAYS: list[tuple[dict[str, Any], list[str]]] = [
    (without("x"), ["no x", "edge_index"]),
    (without("edge_index"), ["no edge_index"]),
    (without("val_mask"), ["no val_mask"]),
    (arrays() | {"x": X[0]}, ["x has shape [3]", "[N, F]"]),
    (arrays() | {"x": np.full((SIZE, 2), "a")}, ["x is of type <U1", "numbers"]),
    (arrays() | {"x": np.where(X > 1, np.inf, X)}, ["x holds inf", "row", "column"]),
    (arrays() | {"edge_index": np.zeros((3, 4), dtype=int)}, ["edge_index has shape [3, 4]"]),
    (arrays() | {"edge_index": np.zeros((2, 4))}, ["edge_index", "float64", "integers"]),
    (arrays() | {"edge_index": np.array([[0, 1], [1, 12]])}, ["edge_index", "1 to 12", "edge 1", "0 to 11"]),
    (arrays() | {"edge_weight": np.ones(4)}, ["edge_weight has shape [4]"]),
    (arrays() | {"edge_weight": -np.ones(13)}, ["edge_weight", "-1.0", "edge 0"]),
    (arrays() | {"y": np.full(SIZE, 1j)}, ["y has shape", "complex128"]),
    (arrays() | {"y": np.full(SIZE, np.inf)}, ["y holds inf", "node 0"]),
    (arrays() | {"y": np.ones(SIZE)}, ["one class", "'1'"]),
    (arrays() | {"y": Y - 3}, ["y holds -3", "node 0"]),
    (arrays() | {"train_mask": np.ones(5, dtype=bool)}, ["train_mask has shape [5]"]),
    (arrays() | {"train_mask": np.full(SIZE, 3)}, ["train_mask", "0 and 1"]),
    (arrays() | {"test_mask": arrays()["train_mask"]}, ["train_mask and test_mask", "node 0", "split 0"]),
    (arrays() | {"train_mask": np.zeros(SIZE, dtype=bool)}, ["split 0", "train"]),
    (sparse_arrays() | {"x": X}, ["both x and x_data"]),
    ({k: v for k, v in sparse_arrays().items() if k != "x_shape"}, ["no x_shape"]),
    (sparse_arrays() | {"x_indptr": np.arange(4)}, ["x_data", "CSR"]),
    (sparse_arrays() | {"x_indices": np.full(36, 3)}, ["x_data", "CSR"]),
    (sparse_arrays() | {"x_indices": np.zeros(36)}, ["x_indices", "integers"]),
    (sparse_arrays() | {"x_data": np.full(36, np.inf)}, ["x_data holds inf"]),
    (sparse_arrays() | {"x_shape": np.array([3])}, ["x_shape is 3"]),
    (arrays() | {"y": OBJECTS}, ["y cannot be read", "never unpickled"]),
]


@pytest.mark.parametrize(("content", "words"), BAD_ARRAYS)
def test_bad_arrays(tmp_path: Path, content: dict[str, Any], words: list[str]) -> None:
    refused(save_npz(tmp_path, content), "graph.npz", *words)
    numbers = all(np.asarray(value).dtype.kind not in "UO" for value in content.values())
    if numbers and "x_data" not in content:
        refused(Data(**{name: torch.from_numpy(np.asarray(value)) for name, value in content.items()}), "Data", *words)


def test_bad_objects() -> None:
    refused({}, "source", "dict")
    refused(Data(x=[1], edge_index=torch.tensor([[0], [1]])), "Data: x", "list")


class Malicious:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["x", "extra"])
def test_nothing_is_unpickled(tmp_path: Path, name: str) -> None:
    trap = tmp_path / "sprung"
    path = save_npz(tmp_path, arrays() | {name: np.array([Malicious(trap)], dtype=object)})
    if name == "extra":  # never loaded
        read(path)
    else:
        refused(path, "graph.npz: x", "never unpickled")
    path.write_bytes(np.array([Malicious(trap)], dtype=object).dumps())  # a bare pickle under the name
    refused(path, "graph.npz cannot be read")
    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04" + b"\0" * 50])
@pytest.mark.parametrize("ending", ["npz", "zip"])
def test_broken_archives(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"graph.{ending}"
    path.write_bytes(content)
    refused(path, f"graph.{ending} cannot be read")
    with path.open("wb") as file:
        np.save(file, X)
    refused(path, f"graph.{ending}", "single array" if ending == "npz" else "zip")


def test_bad_zip(tmp_path: Path) -> None:
    path = tmp_path / "graph.zip"

    def pack(**files: str) -> Path:
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name.replace("__", "/") + ".csv", text)
        return path

    refused(pack(edges=EDGES), "graph.zip", "nodes.csv")
    refused(pack(a__nodes=NODES, b__nodes=NODES), "graph.zip", "a/nodes.csv and b/nodes.csv")
    refused(pack(nodes=NODES, b__edges=EDGES), "graph.zip", "nodes.csv and b/edges.csv")
    refused(pack(a__b__nodes=NODES, edges=EDGES), "graph.zip", "nodes.csv")
    refused(pack(nodes="", edges=EDGES), "graph.zip/nodes.csv", "empty")
    refused(pack(nodes=NODES, edges=EDGES + "a,zz,1\n"), "graph.zip/edges.csv row 4", "'zz'")
    whole = pack(nodes=NODES * 50, edges=EDGES).read_bytes()
    path.write_bytes(whole[:300])
    refused(path, "graph.zip", "zip archive")


def test_paths_without_a_graph(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere", "does not exist")
    refused(tmp_path, str(tmp_path), "nodes.csv")
    save_tables(tmp_path, "csv")
    refused(tmp_path / "nodes.csv", "nodes.csv", "'.csv'")
    shutil.copy(tmp_path / "nodes.csv", tmp_path / "nodes.parquet")
    refused(tmp_path, "both nodes.csv and nodes.parquet")


# --- random input ---------------------------------------------------------------------------------

CELL = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "c",
            "",
            "1",
            "2",
            "-1",
            "1e400",
            "nan",
            "inf",
            "?",
            "1.234,5",
            "01.02.2020",
            "true",
            "train",
            "test",
            '"',
            " ",
        ]
    ),
    st.text(max_size=4),
)
FUZZ = settings(suppress_health_check=list(HealthCheck))


def table(names: list[str]) -> st.SearchStrategy[str]:
    header = st.one_of(st.permutations(names), st.lists(st.sampled_from(names), max_size=5))
    rows = st.lists(st.lists(CELL, min_size=len(names), max_size=len(names)), max_size=8)
    return st.builds(lambda top, rest: "\n".join(",".join(row) for row in [top, *rest]), header, rows)


def assert_success_or_reason(source: Any, **options: Any) -> None:
    try:
        reading = read_with_notes(source, **options)
    except DataError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert describe_reading(reading)


@FUZZ
@given(table(["id", "label", "split", "f"]), table(["source", "target", "weight"]), st.booleans(), st.booleans())
def test_any_csv(nodes: str, edges: str, undirected: bool, stratify: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("nodes.csv", nodes), ("edges.csv", edges)):
            (Path(folder) / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        assert_success_or_reason(
            folder, undirected=undirected, stratify=stratify, scale="row" if stratify else "standard"
        )


VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-3, 6)), min_size=6, max_size=6),
    st.lists(st.one_of(st.none(), st.floats()), min_size=6, max_size=6),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "1", "2", "", "val"])), min_size=6, max_size=6),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=6, max_size=6),
    st.just([b"a"] * 6),
    st.just([[1]] * 6),
)
IDS = st.sampled_from([list("abcdef"), [1, 2, 3, 4, 5, 6], np.arange(6, dtype=np.uint64) + 2**63, list("123456")])


@FUZZ
@given(
    st.fixed_dictionaries({"id": IDS}, optional={"label": VALUES, "split": VALUES, "f": VALUES, "g": VALUES}),
    st.fixed_dictionaries({"source": IDS, "target": IDS}, optional={"weight": VALUES}),
)
def test_any_parquet(nodes: dict[str, list[Any]], edges: dict[str, list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), "nodes", "parquet", nodes)
        save(Path(folder), "edges", "parquet", edges)
        assert_success_or_reason(folder)
