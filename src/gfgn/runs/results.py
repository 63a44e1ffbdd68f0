"""`Results`: what the runs of a study show, a table of cells. A comparison is a study of one dataset."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from gfgn.runs.grid import ignored_params
from gfgn.runs.plan import Find, Result, read_result
from gfgn.runs.record import DatasetRecord, RunRecord, is_gfgn
from gfgn.runs.selection import Selection
from gfgn.runs.study import Cell, Fact, Study
from gfgn.runs.text import describe_training
from gfgn.train.catalog import CLASSICAL
from gfgn.train.config import TrainConfig
from gfgn.train.draws import summarize_draws
from gfgn.train.replica import Replica
from gfgn.train.statistics import Summary, average_ranks, difference, paired_test

if TYPE_CHECKING:
    import pandas as pd

RunKey = tuple[str, str, Replica, TrainConfig, str]  # identifies a run within a study; the last is its search


class ResultsError(ValueError):
    """Raised for runs that do not belong together."""


class Gap(NamedTuple):
    """The mean test score of one cell minus that of another, paired by split and seed: with its 95% interval over
    splits and the p-value of the paired t-test, which are NaN with a single split or if the splits differ."""

    mean: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def points(self) -> Gap:
        """The same in percentage points."""
        return Gap(100 * self.mean, 100 * self.low, 100 * self.high, self.p)


@dataclass
class Results:
    """The results of a study from its runs. Runs that another search stopped early are left out.

    Those of a study with one dataset, such as a comparison, have what is below; `comparisons` divides others.

    Attributes:
        runs: The runs of the study.
        records: By dataset, what is known about it; for a study of several, from its runs alone.
        explanation: What `gfgn.runs.explain` returned; `None` if it has not been computed for these runs.
        others: By model, the number of further runs on this graph in the store, which were trained otherwise.
    """

    study: Study
    runs: Sequence[RunRecord]
    records: Mapping[str, DatasetRecord] = field(default_factory=dict)
    explanation: Any = None
    others: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_key = _index(self.runs)
        self._searches = _searches(self.study, self.runs)
        own = {"", *self._searches.values()}
        self.runs = [row for row in self.runs if row.search in own]
        self._results: dict[Cell, Result] = {}

    def __getitem__(self, cell: Cell) -> Result:
        if cell not in self._results:
            plan = self.study.plan(cell)
            searches = dict.fromkeys((self._searches.get(cell, ""), ""))

            def finder(name: str) -> Find:
                return lambda replicas: [self._find((name, cell.model, run, plan.config), searches) for run in replicas]

            first, *others = map(finder, self.study.data_names(cell))
            self._results[cell] = read_result(plan, first, self.test_share(cell), others)
        return self._results[cell]

    def _find(self, run: tuple[str, str, Replica, TrainConfig], searches: Iterable[str]) -> RunRecord | None:
        """The record of a run; one that the first of the searches stopped early comes first."""
        return next((row for search in searches if (row := self._by_key.get((*run, search))) is not None), None)

    def test_share(self, cell: Cell) -> float | None:
        """The number of test nodes over that of all other nodes of a split."""
        record = self.records.get(cell.dataset)
        return self.study.test_share(cell) if record is None else record.test_share

    def missing(self) -> list[Cell]:
        """The cells that lack runs."""
        return [cell for cell in self.study.all_cells() if not self[cell].rows]

    def gap(self, cell: Cell, other: Cell) -> Gap | None:
        """The score of a cell minus that of another; `None` if either lacks runs or a run diverged."""
        one, two = self[cell], self[other]
        if one.summary is None or two.summary is None:
            return None
        if _splits(one.rows) != _splits(two.rows) or len(one.draws) > 1 or len(two.draws) > 1:
            return Gap(one.summary.mean - two.summary.mean)
        share = self.test_share(cell)
        summary, test = difference(one.rows, two.rows, share), paired_test(one.rows, two.rows, share)
        return Gap(summary.mean, summary.low, summary.high, test.t_p)

    def change(self, cell: Cell) -> Gap | None:
        """The effect of a variant compared with the first one."""
        assert self.study.vary is not None
        return self.gap(cell, cell._replace(at=self.study.vary.values[0]))

    def measure(self, fact: Fact) -> float | None:
        """The measured counterpart of a published fact; `None` if runs are missing or diverged."""
        if fact.measure.startswith("gate_"):
            return self._gate(fact)
        scores = {model: self[Cell(fact.dataset, model, fact.at)].mean for model in self.study.models}
        levels, base = [score for model, score in scores.items() if is_gfgn(model)], scores.get("gcn")
        if base is None or not levels or None in levels:
            return None
        gain = max(level for level in levels if level is not None) - base
        return 100 * gain / base if fact.measure == "relative_gain_over_gcn" else gain

    def _gate(self, fact: Fact) -> float | None:
        assert fact.model is not None
        name = fact.measure.removeprefix("gate_")
        rows = self[Cell(fact.dataset, fact.model, fact.at)].rows
        values = [row.gates[name] for row in rows if row.gates and name in row.gates]
        scale = 100 if name == "below_055" else 1
        return scale * fmean(values) if values else None

    def comparisons(self) -> list[Results]:
        """The results by dataset and value of what is varied: each as those of a comparison."""
        vary = self.study.vary
        values = [None] if vary is None else list(vary.values)
        parts = [self.study.part(dataset, at) for dataset in self.study.datasets for at in values]
        return [part for part in (self._part(study) for study in parts) if part.runs]

    def _part(self, study: Study) -> Results:
        cells = study.all_cells()
        names = {name for cell in cells for name in study.data_names(cell)}
        if not (rows := [row for row in self.runs if row.dataset in names]):
            return Results(study, [])
        record = self.records.get(study.datasets[0]) or DatasetRecord.of_rows(rows)
        record = replace(record, name=study.title, test_share=self.test_share(cells[0]))
        return Results(study, rows, {study.datasets[0]: record})

    def frame(self) -> pd.DataFrame:
        """One row per cell: scores as fractions, the difference to the baseline, and the chosen configuration."""
        import pandas as pd

        at = [] if self.study.vary is None else [self.study.vary.name]
        rows = []
        for part in self.comparisons():
            (dataset,) = part.study.datasets
            for model, summary in part.summary().items():
                gap, chosen = part.gap_to_baseline(model), part.rows[model][0].replica.configuration
                rows.append(
                    {"dataset": dataset, **dict.fromkeys(at, part.study.at), "model": model}
                    | {"metric": part.dataset.metric, **summary._asdict()}
                    | {"validation": fmean(row.val for row in part.rows[model]), "baseline": part.baseline}
                    | ({} if gap is None else {f"difference_{name}": value for name, value in gap._asdict().items()})
                    | {f"chosen_{name}": value for name, value in chosen.items() if name not in ignored_params(model)}
                )
        return pd.DataFrame(rows)

    # --- of a study with one dataset ----------------------------------------------------------------------------------

    @property
    def dataset(self) -> DatasetRecord:
        """What is known about the dataset."""
        return self.records.get(self.study.datasets[0]) or DatasetRecord.of_rows(self.runs)

    @property
    def cells(self) -> dict[str, Result]:
        """The result of every model."""
        if len(self.study.datasets) > 1 or self.study.vary is not None:
            raise ValueError("results must be of one dataset and one variant, got those of several: see comparisons()")
        return {cell.model: self[cell] for cell in self.study.all_cells()}

    @property
    def rows(self) -> dict[str, list[RunRecord]]:
        """By model, the runs of the chosen configuration; models that lack runs are left out."""
        return {model: list(result.rows) for model, result in self.cells.items() if result.rows}

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have all their runs, in the given order."""
        return tuple(self.rows)

    @property
    def incomplete(self) -> dict[str, tuple[int, int]]:
        """By model that lacks runs, how many it has and how many it needs."""
        return {model: (result.have, result.need) for model, result in self.cells.items() if not result.rows}

    @property
    def selections(self) -> dict[str, Selection]:
        """By model, how the configuration was chosen; models with nothing to choose are left out."""
        complete = {model: result.selection for model, result in self.cells.items() if result.rows}
        chosen = {model for model, configurations in self.study.models.items() if len(configurations) > 1}
        return {m: found for m, found in complete.items() if found and m in chosen and m not in CLASSICAL}

    def summary(self) -> dict[str, Summary]:
        """Mean, standard deviation and 95% interval of the test score by model."""
        complete = {model: result for model, result in self.cells.items() if result.rows}
        return {model: summarize_draws(result.draws, result.test_share) for model, result in complete.items()}

    @property
    def scored(self) -> tuple[str, ...]:
        """The models that have a mean test score: all their runs, none of which diverged."""
        return tuple(model for model, summary in self.summary().items() if not math.isnan(summary.mean))

    @property
    def diverged(self) -> dict[str, int]:
        """By model with runs that diverged, their number; such a model has no mean score."""
        return {model: result.diverged for model, result in self.cells.items() if result.diverged}

    @property
    def baseline(self) -> str | None:
        """The model that others are compared with: that of the study or else, chosen by test score, the best one other
        than GFGN, which favors the baseline."""
        means = {model: summary.mean for model, summary in self.summary().items() if not math.isnan(summary.mean)}
        return self.study.baseline if self.study.baseline in means else best_baseline(means)

    def gap_to_baseline(self, model: str) -> Gap | None:
        """The test score of a model minus that of the baseline: of a GFGN or, if the study names the baseline, any."""
        baseline, cells = self.baseline, {cell.model: cell for cell in self.study.all_cells()}
        if baseline in (None, model) or not (is_gfgn(model) or baseline == self.study.baseline):
            return None
        return self.gap(cells[model], cells[baseline]) if baseline else None

    @property
    def settings(self) -> str:
        """How runs were trained, as text."""
        return describe_training(self.study)

    def to_json(self) -> dict[str, Any]:
        """The results as JSON values: one entry per model, scores as fractions, `None` for what is not known."""
        models, cells = [], self.cells
        for model, summary in self.summary().items():
            rows, chosen, gap = self.rows[model], self.selections.get(model), self.gap_to_baseline(model)
            entry = {
                "model": model,
                **_finite(summary._asdict()),
                **_finite({"val": math.fsum(row.val for row in rows) / len(rows)}),
                "diverged": cells[model].diverged,
                "seconds": math.fsum(row.seconds for row in rows) / len(rows),
                "parameters": rows[0].num_parameters,
                "configuration": None if model in CLASSICAL else rows[0].replica.configuration,
                "tried": len(chosen.candidates) if chosen else 1,
                "difference": None if gap is None else _finite(gap._asdict()),
            }
            models.append(entry)
        facts = {k: v for k, v in asdict(self.dataset).items() if k not in ("split_fingerprints", "guesses")}
        study, trials = self.study, None if self.study.search is None else self.study.search.configurations
        return {
            "dataset": facts,
            "splits": study.splits,
            "seeds": study.seeds,
            "trials": trials,
            "settings": self.settings,
            "baseline": self.baseline,
            "models": models,
            "incomplete": {model: list(counts) for model, counts in self.incomplete.items()},
        }


