"""The store: identity of runs, safety, concurrent writers, exports."""

import csv
import dataclasses
import math
import multiprocessing
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from runs.stores import DEFAULT_CONFIG, RECORD, needs_fork, row, start_process

from gfgn.runs import Store, StoreError, identify
from gfgn.train import Replica, TrainConfig


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "deep" / "runs.sqlite") as opened:
        yield opened


# --- identity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("split", 1), ("seed", 1), ("lr", 0.1), ("weight_decay", 0.0), ("dropout", 0.1), ("lam", 2.0)),
        ("options", (("hidden", 32),)),
    ],
)
def test_every_part_of_a_replica_identifies_the_run(part: str, value: Any) -> None:
    replica = Replica()
    assert identify(RECORD, "gfgn-pair", replica) == identify(RECORD, "gfgn-pair", Replica())
    assert identify(RECORD, "gfgn-pair", dataclasses.replace(replica, **{part: value})) != identify(
        RECORD, "gfgn-pair", replica
    )


def test_data_model_split_and_training_identify_the_run() -> None:
    keys = {
        identify(record, model, Replica(), config, search)
        for record in (
            RECORD,
            dataclasses.replace(RECORD, name="other"),
            dataclasses.replace(RECORD, fingerprint="beef"),
            dataclasses.replace(RECORD, metric="roc_auc"),
            dataclasses.replace(RECORD, split_fingerprints=("other",)),
        )
        for model in ("mlp", "gfgn-graph")
        for config in (TrainConfig(5, 5), TrainConfig(6, 5), TrainConfig(5, 6), TrainConfig(5, 5, clip=1.0))
        for search in ("", "abc")
    }
    assert len(keys) == 5 * 2 * 4 * 2
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in keys)


def test_an_identity_stays_the_same_across_releases() -> None:
    """Otherwise the runs of an old store would be trained again."""
    replica = Replica(3, 4, lr=0.005, weight_decay=5e-5, dropout=0.8, lam=2.0, options=(("hidden", 32),))
    assert identify(RECORD, "gfgn-pair", replica, TrainConfig(400, 100)) == "7a939b8981f85ea2d4892380814cc20b"


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was(store: Store) -> None:
    rows = [
        row(0, 1, lr=0.005, lam=2, options=(("hidden", 32), ("pool", "max")), gates={"min": 0.125, "below_055": 1.0}),
        row(1, model="mlp", val=0.1 + 0.2),
        row(2, model="sgc", config=TrainConfig(5, 5, clip=0.5, schedule="cosine")),
    ]
    assert store.add(rows) == 3
    assert store.rows() == rows
    first, second, _ = store.rows()
    assert first.replica.options == (("hidden", 32), ("pool", "max"))
    assert first.versions.keys() == {"gfgn", "code", "torch", "torch_geometric", "python"}
    assert first.device
    assert first.date.endswith("+00:00")
    assert second.gates is None
    assert second.val == 0.1 + 0.2


def test_the_first_run_with_a_key_stays(store: Store) -> None:
    assert store.add([row(test=0.25), row(test=0.5)]) == 1
    assert store.add([row(test=0.75), row(1, test=0.75)]) == 1
    assert [each.test for each in store.rows()] == [0.25, 0.75]
    assert len(store) == 2


def test_filters_and_order(store: Store) -> None:
    rows = [row(split, seed, model) for model in ("mlp", "gcn") for split in (1, 0) for seed in (1, 0)]
    store.add(rows)
    order = [(each.model, each.replica.split, each.replica.seed) for each in store.rows()]
    assert order == sorted(order)
    assert len(store.rows(model="mlp")) == 4
    assert len(store.rows(model=["mlp", "gcn"], split=range(1))) == 4
    assert len(store.rows(model="mlp", split=0, seed=1, lr=0.02)) == 1
    assert store.rows(split=[]) == []
    for name in ("color", "options"):
        with pytest.raises(ValueError, match=f"filters must be of key, dataset, .*, got '{name}'"):
            store.rows(**{name: 1})


def test_runs_that_a_search_stopped_are_separate(store: Store) -> None:
    stopped = row(0, search="abc")
    store.add([stopped, row(1), row(1, search="abc")])
    assert [each.replica.split for each in store.rows()] == [1]
    assert len(store.rows(dropped=True)) == 3
    (kept,) = store.rows(dropped=True, split=0)
    assert kept.dropped
    assert math.isnan(kept.test)
    assert store.missing(RECORD, "gfgn-graph", [Replica(0)], DEFAULT_CONFIG) == [Replica(0)]
    rows = store.find(RECORD, "gfgn-graph", [Replica(0), Replica(1)], DEFAULT_CONFIG, search="abc")
    assert [each is not None and each.dropped for each in rows] == [True, True]
    assert store.find(RECORD, "gfgn-graph", [Replica(0)], DEFAULT_CONFIG, search="other") == [None]


# --- files ------------------------------------------------------------------------------------------------------------


