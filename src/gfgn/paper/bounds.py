"""How far a run that is trained again may be from its record: bounds from the spread over seeds.

At worst, other code or another device makes of a run what another seed would make of it: the rerun is one more draw
from the distribution of the seeds of its split. This holds however the order of sums or the stream of random numbers
changes. `σ`, the standard deviation of that distribution, is pooled over the splits of a cell. Then the variance is

- `2 σ²` for a rerun minus its record, and
- `(1 + 1 / m) σ²` for a rerun minus the mean of the `m` recorded seeds of its split.

Differences over their standard deviations are compared with quantiles of Student's t: for single runs (`run_bound`,
with the σ of the other splits, which a single forged run cannot widen), and for sums over the reruns of a cell, a
model, a dataset or all (`Group`). `FALSE_ALARM` is divided by the number of comparisons, so that honest results fail a
check with at most this probability.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from gfgn.runs.record import Row
from gfgn.train.replica import Replica

FALSE_ALARM = 1e-3  # half of it for single runs, half for groups
MEASURES = {"val": "validation", "test": "test"}
FEWEST_DEGREES = 9  # a spread from less says little
# A spread above that of this many independent draws of all nodes is not believed, since a forger could widen the bounds
# with it. The largest of the 198 of Table 1 is 1.83 times as large as that of one.
LARGEST_SPREAD = 2.0


class Spread(NamedTuple):
    """Standard deviation of a score over seeds, and its degrees of freedom."""

    sigma: float
    degrees: float


def configuration(row: Row) -> Replica:
    """What the seeds and splits of a configuration have in common."""
    return _first(row.replica)


@cache  # a study has thousands of runs, and each is looked up several times
def _first(replica: Replica) -> Replica:
    return replace(replica, split=0, seed=0)


def residuals(rows: Sequence[Row], measure: str) -> tuple[NDArray[np.float64], int]:
    """What is left of the scores of runs of one cell, in order, and its degrees of freedom.

    With several seeds, these are the residuals from the mean of a configuration on a split. With one seed, they are the
    residuals from the means of configurations and of splits, which are larger: they contain how configurations differ
    between splits.
    """
    values = np.array([getattr(row, measure) for row in rows], dtype=np.float64)
    one, two = _numbered([configuration(row) for row in rows]), _numbered([row.replica.split for row in rows])
    block = one * (two.max() + 1) + two
    sizes = [int(index.max()) + 1 for index in (one, two)]
    blocks = len(set(block.tolist()))
    if blocks < len(rows) or blocks < math.prod(sizes):
        return values - _means(values, block), len(rows) - blocks
    left = values - _means(values, one) - _means(values, two) + values.mean()
    return left, (sizes[0] - 1) * (sizes[1] - 1)


def _numbered(names: Sequence[Hashable]) -> NDArray[np.int64]:
    """For each name, the number of other names that come before it."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def _means(values: NDArray[np.float64], group: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each value, the mean of its group."""
    means: NDArray[np.float64] = np.bincount(group, values)[group] / np.bincount(group)[group]
    return means


def spread_of(rows: Sequence[Row], measure: str, nodes: int) -> Spread:
    """The spread over seeds of runs of one cell, none of which diverged: that of `residuals`.

    The variance of one node is added, which rounding may change where all seeds agree.

    Args:
        measure: One of `MEASURES`.
        nodes: Number of nodes of the measure in a split.
    """
    left, degrees = residuals(rows, measure)
    values = np.array([getattr(row, measure) for row in rows], dtype=np.float64)
    largest = _largest_spread(values, nodes, rows[0].metric)
    if degrees < FEWEST_DEGREES:
        return Spread(math.hypot(largest, 1 / nodes), math.inf)
    return Spread(math.hypot(min(math.sqrt((left**2).sum() / degrees), largest), 1 / nodes), degrees)


def _largest_spread(values: NDArray[np.float64], nodes: int, metric: str) -> float:
    if metric == "log_loss":  # has no largest value
        return float(values.std(ddof=1)) if values.size > 1 else math.inf
    p = min(max(float(values.mean()), 1 / nodes), 1 - 1 / nodes)
    return LARGEST_SPREAD * math.sqrt(p * (1 - p) / nodes)


def quantile(degrees: float, alarm: float) -> float:
    """What the absolute value of a standardized difference exceeds with the probability `alarm`."""
    return float(-ndtri(alarm / 2) if math.isinf(degrees) else -stdtrit(degrees, alarm / 2))


def run_bound(spread: Spread, runs: int) -> float:
    """The largest difference of a rerun from its record, whichever of the study's `runs` is chosen."""
    return quantile(spread.degrees, FALSE_ALARM / 2 / (runs * len(MEASURES))) * math.sqrt(2) * spread.sigma


class Difference(NamedTuple):
    """A rerun minus the mean of the recorded seeds of its split; `block` tells these means apart."""

    gap: float
    spread: Spread
    seeds: int
    block: object


class Group:
    """Reruns that are judged together, at random among those of a cell, a model, a dataset or all.

    Two reruns on one split are compared with the same mean, whose error counts twice: `w` reruns on a split have the
    variance `(w + w² / m) σ²`.
    """

    def __init__(self, differences: Sequence[Difference]) -> None:
        self.gap = fmean(each.gap for each in differences)
        self._degrees = min(each.spread.degrees for each in differences)
        seeds = {each.block: each.seeds for each in differences}
        counts = Counter(each.block for each in differences)
        self._deviation = math.sqrt(sum(w + w**2 / seeds[block] for block, w in counts.items()))
        self._sum = sum(each.gap / each.spread.sigma for each in differences)

    @property
    def standardized(self) -> float:
        """The sum of the differences over their standard deviation."""
        return self._sum / self._deviation

    def limit(self, groups: int) -> float:
        """The largest standardized difference if `groups` are compared."""
        return quantile(self._degrees, FALSE_ALARM / 2 / (groups * len(MEASURES)))
