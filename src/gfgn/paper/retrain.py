"""Runs of a study that are trained again: which ones, and whether they agree with their records.

The sample is drawn by a seed that nobody knows beforehand. Each graph gets the same work, so that small graphs get many
runs and none is left out. Runs of the chosen configuration and of others take turns, since the selection could be
forged by the others. On each graph the runs that differ most from their like are trained too, one of a chosen
configuration and one of another: a single forged run stands out. Where a cell is suspicious, but not beyond its bound,
more of its runs are trained and all are judged once more.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, zip_longest
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.paper.bounds import (
    MEASURES,
    Difference,
    Group,
    Spread,
    configuration,
    residuals,
    run_bound,
    spread_of,
)
from gfgn.paper.consistency import Facts, describe
from gfgn.runs.record import Row, device_name, versions
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_runner import Log
from gfgn.runs.text import count, duration
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.replica import Run

WORK = 1_000_000  # of a graph: runs times its edges and nonzero features
FURTHER_WORK = 5_000_000  # of a cell that is suspicious
FULL_WORK = 10_000_000
SUSPICIOUS = 2.0  # standard errors
LOOKS = 2  # comparisons of a group: of the sample, and of the runs of a suspicious cell
FEWEST = 3  # runs of a cell in a full check: two of the chosen configuration, one of another
SECONDS = {
    "cpu": 1.5e-7,
    "cuda": 1.5e-8,
}  # per epoch, edge and nonzero feature; a first guess, corrected while training


@dataclass(frozen=True)
class CellRuns:
    """The runs of a complete cell on one draw of its data.

    Attributes:
        data: Name of its data in the runs, which says which draw of random edges it is.
        chosen, others: The runs of the chosen configuration, and of the others in the grid.
        nodes: Number of nodes of a split by measure.
    """

    cell: Cell
    data: str
    config: TrainConfig
    chosen: tuple[Row, ...]
    others: tuple[Row, ...]
    nodes: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.data} {self.cell.model}" + ("" if self.cell.at is None else f" ({self.cell.at})")

    def like(self, row: Row, chosen: bool) -> list[Row]:
        """The recorded seeds of a run's configuration and split, without those that diverged."""
        split, same = row.replica.split, configuration(row)
        rows = self.chosen if chosen else self.others
        return [r for r in rows if r.replica.split == split and not r.diverged and configuration(r) == same]

    @cached_property
    def spreads(self) -> dict[tuple[bool, str], Spread]:
        """The spread over seeds, by whether of the chosen configuration, and measure."""
        keys = [(chosen, measure) for chosen in (True, False) for measure in MEASURES]
        return {key: spread_of(self._pool(key[0]), key[1], self.nodes[key[1]]) for key in keys if self._pool(key[0])}

    def spread_elsewhere(self, row: Row, chosen: bool, measure: str) -> Spread:
        """The spread over seeds on other splits than that of a run, which a forged run cannot widen."""
        others = [each for each in self._pool(chosen) if each.replica.split != row.replica.split]
        return spread_of(others, measure, self.nodes[measure]) if others else self.spreads[chosen, measure]

    def _pool(self, chosen: bool) -> list[Row]:
        """The runs that a spread is computed from. With one seed, it is the whole grid for all of them."""
        if not (chosen and len({row.replica.seed for row in self.chosen}) > 1):
            first = {row.replica.seed for row in self.others} or {row.replica.seed for row in self.chosen}
            rows = [*self.others, *(row for row in self.chosen if row.replica.seed in first)]
        else:
            rows = list(self.chosen)
        return [row for row in rows if not row.diverged]


def find_cells(results: Results, cells: Iterable[Cell], facts: Mapping[str, Facts]) -> dict[str, list[CellRuns]]:
    """The complete cells by dataset, of those whose data could be loaded."""
    study, found = results.study, dict[str, list[CellRuns]]()
    trained: dict[tuple[str, str, TrainConfig], list[Row]] = {}
    for row in results.rows:
        if not row.dropped:
            trained.setdefault((row.dataset, row.model, row.config), []).append(row)
    for cell in cells:
        plan, tuning = study.plan(cell), set(study.plan(cell).tuning())
        for name, chosen in zip(study.data_names(cell), results[cell].draws, strict=False):
            if not chosen or name not in facts:
                continue
            known = {row.key for row in chosen}
            grid = (row for row in trained[name, cell.model, plan.config] if row.replica in tuning)
            others = tuple(row for row in grid if row.key not in known)
            nodes = {measure: min(getattr(facts[name], measure)) for measure in MEASURES}
            runs = CellRuns(cell, name, plan.config, chosen, others, nodes)
            found.setdefault(cell.dataset, []).append(runs)
    return found


