"""Comparisons: what they claim, what they keep, what they refuse."""

import csv
from pathlib import Path
from typing import Any

import pytest

import gfgn
from gfgn.data import Dataset, dimensions, load
from gfgn.experiments import compare
from gfgn.train import Run


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dimensions(150, degree=10, splits=3)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_gfgn_is_ahead_of_mlp_and_gcn_by_more_than_the_spread() -> None:
    comparison = compare(load("dimensions"), splits=3)
    summary = comparison.summary()
    assert list(summary) == ["mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"]
    for model in ("gfgn-graph", "gfgn-neighbor", "gfgn-pair"):
        for baseline in ("mlp", "gcn"):
            spread = max(summary[model].std, summary[baseline].std)
            assert summary[model].mean - summary[baseline].mean > spread
        gain = comparison.gain(model)
        assert gain is not None
        assert gain.low > 0


def test_every_run_becomes_a_row(data: Dataset, tmp_path: Path) -> None:
    comparison = compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=2, max_epochs=3, out=tmp_path / "new")
    assert comparison.path is not None
    table = rows(comparison.path)
    assert len(table) == len(comparison.runs) == 8
    for row, run in zip(table, comparison.runs, strict=True):
        assert (row["dataset"], row["model"]) == ("dimensions", run.model)
        assert (int(row["split"]), int(row["seed"])) == (run.replica.split, run.replica.seed)
        assert (float(row["val"]), float(row["test"]), int(row["epoch"])) == (run.val, run.test, run.epoch)
        assert float(row["lr"]) == run.replica.lr
        assert int(row["num_parameters"]) == run.num_parameters
        assert row["gfgn_version"] == gfgn.__version__
    assert {(run.replica.split, run.replica.seed) for run in comparison.of("mlp")} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_what_is_finished_survives_an_interruption(data: Dataset, tmp_path: Path) -> None:
    def interrupt(run: Run) -> None:
        assert len(rows(tmp_path / "runs.csv")) == run.replica.split + 1  # on disk before anyone is told
        if run.replica.split == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(data, ["mlp"], splits=3, max_epochs=2, out=tmp_path, progress=interrupt)
    compare(data, ["mlp"], splits=1, max_epochs=2, out=tmp_path)
    assert [row["split"] for row in rows(tmp_path / "runs.csv")] == ["0", "1", "0"]


def test_a_foreign_file_is_not_written_to(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"out must be a folder whose runs.csv has the columns"):
        compare(data, ["mlp"], splits=1, max_epochs=2, out=tmp_path)
    assert (tmp_path / "runs.csv").read_text() == "a,b\n1,2\n"


def test_baseline_gain_and_settings(data: Dataset) -> None:
    comparison = compare(data, ["gcn", "mlp", "gfgn-graph"], splits=2, max_epochs=5)
    summary = comparison.summary()
    best = comparison.best_baseline
    assert best is not None
    assert summary[best].mean == max(summary["mlp"].mean, summary["gcn"].mean)
    gain = comparison.gain("gfgn-graph")
    assert gain is not None
    assert gain.mean == pytest.approx(summary["gfgn-graph"].mean - summary[best].mean)
    assert comparison.gain("mlp") is None
    assert "learning rate 0.02" in comparison.settings
    assert "at most 5 epochs" in comparison.settings
    assert compare(data, ["gfgn-graph"], splits=1, max_epochs=1).gain("gfgn-graph") is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": []}, "models must name at least one of mlp, gcn"),
        ({"models": ["mlp", "mlp"]}, "models must be different from each other, got mlp, mlp"),
        ({"models": ["mlpp"]}, r"got 'mlpp'; did you mean 'mlp'\?"),
        ({"splits": 4}, "splits must be 1 to 3 for 'dimensions', got 4"),
        ({"splits": 1, "seeds": 0}, "seeds must be 1 or larger, got 0"),
    ],
)
def test_bad_arguments(data: Dataset, arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        compare(data, **arguments, out=tmp_path / "untouched")
    assert not (tmp_path / "untouched").exists()
