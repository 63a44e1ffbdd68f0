"""`check`: whether the tables of a study follow from its runs, and whether some of its runs can be made again.

A run on another device adds numbers in another order, and training amplifies what differs in the last digit: the same
run is not the same to the last node. A run counts as the same if its best validation score is, within `NODES` nodes or
`SHARE` of the validation nodes, whichever is more. Single test scores, read at whatever epoch was best, vary more; so
the runs of a dataset count as the same if their mean test score is, within `SHARE` or `NODES` test nodes over the root
of the number of runs, whichever is more.

Large learning rates can amplify a last digit so much that a run ends where another seed would have ended. Such a run
has gone astray, if its score is within `DEVIATIONS` standard deviations of the mean of its split's other seeds (where
there is one seed only, of its cell's other runs), give or take as much as above; up to `ASTRAY` of all runs may.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from gfgn.data.dataset import Dataset
from gfgn.paper.reproduce import RUNS, Part, Say, render
from gfgn.runs.record import Row
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, Study, load_study
from gfgn.runs.table import read_runs
from gfgn.runs.views import View, load_view
from gfgn.train.config import TrainConfig
from gfgn.train.dispatch import train_runs

RERUN = ("texas", "cornell", "wisconsin", "cora")
"""Datasets that runs are made again on unless others are named: those that a CPU trains on quickly."""
RUNS_A_CELL = 2
NODES, SHARE = 2, 0.01
ASTRAY, DEVIATIONS = 0.1, 3
ROUNDING = 1e-6
"""What scores in single precision may be off by."""


def check(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    runs_a_cell: int = RUNS_A_CELL,
    root: Path | None = None,
    say: Say = print,
) -> list[str]:
    """Checks a study's folder and returns what is wrong with it, a line each; none if all is well.

    First `chosen.csv` and `README.md` are made again from `runs.csv` and must be what is there. Then some runs of cells
    that are complete are trained again, on the CPU.

    Args:
        name: The study, see `load_study`.
        out: Its folder; `results/NAME` by default.
        models: Names of models, to train those only; all by default.
        datasets: Names of datasets to train on; by default those of `RERUN` that the study has.
        runs_a_cell: How many runs of each cell to train; 0 for none.
        root: Folder of all datasets, see `gfgn.data.load`.
        say: Is told, in lines, what is being done.
    """
    study, out = load_study(name), out or Path("results") / Path(name).stem
    if not (out / RUNS).is_file():
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    wrong = check_files(study, out)
    say(f"{out}: {'tables differ from the runs' if wrong else 'tables follow from the runs'}")
    part = Part(study, models, datasets or [dataset for dataset in RERUN if dataset in study.datasets])
    if not datasets and not any(dataset in study.datasets for dataset in RERUN):
        say(f"no run is made again: {study.name} has none of {', '.join(RERUN)}; name others with --datasets")
        return wrong
    return wrong + (check_runs(study, out, part, runs_a_cell, root, say) if runs_a_cell else [])


def check_files(study: Study, out: Path) -> list[str]:
    """Where the tables of a folder are not what its runs make, the first line of each that differs."""
    wrong = []
    for name, text in render(study, out).items():
        path = out / name
        there = path.read_text(encoding="utf-8") if path.is_file() else ""
        if there != text:
            wrong.append(f"{path}: {_first_difference(there, text)}")
    return wrong


def check_runs(study: Study, out: Path, part: Part, runs_a_cell: int, root: Path | None, say: Say) -> list[str]:
    """Trains some runs of a folder again, on the CPU, and tells which are not as they were.

    Args:
        study: The study.
        out: Its folder.
        part: Which datasets and models.
        runs_a_cell: How many runs of each cell.
        root: Folder of all datasets.
        say: Is told what came of them.
    """
    results, wrong = Results(study, read_runs(out / RUNS)), []
    astray: list[str] = []
    made = 0
    for name in part.datasets:
        cells = [cell for cell in part.cells(study) if cell.dataset == name and results[cell].rows]
        if not cells:
            say(f"{name}: no cell has all its runs")
            continue
        views: dict[View, Dataset] = {}
        gaps: list[float] = []
        for cell in cells:
            variant, rows = study.variant(cell), _some(results[cell].rows, runs_a_cell)
            if variant.view not in views:
                views[variant.view] = load_view(name, variant.view, root)
            again = _compare(views[variant.view], cell, rows, results[cell].rows, variant.config, say)
            wrong += again.wrong
            astray += again.astray
            gaps += again.gaps
        made += len(gaps)
        if gaps:
            mean, nodes = fmean(gaps), min(int(data.splits[0].test.sum()) for data in views.values())
            allowed = max(SHARE, NODES / nodes / math.sqrt(len(gaps))) + ROUNDING
            words = f"{100 * mean:+.2f} points (at most {100 * allowed:.2f})"
            say(f"{name}: {len(gaps)} runs made again, mean test score {words}")
            if not abs(mean) <= allowed:
                wrong.append(f"{name}: the mean test score of {len(gaps)} runs is off by {words}")
    if astray:
        say(f"{len(astray)} of {made} runs went astray, to scores that other seeds have")
    return wrong + (astray if len(astray) > ASTRAY * made else [])


def _some(rows: Sequence[Row], count: int) -> list[Row]:
    """As many rows, spread over splits and seeds."""
    count = min(count, len(rows))
    return [rows[(place * len(rows) // count + place) % len(rows)] for place in range(count)]


class _Again(NamedTuple):
    """What came of runs that were made again: those that differ, those that went astray, differences of test scores."""

    wrong: list[str]
    astray: list[str]
    gaps: list[float]


def _compare(
    data: Dataset, cell: Cell, rows: Sequence[Row], siblings: Sequence[Row], config: TrainConfig, say: Say
) -> _Again:
    """Makes some runs of a cell again; `siblings` are all of its runs."""
    for row in rows:
        if row.dataset_fingerprint != data.fingerprint:
            return _Again([f"{data.name}: the graph is not the one of {RUNS}"], [], [])
        if row.split_fingerprint != data.split_fingerprint(row.replica.split):
            return _Again([f"{data.name}: split {row.replica.split} is not the one of {RUNS}"], [], [])
    again = _Again([], [], [])
    for row, run in zip(rows, train_runs(cell.model, data, [r.replica for r in rows], config), strict=True):
        split, seed = row.replica.split, row.replica.seed
        allowed = max(NODES / int(data.splits[split].val.sum()), SHARE) + ROUNDING
        again.gaps.append(run.test - row.test)
        variant = f" ({cell.at})" if isinstance(cell.at, str) else ""
        words = (
            f"{data.name} {cell.model}{variant} split {split} seed {seed}: "
            f"validation {100 * row.val:.2f}, again {100 * run.val:.2f} (at most {100 * allowed:.2f} apart); "
            f"test {100 * row.test:.2f}, again {100 * run.test:.2f}"
        )
        say(words)
        if not abs(run.val - row.val) <= allowed:
            rest = [other for other in siblings if other is not row]
            others = [other.val for other in rest if other.replica.split == split] or [other.val for other in rest]
            far = allowed + DEVIATIONS * (stdev(others) if len(others) > 1 else 0.0)
            elsewhere = bool(others) and abs(run.val - fmean(others)) <= far
            (again.astray if elsewhere else again.wrong).append(words)
    return again


def _first_difference(there: str, made: str) -> str:
    """The first line of a file that is not what it should be, and what it should be."""
    if not there:
        return "is not there"
    lines = list(difflib.unified_diff(there.splitlines(), made.splitlines(), n=0, lineterm=""))[3:]
    has = next((line[1:] for line in lines if line.startswith("-")), "nothing")
    should = next((line[1:] for line in lines if line.startswith("+")), "nothing")
    return f"has {_cut(has)}, and its runs make {_cut(should)}"


def _cut(line: str, width: int = 200) -> str:
    return repr(line if len(line) <= width else f"{line[:width]}…")
