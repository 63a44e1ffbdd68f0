"""Comparisons in the terminal: their tables, and how far they are."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from gfgn.report.figures import METRICS
from gfgn.report.html import interval, percent, signed
from gfgn.runs.comparison import Comparison, in_words, rank_models
from gfgn.runs.record import Row, is_gfgn
from gfgn.runs.training import ProgressCallback
from gfgn.train.replica import Status

LINE_EVERY = 20.0
"""Seconds between two lines on how far training is, where there is no terminal to show it in place."""


class Counter(ProgressCallback):
    """Counts runs: `made` now, and `kept` from earlier."""

    def __init__(self) -> None:
        self.made = self.kept = 0

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.kept += kept

    def on_run_end(self, row: Row) -> None:
        self.made += 1


class Lines(Counter):
    """Plain lines: one a model, and more while a model takes long."""

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        super().on_model_begin(dataset, model, runs, kept)
        self._name, self._runs, self._had = f"{dataset} {model}", runs, kept
        self._start = self._said = time.monotonic()

    def on_status(self, status: Status) -> None:
        now = time.monotonic()
        if now - self._said >= LINE_EVERY:
            self._said = now
            _say(f"{self._name}: {status.finished:,} of {status.replicas:,} runs, {in_numbers(status)}")

    def on_model_end(self, dataset: str, model: str) -> None:
        there = f", {self._had:,} of them there already" if self._had else ""
        _say(f"{self._name}: {self._runs:,} runs{there}, {time.monotonic() - self._start:.1f} s")


class Bars(Counter):
    """Two bars in place: the model at hand and everything.

    Args:
        progress: Shows the bars.
        total: Number of all runs.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        super().__init__()
        self._progress = progress
        self._all = progress.add_task("all", total=total, numbers="")
        self._model: TaskID | None = None

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        super().on_model_begin(dataset, model, runs, kept)
        name = f"{dataset} {model}"
        self._model = self._progress.add_task(name, total=runs, completed=kept, numbers="")
        self._progress.advance(self._all, kept)

    def on_run_end(self, row: Row) -> None:
        super().on_run_end(row)
        assert self._model is not None
        for task in (self._model, self._all):
            self._progress.advance(task)

    def on_status(self, status: Status) -> None:
        assert self._model is not None
        self._progress.update(self._model, numbers=in_numbers(status))

    def on_model_end(self, dataset: str, model: str) -> None:
        assert self._model is not None
        self._progress.remove_task(self._model)


@contextmanager
def watching(console: Console, total: int) -> Iterator[Counter]:
    """A callback that shows how far `total` runs are: bars on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield Lines()
        return
    numbers = TextColumn("{task.fields[numbers]}", style="dim")
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), numbers)
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress, total)


def in_numbers(status: Status) -> str:
    """How far training is: replicas alive, their epoch, the best validation score and the time left."""
    parts = [f"{status.alive:,} training, epoch {status.epoch:,}"]
    if math.isfinite(status.best_val):
        parts.append(f"best validation {100 * status.best_val:.1f}%")
    if status.seconds_left is not None:
        parts.append(f"{duration(status.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time in words: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def show_comparisons(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Prints a table a comparison, and if there are several the average ranks."""
    said = ""
    for comparison in comparisons:
        if said:
            console.print()
        _show(console, comparison, settings=comparison.settings != said)
        said = comparison.settings
    ranks = rank_models(comparisons)
    if len(comparisons) > 1 and len(ranks) > 1:
        words = ", ".join(f"{model} {rank:.2f}" for model, rank in sorted(ranks.items(), key=lambda pair: pair[1]))
        console.print(f"\naverage rank: {words}", highlight=False, soft_wrap=True)


def _show(console: Console, comparison: Comparison, settings: bool) -> None:
    """One comparison; what was said of the one before on how models are trained need not be said again."""
    data, baseline = comparison.dataset, comparison.best_baseline
    standin = " (a stand-in: not comparable with published scores)" if data.standin else ""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    table.add_column(f"test {METRICS[data.metric]}, %", justify="right")
    table.add_column("95% interval", justify="right")
    if baseline is not None:
        table.add_column(f"against {baseline}", justify="right")
    for model, summary in comparison.summary().items():
        cells, gain = [model, percent(summary), interval(summary)], comparison.gain(model)
        if baseline is not None:
            cells.append("" if gain is None else f"{signed(gain.mean)} {interval(gain, sign=True)}")
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), style="bold" if is_gfgn(model) else None)
    lines = [f"{data.name}: {data.description}{standin}", *([f"Every model: {comparison.settings}."] * settings)]
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    for model, selection in comparison.selections.items():
        best = selection.candidates[0]
        text = f"  {model}: {in_words(best.configuration, model)} (validation {100 * best.val:.1f}%)"
        console.print(text, soft_wrap=True, highlight=False, markup=False)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
