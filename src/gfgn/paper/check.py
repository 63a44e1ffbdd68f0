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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from scipy.stats import t

from gfgn.data.dataset import NodeDataset
from gfgn.paper.reproduce import RESULTS, write_derived
from gfgn.paper.studies import ANALYSES, load_study, study_names
from gfgn.runs.record import RunRecord
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_files import RUNS
from gfgn.runs.study_runner import LOG, Log, select_cells
from gfgn.runs.table import read_runs
from gfgn.runs.text import count
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.replica import Replica, Run
from gfgn.train.settings import choose_device

FALSE_ALARM = 1e-3  # half of it for single runs, half for their mean
WORK = 500_000  # of a graph: runs times its edges and nonzero features
SLOW = 2.0  # a run that took longer than this many times the median of its graph is trained again in a full check only
MODELS = 4  # on a graph: preparing a model takes longer than training a few runs of it
FULL_RUNS = 2  # of every model on a graph, in a full check
FEWEST = 3  # degrees of freedom of a spread
MEASURES = {"val": "validation", "test": "test"}


@dataclass
class Checked:
    """One line per problem, and one per kind of check that says what was checked."""

    problems: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)

    def add(self, what: str, problems: Sequence[str]) -> None:
        """Adds the outcome of a kind of check."""
        self.problems += problems
        self.summary.append(f"{what}: {count(len(problems), 'problem') if problems else 'passed'}")


def check(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    full: bool = False,
    seed: int | None = None,
    train: bool = True,
    root: Path | None = None,
    trust_code: bool = False,
    device: str = "cpu",
    log: Log = LOG,
) -> Checked:
    """Checks the folder of a study or an analysis.

    Args:
        models: Names of what to train; all by default.
        datasets: Names of what to train; all whose data can be loaded by default.
        full: Whether to train runs of every model on every graph, also where that takes long, instead of a sample that
            takes minutes.
        seed: Of the sample; drawn and logged by default.
        train: Whether to train.
    """
    out, checked, device = out or RESULTS / Path(name).stem, Checked(), choose_device(device)
    if str(name) in ANALYSES and str(name) not in study_names():
        checked.add(f"files of {out}", check_analysis(str(name), out, root, device, log))
        return checked
    study = load_study(name, trust_code)
    if not (out / RUNS).is_file():
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    cells, results = select_cells(study, models, datasets), Results(study, read_runs(out / RUNS))
    log(f"{out}: making tables and figures of {count(len(results.runs), 'run')} again")
    checked.add(f"tables and figures of {out}", check_files(results, out))
    if str(name) in study_names() and (out.parent / "claims").is_dir():
        log(f"{out.parent / 'claims'}: judging the claims again")
        checked.add("claims", check_analysis("claims", out.parent / "claims", root, device, log))
    if train:
        seed = secrets.randbits(32) if seed is None else seed
        log(f"the sample has the seed {seed}; --seed {seed} draws it again")
        data, missing = load_data(results, cells, root)
        if missing:
            checked.problems += missing if full or datasets else []
            checked.summary.append(f"not trained again: {'; '.join(missing)}")
        picks = draw_sample(results, cells, data, seed, full)
        reruns = train_again(picks, results.runs, data, device, log)
        what = f"{count(len(reruns), 'run')} on {count(len({pick.dataset for pick in picks}), 'graph')} trained again"
        equal = f"{sum(rerun.has_same_bits for rerun in reruns):,} equal bit for bit"
        checked.add(f"{what} (sample {seed}), {equal}", compare(reruns))
    return checked


# --- files ------------------------------------------------------------------------------------------------------------


def check_files(results: Results, out: Path) -> list[str]:
    """For each file of a study's folder that does not follow from its runs, what differs."""
    with TemporaryDirectory() as folder:
        made = _beside(out, Path(folder))
        for path in [*out.glob("*.csv"), *out.glob("*.gz")]:
            shutil.copy(path, made)
        problems = _differences(out, write_derived(results, made))
        return problems + [
            f"{p}: is not drawn from the runs" for p in out.glob("*.svg") if not (made / p.name).exists()
        ]


