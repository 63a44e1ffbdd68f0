"""Training of the runs that a store lacks, with progress events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from gfgn.data.dataset import Dataset
from gfgn.runs.record import DEFAULT_CONFIG, DatasetRecord, Row
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.replica import Replica, Run, Status


class ProgressCallback:
    """Receives progress events; this base class ignores them."""

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        """A model begins: the number of runs it needs, and how many of them the store has already."""

    def on_run_end(self, row: Row) -> None:
        """A run has finished and is in the store."""

    def on_status(self, status: Status) -> None:
        """The current state of training, sent from time to time."""

    def on_model_end(self, dataset: str, model: str) -> None:
        """A model has all its runs."""


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
    callback, record = callback or ProgressCallback(), DatasetRecord.of(dataset)
    missing = store.missing(record, model, replicas, config)
    if missing:
        progress, status = keep_runs(store, record, config, device, callback), callback.on_status
        train_runs(model, dataset, missing, config, device, progress=progress, status=status, batch_size=batch_size)
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
        store.add([row])
        callback.on_run_end(row)

    return keep
