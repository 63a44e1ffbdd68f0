"""`Results`: what the runs of a study show, cell by cell, from rows alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from gfgn.runs.plan import Find, Result, read_result
from gfgn.runs.record import DatasetRecord, RunRecord, is_gfgn
from gfgn.runs.study import Cell, Fact, Study
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica
from gfgn.train.statistics import difference, paired_test

RowKey = tuple[str, str, Replica, TrainConfig, str]  # identifies a run within a study; the last is its search


class ResultsError(ValueError):
    """Raised for runs that do not belong together."""


class Change(NamedTuple):
    """The mean test score of a variant minus that of the first one, in points. If both have the same two or more
    splits: its 95% interval over splits and the p-value of the paired t-test."""

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


class Results:
    """The results of a study from runs, among them its own. Runs that another search stopped early are left out."""

    def __init__(self, study: Study, rows: Sequence[RunRecord]) -> None:
        self.study = study
        self._by_key = _index(rows)
        self._searches = _searches(study, rows)
        own = {"", *self._searches.values()}
        self.rows = [row for row in rows if row.search in own]
        self._results: dict[Cell, Result] = {}
        self._changes: dict[Cell, Change | None] = {}

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
        """The row of a run; one that the first of the searches stopped early comes first."""
        return next((row for search in searches if (row := self._by_key.get((*run, search))) is not None), None)

    def test_share(self, cell: Cell) -> float:
        """The number of test nodes over that of all other nodes of a split."""
        return self.study.test_share(cell)

    def missing(self) -> list[Cell]:
        """The cells that lack runs."""
        return [cell for cell in self.study.all_cells() if not self[cell].rows]

    def change(self, cell: Cell) -> Change | None:
        """The effect of a variant compared with the first one; `None` if either lacks runs or a run diverged."""
        if cell not in self._changes:
            self._changes[cell] = self._change(cell)
        return self._changes[cell]

    def _change(self, cell: Cell) -> Change | None:
        assert self.study.vary is not None
        result, base = self[cell], self[cell._replace(at=self.study.vary.values[0])]
        if result.mean is None or base.mean is None:
            return None
        if _splits(result.rows) != _splits(base.rows):
            return Change(result.mean - base.mean)
        share = self.test_share(cell)
        gap, test = difference(result.rows, base.rows, share), paired_test(result.rows, base.rows, share)
        if math.isnan(gap.low):
            return Change(100 * gap.mean)
        return Change(100 * gap.mean, 100 * gap.low, 100 * gap.high, test.t_p)

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


def _searches(study: Study, rows: Sequence[RunRecord]) -> dict[Cell, str]:
    """The hash of the search of each cell that has runs which a search stopped early."""
    stopped = {(row.dataset, row.model) for row in rows if row.dropped}
    by_split: dict[str, dict[int, RunRecord]] = {}  # one run of each split, by dataset
    for row in rows if stopped else ():
        by_split.setdefault(row.dataset, {}).setdefault(row.replica.split, row)
    records = {name: DatasetRecord.of_rows(list(own.values())) for name, own in by_split.items()}
    searches = {}
    for cell in study.all_cells() if stopped else ():
        plan, name = study.plan(cell), study.data_name(cell)
        if (name, cell.model) in stopped and by_split[name].keys() >= set(range(plan.splits)):
            searches[cell] = plan.search(records[name])
    return searches


def _splits(rows: Sequence[RunRecord]) -> dict[int, str]:
    return {row.replica.split: row.split_fingerprint for row in rows}


def _index(rows: Sequence[RunRecord]) -> dict[RowKey, RunRecord]:
    """The runs by key; within a study, a name must mean one graph."""
    index: dict[RowKey, RunRecord] = {}
    for row in rows:
        other = index.setdefault((row.dataset, row.model, row.replica, row.config, row.search), row)
        if (other.dataset_fingerprint, other.split_fingerprint) != (row.dataset_fingerprint, row.split_fingerprint):
            raise ResultsError(
                f"rows must be of one graph and one split per name, got two different ones of {row.dataset!r}, "
                f"split {row.replica.split}"
            )
    return index
