"""`run_study`: trains the missing runs of a study, or of a part of it, and writes the files of its folder.

Finished runs are in `runs.sqlite` at once; it can be rebuilt from `runs.csv.gz`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.runs.engine import CallbackList, Engine, Job, ProgressCallback
from gfgn.runs.grid import make_replicas
from gfgn.runs.plan import Plan, group_plans, run_plans
from gfgn.runs.record import RunRecord
from gfgn.runs.results import Results
from gfgn.runs.store import Store
from gfgn.runs.study import Cell, Study, View
from gfgn.runs.study_files import RUNS, STORE, TIMES, Time, add_time, write_study_files
from gfgn.runs.table import read_runs
from gfgn.train.replica import Status

Log = Callable[[str], None]  # receives messages, one line each
LOG: Log = logging.getLogger("gfgn").info
# Writes the files of a study into a folder and returns their paths; the flag says whether the study has ended.
Write = Callable[[Results, Path, bool], list[Path]]

LOG_EVERY = 20.0  # seconds between two messages about the state of training
WRITE_EVERY = 60.0  # seconds between two times that files are written while a study runs
GRACE = 60.0  # seconds that training may exceed the time limit if it will end within them


class TimeUp(Exception):
    """Raised when the time limit has passed."""


@dataclass
class Outcome:
    """The outcome of a call."""

    made: int = 0  # number of runs trained
    missing: list[Cell] = field(default_factory=list)  # requested cells that lack runs
    left_out: list[str] = field(default_factory=list)  # datasets or models, with the reason
    stopped: bool = False  # at the time limit
    reused: list[str] = field(default_factory=list)  # what was taken from which other folder
    files: list[Path] = field(default_factory=list)


def run_study(
    study: Study,
    out: Path,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    device: str = "cpu",
    limit_minutes: float | None = None,
    batch_size: int | None = None,
    train: bool = True,
    reuse: Sequence[Path] = (),
    root: Path | None = None,
    callback: ProgressCallback | None = None,
    engine: Engine = Job.run,
    log: Log = LOG,
    write: Write = lambda results, out, ended: write_study_files(results, out),
) -> Outcome:
    """Trains the missing runs of a study and writes its files.

    Args:
        models, datasets: Names of what to train; all by default.
        limit_minutes: Minutes after which training stops; finished runs are kept.
        batch_size: Largest number of runs that train together; by default as many as fit into memory.
        train: Whether to train; if not, files are written from the runs there are.
        reuse: Folders of other studies, whose runs are taken where this one lacks them; `Outcome.reused` says which.
        root: Folder of all datasets, see `gfgn.data.load`.
        callback: Receives progress events, such as a tracker.
        engine: Trains the runs: this process, on `device`, or a `gfgn.runs.cluster.Cluster`.
    """
    cells = select_cells(study, models, datasets)
    if limit_minutes is not None and not limit_minutes > 0:
        raise ValueError(f"limit_minutes must be above 0, got {limit_minutes}")
    if not train and not (out / STORE).is_file() and not any((folder / RUNS).is_file() for folder in (out, *reuse)):
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    progress = _Progress(limit_minutes, log)
    outcome = progress.outcome
    callbacks = CallbackList(progress, callback or ProgressCallback())
    with Store(out / STORE) as store:
        outcome.reused = _fill(store, study, out, reuse, log)
        try:
            for data, plans in _datasets(study, cells, datasets, store, root, progress) if train else ():
                _check_graph(store, data, out)
                moved = data.to(device)  # once for all models, so that what they cache about its graph is kept
                for group in group_plans(plans):
                    with progress.timed(data.name, group[0].model, out / TIMES):
                        run_plans(store, moved, group, device, callback=callbacks, batch_size=batch_size, engine=engine)
                    if progress.is_time_to_write():
                        write(Results(study, _study_rows(store, study)), out, False)
        except TimeUp:
            outcome.stopped = True
        finally:
            results = Results(study, _study_rows(store, study))
            outcome.files = write(results, out, True)
    outcome.missing = [cell for cell in cells if not results[cell].rows]
    return outcome


def select_cells(study: Study, models: Sequence[str] = (), datasets: Sequence[str] = ()) -> list[Cell]:
    """The cells of the named models and datasets in the study's order; all where none is named."""
    for option, names, known in (("models", models, study.models), ("datasets", datasets, study.datasets)):
        for name in names:
            if name not in known:
                raise ValueError(f"{option} must be among {', '.join(known)}, got {name!r}")
    chosen = (models or study.models, datasets or study.datasets)
    return [cell for cell in study.all_cells() if cell.model in chosen[0] and cell.dataset in chosen[1]]


