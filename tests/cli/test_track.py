"""`--track` of the commands that train."""

import sys
from pathlib import Path
from typing import Any

import pytest
from estimator.tables import write_tables
from runs.fake_trackers import Memory, track_in_memory
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.runs import Store

QUICK = ["--splits", "2", "--epochs", "3", "--models", "majority,mlp"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Memory]:
    return track_in_memory(monkeypatch)


def invoke(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_compare(made: list[Memory], tmp_path: Path) -> None:
    arguments = ["compare", "karate", "--out", tmp_path, *QUICK]
    result = invoke(*arguments, "--track", "memory", "--track", "memory:x")
    assert result.stderr.count("memory: 4 runs") == 2
    one, two = (tracker.runs for tracker in made)
    assert one == two
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        assert {run.facts["key"] for run in one} == {row.key for row in store.rows()}
    result = invoke(*arguments, "--seeds", "2", "--track", "memory")
    assert "memory: 4 runs" in result.stderr  # only the new ones


def test_train(made: list[Memory], tmp_path: Path) -> None:
    write_tables(tmp_path / "own")
    arguments = ["--replicas", "3", "--epochs", "3", "--trials", "2", "--device", "cpu", "--out", tmp_path / "model"]
    invoke("train", tmp_path / "own", *arguments, "--track", "memory")
    (tracker,) = made
    seeds = sorted({run.facts["seed"] for run in tracker.runs})
    final = [run for run in tracker.runs if run.facts["seed"] == seeds[2]]  # only of the chosen level
    assert {run.facts["model"] for run in tracker.runs} == {"gfgn-graph", "gfgn-neighbor", "gfgn-pair"}
    assert len(final) == 1
    assert len({run.facts["key"] for run in tracker.runs}) == len(tracker.runs) > 6
    assert all(len(run.curves["history/val"]) == run.scores["epochs"] for run in tracker.runs)


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = invoke("compare", "karate", *QUICK, "--out", tmp_path, "--track", "wandb", code=2)
    expected = "gfgn: tracking with wandb needs a package that is not installed: pip install 'gfgn[wandb]'\n"
    assert result.stderr == expected
    result = invoke("compare", "karate", *QUICK, "--out", tmp_path, "--track", "paper", code=2)
    assert "track must be tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT], got 'paper'" in result.stderr
    assert not (tmp_path / "runs.sqlite").exists()