def best_baseline(means: Mapping[str, float]) -> str | None:
    """The model other than GFGN with the best mean score."""
    return max((model for model in means if not is_gfgn(model)), key=lambda model: means[model], default=None)


def rank_models(results: Sequence[Results]) -> dict[str, float]:
    """The average rank by test score, over datasets, of the models that all results have; ties are averaged."""
    common = [model for model in results[0].scored if all(model in other.scored for other in results)]
    summaries = {each.dataset.name: each.summary() for each in results}
    means = {model: {name: summary[model].mean for name, summary in summaries.items()} for model in common}
    return average_ranks(means)


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _searches(study: Study, rows: Sequence[RunRecord]) -> dict[Cell, str]:
    """The hash of the search of each cell that has runs which a search stopped early."""
    stopped = {(row.dataset, row.model) for row in rows if row.dropped}
    by_split: dict[str, dict[int, RunRecord]] = {}  # one run of each split, by dataset
    for row in rows if stopped else ():
        by_split.setdefault(row.dataset, {}).setdefault(row.split, row)
    records = {name: DatasetRecord.of_rows(list(own.values())) for name, own in by_split.items()}
    searches = {}
    for cell in study.all_cells() if stopped else ():
        plan, name = study.plan(cell), study.data_name(cell)
        if (name, cell.model) in stopped and by_split[name].keys() >= set(range(plan.splits)):
            searches[cell] = plan.search(records[name])
    return searches


def _splits(rows: Sequence[RunRecord]) -> dict[int, str]:
    return {row.split: row.split_fingerprint for row in rows}


def _index(rows: Sequence[RunRecord]) -> dict[RunKey, RunRecord]:
    """The runs by key; within a study, a name must mean one graph."""
    index: dict[RunKey, RunRecord] = {}
    for row in rows:
        other = index.setdefault((row.dataset, row.model, row.replica, row.config, row.search), row)
        if (other.dataset_fingerprint, other.split_fingerprint) != (row.dataset_fingerprint, row.split_fingerprint):
            raise ResultsError(
                f"rows must be of one graph and one split per name, got two different ones of {row.dataset!r}, "
                f"split {row.split}"
            )
    return index
