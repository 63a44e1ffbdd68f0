"""`check`: whether the files of a folder follow from its runs, and whether a random sample of the runs can be repeated.

At worst, other code or another device makes of a run what another seed would: the rerun is one more draw from the
distribution of the runs of its configuration, and differs from its record by √2 standard deviations. Single runs, and
their mean, are compared with quantiles of Student's t, so that honest results fail a check with a probability of at
most `FALSE_ALARM`.
"""

from __future__ import annotations

import difflib
import math
import random
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from gfgn.data.dataset import NodeDataset
from gfgn.paper.pages import grouped
from gfgn.paper.reproduce import RESULTS, write_derived
from gfgn.paper.studies import ANALYSES, load_study, study_names
from gfgn.runs.record import RunRecord
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_files import RUNS
from gfgn.runs.study_runner import LOG, Log, select_cells
from gfgn.runs.table import read_runs
from gfgn.runs.text import count
from gfgn.train.loop import train_runs
from gfgn.train.replica import Run
from gfgn.train.settings import choose_device

FALSE_ALARM = 1e-3  # half of it for single runs, half for their mean
WORK = 500_000  # of a graph: runs times its edges and nonzero features
SLOW = 2.0  # a run that took longer than this many times the median of its graph is trained again in a full check only
MODELS = 4  # on a graph: preparing a model takes longer than training a few runs of it
FULL_RUNS = 2  # of every model on a graph, in a full check
FEWEST = 3  # degrees of freedom of a spread
MEASURES = {"val": "validation", "test": "test"}


def check(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    full: bool = False,
    seed: int | None = None,
    root: Path | None = None,
    trust_code: bool = False,
    device: str = "cpu",
    log: Log = LOG,
) -> dict[str, list[str]]:
    """Checks the folder of a study or an analysis; returns the problems by what was checked.

    Args:
        models: Names of what to train; all by default.
        datasets: Names of what to train; all whose data can be loaded by default.
        full: Whether to train runs of every model on every graph, also where that takes long, instead of a sample that
            takes minutes.
        seed: Of the sample; drawn and logged by default.
    """
    out, device = out or RESULTS / Path(name).stem, choose_device(device)
    known: dict[str, Any] = {"root": root, "device": device, "progress": log}
    if str(name) in ANALYSES and str(name) not in study_names():
        return {f"files of {out}": check_files(out, partial(ANALYSES[str(name)], **known))}
    study = load_study(name, trust_code)
    if not (out / RUNS).is_file():
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    cells, results = select_cells(study, models, datasets), Results(study, read_runs(out / RUNS))
    log(f"{out}: making tables and figures of {count(len(results.runs), 'run')} again")
    checked, claims = (
        {f"tables and figures of {out}": check_files(out, partial(write_derived, results))},
        out.parent / "claims",
    )
    if str(name) in study_names() and claims.is_dir():
        log(f"{claims}: judging the claims again")
        checked["claims"] = check_files(claims, partial(ANALYSES["claims"], **known))
    seed = secrets.randbits(32) if seed is None else seed
    log(f"the sample has the seed {seed}; --seed {seed} draws it again")
    reruns, missing = train_again(results, cells, random.Random(seed), full, root, device, log)
    if missing and (full or datasets):
        checked["data"] = missing
    graphs, equal = count(len({each.row.dataset for each in reruns}), "graph"), sum(r.has_same_bits for r in reruns)
    what = f"{count(len(reruns), 'run')} on {graphs} trained again (sample {seed}), {equal:,} equal bit for bit"
    return checked | {what: compare(reruns)}


def check_files(out: Path, make: Callable[[Path], list[Path]]) -> list[str]:
    """What differs in each file of a folder from what `make` writes into a copy of its tables, beside its siblings."""
    if not out.is_dir():
        raise FileNotFoundError(f"out must be a folder of results, got {out}")
    with TemporaryDirectory() as folder:
        made = Path(folder) / out.resolve().name
        for sibling in out.resolve().parent.iterdir():
            if sibling.is_dir() and sibling.name != made.name:
                (Path(folder) / sibling.name).symlink_to(sibling)
        made.mkdir()
        for path in (*out.glob("*.csv"), *out.glob("*.gz"), *out.glob("study.yaml")):
            shutil.copy(path, made)
        return [line for path in make(made) if (line := _difference(out / path.name, path))]


def _difference(committed: Path, made: Path) -> str:
    """How a file differs from what its runs give: the first line; nothing if it does not."""
    if not committed.is_file():
        return f"{committed}: does not exist"
    if committed.read_bytes() == made.read_bytes():
        return ""
    old, new = (each.read_text(encoding="utf-8", errors="replace").splitlines() for each in (committed, made))
    lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:]
    has, should = (next((line[1:201] for line in lines if line[0] == sign), "nothing") for sign in "-+")
    return f"{committed}: has {has!r}, but its runs give {should!r}"