# --- the sample -------------------------------------------------------------------------------------------------------


class Pick(NamedTuple):
    """A run to train again, and what for: the `"sample"`, because its cell is `"suspicious"` or it is an `"outlier"`.

    Groups of cells hold the sample alone, and no group holds outliers: these were not drawn at random.
    """

    runs: CellRuns
    row: Row
    chosen: bool
    what_for: str = "sample"


def draw_sample(cells: Mapping[str, Sequence[CellRuns]], sizes: Mapping[str, int], seed: int, full: bool) -> list[Pick]:
    """Draws the runs to train again, dataset by dataset.

    Args:
        cells: The complete cells by dataset.
        sizes: Edges and nonzero features by dataset.
        full: Whether every cell must have `FEWEST` runs or more.
    """
    generator, picks = random.Random(seed), list[Pick]()
    for name, runs in cells.items():
        number = max(FEWEST * len(runs), FULL_WORK // sizes[name]) if full else max(1, WORK // sizes[name])
        order = generator.sample(list(runs), len(runs))
        turns = chain.from_iterable(zip_longest(*(_turns(each, generator) for each in order)))
        drawn = list(islice((pick for pick in turns if pick is not None), number))
        known = {pick.row.key for pick in drawn}
        outliers = sorted((each for one in runs for each in _outliers(one)), key=lambda each: -each[0])
        rest = [pick for _, pick in outliers if pick.row.key not in known]
        picks += drawn
        for chosen in (True, False):  # apart, since poor configurations have the largest outliers
            picks += [pick for pick in rest if pick.chosen == chosen][: len(runs) if full else 1]
    return picks


def _turns(runs: CellRuns, generator: random.Random) -> Iterator[Pick]:
    """The runs of a cell in random order; of three, one is not of the chosen configuration."""
    chosen, others = (iter(_shuffled(rows, generator)) for rows in (runs.chosen, runs.others))
    left = len(runs.chosen) + len(runs.others)
    while left:
        for source in (chosen, others, chosen):
            for row in islice(source, 1):
                left -= 1
                yield Pick(runs, row, source is chosen)


def _shuffled(rows: Sequence[Row], generator: random.Random) -> list[Row]:
    """Rows in random order, one per split before the second of any."""
    seen, turns = Counter[int](), []
    for row in generator.sample(list(rows), len(rows)):
        seen[row.replica.split] += 1
        turns.append((seen[row.replica.split], row))
    return [row for _, row in sorted(turns, key=itemgetter(0))]


def _outliers(runs: CellRuns) -> Iterator[tuple[float, Pick]]:
    """The runs of a cell, each with how far it is from its like in standard deviations."""
    for chosen, rows in ((True, runs.chosen), (False, runs.others)):
        own = [row for row in rows if not row.diverged]
        if own:
            left = [residuals(own, measure)[0] / runs.spreads[chosen, measure].sigma for measure in MEASURES]
            yield from (
                (max(map(abs, z)), Pick(runs, row, chosen, "outlier")) for row, *z in zip(own, *left, strict=True)
            )


def draw_further(compared: Compared, sizes: Mapping[str, int], seed: int) -> list[Pick]:
    """Draws more runs of the suspicious cells."""
    generator, picks = random.Random(seed), list[Pick]()
    for runs, chosen in compared.suspicious:
        rest = [row for row in (runs.chosen if chosen else runs.others) if row.key not in compared.keys]
        number = max(1, FURTHER_WORK // sizes[runs.cell.dataset])
        picks += [Pick(runs, row, chosen, "suspicious") for row in _shuffled(rest, generator)[:number]]
    return picks


# --- training ---------------------------------------------------------------------------------------------------------


def train_again(
    picks: Sequence[Pick], data: Mapping[str, NodeDataset], sizes: Mapping[str, int], device: str, log: Log
) -> list[tuple[Pick, Run]]:
    """Trains the picked runs, cell by cell, and logs each with the time that is left."""
    groups: dict[tuple[Cell, str], list[Pick]] = {}  # by cell and draw of random edges
    for pick in picks:
        groups.setdefault((pick.runs.cell, pick.runs.data), []).append(pick)
    costs = {key: sizes[key[0].dataset] * sum(pick.row.epochs for pick in own) for key, own in groups.items()}
    rate, done, start = SECONDS.get(torch.device(device).type, SECONDS["cpu"]), 0, time.monotonic()
    made: list[tuple[Pick, Run]] = []
    cells, graphs = count(len(groups), "cell"), count(len({pick.runs.data for pick in picks}), "graph")
    log(f"{count(len(picks), 'run')} of {cells} on {graphs} train on {device_name(device)}")
    for key, own in groups.items():
        left, runs = duration(rate * (sum(costs.values()) - done)), own[0].runs
        log(f"{runs}: {count(len(own), 'run')}; about {left} left")
        replicas = [pick.row.replica for pick in own]
        made += zip(own, train_runs(runs.cell.model, data[runs.data], replicas, runs.config, device), strict=True)
        done += costs[key]
        rate = (time.monotonic() - start) / max(1, done)
    return made


# --- comparison -------------------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """The outcome of all comparisons."""

    problems: list[str] = field(default_factory=list)
    by_bits: int = 0  # runs that had to have the same bits
    by_bound: int = 0  # runs of other code or another device
    groups: int = 0  # groups of the latter
    keys: set[str] = field(default_factory=set)  # of all runs
    suspicious: list[tuple[CellRuns, bool]] = field(default_factory=list)  # cells, and whether the chosen configuration


def compare(made: Sequence[tuple[Pick, Run]], runs: int, device: str) -> Compared:
    """Compares reruns with their records, each and in groups; `runs` is the number of runs of the study."""
    compared = Compared(keys={pick.row.key for pick, _ in made})
    differences, of_cells = dict[tuple[str, str], list[Difference]](), dict[str, tuple[CellRuns, bool]]()
    for pick, run in made:
        row, cell = pick.row, pick.runs.cell
        if (row.versions, row.device) == (versions(), device_name(device)):
            compared.by_bits += 1
            compared.problems += _other_bits(pick, run)
            continue
        compared.by_bound += 1
        compared.problems += _too_far(pick, run, runs)
        if pick.what_for != "outlier" and not (row.diverged or run.diverged):
            kind = "chosen configuration" if pick.chosen else "other configurations"
            groups = [f"{pick.runs}, {kind}"]
            if pick.what_for == "sample":
                groups += [f"all of {cell.model}", f"all on {cell.dataset}", "all runs"]
            of_cells[groups[0]] = pick.runs, pick.chosen
            for measure in MEASURES:
                difference = _difference(pick, run, measure)
                for group in groups:
                    differences.setdefault((group, measure), []).append(difference)
    compared.groups = len(differences) // len(MEASURES)
    for (name, measure), own in differences.items():
        together, what = Group(own), f"{MEASURES[measure]} score of {count(len(own), 'run')}"
        if abs(together.standardized) > (limit := together.limit(LOOKS * compared.groups)):
            errors = f"{abs(together.standardized):.1f} standard errors (at most {limit:.1f})"
            compared.problems.append(f"{name}: the mean {what} differs by {100 * together.gap:+.2f} points, {errors}")
        elif abs(together.standardized) > SUSPICIOUS and name in of_cells and of_cells[name] not in compared.suspicious:
            compared.suspicious.append(of_cells[name])
    return compared


def _difference(pick: Pick, run: Run, measure: str) -> Difference:
    like = pick.runs.like(pick.row, pick.chosen)
    gap = getattr(run, measure) - fmean(getattr(row, measure) for row in like)
    block = (str(pick.runs), configuration(pick.row), pick.row.replica.split)
    return Difference(gap, pick.runs.spreads[pick.chosen, measure], len(like), block)


def _describe(pick: Pick, run: Run) -> str:
    scores = (
        f"{word} {100 * getattr(pick.row, m):.2f}, now {100 * getattr(run, m):.2f}" for m, word in MEASURES.items()
    )
    at = "" if pick.runs.cell.at is None else f" ({pick.runs.cell.at})"
    return f"{describe(pick.row)}{at}: {'; '.join(scores)}"


def _other_bits(pick: Pick, run: Run) -> Iterator[str]:
    """A run of the same code on such a device must have the same bits."""
    names = ("val", "test", "epoch", "epochs", "num_parameters", "gates")
    other = [name for name in names if not _equal(getattr(pick.row, name), getattr(run, name))]
    if other:
        yield f"{_describe(pick, run)}; {', '.join(other)} of this code on such a device must have the same bits"


def _equal(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)  # NaN


def _too_far(pick: Pick, run: Run, runs: int) -> Iterator[str]:
    if pick.row.diverged != run.diverged:
        yield f"{_describe(pick, run)}; one of the two diverged"
    elif pick.row.num_parameters != run.num_parameters:
        yield f"{_describe(pick, run)}; {pick.row.num_parameters:,} parameters, now {run.num_parameters:,}"
    elif not run.diverged:
        for measure, word in MEASURES.items():
            bound = run_bound(pick.runs.spread_elsewhere(pick.row, pick.chosen, measure), runs)
            if abs(getattr(run, measure) - getattr(pick.row, measure)) > bound:
                yield f"{_describe(pick, run)}; {word} scores may differ by at most {100 * bound:.2f}"
