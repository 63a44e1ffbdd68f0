"""Options of `read`, columns of every kind, public layouts of `.npz` files, and graphs for a model that exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from gfgn.data import DataError, NodeDataset, describe_reading, read, read_with_notes

SIZE = 40
EDGES = pd.DataFrame({"source": np.arange(SIZE), "target": (np.arange(SIZE) * 7 + 3) % SIZE})


def nodes(**changes: Any) -> pd.DataFrame:
    random = np.random.default_rng(0)
    data = {
        "id": np.arange(SIZE),
        "label": random.choice(["cat", "dog", "owl"], SIZE),
        "age": random.integers(20, 60, SIZE).astype(float),
        "income": random.normal(50_000, 9_000, SIZE),
        "color": random.choice(["red", "tan"], SIZE),
        "since": pd.Timestamp("2021-01-01") + pd.to_timedelta(random.integers(0, 10**7, SIZE), unit="s"),
    }
    return pd.DataFrame({name: value for name, value in (data | changes).items() if value is not None})


def save(folder: Path, table: pd.DataFrame, ending: str = "csv", edges: pd.DataFrame = EDGES) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in (("nodes", table), ("edges", edges)):
        if ending == "csv":
            content.to_csv(folder / f"{name}.csv", index=False)
        else:
            content.to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def features(dataset: NodeDataset) -> dict[str, np.ndarray[Any, Any]]:
    return dict(zip(dataset.feature_names, dataset.x.to_dense().numpy().T, strict=True))


def train_nodes(dataset: NodeDataset) -> np.ndarray[Any, Any]:
    return torch.stack([split.train for split in dataset.splits]).any(0).numpy()


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_every_kind(tmp_path: Path, ending: str) -> None:
    table = nodes(split=["train"] * 15 + ["val"] * 10 + ["test"] * 15)
    table.loc[[3, 20], "age"] = np.nan
    table.loc[[4], "since"] = pd.NaT
    dataset = read(save(tmp_path / "graph", table, ending))
    assert dataset.encoder is not None
    assert [column.kind for column in dataset.encoder.columns] == ["numeric", "numeric", "category", "date"]
    x = features(dataset)
    days = (table["since"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for name, column in (("age", table["age"]), ("income", table["income"]), ("since", days)):
        train = column[:15]
        expected = ((column - train.mean()) / train.std(ddof=0)).fillna(0)
        np.testing.assert_allclose(x[name], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(x["age missing"], table["age"].isna())
    np.testing.assert_array_equal(x["since missing"], table["since"].isna())
    np.testing.assert_array_equal(x["color=tan"], table["color"] == "tan")


def test_test_nodes_and_labels_do_not_change_the_statistics(tmp_path: Path) -> None:
    split = ["train"] * 15 + ["val"] * 10 + ["test"] * 15
    before = read(save(tmp_path / "a", nodes(split=split)))
    table = nodes(split=split)
    table.loc[15:, "income"] *= 100
    table.loc[15:, "label"] = table.loc[15:, "label"].to_numpy()[::-1]
    after = read(save(tmp_path / "b", table))
    assert before.encoder is not None
    assert after.encoder == before.encoder
    assert torch.equal(before.x[:15], after.x[:15])


def test_training_nodes_of_any_split_count() -> None:
    train = np.zeros((SIZE, 2), dtype=bool)
    train[:5, 0] = train[3:9, 1] = True
    rest = ~train.any(1)
    masks = {
        "train_mask": train,
        "val_mask": rest & (np.arange(SIZE) % 2 == 0),
        "test_mask": rest & (np.arange(SIZE) % 2 == 1),
    }
    x = np.random.default_rng(0).normal(3, 2, size=(SIZE, 2))
    tensors = {name: torch.from_numpy(value) for name, value in masks.items()}
    y = torch.arange(SIZE) % 3
    dataset = read(Data(x=torch.from_numpy(x), y=y, edge_index=torch.from_numpy(INDEX), **tensors))
    assert dataset.encoder is not None
    np.testing.assert_allclose(dataset.encoder.mean, x[:9].astype(np.float32).mean(0, dtype=np.float64), rtol=1e-6)
    assert dataset.encoder.nodes == 9


@pytest.mark.parametrize(
    ("texts", "days"),
    [
        (["2020-01-01", "2020-01-03"], [18262, 18264]),
        (["1969-12-31", ""], [-1, np.nan]),
        (["2020-01-01T12:00", "2020-01-01 18:00:00"], [18262.5, 18262.75]),
        (["2020-01-01T12:00Z", "2020-01-01T12:00:00.5+06:00"], [18262.5, 18262.25 + 0.5 / 86400]),
        (["2020-01-01", "NA"], [18262, np.nan]),
    ],
)
def test_iso_dates_in_csv(tmp_path: Path, texts: list[str], days: list[float]) -> None:
    dataset = read(save(tmp_path / "graph", nodes(since=texts * (SIZE // 2))), scale="none")
    assert dataset.encoder is not None
    assert dataset.encoder.columns[-1].kind == "date"
    known = np.nanmean(days)
    np.testing.assert_allclose(features(dataset)["since"][:2], np.nan_to_num(days, nan=known), rtol=1e-7)


def test_what_looks_like_a_date_but_is_none(tmp_path: Path) -> None:
    dataset = read(save(tmp_path / "graph", nodes(since=["2020-02-30", "2020-02-28"] * (SIZE // 2))))
    assert "since=2020-02-30" in dataset.feature_names


def test_dates_in_parquet(tmp_path: Path) -> None:
    dates = pd.Series(pd.date_range("2020-01-01", periods=SIZE)).dt.date
    zoned = pd.date_range("2020-01-01T01:00", periods=SIZE, tz="Europe/Berlin")
    dataset = read(save(tmp_path / "graph", nodes(since=dates, zoned=zoned), "parquet"), scale="none")
    np.testing.assert_allclose(features(dataset)["since"], features(dataset)["zoned"])
    assert features(dataset)["since"][0] == 18262


def test_missing_values_in_arrays() -> None:
    x = np.random.default_rng(0).normal(size=(SIZE, 2)).astype(np.float32)
    x[3, 1] = np.nan
    index = torch.from_numpy(INDEX)
    dataset = read(Data(x=torch.from_numpy(x), edge_index=index, y=torch.arange(SIZE) % 2))
    assert dataset.feature_names == ["x0", "x1", "x1 missing"]
    assert dataset.x[3].tolist()[1:] == [0, 1]


# --- options ----------------------------------------------------------------------------------------------------------


def test_names_of_columns(tmp_path: Path) -> None:
    table = nodes(part=["train"] * 15 + ["val"] * 10 + ["test"] * 15).rename(columns={"id": "node", "label": "pet"})
    folder = save(tmp_path / "graph", table.assign(label=np.arange(SIZE) / 7))
    reading = read_with_notes(folder, id="node", label="pet", split="part", drop=["since", "color"])
    dataset = reading.dataset
    assert dataset.class_names == ["cat", "dog", "owl"]
    assert dataset.feature_names == ["age", "income", "label"]
    assert len(dataset.splits) == 1
    assert dataset.node_ids is not None
    assert [int(name) for name in dataset.node_ids] == list(range(SIZE))
    assert "nodes.csv: 2 columns dropped: color, since" in reading.notes
    assert "nodes.csv: column 'label' is a feature, because label is 'pet'" in reading.notes
    unlabelled = read(folder, id="node", drop=["label", "since", "pet", "part"])
    assert (unlabelled.num_classes, unlabelled.feature_names) == (0, ["age", "income", "color=red", "color=tan"])


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"id": "node"}, "nodes.csv has no column 'node', only id, label"),
    ({"label": "pet"}, "nodes.csv has no column 'pet'"),
    ({"split": "part"}, "nodes.csv has no column 'part'"),
    ({"drop": ["nothing"]}, "nodes.csv has no column 'nothing'"),
    ({"drop": ["id"]}, "column 'id' is dropped, expected it for the ids of the nodes"),
    ({"label": "id"}, "id, label and split are id, id, expected different columns"),
    ({"drop": ["age", "income", "color", "since"]}, "nodes.csv has no feature column"),
    ({"scale": "log"}, "scale must be one of 'none', 'standard', 'row', got 'log'"),
    ({"metric": "f2"}, "metric must be one of 'accuracy', .* got 'f2'"),
    ({"class_names": ["a", "b"]}, "encoder and class_names must be given together"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(save(tmp_path / "graph", nodes()), **options)


def test_drop_is_not_a_string(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="drop must be a sequence of column names, got the string 'age'"):
        read(save(tmp_path / "graph", nodes()), drop="age")


@pytest.mark.parametrize("option", [{"id": "a"}, {"label": "a"}, {"split": "a"}, {"drop": ["a"]}])
def test_arrays_have_no_names(tmp_path: Path, option: dict[str, Any]) -> None:
    np.savez(tmp_path / "graph.npz", x=np.ones((3, 1)), edge_index=np.array([[0], [1]]))
    for source in (tmp_path / "graph.npz", Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))):
        with pytest.raises(DataError, match=r"(graph\.npz|Data) has no columns with names to choose"):
            read(source, **option)


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("labels", [np.random.default_rng(0).normal(size=SIZE), np.arange(SIZE) * 1000])
def test_a_regression_is_asked_about(tmp_path: Path, labels: Any, ending: str) -> None:
    folder = save(tmp_path / "graph", nodes(label=None, price=labels), ending)
    with pytest.raises(DataError, match=r"column 'price' has 40 distinct values in 40 labelled.*regression\?.*bins"):
        read(folder, label="price")


def test_a_regression_in_arrays() -> None:
    index = torch.tensor([[0], [1]])
    for y in (torch.arange(200.0) / 7, torch.arange(200)):
        with pytest.raises(DataError, match=r"Data: y has 200 distinct values .* is it a regression"):
            read(Data(x=torch.ones(200, 1), edge_index=index, y=y))


def test_many_classes_are_not_a_regression() -> None:
    y = torch.arange(600) % 60
    assert read(Data(x=torch.ones(600, 1), edge_index=torch.tensor([[0], [1]]), y=y)).num_classes == 60


def test_names_of_nodes_are_no_labels(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": np.arange(300), "label": [f"user {k}" for k in range(300)], "age": np.arange(300)})
    with pytest.raises(DataError, match=r"300 distinct values in 300 labelled nodes.* is it an id or a text"):
        read(save(tmp_path / "graph", table, edges=EDGES))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_few_fractions_are_classes(tmp_path: Path, ending: str) -> None:
    dataset = read(save(tmp_path / "graph", nodes(label=[0.5, 1.0, 10.5, np.nan] * 10), ending))
    assert dataset.class_names == (["0.5", "1", "10.5"] if ending == "parquet" else ["0.5", "1.0", "10.5"])
    assert dataset.y[:4].tolist() == [0, 1, 2, -1]


def test_metric_and_imbalance(tmp_path: Path) -> None:
    table = nodes(label=["a"] * 36 + ["b"] * 4)
    folder = save(tmp_path / "graph", table)
    assert read(folder).metric == "roc_auc"
    reading = read_with_notes(folder, metric="accuracy")
    assert reading.dataset.metric == "accuracy"
    note = "imbalanced: 90% of the labelled nodes are of class 'a', so that accuracy says little"
    assert note in reading.notes
    assert "metric    accuracy" in describe_reading(reading)
    assert note not in read_with_notes(folder).notes
    assert read(save(tmp_path / "more", nodes())).metric == "accuracy"


# --- public layouts ---------------------------------------------------------------------------------------------------

X = np.random.default_rng(1).normal(size=(SIZE, 3)).astype(np.float32)
Y = np.arange(SIZE) % 3
INDEX = EDGES.to_numpy().T.copy()
MASKS = {
    name: np.stack([(np.arange(SIZE) + shift) % 3 == k for shift in range(2)])
    for k, name in enumerate(("train_masks", "val_masks", "test_masks"))
}


def csr(name: str, matrix: Any, infix: str) -> dict[str, Any]:
    matrix = scipy.sparse.csr_array(matrix)
    return {
        f"{name}{infix}{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")
    }


def adjacency() -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(SIZE), (INDEX[0], INDEX[1])), shape=(SIZE, SIZE))


HETEROPHILOUS = {"node_features": X, "node_labels": Y, "edges": INDEX.T}
LAYOUTS: dict[str, dict[str, Any]] = {
    "node_features": HETEROPHILOUS | MASKS,
    "one mask": HETEROPHILOUS | {name[:-1]: mask[0] for name, mask in MASKS.items()},
    "adj_data": csr("adj", adjacency(), "_") | csr("attr", X, "_") | {"labels": Y},
    "adj_matrix.data": csr("adj", adjacency(), "_matrix.") | csr("attr", X, "_matrix.") | {"labels": Y},
    "dense attributes": csr("adj", adjacency(), "_") | {"attr_matrix": X, "labels": Y},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(tmp_path: Path, layout: str) -> None:
    np.savez(tmp_path / "graph.npz", **LAYOUTS[layout])
    dataset = read(tmp_path / "graph.npz", scale="none")
    expected = read(
        Data(x=torch.from_numpy(X), y=torch.from_numpy(Y), edge_index=torch.from_numpy(INDEX)), scale="none"
    )
    assert dataset.fingerprint == expected.fingerprint
    assert dataset.graph.weight is None
    assert (dataset.x.layout == torch.sparse_csr) == (layout in ("adj_data", "adj_matrix.data"))
    if layout == "node_features":
        assert [split.train.tolist() for split in dataset.splits] == MASKS["train_masks"].tolist()
    assert len(dataset.splits) == {"node_features": 2, "one mask": 1}.get(layout, 10)


def test_directed_and_weighted_adjacency(tmp_path: Path) -> None:
    matrix = adjacency() * 2.5
    matrix.data[0] = 0  # no edge
    np.savez(tmp_path / "graph.npz", **csr("adj", matrix, "_"), attr_matrix=X)
    graph = read(tmp_path / "graph.npz", undirected=False).graph
    pairs = sorted(map(tuple, INDEX.T[1:].tolist()))
    assert sorted(map(tuple, graph.edge_index.T.tolist())) == [pair for pair in pairs if pair[0] != pair[1]]
    assert graph.weight is not None
    assert set(graph.weight.tolist()) == {2.5}


def test_names_in_a_layout(tmp_path: Path) -> None:
    names = {
        "class_names": ["zebra", "ant", "mole"],
        "attr_names": list("abc"),
        "node_names": [f"n{k}" for k in range(SIZE)],
    }
    content = LAYOUTS["adj_data"] | {name: np.array(value) for name, value in names.items()}
    np.savez(tmp_path / "graph.npz", **content, idx_to_class=np.array({0: "zebra"}, dtype=object))
    reading = read_with_notes(tmp_path / "graph.npz")
    dataset = reading.dataset
    assert dataset.class_names == ["zebra", "ant", "mole"]  # in the order of the labels
    assert dataset.y.tolist() == Y.tolist()
    assert dataset.feature_names == ["a", "b", "c"]
    assert dataset.node_ids is not None
    assert dataset.node_ids[1] == "n1"
    assert "graph.npz: unknown arrays ignored: idx_to_class" in reading.notes
    np.savez(tmp_path / "graph.npz", **LAYOUTS["adj_data"], class_names=np.array(["a", 1, None], dtype=object))
    assert read(tmp_path / "graph.npz").class_names == ["0", "1", "2"]


BAD_LAYOUTS: list[tuple[dict[str, Any], str]] = [
    ({"graph": INDEX, "values": X}, r"graph\.npz .*layout: graph, values; expected edge_index and x"),
    ({}, r"graph\.npz .*layout: nothing"),
    (HETEROPHILOUS | {"edges": INDEX}, r"edges has shape \[2, 40\]"),
    (HETEROPHILOUS | {"edges": INDEX.T + 1}, "edges joins .* 0 to 39"),
    (HETEROPHILOUS | {"node_labels": Y[:3]}, r"node_labels has shape \[3\]"),
    ({"node_features": X, "node_labels": Y}, "no edges, only node_features"),
    (HETEROPHILOUS | MASKS | {"val_masks": MASKS["train_masks"]}, "train_masks and val_masks"),
    (csr("adj", adjacency(), "_") | {"labels": Y}, "no attr_matrix, only adj_data"),
    ({"attr_matrix": X, "labels": Y}, "no adj_data, only attr_matrix"),
    (csr("adj", X, "_") | {"attr_matrix": X}, r"adj_shape is \[40, 3\]"),
    (LAYOUTS["adj_data"] | {"adj_indices": np.full(SIZE, 99)}, "adj_data .* CSR"),
    (LAYOUTS["adj_data"] | {"attr_matrix": X}, "both attr_matrix and attr_data"),
    (csr("adj", -adjacency(), "_") | {"attr_matrix": X}, "adj_data holds -1.0 at edge 0"),
]


@pytest.mark.parametrize(("content", "message"), BAD_LAYOUTS)
def test_bad_layouts(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "graph.npz", **content)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "graph.npz")


# --- a graph for a model that exists ----------------------------------------------------------------------------------


def model(tmp_path: Path) -> dict[str, Any]:
    dataset = read(save(tmp_path / "train", nodes()))
    return {"encoder": dataset.encoder, "class_names": dataset.class_names}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_graph_to_predict_on(tmp_path: Path, ending: str) -> None:
    trained = read(save(tmp_path / "train", nodes()))
    table = nodes(label=None).iloc[:10]
    edges = EDGES[(EDGES < 10).all(axis=1)]
    new = table[["since", "color", "income", "id", "age"]]
    dataset = read(save(tmp_path / "new", new, ending, edges), **model(tmp_path))
    assert torch.allclose(dataset.x, trained.x[:10], atol=1e-5)
    assert dataset.class_names == ["cat", "dog", "owl"]
    assert dataset.y.tolist() == [-1] * 10
    assert dataset.splits == []
    assert dataset.encoder == trained.encoder
    labelled = read(save(tmp_path / "labelled", nodes(label=["owl", "cat"] * 20)), **model(tmp_path))
    assert labelled.y.tolist() == [2, 0] * 20  # as in the model, although a class is absent
    assert labelled.splits == []


def test_names_that_the_model_was_trained_with_may_be_absent(tmp_path: Path) -> None:
    folder = save(tmp_path / "new", nodes(label=None))
    assert read(folder, label="pet", split="part", drop=["gone"], **model(tmp_path)).num_classes == 3


def test_every_difference_is_in_one_error(tmp_path: Path) -> None:
    new = nodes(age=None, income=[f"much {k}" for k in range(SIZE)], size=1.5, color=2.5, label=["fox", "cat"] * 20)
    with pytest.raises(DataError) as caught:
        read(save(tmp_path / "new", new), **model(tmp_path))
    assert str(caught.value) == (
        "nodes.csv differs from what the model was trained on: no column 'age'; unexpected column 'size'; column "
        "'income' holds text ('much 0' at row 1), expected numbers; column 'color' holds numbers, expected text; "
        "column 'label' has unknown classes 'fox', expected cat, dog, owl"
    )
    with pytest.raises(DataError, match=r"column 'label' has unknown classes 'fox', expected cat, dog, owl$"):
        read(save(tmp_path / "labels", nodes(label=["fox", "cat"] * 20)), **model(tmp_path))


def test_unknown_categories_and_new_gaps_are_noted(tmp_path: Path) -> None:
    new = nodes(color=["red", "pink", "gray", "gray"] * 10)
    new.loc[3, "income"] = np.nan
    reading = read_with_notes(save(tmp_path / "new", new), **model(tmp_path))
    assert "column 'color': unknown categories read as none: 'pink' (10), 'gray' (20)" in reading.notes
    assert any("column 'income': 1 missing value replaced by the mean" in note for note in reading.notes)
    assert features(reading.dataset)["color=red"].sum() == 10
    assert not any("standardized" in note for note in reading.notes)


def test_categories_that_look_like_numbers(tmp_path: Path) -> None:
    digits = ["1", "2", "1", "3"] * 10
    trained = read(save(tmp_path / "train", nodes(color=digits), "parquet"))
    assert {"color=1", "color=2", "color=3"} < set(trained.feature_names)
    options: dict[str, Any] = {"encoder": trained.encoder, "class_names": trained.class_names}
    again = read(save(tmp_path / "csv", nodes(color=digits)), **options)
    torch.testing.assert_close(again.x, trained.x)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_without_any_value_fits_every_kind(tmp_path: Path, ending: str) -> None:
    empty = nodes()
    empty[["color", "since", "age"]] = None
    x = features(read(save(tmp_path / ending, empty, ending), **model(tmp_path)))
    assert not any(x[name].any() for name in ("color=red", "color=tan", "since", "age"))


def test_arrays_for_a_model(tmp_path: Path) -> None:
    index = torch.from_numpy(INDEX)
    trained = read(Data(x=torch.from_numpy(X), y=torch.from_numpy(Y), edge_index=index))
    options: dict[str, Any] = {"encoder": trained.encoder, "class_names": trained.class_names}
    dataset = read(Data(x=torch.from_numpy(X[:20]), edge_index=index % 20, y=torch.full((20,), 2)), **options)
    assert torch.equal(dataset.x, trained.x[:20])
    assert dataset.y.tolist() == [2] * 20
    with pytest.raises(
        DataError, match=r"Data differs .*: 2 columns, expected 3 \(x0, x1, x2\); y has unknown classes '3'"
    ):
        read(Data(x=torch.from_numpy(X[:, :2]), edge_index=index, y=torch.full((SIZE,), 3)), **options)
    with pytest.raises(DataError, match="features are sparse, expected dense ones"):
        read(Data(x=torch.from_numpy(X).to_sparse_csr(), edge_index=index), **options)
