"""Progress of training on stderr: bars on a terminal; elsewhere a line now and then, at growing distances."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from gfgn.literal import literal, one_line
from gfgn.runs.engine import ProgressCallback
from gfgn.runs.record import RunRecord
from gfgn.runs.text import duration, score
from gfgn.train.replica import Status

FIRST_LINE, GROWTH = 20.0, 1.5  # seconds before the first line, and how many times as long the next one takes


class RunProgress(ProgressCallback):
    """Counts runs `trained` now and `kept` from earlier, and shows them: on a terminal one bar for the current model
    and, if their `total` is known, one for all runs, within `with progress.bars`; elsewhere single lines, none in the
    first 20 seconds."""

    def __init__(self, console: Console, total: int | None = None) -> None:
        self.trained = self.kept = 0
        self._console, self._name = console, ""
        self._of = "" if total is None else f" of {total:,}"
        self._start, self._next = time.monotonic(), FIRST_LINE
        name = Column(max_width=26, no_wrap=True, overflow="ellipsis")
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=name),
            BarColumn(None),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[details]}", style="dim", table_column=Column(no_wrap=True, min_width=22)),
            console=console,
            transient=True,
            disable=console.quiet or not console.is_terminal,
            expand=True,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._model = self._all = self.bars.add_task("all", total=total, details="", visible=total is not None)

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.kept += kept
        self._name = one_line(f"{dataset} {model}")
        self._model = self._tasks[dataset, model] = self.bars.add_task(
            self._name, total=runs, completed=kept, details=""
        )
        self.bars.advance(self._all, kept)

    def on_run_end(self, row: RunRecord) -> None:
        self.trained += 1
        self.bars.advance(self._model)
        self.bars.advance(self._all)

    def on_status(self, status: Status) -> None:
        best = f", best {_score(status.best_val)}" if math.isfinite(status.best_val) else ""
        self.bars.update(self._model, details=f"epoch {status.epoch:,}{best}")
        spent = time.monotonic() - self._start
        if self.bars.disable and spent >= self._next:
            self._next = GROWTH * spent
            done = f"{self.trained + self.kept:,}{self._of} runs after {duration(spent)}"
            self._console.print(literal(f"{done}; {self._name}: {describe_status(status)}"), soft_wrap=True)

    def on_model_end(self, dataset: str, model: str) -> None:
        self.bars.remove_task(self._tasks.pop((dataset, model)))


def describe_status(status: Status) -> str:
    """Runs in training, their epoch, the best validation score and, once it is known, the time left."""
    parts = [f"{status.alive:,} training, epoch {status.epoch:,}"]
    if math.isfinite(status.best_val):
        parts.append(f"best validation score {_score(status.best_val)}")
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")
    return ", ".join(parts)


def _score(value: float) -> str:
    """A score in percent; the negative log loss, which alone is below 0, as it is."""
    return score(value, "log_loss" if value < 0 else "accuracy") + ("" if value < 0 else "%")
