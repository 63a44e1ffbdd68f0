"""Studies: many configurations over splits and seeds, of which only what the store lacks is trained; and the choice
of a configuration by validation scores alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, NamedTuple, Protocol

import torch

from gfgn.data.dataset import Dataset
from gfgn.runs.record import DEFAULT_CONFIG, DatasetRecord, Row, canonical
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.dispatch import train_runs
from gfgn.train.replica import Replica, Status

Configuration = dict[str, Any]
"""Hyper-parameters by name, as `Replica.configuration` has them: everything but split and seed."""

HYPER = ("lr", "weight_decay", "dropout", "lam")


def grid(**choices: Any) -> list[Configuration]:
    """Every combination of the choices, the last one varying fastest.

    Args:
        **choices: For a hyper-parameter (`lr`, `weight_decay`, `dropout`, `lam`, or an option of the model) its values,
            in a list or tuple, or a single one.
    """
    values = {name: tuple(given) if isinstance(given, list | tuple) else (given,) for name, given in choices.items()}
    for name, given in values.items():
        if not given or len(set(given)) < len(given):
            raise ValueError(f"{name} must be one or more values, each of them once, got {given}")
        if name in ("split", "seed", "options"):
            raise ValueError(f"choices must be hyper-parameters or options of a model, got {name!r}")
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


PAPER_GRID = grid(lr=(0.005, 0.05), weight_decay=(5e-4, 5e-5), dropout=(0.5, 0.8), lam=(1.0, 2.0))
"""The grid of the paper."""


def make_replica(configuration: Configuration, split: int = 0, seed: int = 0) -> Replica:
    """The replica of a configuration; what is not a hyper-parameter of every model is an option."""
    hyper = {name: configuration[name] for name in HYPER if name in configuration}
    options = tuple((name, value) for name, value in configuration.items() if name not in HYPER)
    return Replica(split, seed, **hyper, options=options)


def make_replicas(
    model: str, configurations: Iterable[Configuration], splits: Iterable[int], seeds: Iterable[int] = (0,)
) -> list[Replica]:
    """Every configuration on every split with every seed, each run once: for a model without gates, configurations that
    differ in λ alone are one.

    Args:
        model: Name of the model.
        configurations: The configurations, see `grid`.
        splits: Places in the dataset's `splits`.
        seeds: Seeds.
    """
    splits, seeds = list(splits), list(seeds)
    made = (
        canonical(model, make_replica(configuration, split, seed))
        for configuration in configurations
        for split in splits
        for seed in seeds
    )
    return list(dict.fromkeys(made))


def run_study(
    store: Store,
    dataset: Dataset,
    model: str,
    replicas: Sequence[Replica],
    config: TrainConfig = DEFAULT_CONFIG,
    device: torch.device | str = "cpu",
    *,
    progress: Callable[[Row], None] | None = None,
    status: Callable[[Status], None] | None = None,
    batch_size: int | None = None,
) -> list[Row]:
    """Trains what the store lacks and returns one row a replica, in order.

    A run is in the store as soon as it has finished: an interrupted study, asked for again, goes on where it was.

    Args:
        store: Where runs are kept.
        dataset: What to train on.
        model: Name of the model, see `gfgn.train.MODELS`.
        replicas: The runs that are wanted.
        config: How they are trained.
        device: Where.
        progress: Called with each row, once it is in the store.
        status: Called now and then with how far training is.
        batch_size: Largest number of runs that train together; by default as many as memory allows.
    """
    record = DatasetRecord.of(dataset)
    lacking = [canonical(model, replica) for replica in store.missing(record, model, replicas, config)]
    if lacking:
        keep = keeper(store, record, config, device, progress)
        train_runs(model, dataset, lacking, config, device, progress=keep, status=status, batch_size=batch_size)
    rows = [row for row in store.find(record, model, replicas, config) if row is not None]
    if len(rows) < len(replicas):
        raise RuntimeError(f"the store {store.path} lacks runs that were just trained: was it changed meanwhile?")
    return rows


def keeper(
    store: Store,
    record: DatasetRecord,
    config: TrainConfig,
    device: torch.device | str,
    progress: Callable[[Row], None] | None = None,
    search: str = "",
) -> Callable[[Any], None]:
    """What to do with each finished run: put it into the store, then tell."""

    def keep(run: Any) -> None:
        row = Row.of(run, record, config, device, search)
        store.add([row])
        if progress is not None:
            progress(row)

    return keep


# --- choosing a configuration -----------------------------------------------------------------------------------------


class Validated(Protocol):
    """What a configuration is chosen by: a `Run` or a `Row`."""

    @property
    def replica(self) -> Replica: ...
    @property
    def val(self) -> float: ...
    @property
    def dropped(self) -> bool: ...


class Candidate(NamedTuple):
    """A configuration with the mean of its best validation scores, their standard deviation over splits, the number of
    runs behind them, and whether a search ended any of these before its time."""

    configuration: Configuration
    val: float
    std: float
    runs: int
    dropped: bool


@dataclass(frozen=True)
class Selection:
    """The candidates, best first."""

    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Configuration:
        """The chosen configuration."""
        return self.candidates[0].configuration


def select(runs: Sequence[Validated]) -> Selection:
    """Ranks the configurations of some runs by their mean validation score over splits, seeds of a split averaged
    first. The test score is not looked at.

    A tie goes to the more cautious configuration: the smaller learning rate, then the larger weight decay, the larger
    dropout, the smaller λ, then options in order. One that a search has ended early comes after all that it has not.

    Args:
        runs: Runs of one model on one dataset; of every configuration on the same splits and seeds.
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    groups: dict[Replica, dict[tuple[int, int], Validated]] = {}
    for run in runs:
        split, seed = run.replica.split, run.replica.seed
        configuration = make_replica(run.replica.configuration)
        if groups.setdefault(configuration, {}).setdefault((split, seed), run) is not run:
            raise ValueError(f"runs must hold each split and seed of a configuration once, got {run.replica} twice")
    places = {frozenset(group) for group in groups.values()}
    if len(places) > 1:
        sizes = sorted({len(place) for place in places})
        raise ValueError(
            "runs must be on the same splits and seeds for every configuration, "
            f"got {sizes[0]} to {sizes[-1]} runs a configuration"
        )
    candidates = [_candidate(configuration, group) for configuration, group in groups.items()]
    return Selection(tuple(sorted(candidates, key=_order)))


def _candidate(configuration: Replica, group: dict[tuple[int, int], Validated]) -> Candidate:
    by_split: dict[int, list[float]] = {}
    for (split, _), run in sorted(group.items()):  # sorted, so that the order of runs cannot change the last digit
        by_split.setdefault(split, []).append(run.val)
    means = [math.fsum(values) / len(values) for values in by_split.values()]
    return Candidate(
        configuration.configuration,
        math.fsum(means) / len(means),
        stdev(means) if len(means) > 1 else 0.0,
        len(group),
        any(run.dropped for run in group.values()),
    )


def _order(candidate: Candidate) -> tuple[Any, ...]:
    hyper = make_replica(candidate.configuration)
    options = tuple((name, str(value)) for name, value in hyper.options)
    score = -math.inf if math.isnan(candidate.val) else round(candidate.val, 12)
    return (candidate.dropped, -score, hyper.lr, -hyper.weight_decay, -hyper.dropout, hyper.lam, options)
