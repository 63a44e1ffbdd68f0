"""The evidence that claims are judged by: runs of studies, learned scores, and properties of the graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from gfgn.paper.outputs import read_csv
from gfgn.runs.views import known_test_share
from gfgn.train.draws import difference_draws
from gfgn.train.statistics import Estimate, estimate

Runs = Sequence[tuple[int, int, float]]  # split, seed and score in % of every run of a cell on one draw of its data
Draws = Sequence[Runs]  # by draw of random edges; a single one without
At = float | str | None  # position on the axis of a study, or its variant, if any
CellKey = tuple[str, str, str, At]  # study, dataset, model and position
ByModel = Mapping[
    tuple[str, str], Sequence[Mapping[str, float]]
]  # rows of numbers, one per split, by model and dataset

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
RAW = ", without row normalization"  # suffix of models that were trained on features that are not row-normalized
STUDIES = ("table1", "arxiv", "table2", "noise", "lambda", "thesis")
LARGER = {"noise": "noise-draws"}  # studies that, once they have runs, decide in place of smaller ones
NUMBERS, SUMMARY, RAW_SUMMARY = "motivation/summary.csv", "scores/summary.csv", "scores/raw.csv"
RUNS, MECHANISM, GRAPHS = "runs.csv.gz", "thesis/mechanism.csv", "claims/graphs.csv"
TABLES = (NUMBERS, SUMMARY, RAW_SUMMARY, MECHANISM)
CAPPED = 0.01  # a larger share of a baseline's runs that reach the last epoch makes a gain over it doubtful
PLAIN_SHARE = 20 / 48  # test nodes over training nodes, as Nadeau and Bengio have it


class Missing(LookupError):
    """Something that a rule needs has not been measured."""


@dataclass(frozen=True)
class Evidence:
    """What has been measured; the methods raise `Missing` for anything else.

    Attributes:
        runs: Runs of the chosen configuration by cell and draw.
        capped: The share of them that trained up to the last epoch allowed, by cell; 0 if a cell is not listed.
        gates: Rows of `summary.csv` of the analysis `scores` by model and dataset, one per split.
        mechanism: Rows of `mechanism.csv` of the study `thesis`, likewise.
        graphs: Rows of `graphs.csv` by dataset: sizes, homophily, and a hash of the nodes.
        numbers: Further numbers of the analyses by name.
        larger: The studies that decide in place of smaller ones, by the smaller one.
        plain: Whether differences have the plain correction of Nadeau and Bengio instead of that of `difference`.
    """

    runs: Mapping[CellKey, Draws] = field(default_factory=dict)
    capped: Mapping[CellKey, float] = field(default_factory=dict)
    gates: ByModel = field(default_factory=dict)
    mechanism: ByModel = field(default_factory=dict)
    graphs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    larger: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False

    def cell(self, study: str, dataset: str, model: str, at: At = None) -> Draws:
        """Returns the runs of a cell by draw."""
        draws = self.runs.get((study, dataset, model, at))
        if not draws:
            raise Missing(f"{study}: {model} on {dataset}" + _where(at))
        scores = [score for runs in draws for _, _, score in runs]
        if diverged := sum(map(math.isnan, scores)):
            raise Missing(f"{study}: {model} on {dataset}, where {diverged} of {len(scores)} runs diverged")
        return draws

    def mean(self, study: str, dataset: str, model: str, at: At = None) -> float:
        """Returns the mean score of a cell in %."""
        return mean_score(self.cell(study, dataset, model, at))

    def means(self, study: str, dataset: str, models: Iterable[str], at: At = None) -> dict[str, float]:
        """Returns the mean scores of several models in %."""
        return {model: self.mean(study, dataset, model, at) for model in models}

    def is_trained(self, study: str, dataset: str, model: str, at: At = None) -> bool:
        """Whether at most 1% of the runs of a cell reach the last epoch allowed: others could be trained further."""
        return self.capped.get((study, dataset, model, at), 0.0) <= CAPPED

    def gap(self, study: str, dataset: str, model: str, other: str, at: At = None) -> Estimate:
        """Returns the difference between two models in points."""
        return self.paired(dataset, *(self.cell(study, dataset, each, at) for each in (model, other)))

    def relative_gap(self, study: str, dataset: str, model: str, other: str, at: At = None) -> Estimate:
        """Returns the difference between two models in % of the second one's score, whose own error counts as well."""
        base, own = (self.mean(study, dataset, each, at) for each in (other, model))
        theirs = self.cell(study, dataset, other, at)
        scaled = [[(split, seed, own / base * score) for split, seed, score in runs] for runs in theirs]
        error = self.paired(dataset, self.cell(study, dataset, model, at), scaled)
        return Estimate(100 * (own / base - 1), 100 * error.error / base, error.splits)

    def paired(self, dataset: str, first: Draws, second: Draws) -> Estimate:
        """Returns the difference of scores over the splits and seeds that both have, on the same draws; over the seeds
        of each where there is a single split."""
        runs = [run for draws in (first, second) for run in draws[0]]
        if len({split for split, _, _ in runs}) == 1 and min(len(first[0]), len(second[0])) > 1:
            one, two = (estimate([score for _, _, score in draws[0]], 0) for draws in (first, second))
            return one - two
        common = set.intersection(*({run[:2] for run in runs} for runs in (*first, *second)))
        if len({split for split, _ in common}) < 2:
            raise Missing(f"runs on the same two or more splits of {dataset}")
        left, right = ([[run for run in runs if run[:2] in common] for runs in draws] for draws in (first, second))
        return difference_draws(left, right, self._share(dataset), canceling=not self.plain)

    def lost(self, study: str, dataset: str, model: str, start: At, end: At) -> Draws:
        """Returns the points that every run of a model loses between two positions on the axis of a study, by the draw
        at the end; at the start, there may be a single one."""
        starts, ends = (self.cell(study, dataset, model, at) for at in (start, end))
        firsts = [{run[:2]: run[2] for run in runs} for runs in starts]
        firsts = firsts * len(ends) if len(firsts) == 1 else firsts
        return [
            [(split, seed, before[split, seed] - score) for split, seed, score in runs if (split, seed) in before]
            for before, runs in zip(firsts, ends, strict=True)
        ]

    def _share(self, dataset: str) -> float:
        return PLAIN_SHARE if self.plain else known_test_share(dataset)

    def values(self, study: str, dataset: str, model: str) -> list[float]:
        """Returns the positions on the axis of a study at which a model has runs, in ascending order."""
        own = (at for s, d, m, at in self.runs if (s, d, m) == (study, dataset, model))
        values = sorted(at for at in own if isinstance(at, float))
        if not values:
            raise Missing(f"{study}: {model} on {dataset}")
        return values

    def gate(self, name: str, dataset: str, model: str = "gfgn-graph") -> Estimate:
        """Returns a statistic of the scores that a level learned, over splits."""
        return self._statistic(self.gates, "scores", name, dataset, model)

    def graph(self, dataset: str, column: str) -> float:
        """Returns a property of a graph."""
        if column not in self.graphs.get(dataset, {}):
            raise Missing(f"the data of {dataset}")
        return float(self.graphs[dataset][column])

    def follows(self, dataset: str, model: str) -> tuple[Estimate, float, float]:
        """Returns the rank correlation of gates and smoothness over splits, and the two ends of its null interval."""
        first, *ends = (
            self._statistic(self.mechanism, "thesis", name, dataset, model)
            for name in ("rank_correlation", "null_low", "null_high")
        )
        return first, ends[0].mean, ends[1].mean

    def _statistic(self, table: ByModel, source: str, name: str, dataset: str, model: str) -> Estimate:
        values = [row.get(name, math.nan) for row in table.get((model, dataset), ())]
        known = [value for value in values if not math.isnan(value)]
        if len(known) < 2:
            raise Missing(f"{source}: {model} on {dataset}" + f", where {name} is not defined" * bool(values))
        return estimate(known, self._share(dataset))

    def number(self, name: str) -> float:
        """Returns one of the further numbers."""
        if name not in self.numbers:
            raise Missing(name)
        return self.numbers[name]