class _Progress(ProgressCallback):
    """Counts runs, logs the state of training, and ends it when the time limit has passed."""

    def __init__(self, limit_minutes: float | None, log: Log) -> None:
        self.outcome, self.log = Outcome(), log
        self._device = self._label = ""  # of the last run
        self._logged = self._written = time.monotonic()
        self._end = None if limit_minutes is None else self._logged + 60 * limit_minutes

    def check_time(self, grace: float = 0.0) -> None:
        """Raises `TimeUp` if the limit has passed by more than `grace` seconds."""
        if self._end is not None and time.monotonic() > self._end + grace:
            raise TimeUp

    def is_time_to_write(self) -> bool:
        """Whether `WRITE_EVERY` seconds have passed since this was last true."""
        due = time.monotonic() - self._written >= WRITE_EVERY
        self._written = time.monotonic() if due else self._written
        return due

    @contextmanager
    def timed(self, dataset: str, model: str, times: Path) -> Iterator[None]:
        """Records the time of training a model, which is left out if it needs a missing package or too much memory."""
        start, before = time.perf_counter(), self.outcome.made
        try:
            yield
        except (ImportError, torch.OutOfMemoryError) as error:
            self.leave_out(f"{dataset} {model}", error)
        finally:
            if made := self.outcome.made - before:
                seconds, date = time.perf_counter() - start, datetime.now(UTC).isoformat(timespec="seconds")
                add_time(times, Time(dataset, model, made, seconds, self._device, date))

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.check_time()
        self._label, self._runs = f"{dataset} {model}", runs
        self._before, self._start = self.outcome.made, time.monotonic()

    def on_run_end(self, row: RunRecord) -> None:
        self.outcome.made += 1
        self._device = row.device

    def on_status(self, status: Status) -> None:
        now, left = time.monotonic(), status.seconds_left
        self.check_time(GRACE if left is not None and left <= GRACE else 0.0)
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            rest = "" if left is None else f", about {left:.0f} s left"
            runs = f"{status.finished:,} of {status.replicas:,} runs"
            self.log(f"{self._label}: {runs}, {status.alive:,} training at epoch {status.epoch:,}{rest}")

    def on_model_end(self, dataset: str, model: str) -> None:
        new, seconds = self.outcome.made - self._before, time.monotonic() - self._start
        self.log(f"{self._label}: {self._runs:,} runs, {new:,} of them new, {seconds:.1f} s")

    def leave_out(self, what: str, error: Exception) -> None:
        """Records that a dataset or model is left out, once for all views of a dataset."""
        line = f"{what}: {' '.join(str(error).split())}"
        if line not in self.outcome.left_out:
            self.outcome.left_out.append(line)
            self.log(f"left out: {line}")


def _datasets(
    study: Study, cells: Sequence[Cell], named: Sequence[str], store: Store, root: Path | None, progress: _Progress
) -> Iterator[tuple[NodeDataset, list[Plan]]]:
    """Every view of a dataset with its plans. One that cannot be loaded is left out, unless it was named.

    First the views that configurations are chosen on, then further draws of random edges, with what was chosen.
    """
    views: dict[tuple[str, View], list[Cell]] = {}
    for draw in range(study.draws):
        for cell in cells:
            for view in study.views(cell)[draw : draw + 1]:
                views.setdefault((cell.dataset, view), []).append(cell)
    for (name, view), own in views.items():
        progress.check_time()
        plans = [replace(study.plan(cell), draws=1) for cell in own]
        if view.draw:  # with nothing left to choose; cells whose configuration is not chosen yet are left out
            results = Results(study, _study_rows(store, study))
            chosen = [(plan, results[cell].configuration) for plan, cell in zip(plans, own, strict=True)]
            plans = [replace(plan, configurations=(best,)) for plan, best in chosen if best is not None]
        try:
            data = study.load(name, view, root) if plans else None
        except (OSError, ImportError) as error:
            if name in named:
                raise
            progress.leave_out(name, error)
        else:
            if data is not None:
                yield data, plans


def _check_graph(store: Store, data: NodeDataset, out: Path) -> None:
    """Refuses to add to runs of another graph, or of other splits, with the same name."""
    for row in store.rows(dataset=data.name, seed=0):
        recorded = (row.dataset_fingerprint, row.split_fingerprint)
        if row.split < len(data.splits) and recorded != (data.fingerprint, data.split_fingerprint(row.split)):
            raise ValueError(
                f"out must be a folder without runs, or with runs of the same data, got {out}, whose {data.name!r}, "
                f"split {row.split}, differs from the loaded one"
            )


def _fill(store: Store, study: Study, out: Path, reuse: Sequence[Path], log: Log) -> list[str]:
    """Adds the runs of the folder's table to the store, and those of the named folders that the study lacks.

    Returns what was taken from which folder.
    """
    if (out / RUNS).is_file() and (added := store.add(read_runs(out / RUNS))):
        log(f"{added:,} runs from {out / RUNS}")
    if not Results(study, _study_rows(store, study)).missing():
        return []
    needed = set()
    for cell in study.all_cells():
        plan, names = study.plan(cell), study.data_names(cell)
        replicas = make_replicas(plan.model, plan.configurations, range(plan.splits), range(plan.seeds))
        needed |= {(name, plan.model, replica, plan.config) for name in names for replica in replicas}
    taken = []
    for folder in reuse:
        if folder.resolve() == out.resolve():
            continue
        rows = [row for row in read_runs(folder / RUNS) if (row.dataset, row.model, row.replica, row.config) in needed]
        if added := store.add(rows):
            taken.append(f"{added:,} runs from {folder / RUNS}")
            log(f"reused: {taken[-1]}")
    return taken


def _study_rows(store: Store, study: Study) -> list[RunRecord]:
    """The runs of the study's datasets and models that were trained as the study trains them, dropped ones included."""
    cells = study.all_cells()
    wanted = {(name, cell.model, study.variant(cell).config) for cell in cells for name in study.data_names(cell)}
    rows = store.rows(dropped=True, dataset=sorted({name for name, _, _ in wanted}), model=list(study.models))
    return [row for row in rows if (row.dataset, row.model, row.config) in wanted]
