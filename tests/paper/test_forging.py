"""Forged results: every forgery is found, and honest results pass whatever the sample."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs.small_studies import copy_study, write_study

from gfgn.paper import check as module
from gfgn.paper.check import check
from gfgn.paper.reproduce import reproduce
from gfgn.runs import Row, Store, read_runs, write_runs
from gfgn.runs.study_files import CHOSEN, RUNS, STORE

STUDY = """
title: Small
datasets: [karate, dimensions]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models:
  gfgn-graph: {lam: [1.0, 2.0]}
  mlp: {lr: [0.01, 0.05]}
splits: 2
seeds: 3
training: {max_epochs: 4, patience: 2}
"""
NODES = {"karate": (11, 7), "dimensions": (384, 240)}  # of validation and test of a split
Forge = Callable[[list[Row]], list[Row]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("honest")
    reproduce(write_study(folder, STUDY), folder / "small", device="cpu")
    return folder / "small"


@pytest.fixture
def out(done: Path, tmp_path: Path) -> Path:
    return copy_study(done, tmp_path / "small")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path, STUDY)


def is_chosen(rows: list[Row], row: Row) -> bool:
    """Whether a run's configuration has all seeds."""
    return any(r.replica == replace(row.replica, seed=2) and r.dataset == row.dataset for r in rows)


def shifted(row: Row, val: int = 0, test: int = 0) -> Row:
    """A run with other numbers of nodes right, which no rule on single numbers can find."""
    nodes = {"val": NODES[row.dataset][0], "test": NODES[row.dataset][1]}
    changes = {"val": val, "test": test}
    right = {name: round(getattr(row, name) * nodes[name]) for name in nodes}
    moved = {
        name: right[name] + (change if right[name] + change <= nodes[name] else -change)
        for name, change in changes.items()
    }
    return replace(row, **{name: float(np.float32(moved[name]) / np.float32(nodes[name])) for name in nodes})


def forge(out: Path, study: Path, change: Forge) -> None:
    """Changes the runs and makes all tables and figures again."""
    write_runs(out / RUNS, change(list(read_runs(out / RUNS))))
    reproduce(study, out, device="cpu", train=False)
    (out / STORE).unlink()


def forge_first(rows: list[Row], condition: Callable[[Row], bool], **changes: int) -> list[Row]:
    k = next(k for k, row in enumerate(rows) if condition(row))
    return [*rows[:k], shifted(rows[k], **changes), *rows[k + 1 :]]


def one_cell(rows: list[Row]) -> list[Row]:
    return [shifted(r, test=2) if (r.dataset, r.model) == ("dimensions", "mlp") else r for r in rows]


def one_model(rows: list[Row]) -> list[Row]:
    return [shifted(r, test=1) if r.model == "gfgn-graph" else r for r in rows]


def one_dataset(rows: list[Row]) -> list[Row]:
    return [shifted(r, test=1) if r.dataset == "karate" else r for r in rows]


def one_run(rows: list[Row]) -> list[Row]:
    return forge_first(rows, lambda row: row.replica.seed == 1, test=1)


def other_configuration(rows: list[Row]) -> list[Row]:
    return forge_first(rows, lambda row: not is_chosen(rows, row), val=1)


def swapped(rows: list[Row]) -> list[Row]:
    """The scores of two seeds of one split, exchanged."""
    one = next(r for r in rows if r.dataset == "dimensions" and r.replica.seed == 1)
    two = next(r for r in rows if r.dataset == one.dataset and r.replica == replace(one.replica, seed=2))
    names = ("val", "test", "epoch", "epochs", "gates")
    pairs = {one.key: two, two.key: one}
    return [replace(r, **{name: getattr(pairs.get(r.key, r), name) for name in names}) for r in rows]


def fake_seed(rows: list[Row]) -> list[Row]:
    one = next(row for row in rows if row.replica.seed == 2)
    return [*rows, replace(one, replica=replace(one.replica, seed=3))]


def no_accuracy(rows: list[Row]) -> list[Row]:
    return [replace(row, test=min(1.0, row.test + 0.01)) for row in rows]


def copied_seed(rows: list[Row]) -> list[Row]:
    """One seed recorded as another."""
    two = next(row for row in rows if row.dataset == "dimensions" and row.replica.seed == 2)
    one = next(r for r in rows if r.dataset == two.dataset and r.replica == replace(two.replica, seed=1))
    return [replace(one, replica=r.replica, key=r.key) if r.key == two.key else r for r in rows]


