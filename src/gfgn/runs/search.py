"""Searches for hyper-parameters: random search, and successive halving, which gives poor configurations up early.

Both choose by validation scores alone, see `select`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gfgn.data.dataset import Dataset
from gfgn.data.streams import Stream
from gfgn.runs.plan import (
    HYPER,
    Configuration,
    Selection,
    keeper,
    make_replica,
    make_replicas,
    run_study,
    select,
)
from gfgn.runs.record import DEFAULT_CONFIG, DatasetRecord, Row, digest, identify
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Replica, Run, Status

FIRST_RUNG = 10
"""Epochs before which nothing is given up: earlier scores say little."""


@dataclass(frozen=True)
class Uniform:
    """Any value from `low` to `high`, all equally likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low and high must be finite and low the smaller one, got {self.low} and {self.high}")

    def draw(self, chance: float) -> float:
        """The value at `chance`, from 0 to 1, to four digits."""
        return self._rounded(self.low + chance * (self.high - self.low))

    def _rounded(self, value: float) -> float:
        return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Any value from `low` to `high`, all orders of magnitude equally likely."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ValueError(f"low must be above 0, got {self.low}")

    def draw(self, chance: float) -> float:
        """The value at `chance`, from 0 to 1, to four digits."""
        return self._rounded(self.low * (self.high / self.low) ** chance)


@dataclass(frozen=True)
class Choice:
    """One of some values, all equally likely."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple) or not self.values:
            raise ValueError(f"values must be a tuple of one or more values, got {self.values!r}")

    def draw(self, chance: float) -> Any:
        """The value at `chance`, from 0 to below 1."""
        return self.values[min(int(chance * len(self.values)), len(self.values) - 1)]


Space = Mapping[str, Uniform | LogUniform | Choice]
"""For each hyper-parameter, or option of a model, what it may be."""


def sample(space: Space, count: int, seed: int = 0) -> list[Configuration]:
    """`count` random configurations. More of them begin with the same ones.

    Args:
        space: What each hyper-parameter may be.
        count: Number of configurations.
        seed: Of the draw.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not space:
        raise ValueError(f"space must name one or more of {', '.join(HYPER)} or options of a model, got none")
    names = sorted(space)
    draws = [Stream(seed, number).uniform(len(names)) for number in range(count)]
    return [
        {name: space[name].draw(float(chance)) for name, chance in zip(names, chances, strict=True)}
        for chances in draws
    ]


def random_search(
    store: Store,
    dataset: Dataset,
    model: str,
    space: Space,
    count: int,
    splits: Iterable[int],
    seeds: Iterable[int] = (0,),
    *,
    seed: int = 0,
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    progress: Callable[[Row], None] | None = None,
    status: Callable[[Status], None] | None = None,
) -> Selection:
    """Trains random configurations and ranks them. Asked for again, or for more of them, it trains what is missing.

    Args:
        store: Where runs are kept.
        dataset: What to train on.
        model: Name of the model.
        space: What each hyper-parameter may be.
        count: Number of configurations.
        splits: Places in the dataset's `splits`.
        seeds: Seeds of each run.
        seed: Of the draw of configurations.
        config: How runs are trained.
        device: Where.
        progress: Called with each row, once it is in the store.
        status: Called now and then with how far training is.
    """
    replicas = make_replicas(model, sample(space, count, seed), splits, seeds)
    return select(run_study(store, dataset, model, replicas, config, device, progress=progress, status=status))


