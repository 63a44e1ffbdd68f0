"""The evidence that claims are judged by: runs of studies, gates of trained networks, and properties of the graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from gfgn.paper.pages import group_by, read_csv
from gfgn.paper.studies import load_study
from gfgn.runs.results import Results
from gfgn.runs.study import known_test_share
from gfgn.runs.study_files import RUNS
from gfgn.runs.table import read_runs
from gfgn.train.draws import difference_draws
from gfgn.train.statistics import Estimate, estimate

Draws: TypeAlias = Sequence[Sequence[tuple[int, int, float]]]  # split, seed and score in % of every run, by draw
At: TypeAlias = float | str | None  # position on the axis of a study, or its variant, if any
CellKey: TypeAlias = tuple[str, str, str, At]  # study, dataset, model and position

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
STUDIES = ("table1", "arxiv", "table2", "noise", "lambda", "thesis")
LARGER = {"noise": "noise-draws"}  # studies that decide in place of smaller ones as soon as they have any run
RAW = ", without row normalization"  # suffix of models that were trained on features that are not row-normalized
NETWORKS = {"scores/summary.csv": "", "scores/raw.csv": RAW, "thesis/mechanism.csv": ""}  # one row per network
NUMBERS, GRAPHS = "motivation/summary.csv", "claims/graphs.csv"
CAPPED = 0.01  # a larger share of a baseline's runs that reach the last epoch makes a gain over it doubtful
PLAIN_SHARE = 20 / 48  # test nodes over training nodes, as Nadeau and Bengio have it


class Missing(LookupError):
    """Something that a claim needs has not been measured."""


@dataclass(frozen=True)
class Evidence:
    """What has been measured; the methods raise `Missing` for anything else.

    Attributes:
        runs: Runs of the chosen configuration by cell and draw of random edges.
        capped: The share of them that trained up to the last epoch allowed.
        networks: Statistics of the gates of every trained network, by folder, model and dataset.
        graphs: Sizes, homophily, and a hash of the nodes, by dataset.
        numbers: Further numbers of the analyses by name.
        larger: The studies that decide in place of smaller ones.
        plain: Whether differences have the plain correction of Nadeau and Bengio instead of that of `difference`.
    """

    runs: Mapping[CellKey, Draws] = field(default_factory=dict)
    capped: Mapping[CellKey, float] = field(default_factory=dict)
    networks: Mapping[tuple[str, str, str], Sequence[Mapping[str, str]]] = field(default_factory=dict)
    graphs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    larger: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False

    def key(self, study: str, dataset: str, model: str, at: At = None) -> CellKey:
        """The cell at a position; that of a model which does not depend on the position has none."""
        constant = study, dataset, model, None
        return constant if constant in self.runs and (*constant[:3], at) not in self.runs else (*constant[:3], at)

    def cell(self, study: str, dataset: str, model: str, at: At = None) -> Draws:
        """The runs of a cell by draw."""
        *_, at = key = self.key(study, dataset, model, at)
        where = f"{study}: {model} on {dataset}"
        if not self.runs.get(key):
            raise Missing(where + ("" if at is None else f" at {at:g}" if isinstance(at, float) else f" with {at}"))
        scores = [score for runs in self.runs[key] for _, _, score in runs]
        if diverged := sum(map(math.isnan, scores)):
            raise Missing(f"{where}, where {diverged} of {len(scores)} runs diverged")
        return self.runs[key]

    def mean(self, study: str, dataset: str, model: str, at: At = None) -> float:
        """The mean score of a cell in %."""
        return fmean(score for runs in self.cell(study, dataset, model, at) for _, _, score in runs)

    def share_capped(self, study: str, dataset: str, model: str, at: At = None) -> float:
        """The share of the runs of a cell that reach the last epoch allowed."""
        return self.capped.get(self.key(study, dataset, model, at), 0.0)

    def paired(self, dataset: str, first: Draws, second: Draws) -> Estimate:
        """The difference of scores over the splits and seeds that both have, on the same draws; over the seeds of each
        where there is a single split."""
        runs = [run for draws in (first, second) for run in draws[0]]
        if len({split for split, _, _ in runs}) == 1 and min(len(first[0]), len(second[0])) > 1:
            one, two = (estimate([score for _, _, score in draws[0]], 0) for draws in (first, second))
            return one - two
        common = set.intersection(*({run[:2] for run in runs} for runs in (*first, *second)))
        if len({split for split, _ in common}) < 2:
            raise Missing(f"runs on the same two or more splits of {dataset}")
        left, right = ([[run for run in runs if run[:2] in common] for runs in draws] for draws in (first, second))
        return difference_draws(left, right, self._share(dataset), canceling=not self.plain)

    def network(self, folder: str, dataset: str, model: str, name: str) -> Estimate:
        """The mean over networks, one per split, of a statistic of their gates."""
        rows = self.networks.get((folder, model, dataset), ())
        known = [value for row in rows if not math.isnan(value := float(row.get(name, "nan")))]
        if len(known) < 2:
            raise Missing(f"{folder}: {model} on {dataset}" + f", where {name} is not defined" * bool(rows))
        return estimate(known, self._share(dataset))

    def _share(self, dataset: str) -> float:
        return PLAIN_SHARE if self.plain else known_test_share(dataset)

    def graph(self, dataset: str, column: str) -> float:
        """A property of a graph."""
        if column not in self.graphs.get(dataset, {}):
            raise Missing(f"the data of {dataset}")
        return float(self.graphs[dataset][column])


def read_evidence(folder: Path, graphs: Mapping[str, Mapping[str, str]] | None = None) -> Evidence:
    """Reads the evidence from a folder of results; by default, that on the graphs is what was measured at the time."""
    runs, capped = dict[CellKey, Draws](), dict[CellKey, float]()
    for name in find_studies(folder):
        if (folder / name / RUNS).is_file():
            results = Results(load_study(name), read_runs(folder / name / RUNS))
            for cell in results.study.all_cells():
                if rows := results[cell].rows:
                    key = name, cell.dataset, cell.model, float(cell.at) if isinstance(cell.at, int) else cell.at
                    runs[key] = [
                        [(row.split, row.seed, 100 * row.test) for row in draw] for draw in results[cell].draws
                    ]
                    capped[key] = fmean(row.epochs >= row.config.max_epochs for row in rows)
    networks = {
        (path.partition("/")[0], model + suffix, dataset): rows
        for path, suffix in NETWORKS.items()
        for (model, dataset), rows in group_by(read_csv(folder / path), "model", "dataset").items()
    }
    numbers = {row["measure"]: float(row["value"]) for row in read_csv(folder / NUMBERS)}
    if graphs is None:
        graphs = {row["dataset"]: row for row in read_csv(folder / GRAPHS)}
    larger = {study: other for study, other in LARGER.items() if other in find_studies(folder)}
    return Evidence(runs, capped, networks, graphs, numbers, larger)


def find_studies(folder: Path) -> list[str]:
    """The studies that decide: a larger one in place of a smaller one as soon as it has runs, even if some are missing,
    so that nobody chooses between the two by what they show."""
    larger = (LARGER.get(study, study) for study in STUDIES)
    return [new if (folder / new / RUNS).is_file() else old for old, new in zip(STUDIES, larger, strict=True)]
