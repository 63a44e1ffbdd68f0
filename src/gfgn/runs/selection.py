"""Choosing a configuration by validation scores alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any, NamedTuple, Protocol

from gfgn.runs.grid import Configuration, make_replica
from gfgn.train.replica import Replica


class Validated(Protocol):
    """The part of a `Run` or a `Row` that selection may read."""

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


def _order(candidate: Candidate) -> tuple[Any, ...]:
    hyper = make_replica(candidate.configuration)
    options = tuple((name, str(value)) for name, value in hyper.options)
    score = -math.inf if math.isnan(candidate.val) else round(candidate.val, 12)
    rates = (-hyper.dropout, hyper.lam, -hyper.input_rate, -(hyper.gate_decay or 0.0))
    return (candidate.dropped, -score, hyper.lr, -hyper.weight_decay, *rates, options)
