"""Searches for hyperparameters by validation scores alone: random search and successive halving."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.data.streams import Stream
from gfgn.runs.grid import Configuration, make_replicas
from gfgn.runs.race import FACTOR, Race
from gfgn.runs.record import DEFAULT_CONFIG, HYPER, DatasetRecord, digest, identify
from gfgn.runs.selection import Selection, select
from gfgn.runs.store import Store
from gfgn.runs.training import Engine, Job, ProgressCallback, keep_rows, train_missing
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica

FIRST_RUNG = 10  # no run is stopped before this epoch: earlier scores say little


@dataclass(frozen=True)
class Uniform:
    """Any value from `low` to `high`, uniformly distributed."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low and high must be finite and low must be smaller, got {self.low} and {self.high}")

    def draw(self, quantile: float) -> float:
        """The value at a quantile from 0 to 1, rounded to four digits."""
        return min(max(float(f"{self._at(quantile):.4g}"), self.low), self.high)

    def _at(self, quantile: float) -> float:
        return self.low + quantile * (self.high - self.low)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Any value from `low` to `high`, its logarithm uniformly distributed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ValueError(f"low must be above 0, got {self.low}")

    def _at(self, quantile: float) -> float:
        return float(self.low * (self.high / self.low) ** quantile)


@dataclass(frozen=True)
class Choice:
    """One of several values with equal probability."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple) or not self.values:
            raise ValueError(f"values must be a tuple of one or more values, got {self.values!r}")

    def draw(self, quantile: float) -> Any:
        """The value at a quantile from 0 to below 1."""
        return self.values[min(int(quantile * len(self.values)), len(self.values) - 1)]


Space = Mapping[str, Uniform | LogUniform | Choice]  # by name of a hyperparameter or option of a model
SPACE: Space = {
    "lr": LogUniform(1e-3, 1e-1),
    "weight_decay": LogUniform(1e-5, 1e-2),
    "dropout": Uniform(0.0, 0.8),
    "lam": Uniform(0.5, 2.0),
}
"""The default search space; models without gates ignore λ."""


def sample(space: Space, count: int, seed: int = 0) -> list[Configuration]:
    """Draws `count` random configurations from a space. A larger `count` begins with the same ones.

    The values of one axis depend on its name and range, `count` and `seed` alone: models whose spaces share some axes
    have the same values on these.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not space:
        raise ValueError(f"space must name one or more of {', '.join(HYPER)} or options of a model, got none")
    draws = {name: Stream(seed, *name.encode()).uniform(count).tolist() for name in sorted(space)}
    return [{name: space[name].draw(draws[name][number]) for name in draws} for number in range(count)]


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
        rungs = default_rungs(len(Race(replicas).racing), config.max_epochs)
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


def default_rungs(count: int, max_epochs: int) -> list[int]:
    """Epochs at which to stop some of `count` configurations; each rung is `FACTOR` times the one before."""
    rungs: list[int] = []
    while count > 1:
        count, rung = math.ceil(count / FACTOR), max_epochs // FACTOR ** (len(rungs) + 1)
        if rung < FIRST_RUNG:
            break
        rungs.append(rung)
    return rungs[::-1]