def shorter(rows: list[Row]) -> list[Row]:
    return [replace(rows[0], epochs=rows[0].epochs - 1), *rows[1:]]


def without_best(rows: list[Row]) -> list[Row]:
    return rows[1:]


FORGERIES: list[Forge] = [
    *(one_cell, one_model, one_dataset, one_run, other_configuration, swapped, fake_seed, no_accuracy, copied_seed),
    *(shorter, without_best),
]


@pytest.mark.parametrize("change", FORGERIES, ids=lambda change: change.__name__)
def test_forged_runs_are_found(change: Forge, out: Path, study: Path) -> None:
    forge(out, study, change)
    checked = check(study, out, full=True)
    assert checked.problems
    assert checked.summary[0] == f"tables and figures of {out}: passed"  # which alone would find nothing


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_honest_results_pass(seed: int, out: Path, study: Path) -> None:
    lines: list[str] = []
    checked = check(study, out, seed=seed, log=lines.append)
    assert checked.problems == []
    assert f"the sample has the seed {seed}; --seed {seed} draws it again" in lines
    assert any(line.startswith("karate mlp: ") and line.endswith(" left") for line in lines)


def test_a_full_check_of_a_small_study_repeats_every_run(out: Path, study: Path) -> None:
    runs = len(read_runs(out / RUNS))
    checked = check(study, out, full=True)
    assert checked.problems == []
    assert any(line.startswith(f"{runs} runs on 2 graphs trained again") for line in checked.summary)


def test_a_forged_page_choice_or_figure_is_found(out: Path, study: Path) -> None:
    rows = list(csv.reader(io.StringIO((out / CHOSEN).read_text())))
    rows[1][-1], rows[2][-1] = rows[2][-1], rows[1][-1]
    (out / CHOSEN).write_text("\n".join(map(",".join, rows)) + "\n")
    figure = out / "small.svg"
    figure.write_text(figure.read_text().replace('d="M ', 'd="M 1', 1))
    (out / "README.md").write_text((out / "README.md").read_text().replace("| mlp | ", "| mlp | 9", 1))
    (out / "another.svg").write_text("<svg/>")
    problems = check(study, out, train=False).problems
    assert {line.partition(":")[0] for line in problems} == {
        str(out / name) for name in (CHOSEN, "README.md", "small.svg", "another.svg")
    }


def test_a_store_that_differs_is_found(out: Path, study: Path) -> None:
    rows = list(read_runs(out / RUNS))
    with Store(out / STORE) as store:
        store.add([shifted(rows[0], test=1), *rows[1:-1]])
    (problem,) = check(study, out, train=False).problems
    assert "test is" in problem
    write_runs(out / RUNS, rows[1:])
    assert any("in runs.sqlite, not in runs.csv.gz" in line for line in check(study, out, train=False).problems)


def test_forged_claims_are_found(out: Path, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = out.parent / "claims"

    def judge(out: Path, **_: Any) -> list[Path]:
        best = max(row.test for row in read_runs(out.parent / "small" / RUNS))
        (out / "claims.json").write_text(f"best {best}\n")
        return [out / "claims.json"]

    monkeypatch.setitem(module.ANALYSES, "claims", judge)
    monkeypatch.setattr(module, "study_names", lambda: [str(study)])
    claims.mkdir()
    judge(claims)
    assert check(study, out, train=False).problems == []
    assert check("claims", claims).problems == []
    (claims / "claims.json").write_text("best 1.0\n")
    for problems in (check(study, out, train=False).problems, check("claims", claims).problems):
        assert problems == [
            f"{claims / 'claims.json'}: has 'best 1.0', but its runs give {problems[0].rpartition('give ')[2]}"
        ]


# --- runs of other code -----------------------------------------------------------------------------------------------


@pytest.fixture
def other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if other code had made the runs."""
    monkeypatch.setattr("gfgn.paper.retrain.versions", dict)


@pytest.mark.usefixtures("other_code")
def test_runs_of_other_code_are_judged_by_bounds(out: Path, study: Path) -> None:
    checked = check(study, out, seed=1)
    assert checked.problems == []
    assert checked.summary[-1] == "honest results fail the bounds with a probability of at most 0.001 in all"
    forge(out, study, lambda rows: [shifted(r, test=100) if r.dataset == "dimensions" else r for r in rows])
    problems = check(study, out, seed=1).problems
    assert any(line.startswith("dimensions mlp, chosen configuration: the mean test score of ") for line in problems)
    assert any(line.startswith("all on dimensions: the mean test score of ") for line in problems)
    assert not any(line.startswith("karate") for line in problems)
