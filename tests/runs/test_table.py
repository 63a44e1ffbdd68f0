"""Runs as CSV: written and read, they are what they were."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from runs.stores import RECORD, row

from gfgn.runs import Store
from gfgn.runs.table import RunsError, own_parameters, read_runs, write_runs
from gfgn.train import TrainConfig

ROWS = [
    row(split=1, seed=3, lr=0.005, weight_decay=5e-5, dropout=0.8, lam=2.0, val=0.1 + 0.2, test=1 / 3),
    row(model="gcn", options=(("hidden", 16), ("layers", 3)), test=math.nan),
    row(model="geom-gcn", options=(("hidden", 16), ("merge", "cat"))),
    row(model="graphsage", options=(("normalize", False), ("hidden", 32))),
    row(model="appnp", options=(("alpha", 0.5),), config=TrainConfig(7, 3, clip=2.0, schedule="cosine")),
    row(record=replace(RECORD, name="toy (stand-in)", standin=True)),
]


def test_there_and_back(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "deep" / "runs.csv", ROWS)
    again = read_runs(path)
    assert [each.key for each in again] == [each.key for each in ROWS]  # made of everything that identifies a run
    for each, other in zip(again, ROWS, strict=True):
        assert each.replica == other.replica
        assert each.config == other.config
        assert each.standin == other.standin
        assert (each.val, each.epoch, each.epochs, each.num_parameters) == (
            *(other.val, other.epoch, other.epochs, other.num_parameters),
        )
        assert each.test == other.test or (math.isnan(each.test) and math.isnan(other.test))
        assert each.gates == other.gates
        assert each.versions == other.versions
        assert (each.device, each.date) == (other.device, other.date)
    text = path.read_text()
    assert write_runs(path, again).read_text() == text
    assert [file.name for file in path.parent.iterdir()] == ["runs.csv"]


def test_what_was_asked_for_has_a_column(tmp_path: Path) -> None:
    header = write_runs(tmp_path / "runs.csv", ROWS).read_text().splitlines()[0].split(",")
    assert header[:8] == ["dataset", "model", "split", "seed", "lr", "weight_decay", "dropout", "lam"]
    assert {"option_hidden", "epoch", "val", "test", "seconds", "torch_version", "device", "gate_mean"} <= set(header)
    assert "protocol_clip" in header


def test_a_store_takes_them(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", ROWS)
    with Store(":memory:") as store:
        assert store.add(read_runs(path)) == len(ROWS)
        assert store.add(ROWS) == 0
        assert store.find(RECORD, "gfgn-graph", [ROWS[0].replica], ROWS[0].config)[0] == ROWS[0]


def test_no_runs(tmp_path: Path) -> None:
    assert read_runs(write_runs(tmp_path / "runs.csv", [])) == []


def test_what_is_no_table_of_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(RunsError, match=r"runs.csv must be a table of runs, got one without the column 'dataset'"):
        read_runs(path)
    lines = write_runs(path, ROWS).read_text().splitlines()
    lines[3] = lines[3].replace(",0.02,", ",fast,", 1)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RunsError, match=r"runs.csv, line 4: could not convert string to float: 'fast'"):
        read_runs(path)


def test_own_parameters() -> None:
    assert own_parameters((("alpha", 0.5), ("lazy", True), ("merge", "cat"))) == "alpha=0.5 lazy=true merge=cat"
    assert own_parameters(()) == ""
