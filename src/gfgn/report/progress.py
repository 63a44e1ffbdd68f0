"""Progress of a comparison on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gfgn.runs import ProgressCallback, Row
from gfgn.runs.text import duration, score, unit
from gfgn.train import Status

SECONDS_BETWEEN_LINES = 20.0


class RunProgress(ProgressCallback):
    """Counts runs `trained` now and `kept` from earlier, and shows them: on a terminal one bar for the current model
    and one for all runs, within `with progress.bars`; elsewhere one line per model, and more if it trains for long."""

    def __init__(self, console: Console, total: int) -> None:
        self.trained = self.kept = 0
        details = TextColumn("{task.fields[details]}", style="dim")
        columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), details)
        self.bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._model = self._all = self.bars.add_task("all", total=total, details="")

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.kept += kept
        self._name = f"{dataset} {model}"
        self._runs = f"{runs:,} runs" + (f", {kept:,} of them from the store" if kept else "")
        self._start = self._last_line = time.monotonic()
        self._model = self.bars.add_task(self._name, total=runs, completed=kept, details="")
        self.bars.advance(self._all, kept)

    def on_run_end(self, row: Row) -> None:
        self.trained += 1
        self.bars.advance(self._model)
        self.bars.advance(self._all)

    def on_status(self, status: Status) -> None:
        self.bars.update(self._model, details=describe_status(status))
        if time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._print(f"{status.finished:,} of {status.replicas:,} runs, {describe_status(status)}")

    def on_model_end(self, dataset: str, model: str) -> None:
        self.bars.remove_task(self._model)
        self._print(f"{self._runs}, {time.monotonic() - self._start:.1f} s")

    def _print(self, text: str) -> None:
        if self.bars.disable:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)


def describe_status(status: Status) -> str:
    """Replicas in training, their epoch, the best validation score and the time left."""
    parts = [f"{status.alive:,} training, epoch {status.epoch:,}"]
    if math.isfinite(status.best_val):
        metric = "log_loss" if status.best_val < 0 else "accuracy"  # no other score is negative
        parts.append(f"best validation score {score(status.best_val, metric)}{unit(metric)}")
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")
    return ", ".join(parts)
