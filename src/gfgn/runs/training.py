"""Training of the runs that a store lacks, with progress events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gfgn.data.dataset import Dataset
from gfgn.runs.record import DEFAULT_CONFIG, DatasetRecord, Row, import_own
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.replica import Replica, Run, Status

History = Mapping[str, Sequence[float]]  # losses and scores of a run, one value per epoch, see `Run.history`


class ProgressCallback:
    """Receives progress events; this base class ignores them.

    Attributes:
        needs_history: Whether training keeps the losses and scores of every epoch and sends them to `on_history`.
    """

    needs_history: bool = False

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        """A model begins: the number of runs it needs, and how many of them the store has already."""

    def on_run_end(self, row: Row) -> None:
        """A run has finished and is in the store."""

    def on_history(self, row: Row, history: History) -> None:
        """The losses and scores per epoch of a run that is new in the store; only sent if `needs_history`."""

    def on_status(self, status: Status) -> None:
        """The current state of training, sent from time to time."""

    def on_model_end(self, dataset: str, model: str) -> None:
        """A model has all its runs."""


class CallbackList(ProgressCallback):
    """Passes every event on to several callbacks, in order."""

    def __init__(self, *callbacks: ProgressCallback) -> None:
        self.callbacks = callbacks
        self.needs_history = any(callback.needs_history for callback in callbacks)

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        for callback in self.callbacks:
            callback.on_model_begin(dataset, model, runs, kept)

    def on_run_end(self, row: Row) -> None:
        for callback in self.callbacks:
            callback.on_run_end(row)

    def on_history(self, row: Row, history: History) -> None:
        for callback in self.callbacks:
            if callback.needs_history:
                callback.on_history(row, history)

    def on_status(self, status: Status) -> None:
        for callback in self.callbacks:
            callback.on_status(status)

    def on_model_end(self, dataset: str, model: str) -> None:
        for callback in self.callbacks:
            callback.on_model_end(dataset, model)


def train_missing(
    store: Store,
    dataset: Dataset,
    model: str,
    replicas: Sequence[Replica],
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    *,
    callback: ProgressCallback | None = None,
    batch_size: int | None = None,
) -> list[Row]:
    """Trains the runs that the store lacks and returns one row per replica, in order.

    A run is in the store as soon as it has finished, so an interrupted call continues where it stopped. At most
    `batch_size` runs train together, by default as many as fit into memory.
    """
    import_own(model)
    callback, record = callback or ProgressCallback(), DatasetRecord.of(dataset)
    missing = store.missing(record, model, replicas, config)
    if missing:
        options: dict[str, Any] = {"status": callback.on_status, "history": callback.needs_history}
        options |= {"progress": keep_runs(store, record, config, device, callback), "batch_size": batch_size}
        train_runs(model, dataset, missing, config, device, **options)
    rows = [row for row in store.find(record, model, replicas, config) if row is not None]
    if len(rows) < len(replicas):
        raise RuntimeError(f"the store {store.path} lacks runs that were just trained: was it changed meanwhile?")
    return rows


def keep_runs(
    store: Store,
    record: DatasetRecord,
    config: TrainConfig,
    device: torch.device | str,
    callback: ProgressCallback,
    search: str = "",
) -> Callable[[Run], None]:
    """A function that adds a finished run to the store and then reports it."""

    def keep(run: Run) -> None:
        row = Row.of(run, record, config, device, search)
        new = store.add([row])
        callback.on_run_end(row)
        if new and callback.needs_history:
            callback.on_history(row, run.history)

    return keep