class Rerun(NamedTuple):
    """A run that has been trained again, the recorded runs of its configuration, and the number of nodes by measure."""

    row: RunRecord
    run: Run
    like: Sequence[RunRecord]
    nodes: Mapping[str, int]

    @property
    def name(self) -> str:
        """Which run it is."""
        return f"{self.row.dataset} {self.row.model}, split {self.row.split}, seed {self.row.seed}"

    @property
    def has_same_bits(self) -> bool:
        """Whether scores and epochs are equal to the last bit; NaN is equal to NaN."""
        pairs = [(getattr(self.row, name), getattr(self.run, name)) for name in (*MEASURES, "epoch", "epochs")]
        return all(one == other or (one != one and other != other) for one, other in pairs)

    def spread(self, measure: str) -> tuple[float, int]:
        """The standard deviation over seeds, or over splits where there is one seed, and its degrees of freedom. That
        of one node is added, which rounding may change where all runs agree."""
        splits = np.array([row.split for row in self.like])
        values = np.array([getattr(row, measure) for row in self.like])
        left = np.concatenate([values[splits == k] - values[splits == k].mean() for k in np.unique(splits)])
        degrees = len(values) - len(np.unique(splits))
        if degrees < FEWEST:
            left, degrees = values - values.mean(), len(values) - 1
        return math.hypot(math.sqrt((left**2).sum() / max(1, degrees)), 1 / self.nodes[measure]), max(1, degrees)


def train_again(
    results: Results,
    cells: Sequence[Cell],
    generator: random.Random,
    full: bool,
    root: Path | None,
    device: str,
    log: Log,
) -> tuple[list[Rerun], list[str]]:
    """Trains a sample of the runs of some cells again, and says which data cannot be loaded or are other data."""
    study, reruns, missing = results.study, list[Rerun](), list[str]()
    recorded: dict[str, list[RunRecord]] = {}
    for row in results.runs:
        recorded.setdefault(row.dataset, []).append(row)
    views = {n: (cell, v) for cell in cells for n, v in zip(study.data_names(cell), study.views(cell), strict=True)}
    for name, (cell, view) in views.items():
        if name not in recorded:
            continue
        try:
            data = study.load(cell.dataset, view, root)
            if data.fingerprint != recorded[name][0].dataset_fingerprint:
                raise OSError("the data have another fingerprint than those of the runs")
        except (OSError, ImportError) as error:
            missing.append(f"{name}: {' '.join(str(error).split())}")
            log(f"not trained again: {missing[-1]}")
            continue
        models = {cell.model for cell in cells if name in study.data_names(cell)}
        rows = [row for row in recorded[name] if row.model in models and not row.dropped]
        for _, group in grouped(draw_sample(rows, data, generator, full), "model", "config"):
            log(f"{name}: {count(len(group), 'run')} of {group[0].model}")
            runs = train_runs(group[0].model, data, [row.replica for row in group], group[0].config, device)
            for row, run in zip(group, runs, strict=True):
                like = [r for r in rows if _configuration(r) == _configuration(row) and not r.diverged]
                split = data.splits[row.split]
                reruns.append(Rerun(row, run, like, {name: int(getattr(split, name).sum()) for name in MEASURES}))
    return reruns, missing


def draw_sample(rows: Sequence[RunRecord], data: NodeDataset, generator: random.Random, full: bool) -> list[RunRecord]:
    """Draws the runs of a graph to train again: `FULL_RUNS` of every model, or as many as the size of the graph allows,
    of a few models."""
    pools = [pool for _, pool in grouped(rows, "model")]
    if full:
        return [row for pool in pools for row in generator.sample(pool, min(FULL_RUNS, len(pool)))]
    size = data.graph.num_edges + int(data.x.to_dense().count_nonzero())
    limit = SLOW * median([row.seconds for row in rows] or [0.0])
    quick = [known for pool in pools if (known := [row for row in pool if row.seconds <= limit])]
    some = [row for pool in generator.sample(quick, min(MODELS, len(quick))) for row in pool]
    return generator.sample(some, min(max(1, WORK // size), len(some)))


def _configuration(row: RunRecord) -> object:
    return row.model, row.lr, row.weight_decay, row.dropout, row.lam, row.options, row.max_epochs, row.protocol


def compare(reruns: Sequence[Rerun]) -> list[str]:
    """The reruns that differ from their records by more than their spread allows, and whether all together do."""
    lone = [each for each in reruns if each.row.diverged != each.run.diverged]
    problems = [f"{each.name}: only one of two runs diverged" for each in lone]
    known = [each for each in reruns if not (each.row.diverged or each.run.diverged)]
    alarm = FALSE_ALARM / 2 / len(MEASURES)
    for measure, word in MEASURES.items() if known else ():
        old, new = (np.array([getattr(each[k], measure) for each in known]) for k in (0, 1))
        sigma, degrees = np.array([each.spread(measure) for each in known]).T
        bounds = t.isf(alarm / 2 / len(known), degrees) * math.sqrt(2) * sigma
        for each, bound in zip(known, bounds, strict=True):
            one, other = 100 * getattr(each.row, measure), 100 * getattr(each.run, measure)
            if abs(other - one) > 100 * bound:
                scores = f"{word} score {one:.2f}, now {other:.2f}; it may differ by at most {100 * bound:.2f}"
                problems.append(f"{each.name}: {scores}")
        enough = degrees >= FEWEST
        if enough.any():
            variance = degrees[enough] / (degrees[enough] - 2)  # of Student's t
            errors = abs(((new - old) / sigma)[enough].sum()) / math.sqrt(2 * variance.sum())
            limit = float(t.isf(alarm / 2, degrees[enough].min()))
            if errors > limit:
                words = f"differs by {errors:.1f} standard errors (at most {limit:.1f})"
                problems.append(f"all {enough.sum()} runs: the mean {word} score {words}")
    return problems