def test_rows_stay_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with Store(path) as store:
        store.add([row()])
    with Store(path) as store:
        assert [each.key for each in store.rows()] == [row().key]
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with Store(path, read_only=True) as store:
        assert len(store) == 1
        with pytest.raises(StoreError, match="readonly"):
            store.add([row(1)])


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()


def of_version(path: Path, version: int) -> None:
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {version}")
    database.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (foreign, "must be a store of gfgn, got .*file, which is another SQLite file"),
        (lambda path: of_version(path, 99), "must be a store of version 3, got .*file of version 99: update gfgn"),
        (lambda path: of_version(path, 2), "must be a store of version 3, got .*file of version 2: gfgn 0.2"),
        (
            lambda path: path.write_text("split,seed\n0,1\n" * 100),
            "must be a store of gfgn, got .*file: file is not a da",
        ),
        (lambda path: path.mkdir(), "file"),
    ],
)
def test_other_files_are_refused_and_not_changed(make: Any, message: str, read_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=message):
        Store(path, read_only=read_only)
    assert before is None or path.read_bytes() == before


# --- export -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(store: Store) -> Store:
    store.add([row(0, options=(("hidden", 32),)), row(1, model="mlp", test=0.1 + 0.2), row(2, search="abc")])
    return store


def test_csv(filled: Store, tmp_path: Path) -> None:
    path = filled.to_csv(tmp_path / "new" / "runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert (first["dataset"], first["model"], first["split"], first["option_hidden"]) == (
        "toy",
        "gfgn-graph",
        "0",
        "32",
    )
    assert (float(first["gate_mean"]), second["gate_mean"], second["option_hidden"]) == (0.4, "", "")
    assert float(second["test"]) == 0.1 + 0.2
    assert first["key"] == row(0, options=(("hidden", 32),)).key
    assert len(filled.to_csv(path, dropped=True).read_text().splitlines()) == 4
    assert len(filled.to_csv(path, model="mlp").read_text().splitlines()) == 2
    assert [file.name for file in path.parent.iterdir()] == ["runs.csv"]


def test_pandas_and_parquet(filled: Store, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = filled.to_pandas(dropped=True)
    assert frame.shape[0] == 3
    assert frame["split"].tolist() == [0, 2, 1]
    assert frame["test"].isna().tolist() == [False, True, False]
    assert (frame["standin"].dtype, frame["test"].dtype, frame["seed"].dtype) == (bool, "float64", "int64")
    assert frame["gate_mean"].tolist()[:2] == [0.4, 0.4]
    pytest.importorskip("pyarrow")
    again = pd.read_parquet(filled.to_parquet(tmp_path / "runs.parquet", dropped=True))
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)


# --- processes --------------------------------------------------------------------------------------------------------


def write(path: Path, first: int, last: int, at_once: int, messages: Connection) -> None:
    """Writes rows and sends the number of rows after each transaction; in a separate process."""
    with Store(path) as store:
        messages.send("ready")
        messages.recv()
        for start in range(first, last, at_once):
            store.add([row(0, seed) for seed in range(start, start + at_once)])
            messages.send(start + at_once)


def start_writer(path: Path, first: int, last: int, at_once: int) -> tuple[Any, Connection]:
    """The process and the connection to it, after it has opened the store."""
    here, there = multiprocessing.Pipe()
    process = start_process(write, path, first, last, at_once, there)
    there.close()
    assert here.recv() == "ready"
    return process, here


@needs_fork
def test_processes_may_write_at_once(tmp_path: Path) -> None:
    """Three processes write to a store, with overlapping seeds."""
    writers = [start_writer(tmp_path / "runs.sqlite", first, first + 100, 5) for first in (0, 50, 100)]
    for _, messages in writers:
        messages.send("go")
    for process, messages in writers:
        for _ in range(20):
            messages.recv()
        process.join()
        assert process.exitcode == 0
    with Store(tmp_path / "runs.sqlite") as store:
        assert [each.replica.seed for each in store.rows()] == list(range(200))


@needs_fork
def test_a_killed_process_loses_nothing_that_was_added(tmp_path: Path) -> None:
    """Rows are there after SIGKILL if `add` had returned; a transaction in progress is there in full or not at all."""
    path, first = tmp_path / "runs.sqlite", 0
    for times in (1, 12):
        process, messages = start_writer(path, first, first + 100_000, 5)
        messages.send("go")
        last = [messages.recv() for _ in range(times)][-1]
        process.kill()
        process.join()
        with suppress(EOFError, ConnectionResetError):  # messages that it sent before it was killed
            while True:
                last = messages.recv()
        assert process.exitcode == -signal.SIGKILL
        with Store(path) as store:
            seeds = [each.replica.seed for each in store.rows()]
        assert seeds == list(range(len(seeds)))
        assert len(seeds) in (last, last + 5)
        first = len(seeds)


@pytest.mark.parametrize("text", ["{", "7", '{"key": "x"}'])
def test_a_damaged_run_is_named(text: str, store: Store) -> None:
    store.add([row()])
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE runs SET run = ?", (text,))
    with pytest.raises(StoreError, match=f"is damaged: the run {row().key}"):
        store.rows()
