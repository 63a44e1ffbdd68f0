"""Files as people have them: separators, encodings, Excel, names of columns, numbers and dates; CSV and frame alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gfgn.data import DataError, NodeDataset, read, read_with_notes
from gfgn.data.columns import MAX_CATEGORIES as HASHED
from gfgn.data.columns import raw_features
from gfgn.data.encoder import FeatureEncoder

SIZE = 120
IDS = [f"{k:03d}" for k in range(SIZE)]


def nodes(**more: Any) -> pd.DataFrame:
    random = np.random.default_rng(0)
    columns = {"id": IDS, "label": random.choice(["cat", "dog"], SIZE), "size": random.normal(size=SIZE).round(3)}
    return pd.DataFrame(columns | {name: (list(values) * SIZE)[:SIZE] for name, values in more.items()})


def edges(source: str = "source", target: str = "target") -> pd.DataFrame:
    return pd.DataFrame({source: IDS, target: np.roll(IDS, 7)})


def save(folder: Path, table: pd.DataFrame, links: pd.DataFrame | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    table.to_csv(folder / "nodes.csv", index=False)
    if links is not None:
        links.to_csv(folder / "edges.csv", index=False)
    return folder


def kinds(dataset: NodeDataset) -> dict[str, str]:
    assert dataset.encoder is not None
    return {column.name: column.kind for column in dataset.encoder.columns}


# --- a CSV file and the data frame that pandas makes of it ------------------------------------------------------------

MIXED: dict[str, list[str]] = {
    "whole": ["1", "2", "3", "17"],
    "empty": ["0.5", "", "1e-3", "-7.25"],
    "words": ["NA", "north", "n/a", "south", "None", "none"],
    "flag": ["true", "false"],
    "Flag": ["True", "False", "TRUE"],
    "maybe": ["true", "false", "none"],
    "code": ["007", "012", "7"],
    "stray": ["1.5", "?", "2", "4"],
    "comma": ["1.234,5", "2,25", "3"],
    "thousands": ["1,234", "12,500", "7"],
    "iso": ["2020-01-31", "2021-02-01T12:30:00Z", ""],
    "dotted": ["01.02.2020", "13.02.2020"],
    "slashed": ["2020/01/31 10:30", "2020/02/01 11:00"],
    "american": ["01/31/2020", "02/01/2020"],
    "time": ["12:00", "13:30"],
    "many": [f"place {k}" for k in range(SIZE - 1)],
    "signed": ["+1", "-2", "3"],
    "large": ["12345678901234567890", "1"],
    "spaced": [" a", "a ", "b"],
}


@pytest.mark.parametrize("name", MIXED)
def test_a_csv_file_and_its_data_frame_have_the_same_features(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "graph", nodes(**{name: MIXED[name]}).astype({name: object}), edges())
    dataset = read(folder)
    frame = pd.read_csv(folder / "nodes.csv", dtype={"id": str}).set_index("id")
    train = np.any([split.train.numpy() for split in dataset.splits], axis=0)
    raw = raw_features(frame.drop(columns="label"))
    encoder = FeatureEncoder.fit(raw, train)
    assert encoder == dataset.encoder
    np.testing.assert_array_equal(encoder.transform(raw), dataset.x)
    assert dataset.node_ids is not None
    assert dataset.node_ids.tolist() == IDS


def test_kinds_of_what_pandas_reads() -> None:
    text = {name: pd.Series((values * SIZE)[:SIZE], dtype="str") for name, values in MIXED.items() if name != "whole"}
    frame = pd.DataFrame({name: series.where(series != "") for name, series in text.items()})
    raw = raw_features(frame)
    found = {column.name: (column.kind, column.format) for column in raw.columns}
    assert found == {
        **dict.fromkeys(("words", "code", "time", "many", "spaced", "empty", "signed", "large"), ("category", "")),
        **dict.fromkeys(("flag", "Flag", "maybe"), ("binary", "")),
        "stray": ("numeric", ""),
        "comma": ("numeric", "1.234,5"),
        "thousands": ("numeric", "1,234.5"),
        "iso": ("date", ""),
        "dotted": ("date", "%d.%m.%Y"),
        "slashed": ("date", "%Y/%m/%d %H:%M"),
        "american": ("date", "%m/%d/%Y"),
    }
    values = dict(zip(found, np.asarray(raw.values).T, strict=True))
    assert values["comma"][:3].tolist() == [1234.5, 2.25, 3]
    assert values["thousands"][:3].tolist() == [1234, 12500, 7]
    assert values["dotted"][:2].tolist() == [18293, 18305]
    assert values["slashed"][0] == pytest.approx(18292 + 10.5 / 24)
    np.testing.assert_array_equal(values["stray"][:3], [1.5, np.nan, 2])


def test_what_is_guessed_is_said(tmp_path: Path) -> None:
    table = nodes(
        stray=MIXED["stray"], comma=MIXED["comma"], dotted=MIXED["dotted"], name=[f"n{k}" for k in range(SIZE)]
    )
    notes = read_with_notes(save(tmp_path / "graph", table, edges())).notes
    for words in (
        ("'stray'", "30 values", "missing", "'?'", "row 2"),
        ("'comma'", "numbers", "1.234,5"),
        ("'dotted'", "dates", "%d.%m.%Y"),
        ("'name'", "120 distinct", "--drop name"),
    ):
        assert any(all(word in note for word in words) for note in notes), words


def test_one_word_among_many_numbers_is_missing(tmp_path: Path) -> None:
    table = nodes(price=[*(str(k + 0.5) for k in range(SIZE - 1)), "broken"])
    reading = read_with_notes(save(tmp_path / "graph", table, edges()))
    assert kinds(reading.dataset)["price"] == "numeric"
    assert any("'broken'" in note and "row 120" in note for note in reading.notes)
    few = nodes(rooms=["1", "2", "3", "4 or more"])  # names of numbers stay categories
    assert kinds(read(save(tmp_path / "few", few, edges())))["rooms"] == "category"


def test_many_categories_share_features(tmp_path: Path) -> None:
    table = nodes(city=[f"city {k}" for k in range(90)])
    dataset = read(save(tmp_path / "graph", table, edges()))
    assert kinds(dataset)["city"] == "hashed"
    columns = [k for k, name in enumerate(dataset.feature_names) if name.startswith("city#")]
    assert len(columns) == HASHED
    assert dataset.x[:, columns].sum(1).tolist() == [1] * SIZE
    assert dataset.x[0, columns].tolist() == dataset.x[90, columns].tolist()
    options: dict[str, Any] = {"encoder": dataset.encoder, "class_names": dataset.class_names}
    again = read(save(tmp_path / "new", table[:3].drop(columns="label"), edges()[:0]), **options)
    assert again.x[:, columns].tolist() == dataset.x[:3, columns].tolist()


def test_the_encoder_sees_training_nodes_only(tmp_path: Path) -> None:
    """What other nodes have changes neither features nor a stored number."""
    split = ["train"] * 40 + ["val"] * 40 + ["test"] * 40
    table = nodes(city=["a", "b"]).assign(split=split)
    other = table.assign(label=table["label"])
    other.loc[100, "city"] = "only in test"
    other.loc[50, ["size", "city"]] = None
    other.loc[60, "size"] = 1e6
    one, two = read(save(tmp_path / "a", table, edges())), read_with_notes(save(tmp_path / "b", other, edges()))
    assert one.encoder == two.dataset.encoder
    assert one.feature_names == two.dataset.feature_names
    assert any("unknown categories" in note and "'only in test'" in note for note in two.notes)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-be"])
def test_separators_and_encodings(tmp_path: Path, sep: str, encoding: str) -> None:
    table = nodes(city=["Köln", "Zürich", "a,b"], price=["1,5", "2,25"])
    expected = read(save(tmp_path / "plain", table, edges()))
    (tmp_path / "graph").mkdir()
    for name, content in (("nodes", table), ("edges", edges())):
        (tmp_path / "graph" / f"{name}.csv").write_bytes(content.to_csv(index=False, sep=sep).encode(encoding))
    reading = read_with_notes(tmp_path / "graph")
    assert reading.dataset.fingerprint == expected.fingerprint
    assert reading.dataset.feature_names == expected.feature_names
    assert any(repr(sep) in note for note in reading.notes) == (sep != ",")
    given = read_with_notes(tmp_path / "graph", sep=sep, encoding=encoding)
    assert given.dataset.fingerprint == expected.fingerprint
    assert not any("separated" in note or ("read as" in note and "numbers" not in note) for note in given.notes)


def test_an_unknown_encoding(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nodes\.csv.*klingon"):
        read(save(tmp_path / "graph", nodes(), edges()), encoding="klingon")


@pytest.mark.parametrize("ending", ["csv.gz", "tsv", "xlsx"])
def test_other_files(tmp_path: Path, ending: str) -> None:
    table = nodes(day=list(pd.date_range("2020-01-01", periods=4)), color=["red", "tan", None], stray=[1.5, "?"])
    expected = read(save(tmp_path / "plain", table, edges()))
    for name, content in (("nodes", table), ("edges", edges())):
        path = tmp_path / f"{name}.{ending}"
        if ending == "xlsx":
            content.to_excel(path, index=False)
        else:
            content.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    dataset = read(tmp_path)
    assert dataset.fingerprint == expected.fingerprint
    assert dataset.feature_names == expected.feature_names


def test_a_damaged_excel_file(tmp_path: Path) -> None:
    save(tmp_path, nodes(), edges())
    (tmp_path / "nodes.csv").rename(tmp_path / "nodes.xlsx")
    with pytest.raises(DataError, match=r"nodes\.xlsx cannot be read as Excel"):
        read(tmp_path)


@pytest.mark.parametrize(("one", "two"), [("from", "to"), ("SRC", "Dst"), ("source_id", "target_id"), ("x", "y")])
def test_names_of_the_ends_of_an_edge(tmp_path: Path, one: str, two: str) -> None:
    expected = read(save(tmp_path / "plain", nodes(), edges())).fingerprint
    reading = read_with_notes(save(tmp_path / "guessed", nodes(), edges(one, two)))
    assert reading.dataset.fingerprint == expected
    assert any(repr(one) in note and repr(two) in note for note in reading.notes)
    links = edges("a", "b").assign(source="?", target="?")
    given = read(save(tmp_path / "given", nodes(), links), source_column="a", target_column="b")
    assert given.fingerprint == expected
    with pytest.raises(DataError, match=r"edges\.csv has no column 'q', only a, b"):
        read(tmp_path / "given", source_column="q", target_column="b")


def test_the_column_of_ids_is_found(tmp_path: Path) -> None:
    expected = read(save(tmp_path / "plain", nodes(), edges())).fingerprint
    reading = read_with_notes(save(tmp_path / "graph", nodes().rename(columns={"id": "Node_ID"}), edges()))
    assert reading.dataset.fingerprint == expected
    assert any("'Node_ID'" in note for note in reading.notes)


def test_ids_as_numbers_and_as_text_are_alike(tmp_path: Path) -> None:
    table = nodes().assign(id=np.arange(SIZE))
    links = pd.DataFrame({"source": np.arange(SIZE), "target": (np.arange(SIZE) + 7) % SIZE})
    expected = read(save(tmp_path / "plain", table, links)).fingerprint
    assert read(save(tmp_path / "floats", table, links.astype(float))).fingerprint == expected
    dataset = read(save(tmp_path / "both", table.astype({"id": float}), links))
    assert dataset.fingerprint == expected
    assert dataset.node_ids is not None
    assert dataset.node_ids[1] == "1.0"  # as it is written


def test_unknown_ids_are_skipped_if_asked(tmp_path: Path) -> None:
    links = pd.concat([edges(), pd.DataFrame({"source": ["000", "zz"], "target": ["yy", "001"]})])
    reading = read_with_notes(save(tmp_path / "graph", nodes(), links), skip_unknown=True)
    assert reading.dataset.fingerprint == read(save(tmp_path / "plain", nodes(), edges())).fingerprint
    assert any("2 edges" in note and "row 121" in note and "'yy'" in note for note in reading.notes)


@pytest.mark.parametrize("links", [edges()[:0], None])
def test_a_graph_without_edges(tmp_path: Path, links: pd.DataFrame | None) -> None:
    reading = read_with_notes(save(tmp_path / "graph", nodes(), links))
    assert reading.dataset.graph.num_edges == 0
    assert any("without edges" in note for note in reading.notes)
    (tmp_path / "graph" / "edges.csv").unlink(missing_ok=True)
    (tmp_path / "graph" / "all-edges.csv").touch()
    with pytest.raises(DataError, match=r"all-edges\.csv, expected .* edges\.csv"):
        read(tmp_path / "graph")


def test_three_rows(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": [1, 2, 3], "label": ["a", "b", "a"], "size": [1.5, 2.5, 0.5]})
    dataset = read(save(tmp_path / "graph", table, pd.DataFrame({"source": [1], "target": [2]})))
    assert [[int(mask.sum()) for mask in split] for split in dataset.splits] == [[1, 1, 1]] * 10


def test_the_first_differences_and_their_number(tmp_path: Path) -> None:
    wide = nodes(**{f"f{k}": [k, k + 0.5] for k in range(30)})
    dataset = read(save(tmp_path / "graph", wide, edges()))
    new = save(tmp_path / "new", nodes(**{f"g{k}": [1] for k in range(30)}), edges())
    with pytest.raises(DataError) as caught:
        read(new, encoder=dataset.encoder, class_names=dataset.class_names)
    message = str(caught.value)
    assert "no column 'f0', 'f1', 'f2', 'f3', 'f4' and 25 more" in message
    assert "unexpected columns 'g0', 'g1', 'g2', 'g3', 'g4' and 25 more" in message
    assert len(message) < 300
