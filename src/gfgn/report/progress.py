"""Progress of a comparison on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from gfgn.data.dataset import NodeDataset
from gfgn.literal import one_line
from gfgn.runs import ProgressCallback, RunRecord
from gfgn.runs.study import Study
from gfgn.runs.text import duration, score
from gfgn.train import Status
from gfgn.train.progress import ENOUGH

SECONDS_BETWEEN_LINES = 20.0
# Typical cost of a run compared with one of an MLP: good enough to tell how much is left.
COSTS = {"majority": 0.05, "logistic-regression": 0.3, "label-propagation": 0.3, "gradient-boosting": 3.0}
COSTS |= {"mlp": 1.0, "gcn": 2.0, "gfgn-graph": 3.0, "gfgn-neighbor": 4.0, "gfgn-pair": 5.0}
COSTS |= {"gfgn-plus": 10.0, "gfgn-plus-graph": 8.0, "gfgn-plus-pair": 12.0}  # deep variants included
OTHER_COST = 4.0

Work = Mapping[tuple[str, str], float]  # by dataset and model, in any unit


def expected_work(studies: Iterable[Study], datasets: Iterable[NodeDataset]) -> dict[tuple[str, str], float]:
    """The expected cost of every model of the comparison of every dataset."""
    return {
        (dataset.name, cell.model): study.plan(cell).count
        * COSTS.get(cell.model, OTHER_COST)
        * (dataset.num_nodes + dataset.graph.num_edges)
        for study, dataset in zip(studies, datasets, strict=True)
        for cell in study.all_cells()
    }


class Remaining:
    """Estimates the remaining time from the models that have finished: it counts down while one trains, and is
    corrected when it ends."""

    def __init__(self, work: Work) -> None:
        self.work = dict(work)
        self._done = self._seconds = 0.0  # work and time of the models that have finished
        self._current: tuple[str, str] | None = None
        self._start = 0.0

    def begin(self, dataset: str, model: str, left: float) -> None:
        """A model begins, of whose work the fraction `left` is still to do."""
        self._current, self._start = (dataset, model), time.monotonic()
        if self._current in self.work:
            self.work[self._current] *= left

    def end(self) -> None:
        """The current model has finished."""
        if self._current is not None:
            self._done += self.work.pop(self._current, 0.0)
            self._seconds += time.monotonic() - self._start
            self._current = None

    def seconds(self) -> float | None:
        """The remaining time; `None` until enough work is done for a good estimate."""
        ahead = math.fsum(self.work.values())
        if not self._done > 0 or self._done < ENOUGH * (self._done + ahead):
            return None
        rate, current = self._seconds / self._done, self._current
        own = self.work.get(current, 0.0) if current else 0.0
        spent = time.monotonic() - self._start if current else 0.0
        return rate * (ahead - own) + max(0.0, rate * own - spent)


class RunProgress(ProgressCallback):
    """Counts runs `trained` now and `kept` from earlier, and shows them: on a terminal one bar for the current model
    and one for all runs, within `with progress.bars`; elsewhere one line per model, and more if it trains for long."""

    def __init__(self, console: Console, total: int, work: Work | None = None) -> None:
        self.trained = self.kept = 0
        self.remaining = Remaining(work or {})
        self._quiet = console.quiet
        name = TextColumn(
            "{task.description}", markup=False, table_column=Column(max_width=26, no_wrap=True, overflow="ellipsis")
        )
        details = TextColumn("{task.fields[details]}", style="dim", table_column=Column(no_wrap=True, min_width=22))
        columns = (name, BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn(), details)
        shown = console.is_terminal and not console.quiet
        self.bars = Progress(*columns, console=console, transient=True, disable=not shown, expand=True)
        self._model = self._all = self.bars.add_task("all", total=total, details="")

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.kept += kept
        self.remaining.begin(dataset, model, 1 - kept / max(1, runs))
        self._name = one_line(f"{dataset} {model}")
        self._runs = f"{runs:,} runs" + (f", {kept:,} of them from the store" if kept else "")
        self._start = self._last_line = time.monotonic()
        self._model = self.bars.add_task(self._name, total=runs, completed=kept, details="")
        self.bars.advance(self._all, kept)

    def on_run_end(self, row: RunRecord) -> None:
        self.trained += 1
        self.bars.advance(self._model)
        self.bars.advance(self._all)

    def on_status(self, status: Status) -> None:
        self.bars.update(self._model, details=_brief(status))
        self._estimate()
        if time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._print(f"{status.finished:,} of {status.replicas:,} runs, {describe_status(status)}")

    def on_model_end(self, dataset: str, model: str) -> None:
        self.remaining.end()
        self._estimate()
        self.bars.remove_task(self._model)
        self._print(f"{self._runs}, {time.monotonic() - self._start:.1f} s")

    def _estimate(self) -> None:
        left = self.remaining.seconds()
        self.bars.update(self._all, details=f"about {_rounded(left)} left" if left else "")

    def _print(self, text: str) -> None:
        if self.bars.disable and not self._quiet:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)


def describe_status(status: Status) -> str:
    """Replicas in training, their epoch, the best validation score and, once it is known, the time left."""
    parts = [f"{status.alive:,} training, epoch {status.epoch:,}"]
    if math.isfinite(status.best_val):
        parts.append(f"best validation score {_score(status.best_val)}")
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")
    return ", ".join(parts)


def _brief(status: Status) -> str:
    """The status in at most 22 characters."""
    best = f", best {_score(status.best_val)}" if math.isfinite(status.best_val) else ""
    return f"epoch {status.epoch:,}{best}"


def _score(value: float) -> str:
    """A score in percent; the negative log loss, which alone is below 0, as it is."""
    return score(value, "log_loss" if value < 0 else "accuracy") + ("" if value < 0 else "%")


def _rounded(seconds: float) -> str:
    """A duration to about one digit: `10 s`, `25 s`, `3 min`, `2 h`."""
    if seconds < 57:
        return f"{max(5, 5 * round(seconds / 5))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"
