"""`read` on tables: every format gives the same graph, guesses and repairs are noted, errors name row and value."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gfgn import Graph
from gfgn.data import DataError, NodeDataset, Reading, describe_reading, read, read_with_notes
from gfgn.data.columns import MAX_CATEGORIES
from gfgn.data.encoder import FeatureEncoder, raw_features

SIZE = 120
IDS = [f"{k:03d}" for k in range(SIZE)]


def nodes(**columns: Any) -> pd.DataFrame:
    """A table of nodes; values of a column are repeated."""
    random = np.random.default_rng(0)
    given = {"id": IDS, "label": random.choice(["cat", "dog", "owl"], SIZE), "size": random.normal(size=SIZE).round(3)}
    return pd.DataFrame(given | {name: (list(values) * SIZE)[:SIZE] for name, values in columns.items()})


def edges(source: str = "source", target: str = "target") -> pd.DataFrame:
    return pd.DataFrame({source: IDS, target: np.roll(IDS, 7)})


def save(folder: Path, table: pd.DataFrame, links: pd.DataFrame | None, ending: str = "csv", sep: str = ",") -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in (("nodes", table), ("edges", links)):
        path = folder / f"{name}.{ending}"
        if content is None:
            continue
        if ending == "parquet":
            content.to_parquet(path, index=False)
        elif ending == "xlsx":
            content.to_excel(path, index=False)
        else:
            content.to_csv(path, index=False, sep="\t" if ending == "tsv" else sep)
    return folder


def text_files(folder: Path, nodes: str, edges: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def refused(source: object, *words: str, **options: Any) -> None:
    """Reading fails with one line that has these words: argument or file, position, value."""
    with pytest.raises(DataError) as caught:
        read(source, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert [word for word in words if word not in message] == [], message


def noted(reading: Reading, *words: str) -> bool:
    """Whether one note has all words."""
    return any(all(word in note for word in words) for note in reading.notes)


def features(dataset: NodeDataset) -> dict[str, list[float]]:
    return dict(zip(dataset.feature_names, dataset.x.T.tolist(), strict=True))


def kinds(dataset: NodeDataset) -> dict[str, str]:
    assert dataset.encoder is not None
    return {column.name: column.kind for column in dataset.encoder.columns}


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> NodeDataset:
    return read(save(tmp_path_factory.mktemp("plain"), every_kind(), edges()))


def every_kind() -> pd.DataFrame:
    days = list(pd.date_range("2020-01-01", periods=4))
    return nodes(day=days, color=["red", "tan", None], stray=[1.5, "?"], city=["Köln", "Zürich", "a,b"])


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "xlsx", "parquet"])
def test_every_format_gives_the_same_graph(tmp_path: Path, ending: str, expected: NodeDataset) -> None:
    table = every_kind().astype({"stray": str}) if ending == "parquet" else every_kind()
    dataset = read(save(tmp_path, table, edges(), ending))
    both = torch.from_numpy(np.array([np.arange(SIZE), np.roll(np.arange(SIZE), 7)]))
    graph = Graph.from_edge_index(torch.cat([both, both.flip(0)], 1), SIZE)
    assert torch.equal(dataset.graph.edge_index, graph.edge_index)
    assert dataset.class_names == ["cat", "dog", "owl"]
    assert list(map(str, dataset.node_ids)) == IDS  # type: ignore[arg-type]
    if ending != "parquet":  # whose text is what its author meant: no numbers
        assert dataset.fingerprint == expected.fingerprint
        assert dataset.feature_names == expected.feature_names


@pytest.mark.parametrize("inner", ["", "my-graph/"])
def test_zip(tmp_path: Path, inner: str, expected: NodeDataset) -> None:
    folder, path = save(tmp_path / "folder", every_kind(), edges()), tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, inner + file.name)
    dataset = read(path)
    assert (dataset.fingerprint, dataset.name) == (expected.fingerprint, "packed")


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-be"])
def test_separators_and_encodings_are_found(tmp_path: Path, sep: str, encoding: str, expected: NodeDataset) -> None:
    for name, content in (("nodes", every_kind()), ("edges", edges())):
        (tmp_path / f"{name}.csv").write_bytes(content.to_csv(index=False, sep=sep).encode(encoding))
    guessed, given = read_with_notes(tmp_path), read_with_notes(tmp_path, sep=sep, encoding=encoding)
    assert guessed.dataset.fingerprint == given.dataset.fingerprint == expected.fingerprint
    assert noted(guessed, repr(sep), "separated") == (sep != ",")
    assert not noted(given, "separated")
    assert not noted(given, "nodes.csv: read as")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere", "does not exist")
    refused(tmp_path, str(tmp_path), "nodes.csv")
    refused({}, "source", "dict")
    folder = save(tmp_path / "graph", nodes(), edges())
    refused(folder / "nodes.csv", "nodes.csv", "'.csv'")
    refused(folder, "nodes.csv", "klingon", encoding="klingon")
    (folder / "edges.csv").rename(folder / "all-edges.csv")
    refused(folder, "all-edges.csv", "edges.csv")
    for ending, kind in (("parquet", "Parquet"), ("xlsx", "Excel")):
        (folder / f"nodes.{ending}").write_bytes(b"PAR1" * 20)
        refused(folder, "both nodes.csv and nodes")
        text = (folder / "nodes.csv").rename(tmp_path / "kept")
        refused(folder, f"nodes.{ending} cannot be read as {kind}")
        (folder / f"nodes.{ending}").unlink()
        text.rename(folder / "nodes.csv")


def test_damaged_and_ambiguous_archives(tmp_path: Path) -> None:
    path = tmp_path / "graph.zip"
    for names, words in (
        (["other.csv"], ["nodes.csv"]),
        (["a/nodes.csv", "b/nodes.csv"], ["a/nodes.csv and b/nodes.csv"]),
        (["nodes.csv"], ["graph.zip/nodes.csv", "empty"]),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "")
        refused(path, "graph.zip", *words)
    for content in (b"", b"nonsense", b"PK\x03\x04" + b"\0" * 50):
        path.write_bytes(content)
        refused(path, "graph.zip cannot be read")


# --- a CSV file and the data frame that pandas makes of it ------------------------------------------------------------

MIXED: dict[str, tuple[list[str], str, str]] = {  # values, kind and format in a data frame of text
    "empty": (["0.5", "", "1e-3", "-7.25"], "category", ""),  # numbers as text are text on purpose
    "words": (["NA", "north", "n/a", "south", "None", "none"], "category", ""),
    "flag": (["true", "FALSE", "true"], "binary", ""),
    "maybe": (["true", "false", "none"], "binary", ""),
    "code": (["007", "012", "7"], "category", ""),
    "stray": (["1.5", "?", "2", "4"], "numeric", ""),
    "comma": (["1.234,5", "2,25", "3"], "numeric", "1.234,5"),
    "thousands": (["1,234", "12,500", "7"], "numeric", "1,234.5"),
    "iso": (["2020-01-31", "2021-02-01T12:30:00Z", ""], "date", ""),
    "dotted": (["01.02.2020", "13.02.2020"], "date", "%d.%m.%Y"),
    "slashed": (["2020/01/31 10:30", "2020/02/01 11:00"], "date", "%Y/%m/%d %H:%M"),
    "american": (["01/31/2020", "02/01/2020"], "date", "%m/%d/%Y"),
    "impossible": (["2020-02-30", "2020-02-28"], "category", ""),
    "time": (["12:00", "13:30"], "category", ""),
    "many": ([f"place {k}" for k in range(SIZE - 1)], "category", ""),
    "spaced": ([" a", "a ", "b"], "category", ""),
    "large": (["12345678901234567890", "1"], "category", ""),
}


def check_csv_and_frame(folder: Path) -> NodeDataset:
    dataset = read(folder)
    frame = pd.read_csv(folder / "nodes.csv", dtype={"id": str}).set_index("id")
    raw = raw_features(frame.drop(columns="label"))
    encoder = FeatureEncoder.fit(raw, torch.stack([split.train for split in dataset.splits]).any(0))
    assert encoder == dataset.encoder
    np.testing.assert_array_equal(encoder.transform(raw), dataset.x)
    return dataset


@pytest.mark.parametrize("name", MIXED)
def test_a_csv_file_and_its_data_frame_have_the_same_features(tmp_path: Path, name: str) -> None:
    values, kind, format = MIXED[name]
    dataset = check_csv_and_frame(save(tmp_path, nodes(**{name: values}), edges()))
    assert dataset.node_ids is not None
    assert dataset.node_ids.tolist() == IDS
    text = pd.Series([value or None for value in values], dtype="str")
    column = raw_features(text.to_frame(name)).columns[0]
    assert (column.kind, column.format) == (kind, format)


CELL = st.one_of(
    st.sampled_from(["a", "1", "2.5", "-1", "007", "nan", "NA", "?", "1.234,5", "01.02.2020", "2020-01-05", "true"]),
    st.text(st.characters(codec="utf-8", exclude_characters='\r\n\0"'), max_size=3),
    st.floats(allow_nan=False, allow_infinity=False, width=16).map(str),
)


@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(st.lists(st.tuples(CELL, CELL), min_size=6, max_size=12))
def test_any_csv_file_and_its_data_frame(rows: list[tuple[str, str]]) -> None:
    table = pd.DataFrame(rows, columns=["one", "two"]).assign(id=IDS[: len(rows)], label=(["x", "y"] * 6)[: len(rows)])
    with tempfile.TemporaryDirectory() as folder:
        check_csv_and_frame(save(Path(folder), table, edges()[:0]))


def test_what_is_guessed_is_said_and_read_right(tmp_path: Path) -> None:
    columns = {name: MIXED[name][0] for name in ("stray", "comma", "dotted", "iso")}
    price = [*(str(k + 0.5) for k in range(SIZE - 1)), "broken"]
    table = nodes(**columns, name=[f"n{k}" for k in range(SIZE)], price=price, rooms=["1", "2", "3", "4 or more"])
    reading = read_with_notes(save(tmp_path, table, edges()), scale="none")
    x, found = features(reading.dataset), kinds(reading.dataset)
    assert x["comma"][:3] == [1234.5, 2.25, 3]
    assert x["dotted"][:2] == [18293, 18305]
    assert x["iso"][0] == 18292
    assert x["stray missing"][:4] == [0, 1, 0, 0]
    assert (found["price"], found["rooms"], found["name"]) == ("numeric", "category", "hashed")
    for words in (
        ("'stray'", "30 values", "missing", "'?'", "row 2"),
        ("'comma'", "numbers", "1.234,5"),
        ("'dotted'", "dates", "%d.%m.%Y"),
        ("'price'", "'broken'", "row 120"),
        ("'name'", "120 distinct", "--drop name"),
    ):
        assert noted(reading, *words), words


def test_a_model_knows_how_its_numbers_are_written(tmp_path: Path) -> None:
    """`31.234` alone reads as a number below 32; a model whose numbers were `1.234,5` reads it as 31,234."""
    amounts = [f"{k}.234,50" for k in range(1, SIZE + 1)]
    dataset = read(save(tmp_path, nodes(amount=amounts), edges()), scale="none")
    assert dataset.encoder is not None
    for text in ("31.234", "31234"):
        folder = save(tmp_path / text, nodes(amount=[text] * SIZE), edges())
        again = read(folder, encoder=dataset.encoder, class_names=dataset.class_names)
        assert features(again)["amount"] == [31234] * SIZE


def test_many_categories_share_features(tmp_path: Path) -> None:
    table = nodes(city=[f"city {k}" for k in range(90)])
    dataset = read(save(tmp_path / "graph", table, edges()))
    columns = [k for k, name in enumerate(dataset.feature_names) if name.startswith("city#")]
    assert (kinds(dataset)["city"], len(columns)) == ("hashed", MAX_CATEGORIES)
    assert dataset.x[:, columns].sum(1).tolist() == [1] * SIZE
    new = save(tmp_path / "new", table[:3].drop(columns="label"), None)
    again = read(new, encoder=dataset.encoder, class_names=dataset.class_names)
    assert again.x[:, columns].tolist() == dataset.x[:3, columns].tolist()


def test_the_encoder_sees_training_nodes_only(tmp_path: Path) -> None:
    """What other nodes have changes neither features nor a stored number."""
    table = nodes(city=["a", "b"]).assign(split=["train"] * 40 + ["val"] * 40 + ["test"] * 40)
    other = table.copy()
    other.loc[100, "city"] = "only in test"
    other.loc[50, ["size", "city"]] = None
    other.loc[60:, "size"] = 1e6
    other.loc[41:, "label"] = "cat"
    one, two = read(save(tmp_path / "a", table, edges())), read_with_notes(save(tmp_path / "b", other, edges()))
    assert one.encoder == two.dataset.encoder
    assert torch.equal(one.x[:40], two.dataset.x[:40])
    assert noted(two, "unknown categories", "'only in test'")


# --- columns, labels and splits ---------------------------------------------------------------------------------------

NODES = """id,label,age,color,member,score
a,x,1,red,true,1
b,y,,red,FALSE,NA
c,x,3,blue,true,
d,y,5,,,nan
e,,7,blue,false,
f,-1,NA,red,false,
"""
EDGES = "source,target,since\na,b,2020\nb,c,2021\nc,a,2022\n"


def test_kinds_missing_values_and_description(tmp_path: Path) -> None:
    reading = read_with_notes(text_files(tmp_path, NODES, EDGES), scale="none")
    dataset = reading.dataset
    assert features(dataset) == {
        "age": [1, 3, 3, 5, 7, 3],  # the mean of 1, 3 and 5: the labeled nodes
        "age missing": [0, 1, 0, 0, 0, 1],
        "color=blue": [0, 0, 1, 0, 1, 0],
        "color=red": [1, 1, 0, 0, 0, 1],
        "color missing": [0, 0, 0, 1, 0, 0],
        "member": pytest.approx([1, 0, 1, 2 / 3, 0, 0]),
        "member missing": [0, 0, 0, 1, 0, 0],
        "score": [1] * 6,
        "score missing": [0, 1, 1, 1, 1, 1],
    }
    assert dataset.y.tolist() == [0, 1, 0, 1, -1, -1]
    assert all(int(torch.stack(list(split)).sum()) == 4 for split in dataset.splits)
    text = describe_reading(reading)
    for words in (
        "nodes     6 (ids such as 'a', 'b', 'c')",
        "edges     6, both directions counted",
        "columns   4: 1 numeric, 2 binary, 1 category",
        "classes   2: x (2), y (2)",
        "splits    10; the first: train 2, val 1, test 1",
        "missing values replaced by the training mean, with an indicator feature each: age (1), member (1), score (3)",
        "2 unlabelled nodes kept",
        "classes numbered in sorted order: 'x' is 0, 'y' is 1",
        "10 random splits (48% train, 32% val, 20% test)",
        "edges.csv: unknown columns ignored: since",
        "edges made undirected: 3 opposite edges added",
    ):
        assert words in text


def test_names_of_columns(tmp_path: Path, expected: NodeDataset) -> None:
    table = (
        every_kind().rename(columns={"id": "customer", "label": "pet"}).assign(label="?", part=["train", "val"] * 60)
    )
    folder = save(tmp_path / "graph", table, edges("a", "b").assign(source="?", target="?"))
    ends = {"source_column": "a", "target_column": "b"}
    reading = read_with_notes(folder, id="customer", label="pet", drop=["part", "label"], **ends)
    assert reading.dataset.fingerprint == expected.fingerprint
    assert noted(reading, "2 columns dropped: label, part")
    kept = read_with_notes(folder, id="customer", label="pet", drop=["part"], **ends)
    assert noted(kept, "column 'label' is a feature", "'pet'")
    refused(folder, "edges.csv", "'q'", "a, b", id="customer", source_column="q")
    for options, words in (
        ({"id": "node"}, ["no column 'node'", "customer"]),
        ({"label": "pets"}, ["no column 'pets'"]),
        ({"drop": ["nothing"]}, ["no column 'nothing'"]),
        ({"drop": ["customer"]}, ["'customer' is dropped"]),
        ({"label": "customer"}, ["customer, customer", "different"]),
    ):
        refused(folder, *words, **{"id": "customer", **ends, **options})
    with pytest.raises(TypeError, match=r"drop must be .* 'age'"):
        read(folder, drop="age")
    with pytest.raises(ValueError, match="encoder and class_names"):
        read(folder, class_names=["a"])


@pytest.mark.parametrize(("one", "two"), [("from", "to"), ("SRC", "Dst"), ("source_id", "target_id"), ("x", "y")])
def test_usual_names_are_found(tmp_path: Path, one: str, two: str, expected: NodeDataset) -> None:
    reading = read_with_notes(save(tmp_path, every_kind().rename(columns={"id": "Node_ID"}), edges(one, two)))
    assert reading.dataset.fingerprint == expected.fingerprint
    assert noted(reading, repr(one), repr(two))
    assert noted(reading, "'Node_ID'")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ids_as_numbers_and_as_text_are_alike(tmp_path: Path, ending: str) -> None:
    table = nodes().assign(id=np.arange(SIZE))
    links = pd.DataFrame({"source": np.arange(SIZE), "target": np.roll(np.arange(SIZE), 7)})
    expected = read(save(tmp_path / "plain", table, links))
    for name, (one, two) in {"floats": (int, float), "text": (str, int), "both": (float, str)}.items():
        dataset = read(save(tmp_path / name, table.astype({"id": one}), links.astype(two), ending))
        assert dataset.fingerprint == expected.fingerprint


def test_classes(tmp_path: Path) -> None:
    table = nodes(text=["10", "9", "100"], number=[0.5, 1.0, 10.5, None], flag=[True, False])
    for ending in ("csv", "parquet"):
        folder = save(tmp_path / ending, table, edges(), ending)
        assert read(folder, label="text").class_names == ["9", "10", "100"]
        dataset = read(folder, label="number")
        assert list(map(float, dataset.class_names or ())) == [0.5, 1, 10.5]
        assert dataset.y[:4].tolist() == [0, 1, 2, -1]
        assert read(folder, label="flag").metric == "roc_auc"
    unlabelled = read_with_notes(folder, drop=["label"])
    assert (unlabelled.dataset.num_classes, unlabelled.dataset.splits) == (0, [])
    assert noted(unlabelled, "no labels")
    rare = save(tmp_path / "rare", nodes().assign(label=["a"] * (SIZE - 1) + ["b"]), edges())
    assert noted(read_with_notes(rare, metric="accuracy"), "imbalanced", "'a'")
    assert noted(read_with_notes(rare), "1 class with one member: b")
    refused(rare, "class 'b'", "stratify", stratify=True)


@pytest.mark.parametrize("labels", [np.arange(SIZE) * 1000, np.arange(SIZE) / 7, [f"user {k}" for k in range(SIZE)]])
def test_targets_of_regressions_and_names_are_no_classes(tmp_path: Path, labels: Any) -> None:
    words = "an id" if isinstance(labels, list) else "regression"
    refused(save(tmp_path, nodes(price=labels), edges()), "'price'", "120 distinct", words, label="price")


def test_given_and_stratified_splits(tmp_path: Path) -> None:
    table = nodes(split=["train", "Validation", "test", ""]).assign(label=[None, *["x", "y"] * 59, "x"])
    reading = read_with_notes(save(tmp_path / "given", table, edges()), stratify=True)
    (split,) = reading.dataset.splits
    assert [mask.nonzero().view(-1)[:2].tolist() for mask in split] == [[4, 8], [1, 5], [2, 6]]
    assert noted(reading, "1 unlabelled node removed")
    assert noted(reading, "stratify has no effect")
    labels = ["a"] * 50 + ["b"] * 70
    for split in read(save(tmp_path / "drawn", nodes().assign(label=labels), edges()), stratify=True).splits:
        assert [int(mask[:50].sum()) for mask in split] == [24, 16, 10]


def test_three_rows(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": [1, 2, 3], "label": ["a", "b", "a"], "size": [1.5, 2.5, 0.5]})
    dataset = read(save(tmp_path, table, pd.DataFrame({"source": [1], "target": [2]})))
    assert [[int(mask.sum()) for mask in split] for split in dataset.splits] == [[1, 1, 1]] * 10


# --- edges ------------------------------------------------------------------------------------------------------------


def test_repairs_of_edges_are_noted(tmp_path: Path) -> None:
    links = "source,target,weight\na,b,1\na,b,2\nb,a,3\nc,c,1\nd,e,4\na,f,0\n"
    reading = read_with_notes(text_files(tmp_path, NODES, links))
    for words in (
        "1 self-loop dropped",
        "1 edge of weight 0 dropped",
        "1 duplicate edge merged, their weights added",
        "edges made undirected: 1 opposite edge added",
    ):
        assert words in reading.notes
    graph = reading.dataset.graph
    assert graph.edge_index.tolist() == [[1, 0, 4, 3], [0, 1, 3, 4]]
    assert graph.weight is not None
    assert graph.weight.tolist() == [3, 3, 4, 4]
    text_files(tmp_path, NODES, "source,target,weight\na,b,1\nb,a,2\n")
    refused(tmp_path, "edges.csv", "--directed", "got 2 from 'b' to 'a' and 1 from 'a' to 'b'")
    assert read(tmp_path, undirected=False).graph.num_edges == 2
    text_files(tmp_path, NODES, EDGES.replace("c,a", "a,d"))
    assert "edges     3, directed" in describe_reading(read_with_notes(tmp_path, undirected=False))


def test_unknown_ids_are_skipped_if_asked(tmp_path: Path) -> None:
    links = pd.concat([edges(), pd.DataFrame({"source": ["000", "zz"], "target": ["yy", "001"]})])
    folder = save(tmp_path / "graph", nodes(), links)
    reading = read_with_notes(folder, skip_unknown=True)
    assert reading.dataset.fingerprint == read(save(tmp_path / "plain", nodes(), edges())).fingerprint
    assert noted(reading, "2 edges", "row 121", "'yy'")
    refused(folder, "edges.csv row 121", "target 'yy'", "nodes.csv", "rows 122", "--skip-unknown")


@pytest.mark.parametrize("links", [edges()[:0], None])
def test_a_graph_without_edges(tmp_path: Path, links: pd.DataFrame | None) -> None:
    reading = read_with_notes(save(tmp_path, nodes(), links))
    assert reading.dataset.graph.num_edges == 0
    assert noted(reading, "without edges")


# --- errors -----------------------------------------------------------------------------------------------------------

WEIGHTED = "source,target,weight\n"
BAD: list[tuple[str, str, list[str]]] = [
    ("", EDGES, ["nodes.csv", "empty"]),
    (NODES, "", ["edges.csv", "empty"]),
    ("id,f\n", EDGES, ["nodes.csv", "no rows"]),
    ("name,f\na,1\n", EDGES, ["nodes.csv", "'id'", "name, f"]),
    (NODES, "source,at,to\na,b,c\n", ["edges.csv", "'target'", "--target"]),
    (NODES, "a,b\nb,c\n", ["edges.csv", "no header", "a, b"]),
    ("id,f\na,1\nb,2\na,3\n", EDGES, ["nodes.csv row 3", "'a'", "row 1"]),
    ("id,f\na,1\n,2\n", EDGES, ["nodes.csv row 2", "id is empty"]),
    (NODES, "source,target\nq,a\na,b\nw,a\n", ["edges.csv row 1", "source 'q'", "rows 3"]),
    (NODES, WEIGHTED + "a,b,1\nb,c,much\n", ["edges.csv row 2", "weight", "'much'"]),
    (NODES, WEIGHTED + "a,b,-1\n", ["edges.csv row 1", "weight", "-1"]),
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


@pytest.mark.parametrize(("nodes", "edges", "words"), BAD)
def test_bad_tables(tmp_path: Path, nodes: str, edges: str, words: list[str]) -> None:
    refused(text_files(tmp_path, nodes, edges), *words)


BAD_TYPES: list[tuple[dict[str, list[Any]], list[str]]] = [
    ({"id": [1.5, 2.5, 3]}, ["'id'", "double"]),
    ({"id": [1, None, 2]}, ["nodes.parquet row 2", "id is empty"]),
    ({"f": [0.0, float("inf"), 1.0]}, ["nodes.parquet", "'f'", "inf", "row 2"]),
    ({"f": [[1], [2], [3]]}, ["nodes.parquet", "'f'", "object"]),
    ({"label": [0.5, 1.0, float("inf")]}, ["'label'", "infinity"]),
    ({"label": [[0], [1], [1]]}, ["'label'", "object"]),
    ({"split": [0, 1, 2]}, ["nodes.parquet row 1", "split", "0"]),
]


@pytest.mark.parametrize(("columns", "words"), BAD_TYPES)
def test_bad_types(tmp_path: Path, columns: dict[str, list[Any]], words: list[str]) -> None:
    table = pd.DataFrame({"id": [1, 2, 3], "f": [0.5, 1.5, 2.5]} | columns)
    refused(save(tmp_path, table, pd.DataFrame({"source": [1], "target": [2]}), "parquet"), *words)


# --- a graph for a model that exists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_graph_to_predict_on(tmp_path: Path, ending: str) -> None:
    table = every_kind().assign(code=["1", "2", "01"] * 40, stray=1.5)
    trained = read(save(tmp_path / "train", table, edges(), "parquet"))
    assert {"code=1", "code=2", "code=01"} < set(trained.feature_names)  # text that looks like numbers
    model: dict[str, Any] = {"encoder": trained.encoder, "class_names": trained.class_names}
    new = table.iloc[:10][["day", "stray", "code", "id", "city", "color", "size"]]
    reading = read_with_notes(save(tmp_path / "new", new, edges()[:0], ending), label="gone", **model)
    dataset = reading.dataset
    torch.testing.assert_close(dataset.x, trained.x[:10])
    assert (dataset.class_names, dataset.y.tolist(), dataset.splits) == (["cat", "dog", "owl"], [-1] * 10, [])
    assert not noted(reading, "standardized")
    changed = new.assign(label="owl", color=None, day=None, city="Bonn", size=[None, *new["size"][1:]])
    again = read_with_notes(save(tmp_path / "again", changed, edges()[:0], ending), **model)
    assert again.dataset.y.tolist() == [2] * 10  # as in the model, although classes are absent
    assert noted(again, "'city'", "unknown categories", "'Bonn' (10)")
    assert noted(again, "'size'", "1 missing value")
    assert not any(any(features(again.dataset)[name]) for name in ("color=red", "city=Köln", "day"))


def test_the_first_differences_from_a_model_and_their_number(tmp_path: Path) -> None:
    dataset = read(save(tmp_path / "graph", nodes(**{f"f{k}": [k, k + 0.5] for k in range(30)}), edges()))
    table = nodes(**{f"g{k}": [1] for k in range(30)}).assign(size="large", label="wolf")
    with pytest.raises(DataError) as caught:
        read(save(tmp_path / "new", table, edges()), encoder=dataset.encoder, class_names=dataset.class_names)
    message = str(caught.value)
    for words in (
        "no column 'f0', 'f1', 'f2', 'f3', 'f4' and 25 more",
        "unexpected columns 'g0', 'g1', 'g2', 'g3', 'g4' and 25 more",
        "column 'size' holds text ('large' at row 1), expected numbers",
        "unknown classes 'wolf', expected cat, dog, owl",
    ):
        assert words in message


@settings(suppress_health_check=list(HealthCheck))
@given(st.data(), st.booleans(), st.booleans())
def test_any_text_is_read_or_refused_in_one_line(data: st.DataObject, undirected: bool, stratify: bool) -> None:
    cell = CELL | st.text(max_size=3) | st.sampled_from(["1e400", "inf", '"', " ", "train", "b", "c"])
    with tempfile.TemporaryDirectory() as folder:
        for table, names in (("nodes", ["id", "label", "split", "f"]), ("edges", ["source", "target", "weight"])):
            header = data.draw(st.permutations(names) | st.lists(st.sampled_from(names), max_size=5))
            rows = data.draw(st.lists(st.lists(cell, min_size=len(names), max_size=len(names)), max_size=8))
            text = "\n".join(",".join(row) for row in [header, *rows])
            Path(folder, f"{table}.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            assert describe_reading(read_with_notes(folder, undirected=undirected, stratify=stratify))
        except DataError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017