def mean_score(draws: Draws) -> float:
    """Returns the mean score of runs on one or more draws."""
    return fmean(score for runs in draws for _, _, score in runs)


def _where(at: At) -> str:
    return "" if at is None else f" at {at:g}" if isinstance(at, float) else f" with {at}"


def read_evidence(folder: Path, graphs: Mapping[str, Mapping[str, str]] | None = None) -> Evidence:
    """Reads the evidence from a folder of results; by default, that on the graphs is what was measured at the time."""
    runs: dict[CellKey, Draws] = {}
    capped: dict[CellKey, float] = {}
    for study in find_studies(folder):
        own, ended = read_study(study, folder / study / RUNS)
        runs, capped = runs | own, capped | ended
    numbers = {row["measure"]: float(row["value"]) for row in read_csv(folder / NUMBERS)}
    gates = read_rows(folder / SUMMARY) | read_rows(folder / RAW_SUMMARY, RAW)
    mechanism = read_rows(folder / MECHANISM)
    if graphs is None:
        graphs = read_graphs(folder / GRAPHS)
    larger = {study: other for study, other in LARGER.items() if other in find_studies(folder)}
    return Evidence(runs, capped, gates, mechanism, graphs, numbers, larger)


def find_studies(folder: Path) -> list[str]:
    """Returns the studies that decide: a larger one in place of a smaller one as soon as it has runs, even if some are
    missing, so that nobody chooses between the two by what they show."""
    larger = (LARGER.get(study, study) for study in STUDIES)
    return [new if (folder / new / RUNS).is_file() else old for old, new in zip(STUDIES, larger, strict=True)]


def read_study(name: str, path: Path) -> tuple[dict[CellKey, Draws], dict[CellKey, float]]:
    """Returns the runs of the selected configuration of every complete cell of a study, and the share of them that
    trained up to the last epoch; none if there is no file."""
    if not path.is_file():
        return {}, {}
    from gfgn.paper.studies import load_study
    from gfgn.runs.results import Results
    from gfgn.runs.table import read_runs

    study = load_study(name)
    results = Results(study, read_runs(path))
    runs: dict[CellKey, Draws] = {}
    capped: dict[CellKey, float] = {}
    for cell in study.all_cells():
        if rows := results[cell].rows:
            at = float(cell.at) if isinstance(cell.at, int | float) else cell.at
            key = (name, cell.dataset, cell.model, at)
            draws = results[cell].draws
            runs[key] = [[(row.replica.split, row.replica.seed, 100 * row.test) for row in own] for own in draws]
            capped[key] = fmean(row.epochs >= row.config.max_epochs for row in rows)
    return runs, capped


def read_graphs(path: Path) -> dict[str, dict[str, str]]:
    """Returns the rows of `graphs.csv` by dataset."""
    return {row["dataset"]: row for row in read_csv(path)}


def read_rows(path: Path, suffix: str = "") -> dict[tuple[str, str], list[dict[str, float]]]:
    """Returns the numbers of a table with one row per split by model, whose name gets a suffix, and dataset."""
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in read_csv(path):
        numbers = {name: float(value) for name, value in row.items() if name not in ("dataset", "model")}
        rows.setdefault((row["model"] + suffix, row["dataset"]), []).append(numbers)
    return rows
