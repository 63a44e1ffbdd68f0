"""`check`: whether the tables of a study follow from its runs, and whether a sample of its runs can be reproduced.

A run that the same code made on the same kind of device, with the same versions, is repeated bit for bit, whatever
trains beside it. Others are not bit-equal. Such a run is reproduced if its best validation score differs by at most
`NODES` nodes or `FRACTION` of them; the runs of a dataset, if their mean test score differs by at most `NODES` nodes
over the square root of the number of runs, or `FRACTION`. Up to `DIVERGED` of all runs may end where another seed ends:
within `DEVIATIONS` standard deviations of the mean of their split's other seeds (with a single seed, of the cell's
other runs), plus the tolerance above.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from gfgn.data.dataset import Dataset
from gfgn.paper.reproduce import render
from gfgn.paper.studies import load_study
from gfgn.runs.record import Row, count_codes, device_name, versions
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, Study
from gfgn.runs.study_files import RUNS
from gfgn.runs.study_runner import LOG, Log, select_cells
from gfgn.runs.table import read_runs
from gfgn.runs.text import other_code
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.settings import choose_device

RERUN = ("texas", "cornell", "wisconsin", "cora")  # repeated by default: those that a CPU trains on quickly
RUNS_PER_CELL = 2
NODES, FRACTION = 2, 0.01
DIVERGED, DEVIATIONS = 0.1, 3
ROUNDING = 1e-6  # tolerance for scores in single precision


def check(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    runs_per_cell: int = RUNS_PER_CELL,
    root: Path | None = None,
    trust_code: bool = False,
    device: str = "cpu",
    log: Log = LOG,
) -> list[str]:
    """Checks a study's folder and returns one line per problem.

    First `chosen.csv` and `README.md` are made from `runs.csv.gz` and compared with the files. Then a sample of the
    runs of complete cells is trained again.

    Args:
        name: The study, see `load_study`.
        out: Its folder; `results/NAME` by default.
        models: Names of models to train; all by default.
        datasets: Names of datasets to train on; by default those of `RERUN` that the study has.
        runs_per_cell: How many runs of each cell to train; 0 for none.
        trust_code: Whether a YAML file may name models of one's own, see `read_study`.
        device: Where to train, see `choose_device`.
    """
    study, out = load_study(name, trust_code), out or Path("results") / Path(name).stem
    if not (out / RUNS).is_file():
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    problems = check_files(study, out)
    log(f"{out}: {'tables differ from the runs' if problems else 'tables follow from the runs'}")
    if other := other_code(count_codes(read_runs(out / RUNS))):
        log(f"{out}: {other}")
    rerun = datasets or [name for name in study.datasets if name in RERUN or name in study.graphs]
    if not rerun:
        log(f"no runs are repeated: {study.name} has none of {', '.join(RERUN)}; name others with --datasets")
    elif runs_per_cell:
        cells = select_cells(study, models, rerun)
        problems += check_runs(study, out, cells, runs_per_cell, root, choose_device(device), log)
    return problems


def check_files(study: Study, out: Path) -> list[str]:
    """For each table of a folder that does not follow from its runs, the first line that differs."""
    problems = []
    for name, text in render(study, out).items():
        path = out / name
        committed = path.read_text(encoding="utf-8") if path.is_file() else ""
        if committed != text:
            problems.append(f"{path}: {_first_difference(committed, text)}")
    return problems


@dataclass
class Repeated:
    """Runs that were trained again."""

    different: list[str] = field(default_factory=list)  # that were not reproduced
    diverged: list[str] = field(default_factory=list)  # that ended where another seed ended
    gaps: list[float] = field(default_factory=list)  # differences of the test scores
    compared_bits: int = 0  # number of runs that had to have the same bits

    def __add__(self, other: Repeated) -> Repeated:
        return Repeated(
            self.different + other.different,
            self.diverged + other.diverged,
            self.gaps + other.gaps,
            self.compared_bits + other.compared_bits,
        )


def check_runs(
    study: Study, out: Path, cells: Sequence[Cell], runs_per_cell: int, root: Path | None, device: str, log: Log
) -> list[str]:
    """Trains a sample of runs again and returns one line per run or dataset that was not reproduced."""
    results, total = Results(study, read_runs(out / RUNS)), Repeated()
    for name in dict.fromkeys(cell.dataset for cell in cells):
        complete = [cell for cell in cells if cell.dataset == name and results[cell].rows]
        if not complete:
            log(f"{name}: no cell has all its runs")
            continue
        views = {view: study.load(name, view, root) for view in {study.variant(cell).view for cell in complete}}
        repeated = Repeated()
        for cell in complete:
            variant, rows = study.variant(cell), results[cell].draws[0]
            chosen = _spread(rows, runs_per_cell)
            repeated += _repeat(views[variant.view], cell, chosen, rows, variant.config, device, log)
        if repeated.gaps:
            nodes = min(int(data.splits[0].test.sum()) for data in views.values())
            repeated.different += _check_mean(name, repeated.gaps, nodes, log)
        total += repeated
    log(f"{total.compared_bits} of {len(total.gaps)} runs were compared by bits: this code made them on such a device")
    if total.diverged:
        log(f"{len(total.diverged)} of {len(total.gaps)} runs diverged, to scores that other seeds have")
    return total.different + (total.diverged if len(total.diverged) > DIVERGED * len(total.gaps) else [])


def _check_mean(name: str, gaps: Sequence[float], nodes: int, log: Log) -> list[str]:
    """Compares the mean test score of all repeated runs of a dataset."""
    mean, allowed = fmean(gaps), max(FRACTION, NODES / nodes / math.sqrt(len(gaps))) + ROUNDING
    words = f"{100 * mean:+.2f} points (at most {100 * allowed:.2f})"
    log(f"{name}: {len(gaps)} runs repeated, mean test score {words}")
    return [] if abs(mean) <= allowed else [f"{name}: the mean test score of {len(gaps)} runs differs by {words}"]


def _spread(rows: Sequence[Row], count: int) -> list[Row]:
    """`count` different rows, spread over splits and seeds."""
    count = min(count, len(rows))
    spread = ((k * len(rows) // count + k) % len(rows) for k in range(count))
    return [rows[k] for k in list(dict.fromkeys((*spread, *range(len(rows)))))[:count]]


def _repeat(
    data: Dataset,
    cell: Cell,
    rows: Sequence[Row],
    siblings: Sequence[Row],
    config: TrainConfig,
    device: str,
    log: Log,
) -> Repeated:
    """Trains runs of a cell again; `siblings` are all runs of the cell."""
    repeated = Repeated()
    for row in rows:
        if row.dataset_fingerprint != data.fingerprint:
            return Repeated([f"{data.name}: the graph differs from that of {RUNS}"])
        if row.split_fingerprint != data.split_fingerprint(row.replica.split):
            return Repeated([f"{data.name}: split {row.replica.split} differs from that of {RUNS}"])
    for row, run in zip(rows, train_runs(cell.model, data, [r.replica for r in rows], config, device), strict=True):
        split, seed = row.replica.split, row.replica.seed
        allowed = max(NODES / int(data.splits[split].val.sum()), FRACTION) + ROUNDING
        if row.diverged and run.diverged:
            log(f"{data.name} {cell.model} split {split} seed {seed}: diverged, repeated too")
            continue
        if not (row.diverged or run.diverged):
            repeated.gaps.append(run.test - row.test)
        variant = f" ({cell.at})" if isinstance(cell.at, str) else ""
        words = (
            f"{data.name} {cell.model}{variant} split {split} seed {seed}: "
            f"validation {100 * row.val:.2f}, repeated {100 * run.val:.2f} (at most {100 * allowed:.2f} apart); "
            f"test {100 * row.test:.2f}, repeated {100 * run.test:.2f}"
        )
        log(words)
        if (row.versions, row.device) == (versions(), device_name(device)):
            repeated.compared_bits += 1
            if not all(map(_equal, (run.val, run.test, run.epoch), (row.val, row.test, row.epoch))):
                repeated.different.append(f"{words}; the same code made it on such a device, and must repeat every bit")
        elif not abs(run.val - row.val) <= allowed:
            has_diverged = not row.diverged and _is_like_others(row, run.val, siblings, allowed)
            (repeated.diverged if has_diverged else repeated.different).append(words)
    return repeated


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _is_like_others(row: Row, val: float, siblings: Sequence[Row], allowed: float) -> bool:
    """Whether a validation score is one that other seeds of the split have; with a single seed, other splits."""
    rest = [other for other in siblings if other is not row and not other.diverged]
    others = [other.val for other in rest if other.replica.split == row.replica.split] or [other.val for other in rest]
    tolerance = allowed + DEVIATIONS * (stdev(others) if len(others) > 1 else 0.0)
    return bool(others) and abs(val - fmean(others)) <= tolerance


def _first_difference(committed: str, made: str) -> str:
    """The first line that differs, in the committed text and in the one made from the runs."""
    if not committed:
        return "does not exist"
    lines = list(difflib.unified_diff(committed.splitlines(), made.splitlines(), n=0, lineterm=""))[3:]
    has = next((line[1:] for line in lines if line.startswith("-")), "nothing")
    should = next((line[1:] for line in lines if line.startswith("+")), "nothing")
    cut = [repr(line if len(line) <= 200 else f"{line[:200]}…") for line in (has, should)]
    return f"has {cut[0]}, but its runs give {cut[1]}"
