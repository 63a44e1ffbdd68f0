"""What claims are judged by: the runs of studies, the scores that gates learned, and what is known of the graphs.

It is read from a folder of results, or made up, as tests do. What is not there is `Missing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from gfgn.paper.outputs import read_csv
from gfgn.train.statistics import Summary, difference

Runs = Sequence[tuple[int, int, float]]
"""Split, seed and score in % of every run of a cell."""
Place = tuple[str, str, str, float | None]
"""Study, dataset, model, and the value of what the study varies, if anything."""

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
RAW = ", features as they come"
"""What follows the name of a model that was trained on features whose rows are not normalised."""
STUDIES = ("table1", "arxiv", "table2", "noise", "lambda")


class Missing(LookupError):
    """What has not been measured, in words."""


@dataclass(frozen=True)
class Evidence:
    """What is known.

    Attributes:
        runs: Runs by study, dataset, model and value of what is varied.
        gates: By model and dataset, a row a split of `summary.csv` of the analysis `scores`.
        homophily: Node homophily by dataset.
        numbers: Further numbers by name, such as those that the other analyses wrote.
    """

    runs: Mapping[Place, Runs] = field(default_factory=dict)
    gates: Mapping[tuple[str, str], Sequence[Mapping[str, float]]] = field(default_factory=dict)
    homophily: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def of(self, study: str, dataset: str, model: str, at: float | None = None) -> Runs:
        """The runs of a cell."""
        found = self.runs.get((study, dataset, model, at))
        if not found:
            raise Missing(f"{study}: {model} on {dataset}" + ("" if at is None else f" at {at:g}"))
        return found

    def mean(self, study: str, dataset: str, model: str, at: float | None = None) -> float:
        """The mean score of a cell in %."""
        return fmean(score for _, _, score in self.of(study, dataset, model, at))

    def best_level(self, study: str, dataset: str, at: float | None = None) -> str:
        """The level with the best mean score, as the paper's last row of Table 1 takes it; all must be there."""
        return max(LEVELS, key=lambda level: self.mean(study, dataset, level, at))

    def gap(self, study: str, dataset: str, model: str, other: str, at: float | None = None) -> Summary:
        """By how many points one model is ahead of another, over the splits and seeds that both were run on."""
        first, second = self.of(study, dataset, model, at), self.of(study, dataset, other, at)
        return paired(first, second)

    def gain(self, study: str, dataset: str, at: float | None = None) -> Summary:
        """By how many points the best level is ahead of GCN."""
        return self.gap(study, dataset, self.best_level(study, dataset, at), "gcn", at)

    def relative_gain(self, dataset: str) -> Summary:
        """By how many per cent the best level is ahead of GCN in Table 1."""
        gain, base = self.gain("table1", dataset), self.mean("table1", dataset, "gcn")
        low, mean, high, std = (100 * value / base for value in (gain.low, gain.mean, gain.high, gain.std))
        return Summary(mean, std, low, high, gain.runs)

    def values(self, study: str, dataset: str, model: str) -> list[float]:
        """What a study varies: the values at which a cell has runs, in order."""
        found = sorted(at for s, d, m, at in self.runs if (s, d, m) == (study, dataset, model) and at is not None)
        if not found:
            raise Missing(f"{study}: {model} on {dataset}")
        return found

    def gate(self, name: str, dataset: str, model: str = "gfgn-graph") -> float:
        """A number of the scores that a level learned, the mean over splits."""
        rows = self.gates.get((model, dataset))
        if not rows or any(name not in row for row in rows):
            raise Missing(f"scores: {model} on {dataset}")
        return fmean(row[name] for row in rows)

    def number(self, name: str) -> float:
        """A further number."""
        if name not in self.numbers:
            raise Missing(name)
        return self.numbers[name]


def paired(first: Runs, second: Runs) -> Summary:
    """Summary of the differences of scores over the splits and seeds that both have."""
    common = {(split, seed) for split, seed, _ in first} & {(split, seed) for split, seed, _ in second}
    if not common:
        raise Missing("runs on the same splits and seeds")
    left, right = ([run for run in some if (run[0], run[1]) in common] for some in (first, second))
    return difference(left, right)


# --- from a folder ----------------------------------------------------------------------------------------------------


def read_evidence(folder: Path, homophily: Mapping[str, float] | None = None) -> Evidence:
    """Reads what a folder of results has: the studies' runs, the scores and what the analyses wrote.

    Args:
        folder: With a folder for every study and analysis.
        homophily: Node homophily by dataset, which takes the data.
    """
    runs: dict[Place, Runs] = {}
    for study in STUDIES:
        runs |= read_study(study, folder / study / "runs.csv.gz")
    numbers = {row["measure"]: float(row["value"]) for row in read_csv(folder / "motivation" / "summary.csv")}
    gates = read_gates(folder / "scores" / "summary.csv")
    gates |= {
        (f"{model}{RAW}", name): rows for (model, name), rows in read_gates(folder / "scores" / "raw.csv").items()
    }
    return Evidence(runs, gates, homophily or {}, numbers)


def read_study(name: str, path: Path) -> dict[Place, Runs]:
    """The runs of every complete cell of a study, at the configuration that was chosen; none where there is no file."""
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


def read_gates(path: Path) -> dict[tuple[str, str], list[dict[str, float]]]:
    """The rows of `summary.csv` of the analysis `scores` by model and dataset."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in read_csv(path):
        numbers = {name: float(value) for name, value in row.items() if name not in ("dataset", "model")}
        found.setdefault((row["model"], row["dataset"]), []).append(numbers)
    return found