def check_analysis(name: str, out: Path, root: Path | None, device: str, log: Log) -> list[str]:
    """For each file of an analysis that does not follow from the folders next to it, what differs."""
    if not out.is_dir():
        raise FileNotFoundError(f"out must be the folder of the analysis {name}, got {out}")
    with TemporaryDirectory() as folder:
        made = ANALYSES[name](_beside(out, Path(folder)), root=root, device=device, progress=log)
        return _differences(out, made)


def _beside(out: Path, folder: Path) -> Path:
    """An empty folder for the files of `out`, beside links to the folders that are next to it."""
    for sibling in out.resolve().parent.iterdir():
        if sibling.is_dir() and sibling != out.resolve():
            (folder / sibling.name).symlink_to(sibling)
    (folder / out.resolve().name).mkdir()
    return folder / out.resolve().name


def _differences(out: Path, made: Iterable[Path]) -> list[str]:
    """How the files of a folder differ from what its runs give: the first line of each."""
    problems = []
    for path in made:
        committed = out / path.name
        if not committed.is_file():
            problems.append(f"{committed}: does not exist")
        elif committed.read_bytes() != path.read_bytes():
            old, new = (each.read_text(encoding="utf-8", errors="replace").splitlines() for each in (committed, path))
            lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:]
            has, should = (next((line[1:201] for line in lines if line[0] == sign), "nothing") for sign in "-+")
            problems.append(f"{committed}: has {has!r}, but its runs give {should!r}")
    return problems


# --- runs -------------------------------------------------------------------------------------------------------------


class Rerun(NamedTuple):
    """A run that has been trained again, the recorded runs of its configuration, and the number of nodes by measure."""

    row: RunRecord
    run: Run
    like: Sequence[RunRecord]
    nodes: Mapping[str, int]

    @property
    def has_same_bits(self) -> bool:
        """Whether scores and epochs are equal to the last bit; NaN is equal to NaN."""
        pairs = [(getattr(self.row, name), getattr(self.run, name)) for name in (*MEASURES, "epoch", "epochs")]
        return all(one == other or (one != one and other != other) for one, other in pairs)

    def spread(self, measure: str) -> tuple[float, int]:
        """The standard deviation over seeds, or over splits where there is one seed, and its degrees of freedom. That
        of one node is added, which rounding may change where all runs agree."""
        splits = np.array([row.replica.split for row in self.like])
        values = np.array([getattr(row, measure) for row in self.like])
        left = np.concatenate([values[splits == k] - values[splits == k].mean() for k in np.unique(splits)])
        degrees = len(values) - len(np.unique(splits))
        if degrees < FEWEST:
            left, degrees = values - values.mean(), len(values) - 1
        return math.hypot(math.sqrt((left**2).sum() / max(1, degrees)), 1 / self.nodes[measure]), max(1, degrees)


def load_data(results: Results, cells: Sequence[Cell], root: Path | None) -> tuple[dict[str, NodeDataset], list[str]]:
    """The data of cells that have runs, by name; and for what cannot be loaded or is other data, why."""
    study, recorded = results.study, {row.dataset: row.dataset_fingerprint for row in results.runs}
    data, missing = dict[str, NodeDataset](), list[str]()
    views = {
        name: (cell.dataset, view)
        for cell in cells
        for name, view in zip(study.data_names(cell), study.views(cell), strict=True)
        if name in recorded
    }
    for name, (dataset, view) in views.items():
        try:
            data[name] = study.load(dataset, view, root)
        except (OSError, ImportError) as error:
            missing.append(f"{name}: {' '.join(str(error).split())}")
        else:
            if data[name].fingerprint != recorded[name]:
                del data[name]
                missing.append(f"{name}: the data have another fingerprint than those of the runs")
    return data, missing


