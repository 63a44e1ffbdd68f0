"""What the runs of a study come to: in every cell what was chosen and what it scores, from rows alone, without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from gfgn.runs.plan import Configuration, Selection, make_replica, select
from gfgn.runs.record import Row, is_gfgn
from gfgn.runs.study import TUNING_SEED, Cell, Fact, Study
from gfgn.runs.table import own_parameters
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica
from gfgn.train.statistics import Summary, difference, paired_test, summarize

Place = tuple[str, str, Replica, TrainConfig]


class ResultsError(ValueError):
    """Runs that do not belong together."""


@dataclass(frozen=True)
class Result:
    """What is known of a cell.

    Attributes:
        cell: Which.
        selection: How its configuration was chosen; `None` as long as runs of the grid are missing.
        rows: The runs of the chosen configuration; none as long as some are missing.
        have: How many of its runs there are.
        need: How many it needs.
    """

    cell: Cell
    selection: Selection | None
    rows: tuple[Row, ...]
    have: int
    need: int

    @cached_property
    def summary(self) -> Summary | None:
        """Mean, standard deviation and 95% interval of the test score; `None` as long as runs are missing."""
        return summarize(self.rows) if self.rows else None

    @property
    def mean(self) -> float | None:
        """The mean test score in %."""
        return None if self.summary is None else 100 * self.summary.mean

    @property
    def configuration(self) -> Configuration | None:
        """The chosen configuration."""
        return None if self.selection is None else self.selection.best


class Change(NamedTuple):
    """What a variant changes, in points: its mean test score less that of the variant to compare with, the 95% interval
    of the mean difference over splits, and the p-value of the paired t-test over splits; where splits are not the
    same there is nothing to pair, and neither interval nor p-value."""

    mean: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


class Results:
    """The results of a study.

    Args:
        study: The study.
        rows: Runs, among them those of the study.
    """

    def __init__(self, study: Study, rows: Sequence[Row]) -> None:
        self.study = study
        self.rows = list(rows)
        self._places = _index(rows)
        self._found: dict[Cell, Result] = {}

    def __getitem__(self, cell: Cell) -> Result:
        if cell not in self._found:
            self._found[cell] = self._result(cell)
        return self._found[cell]

    def find(self, cell: Cell, replicas: Sequence[Replica]) -> list[Row]:
        """The runs of a cell that there are, of the given ones."""
        name, config = self.study.data_name(cell), self.study.variant(cell).config
        found = (self._places.get((name, cell.model, replica, config)) for replica in replicas)
        return [row for row in found if row is not None]

    def missing(self) -> list[Cell]:
        """The cells that have not all their runs."""
        return [cell for cell in self.study.all_cells() if not self[cell].rows]

    def change(self, cell: Cell) -> Change | None:
        """What a variant changes against the first one; `None` as long as runs of either are missing."""
        assert self.study.vary is not None
        result, base = self[cell], self[cell._replace(at=self.study.vary.values[0])]
        if result.mean is None or base.mean is None:
            return None
        if _splits(result.rows) != _splits(base.rows):
            return Change(result.mean - base.mean)
        gap, test = difference(result.rows, base.rows), paired_test(result.rows, base.rows)
        return Change(100 * gap.mean, 100 * gap.low, 100 * gap.high, test.t_p)

    def measure(self, fact: Fact) -> float | None:
        """What was measured of what a published fact is about; `None` as long as runs are missing."""
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
        values = [row.gates[name] for row in self[Cell(fact.dataset, fact.model, fact.at)].rows if row.gates]
        scale = 100 if name == "below_055" else 1
        return scale * fmean(values) if values else None

    def _result(self, cell: Cell) -> Result:
        need, tuning = self.study.count(cell), self.study.tuning(cell)
        tuned = self.find(cell, tuning)
        if len(tuned) < len(tuning):
            return Result(cell, None, (), len(tuned), need)
        chosen = select(tuned).best if tuned else self.study.configurations(cell)[0]
        final = self.study.final(cell, chosen)
        rows = self.find(cell, final)
        extra = sum(row.replica.seed != TUNING_SEED for row in rows) if tuned else len(rows)
        first = [row for row in rows if row.replica.seed == TUNING_SEED]
        whole = len(rows) == len(final)
        selection = select(tuned or first) if tuned or whole else None
        return Result(cell, selection, tuple(rows) if whole else (), len(tuned) + extra, need)


def chosen_table(results: Results) -> tuple[list[str], list[list[object]]]:
    """Header and rows of `chosen.csv`: every configuration of every cell whose grid is complete, best first."""
    vary = results.study.vary
    axis = [] if vary is None else [vary.name if vary.name != "lam" else "at_lam"]
    header = ["dataset", "model", *axis, "lr", "weight_decay", "dropout", "lam", "own", "val", "std", "runs", "chosen"]
    lines: list[list[object]] = []
    for cell in results.study.all_cells():
        selection = results[cell].selection
        for place, candidate in enumerate(selection.candidates if selection else ()):
            replica = make_replica(candidate.configuration)
            at: list[object] = ["" if cell.at is None else cell.at] if axis else []
            hyper = [replica.lr, replica.weight_decay, replica.dropout, replica.lam]
            scores = [f"{candidate.val:.6f}", f"{candidate.std:.6f}", candidate.runs, int(place == 0)]
            lines.append([cell.dataset, cell.model, *at, *hyper, own_parameters(replica.options), *scores])
    return header, lines


def _splits(rows: Sequence[Row]) -> dict[int, str]:
    return {row.replica.split: row.split_fingerprint for row in rows}


def _index(rows: Sequence[Row]) -> dict[Place, Row]:
    """The runs by what tells them apart within a study, where a name must mean one graph."""
    places: dict[Place, Row] = {}
    for row in rows:
        place = (row.dataset, row.model, row.replica, row.config)
        other = places.setdefault(place, row)
        if (other.dataset_fingerprint, other.split_fingerprint) != (row.dataset_fingerprint, row.split_fingerprint):
            raise ResultsError(
                f"rows must be of one graph and one split for a name, got two different ones of {row.dataset!r}, "
                f"split {row.replica.split}"
            )
    return places
