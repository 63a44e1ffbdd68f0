"""Summaries of runs: mean, standard deviation, and bootstrap intervals over splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gfgn.data.streams import Stream
from gfgn.train.replica import Run

Floats = NDArray[np.float64]
RESAMPLES = 10_000


class Summary(NamedTuple):
    """Mean, sample standard deviation, interval of the mean, and the number of runs behind them."""

    mean: float
    std: float
    low: float
    high: float
    runs: int


def bootstrap_interval(values: Sequence[float], level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`, one a split.

    A single value has no interval to speak of: both ends are that value.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"values must be a non-empty sequence of finite numbers, got {values!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    picks = Stream(seed).integers(array.size, RESAMPLES * array.size).reshape(RESAMPLES, array.size)
    low, high = np.quantile(array[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def summarize(runs: Sequence[Run]) -> Summary:
    """Summary of the test scores. Seeds of one split are averaged before splits are resampled: they share
    their test nodes and are not independent."""
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    return _summary([(run.replica.split, run.test) for run in runs])


def difference(runs: Sequence[Run], others: Sequence[Run]) -> Summary:
    """Summary of the test scores of `runs` less those of `others`, paired by split and seed."""
    first = {(run.replica.split, run.replica.seed): run.test for run in runs}
    second = {(run.replica.split, run.replica.seed): run.test for run in others}
    if not first or first.keys() != second.keys():
        raise ValueError(
            f"runs and others must be of the same splits and seeds, got {sorted(first)} and {sorted(second)}"
        )
    return _summary([(split, first[split, seed] - second[split, seed]) for split, seed in first])


def _summary(scores: list[tuple[int, float]]) -> Summary:
    values = np.array([score for _, score in scores])
    by_split: dict[int, list[float]] = {}
    for split, score in scores:
        by_split.setdefault(split, []).append(score)
    low, high = bootstrap_interval([float(np.mean(group)) for group in by_split.values()])
    std = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Summary(float(values.mean()), std, low, high, values.size)
