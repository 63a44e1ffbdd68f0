"""The evidence that claims are judged by: runs of studies, learned scores, and properties of the graphs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from gfgn.paper.outputs import read_csv
from gfgn.runs.views import known_test_share
from gfgn.train.statistics import Summary, difference

Runs = Sequence[tuple[int, int, float]]  # split, seed and score in % of every run of a cell
CellKey = tuple[str, str, str, float | None]  # study, dataset, model, and position on the axis of the study, if any

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
RAW = ", without row normalization"  # suffix of models that were trained on features that are not row-normalized
STUDIES = ("table1", "arxiv", "table2", "noise", "lambda")


class Missing(LookupError):
    """Something that a rule needs has not been measured."""


@dataclass(frozen=True)
class Evidence:
    """What has been measured; the methods raise `Missing` for anything else.

    `gates` has, by model and dataset, one row per split of `summary.csv` of the analysis `scores`; `homophily` is by
    dataset; `numbers` are further numbers of the analyses by name.
    """

    runs: Mapping[CellKey, Runs] = field(default_factory=dict)
    gates: Mapping[tuple[str, str], Sequence[Mapping[str, float]]] = field(default_factory=dict)
    homophily: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def cell(self, study: str, dataset: str, model: str, at: float | None = None) -> Runs:
        """Returns the runs of a cell."""
        runs = self.runs.get((study, dataset, model, at))
        if not runs:
            raise Missing(f"{study}: {model} on {dataset}" + ("" if at is None else f" at {at:g}"))
        if diverged := sum(math.isnan(score) for _, _, score in runs):
            raise Missing(f"{study}: {model} on {dataset}, where {diverged} of {len(runs)} runs diverged")
        return runs

    def mean(self, study: str, dataset: str, model: str, at: float | None = None) -> float:
        """Returns the mean score of a cell in %."""
        return fmean(score for _, _, score in self.cell(study, dataset, model, at))

    def means(self, study: str, dataset: str, models: Iterable[str], at: float | None = None) -> dict[str, float]:
        """Returns the mean scores of several models in %."""
        return {model: self.mean(study, dataset, model, at) for model in models}

    def best_level(self, study: str, dataset: str, at: float | None = None) -> str:
        """Returns the level with the best mean score, as in the last row of the paper's Table 1."""
        return max(LEVELS, key=lambda level: self.mean(study, dataset, level, at))

    def gap(self, study: str, dataset: str, model: str, other: str, at: float | None = None) -> Summary:
        """Returns the difference between two models in points, paired over common splits and seeds."""
        return paired(dataset, self.cell(study, dataset, model, at), self.cell(study, dataset, other, at))

    def gain(self, study: str, dataset: str, at: float | None = None, relative: bool = False) -> Summary:
        """Returns the gain of the best level over GCN, in points or in % of GCN's mean score."""
        gain = self.gap(study, dataset, self.best_level(study, dataset, at), "gcn", at)
        if not relative:
            return gain
        base = self.mean(study, dataset, "gcn", at)
        mean, std, low, high = (100 * value / base for value in gain[:4])
        return Summary(mean, std, low, high, gain.runs)

    def values(self, study: str, dataset: str, model: str) -> list[float]:
        """Returns the positions on the axis of a study at which a model has runs, in ascending order."""
        values = sorted(at for s, d, m, at in self.runs if (s, d, m) == (study, dataset, model) and at is not None)
        if not values:
            raise Missing(f"{study}: {model} on {dataset}")
        return values

    def gate(self, name: str, dataset: str, model: str = "gfgn-graph") -> float:
        """Returns a statistic of the scores that a level learned, averaged over splits."""
        rows = self.gates.get((model, dataset))
        if not rows or any(name not in row for row in rows):
            raise Missing(f"scores: {model} on {dataset}")
        return fmean(row[name] for row in rows)

    def number(self, name: str) -> float:
        """Returns one of the further numbers."""
        if name not in self.numbers:
            raise Missing(name)
        return self.numbers[name]


def paired(dataset: str, first: Runs, second: Runs) -> Summary:
    """Returns the summary of the differences of scores over the splits, two or more, and seeds that both have."""
    common = {run[:2] for run in first} & {run[:2] for run in second}
    if len({split for split, _ in common}) < 2:
        raise Missing(f"runs on the same two or more splits of {dataset}")
    left, right = ([run for run in runs if run[:2] in common] for runs in (first, second))
    return difference(left, right, known_test_share(dataset))


def read_evidence(folder: Path, homophily: Mapping[str, float] | None = None) -> Evidence:
    """Reads the evidence from a folder of results, except for the homophily by dataset, which these do not have."""
    runs = {key: cell for study in STUDIES for key, cell in read_study(study, folder / study / "runs.csv.gz").items()}
    numbers = {row["measure"]: float(row["value"]) for row in read_csv(folder / "motivation" / "summary.csv")}
    gates = read_gates(folder / "scores" / "summary.csv") | read_gates(folder / "scores" / "raw.csv", RAW)
    return Evidence(runs, gates, homophily or {}, numbers)


def read_study(name: str, path: Path) -> dict[CellKey, Runs]:
    """Returns the runs of the selected configuration of every complete cell of a study; none if there is no file."""
    if not path.is_file():
        return {}
    from gfgn.paper.studies import load_study
    from gfgn.runs.results import Results
    from gfgn.runs.table import read_runs

    study = load_study(name)
    results = Results(study, read_runs(path))
    return {
        (name, cell.dataset, cell.model, None if cell.at is None else float(cell.at)): [
            (row.replica.split, row.replica.seed, 100 * row.test) for row in results[cell].rows
        ]
        for cell in study.all_cells()
        if results[cell].rows
    }


def read_gates(path: Path, suffix: str = "") -> dict[tuple[str, str], list[dict[str, float]]]:
    """Returns the rows of `summary.csv` of the analysis `scores` by model, whose name gets a suffix, and dataset."""
    gates: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in read_csv(path):
        numbers = {name: float(value) for name, value in row.items() if name not in ("dataset", "model")}
        gates.setdefault((row["model"] + suffix, row["dataset"]), []).append(numbers)
    return gates