def draw_sample(
    results: Results, cells: Sequence[Cell], data: Mapping[str, NodeDataset], seed: int, full: bool
) -> list[RunRecord]:
    """Draws the runs to train again: on every graph as many as its size allows, of a few models; if `full`, also
    `FULL_RUNS` of every model."""
    generator, picks, study = random.Random(seed), dict[str, RunRecord](), results.study
    wanted = {(name, cell.model) for cell in cells for name in study.data_names(cell)}
    rows = [row for row in results.runs if not row.dropped and (row.dataset, row.model) in wanted]
    for name, dataset in data.items():
        size = dataset.graph.num_edges + int(dataset.x.to_dense().count_nonzero())
        pools = {model: [row for row in rows if (row.dataset, row.model) == (name, model)] for model in study.models}
        sizes = {"": max(1, WORK // size)} | (dict.fromkeys(pools, FULL_RUNS) if full else {})
        typical = median([row.seconds for pool in pools.values() for row in pool] or [0.0])
        quick = {m: [row for row in pool if row.seconds <= SLOW * typical] for m, pool in pools.items()}
        known = [model for model, pool in quick.items() if pool]
        pools[""] = [row for model in generator.sample(known, min(MODELS, len(known))) for row in quick[model]]
        for model, most in sizes.items():
            picks |= {row.key: row for row in generator.sample(pools[model], min(most, len(pools[model])))}
    return list(picks.values())


def train_again(
    picks: Sequence[RunRecord], rows: Sequence[RunRecord], data: Mapping[str, NodeDataset], device: str, log: Log
) -> list[Rerun]:
    """Trains runs again, those of one dataset and model together."""
    groups, like = (
        dict[tuple[str, str, TrainConfig], list[RunRecord]](),
        dict[tuple[str, str, TrainConfig, Replica], list[RunRecord]](),
    )
    for row in picks:
        groups.setdefault((row.dataset, row.model, row.config), []).append(row)
    for row in rows:
        if not (row.dropped or row.diverged):
            configuration = replace(row.replica, split=0, seed=0)
            like.setdefault((row.dataset, row.model, row.config, configuration), []).append(row)
    reruns = []
    for number, ((name, model, config), own) in enumerate(groups.items(), 1):
        log(f"{number} of {len(groups)}: {count(len(own), 'run')} of {model} on {name}")
        runs = train_runs(model, data[name], [row.replica for row in own], config, device)
        for row, run in zip(own, runs, strict=True):
            split, key = (
                data[name].splits[row.replica.split],
                (name, model, config, replace(row.replica, split=0, seed=0)),
            )
            reruns.append(Rerun(row, run, like.get(key, []), {m: int(getattr(split, m).sum()) for m in MEASURES}))
    return reruns


def compare(reruns: Sequence[Rerun]) -> list[str]:
    """The reruns that differ from their records by more than their spread allows, and whether all together do."""
    alarm = FALSE_ALARM / 2 / len(MEASURES)
    problems = [f"{_name(r.row)}: only one of two runs diverged" for r in reruns if r.row.diverged != r.run.diverged]
    known = [rerun for rerun in reruns if not (rerun.row.diverged or rerun.run.diverged)]
    for measure, word in MEASURES.items():
        apart, freedom = list[float](), list[int]()
        for rerun in known:
            (sigma, degrees), old, new = rerun.spread(measure), getattr(rerun.row, measure), getattr(rerun.run, measure)
            bound = float(t.isf(alarm / 2 / len(known), degrees)) * math.sqrt(2) * sigma
            if abs(new - old) > bound:
                scores = f"{word} score {100 * old:.2f}, now {100 * new:.2f}"
                problems.append(f"{_name(rerun.row)}: {scores}; it may differ by at most {100 * bound:.2f}")
            if degrees >= FEWEST:
                apart.append((new - old) / math.sqrt(2) / sigma)
                freedom.append(degrees)
        if apart:
            errors = abs(sum(apart)) / math.sqrt(sum(n / (n - 2) for n in freedom))  # the variance of Student's t
            limit = float(t.isf(alarm / 2, min(freedom)))
            if errors > limit:
                words = f"differs by {errors:.1f} standard errors (at most {limit:.1f})"
                problems.append(f"all {len(apart)} runs: the mean {word} score {words}")
    return problems


def _name(row: RunRecord) -> str:
    return f"{row.dataset} {row.model}, split {row.replica.split}, seed {row.replica.seed}"
