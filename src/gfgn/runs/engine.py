"""Trains the runs that a store lacks, with progress events. A `Job` is what an engine trains, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.runs.grid import Configuration, Space, import_custom, make_replicas, sample
from gfgn.runs.record import DEFAULT_CONFIG, DatasetRecord, RunRecord, digest, identify
from gfgn.runs.selection import FACTOR, HalvingState, Selection, default_rungs, select
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs
from gfgn.train.replica import Replica, Run, Status

History = Mapping[str, Sequence[float]]  # losses and scores of a run, one value per epoch, see `Run.history`
OnRun = Callable[[RunRecord, History], None]  # receives a finished run
OnStatus = Callable[[Status], None]


@dataclass(frozen=True)
class Job:
    """Runs of one model on one dataset.

    Attributes:
        record: The facts about the dataset.
        history: Whether to keep the losses and scores of every epoch.
        batch_size: Largest number of runs that train together; `None` for as many as fit into memory.
        rungs: Epochs at which a search stops the worse half of its configurations.
        search: Hash of that search; empty for runs that are all trained to the end.
    """

    model: str
    replicas: tuple[Replica, ...]
    record: DatasetRecord
    config: TrainConfig
    history: bool = False
    batch_size: int | None = None
    rungs: tuple[int, ...] = ()
    search: str = ""

    def run(self, dataset: NodeDataset, device: torch.device | str, on_run: OnRun, on_status: OnStatus) -> None:
        """Trains the runs in this process."""
        halving = HalvingState(self.replicas)

        def progress(run: Run) -> None:
            halving.note([run.replica], [run.val])
            on_run(RunRecord.of(run, self.record, self.config, device, self.search), run.history)

        train_runs(
            self.model,
            dataset,
            self.replicas,
            self.config,
            device,
            progress=progress,
            status=on_status,
            history=self.history,
            batch_size=self.batch_size,
            rungs=self.rungs,
            prune=halving if self.rungs else None,
        )


# Trains a job and reports its runs; `Job.run` does so in this process, on the given device.
Engine = Callable[[Job, NodeDataset, torch.device | str, OnRun, OnStatus], None]


class ProgressCallback:
    """Receives progress events; this base class ignores them.

    Attributes:
        needs_history: Whether training keeps the losses and scores of every epoch and sends them to `on_history`.
    """

    needs_history: bool = False

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        """A model begins: the number of runs it needs, and how many of them the store has already."""

    def on_run_end(self, row: RunRecord) -> None:
        """A run has finished and is in the store."""

    def on_history(self, row: RunRecord, history: History) -> None:
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

    def on_run_end(self, row: RunRecord) -> None:
        for callback in self.callbacks:
            callback.on_run_end(row)

    def on_history(self, row: RunRecord, history: History) -> None:
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
    dataset: NodeDataset,
    model: str,
    replicas: Sequence[Replica],
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    *,
    callback: ProgressCallback | None = None,
    batch_size: int | None = None,
    engine: Engine = Job.run,
) -> list[RunRecord]:
    """Trains the runs that the store lacks and returns one row per replica, in order.

    A run is in the store as soon as it has finished, so an interrupted call continues where it stopped. At most
    `batch_size` runs train together, by default as many as fit into memory.
    """
    import_custom(model)
    callback, record = callback or ProgressCallback(), DatasetRecord.of(dataset)
    missing = store.missing(record, model, replicas, config)
    if missing:
        job = Job(model, tuple(missing), record, config, callback.needs_history, batch_size)
        engine(job, dataset, device, keep_rows(store, callback), callback.on_status)
    rows = [row for row in store.find(record, model, replicas, config) if row is not None]
    if len(rows) < len(replicas):
        raise RuntimeError(f"the store {store.path} lacks runs that were just trained: was it changed meanwhile?")
    return rows


def random_search(
    store: Store,
    dataset: NodeDataset,
    model: str,
    space: Space,
    count: int,
    splits: Iterable[int],
    seeds: Iterable[int] = (0,),
    *,
    seed: int = 0,
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    callback: ProgressCallback | None = None,
) -> Selection:
    """Trains random configurations and ranks them. A second call, also with a larger `count`, trains what is missing.

    `seed` is that of the draw of configurations; `seeds` are those of the runs.
    """
    replicas = make_replicas(model, sample(space, count, seed), splits, seeds)
    return select(train_missing(store, dataset, model, replicas, config, device, callback=callback))


def successive_halving(
    store: Store,
    dataset: NodeDataset,
    model: str,
    configurations: Sequence[Configuration],
    splits: Iterable[int],
    seeds: Iterable[int] = (0,),
    *,
    rungs: Sequence[int] | None = None,
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    callback: ProgressCallback | None = None,
    batch_size: int | None = None,
    engine: Engine = Job.run,
) -> Selection:
    """Trains configurations side by side and stops the worse half of them at each rung.

    A configuration is judged by the mean of the best validation scores so far over all its splits and seeds. Stopped
    runs are kept in the store too, without a test score. An interrupted search starts again, because its runs have to
    reach a rung together; a finished one is read from the store.

    Args:
        configurations: The configurations to try, see `grid` and `sample`.
        splits: Indices of splits of the dataset.
        rungs: Epochs at which configurations are stopped; by default see `default_rungs`.
    """
    record, replicas = DatasetRecord.of(dataset), make_replicas(model, configurations, splits, seeds)
    if not replicas:
        raise ValueError("configurations, splits and seeds must hold at least one each, got none of one of them")
    if rungs is None:
        rungs = default_rungs(len(HalvingState(replicas).racing), config.max_epochs)
    search = search_key(record, model, replicas, config, rungs)
    if None in store.find(record, model, replicas, config, search):
        callback = callback or ProgressCallback()
        job = Job(model, tuple(replicas), record, config, callback.needs_history, batch_size, tuple(rungs), search)
        engine(job, dataset, device, keep_rows(store, callback), callback.on_status)
    return select([row for row in store.find(record, model, replicas, config, search) if row is not None])


def search_key(
    record: DatasetRecord, model: str, replicas: Sequence[Replica], config: TrainConfig, rungs: Sequence[int]
) -> str:
    """Hash that identifies a search by successive halving; runs that it stopped are recorded with it."""
    keys = sorted(identify(record, model, replica, config) for replica in replicas)
    return digest([keys, list(rungs), FACTOR])


def keep_rows(store: Store, callback: ProgressCallback) -> OnRun:
    """A function that adds a finished run to the store and then reports it."""

    def keep(row: RunRecord, history: History) -> None:
        new = store.add([row])
        callback.on_run_end(row)
        if new and callback.needs_history:
            callback.on_history(row, history)

    return keep