def successive_halving(
    store: Store,
    dataset: Dataset,
    model: str,
    configurations: Sequence[Configuration],
    splits: Iterable[int],
    seeds: Iterable[int] = (0,),
    *,
    factor: int = 2,
    rungs: Sequence[int] | None = None,
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    progress: Callable[[Row], None] | None = None,
    status: Callable[[Status], None] | None = None,
) -> Selection:
    """Trains configurations side by side and gives all but the best of them up at each rung.

    A configuration is judged by the mean of the best validation scores so far over all its splits and seeds. Runs that
    are given up are kept in the store too, without a test score. A search that was interrupted starts again, as all
    its runs have to reach a rung together; one that was finished is read from the store.

    Args:
        store: Where runs are kept.
        dataset: What to train on.
        model: Name of the model.
        configurations: What to try, see `grid` and `sample`.
        splits: Places in the dataset's `splits`.
        seeds: Seeds of each run.
        factor: One configuration in `factor` goes on at each rung.
        rungs: Epochs at which to choose; by default see `default_rungs`.
        config: How runs are trained.
        device: Where.
        progress: Called with each row, once it is in the store.
        status: Called now and then with how far training is.
    """
    if factor < 2:
        raise ValueError(f"factor must be 2 or larger, got {factor}")
    record, replicas = DatasetRecord.of(dataset), make_replicas(model, configurations, splits, seeds)
    if not replicas:
        raise ValueError("configurations, splits and seeds must hold at least one each, got none of some")
    race = Race(replicas, factor)
    if rungs is None:
        rungs = default_rungs(len(race.racing), config.max_epochs, factor)
    keys = sorted(identify(record, model, replica, config) for replica in replicas)
    search = digest([keys, list(rungs), factor])
    if None in store.find(record, model, replicas, config, search):
        keep = keeper(store, record, config, device, progress, search)

        def finished(run: Run) -> None:
            race.note([run.replica], [run.val])
            keep(run)

        train_replicas(
            model,
            dataset,
            replicas,
            device=device,
            **asdict(config),
            progress=finished,
            status=status,
            history=False,
            rungs=rungs,
            prune=race if rungs else None,
        )
    return select([row for row in store.find(record, model, replicas, config, search) if row is not None])


def default_rungs(count: int, max_epochs: int, factor: int = 2) -> list[int]:
    """Epochs at which to choose among `count` configurations, each `factor` times the one before, so that few are left
    for the last stretch.

    Args:
        count: Number of configurations.
        max_epochs: Largest number of epochs of a run.
        factor: One configuration in `factor` goes on at each rung.
    """
    rungs: list[int] = []
    while count > 1:
        count, rung = math.ceil(count / factor), max_epochs // factor ** (len(rungs) + 1)
        if rung < FIRST_RUNG:
            break
        rungs.append(rung)
    return rungs[::-1]


class Race:
    """Who goes on at a rung: all runs of the better configurations, none of the others.

    Args:
        replicas: All runs of the search.
        factor: One configuration in `factor` goes on.
    """

    def __init__(self, replicas: Sequence[Replica], factor: int) -> None:
        self.factor = factor
        self.racing: dict[Replica, list[Replica]] = {}
        """The runs of each configuration that has not been given up."""
        for replica in replicas:
            self.racing.setdefault(_configuration(replica), []).append(replica)
        self._best: dict[Replica, float] = {}

    def note(self, replicas: Sequence[Replica], scores: Sequence[float]) -> None:
        """Takes down the best validation scores so far; a run that has come to its end keeps its last."""
        self._best.update(zip(replicas, scores, strict=True))

    def __call__(self, epoch: int, replicas: Sequence[Replica], scores: Sequence[float]) -> list[bool]:
        """Whether each run goes on."""
        self.note(replicas, scores)
        runs = [_Judged(replica, self._best[replica]) for group in self.racing.values() for replica in group]
        order = [make_replica(candidate.configuration) for candidate in select(runs).candidates]
        kept = order[: math.ceil(len(order) / self.factor)]
        self.racing = {configuration: self.racing[configuration] for configuration in kept}
        return [_configuration(replica) in self.racing for replica in replicas]


@dataclass(frozen=True)
class _Judged:
    replica: Replica
    val: float
    dropped: bool = False


def _configuration(replica: Replica) -> Replica:
    return make_replica(replica.configuration)
