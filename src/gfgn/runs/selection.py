"""Choosing a configuration by validation scores alone: a ranking, and successive halving while runs train."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import NamedTuple, Protocol

from gfgn.runs.grid import Configuration, make_replica
from gfgn.train.replica import Replica

FACTOR = 2  # one configuration in this many continues at each rung
FIRST_RUNG = 10  # no run is stopped before this epoch: earlier scores say little


class Validated(Protocol):
    """The part of a run that selection may read."""

    @property
    def replica(self) -> Replica: ...
    @property
    def val(self) -> float: ...
    @property
    def dropped(self) -> bool: ...


class Candidate(NamedTuple):
    """A configuration with its validation score.

    Attributes:
        val: Mean of the best validation scores over splits, seeds of a split averaged first.
        std: Standard deviation of the splits' scores.
        dropped: Whether a search stopped any of them early.
    """

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
        """The selected configuration."""
        return self.candidates[0].configuration


def select(runs: Sequence[Validated]) -> Selection:
    """Ranks configurations by their mean validation score over splits. Test scores are not read.

    A tie goes to the more conservative configuration: the smaller learning rate, then the larger weight decay, the
    larger dropout, the smaller λ, the larger input dropout, then options in order. Configurations with a run that
    diverged have no score and come after all others, those that a search stopped early come last.

    Args:
        runs: Runs of one model on one dataset; the same splits and seeds for every configuration.
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    groups: dict[Replica, dict[tuple[int, int], Validated]] = {}
    for run in runs:
        group = groups.setdefault(make_replica(run.replica.configuration), {})
        if group.setdefault((run.replica.split, run.replica.seed), run) is not run:
            raise ValueError(f"runs must hold each split and seed of a configuration once, got {run.replica} twice")
    if len({frozenset(group) for group in groups.values()}) > 1:
        sizes = sorted(len(group) for group in groups.values())
        raise ValueError(
            "runs must be on the same splits and seeds for every configuration, "
            f"got {sizes[0]} to {sizes[-1]} runs per configuration"
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
        math.nan if any(map(math.isnan, means)) else stdev(means) if len(means) > 1 else 0.0,
        len(group),
        any(run.dropped for run in group.values()),
    )


Order = tuple[bool, float, float, float, float, float, float, float, tuple[tuple[str, str], ...]]


def _order(candidate: Candidate) -> Order:
    hyper = make_replica(candidate.configuration)
    options = tuple((name, str(value)) for name, value in hyper.options)
    score = -math.inf if math.isnan(candidate.val) else round(candidate.val, 12)
    rates = (-hyper.dropout, hyper.lam, -hyper.input_rate, -(hyper.gate_decay or 0.0))
    return (candidate.dropped, -score, hyper.lr, -hyper.weight_decay, *rates, options)


def default_rungs(count: int, max_epochs: int) -> list[int]:
    """Epochs at which to stop some of `count` configurations; each rung is `FACTOR` times the one before."""
    rungs: list[int] = []
    while count > 1:
        count, rung = math.ceil(count / FACTOR), max_epochs // FACTOR ** (len(rungs) + 1)
        if rung < FIRST_RUNG:
            break
        rungs.append(rung)
    return rungs[::-1]


class HalvingState:
    """Decides which runs continue at a rung: all runs of one configuration in `FACTOR`, the best ones."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.racing: dict[Replica, list[Replica]] = {}  # the runs of each configuration that has not been stopped
        for replica in replicas:
            self.racing.setdefault(make_replica(replica.configuration), []).append(replica)
        self._best: dict[Replica, float] = {}

    def note(self, replicas: Sequence[Replica], scores: Sequence[float]) -> None:
        """Records the best validation scores so far; a finished run keeps its last one."""
        self._best.update(zip(replicas, scores, strict=True))

    def __call__(self, epoch: int, replicas: Sequence[Replica], scores: Sequence[float]) -> list[bool]:
        """Whether each run continues."""
        self.note(replicas, scores)
        runs = [_Scored(replica, self._best[replica]) for group in self.racing.values() for replica in group]
        order = [make_replica(candidate.configuration) for candidate in select(runs).candidates]
        kept = order[: math.ceil(len(order) / FACTOR)]
        self.racing = {configuration: self.racing[configuration] for configuration in kept}
        return [make_replica(replica.configuration) in self.racing for replica in replicas]


@dataclass(frozen=True)
class _Scored:
    replica: Replica
    val: float
    dropped: bool = False
