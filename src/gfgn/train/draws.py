"""Statistics over draws of random edges: splits and draws are two crossed random factors.

Every model is trained on the same splits and the same draws, each split on each draw. The variance of the mean is the
sum of two parts: that of the mean over splits, corrected for their overlap (see `gfgn.train.statistics`), and that of
the mean over draws, `s² / D`. What depends on both, split and draw, is in both parts, which makes intervals a little
wide. Degrees of freedom are those of Satterthwaite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gfgn.train.statistics import Estimate, Scored, Summary, as_tuple, estimate_difference, quantile, summarize

Draws = Sequence[Sequence[Scored]]  # the runs of each draw: the same splits and seeds


def summarize_draws(draws: Draws, test_share: float | None = None) -> Summary:
    """Summary of the test scores on one or more draws; see `gfgn.train.statistics.summarize` for a single one."""
    if len(draws) == 1:
        return summarize(draws[0], test_share)
    average, scores = _average(draws), [score for runs in draws for score in _scores(runs).values()]
    summary, splits = summarize(average, test_share), len({split for split, _, _ in average})
    if splits > 1:
        half = (summary.high - summary.low) / 2
        error, freedom = _with_draws(half / quantile(splits - 1), splits - 1, _means(draws))
        half = quantile(freedom) * error
        summary = summary._replace(low=summary.mean - half, high=summary.mean + half)
    return summary._replace(std=float(np.std(scores, ddof=1)), runs=len(scores))


def difference_draws(
    draws: Draws, others: Draws, test_share: float | None = None, *, canceling: bool = True
) -> Estimate:
    """The test scores of one model minus those of another, paired by draw, split and seed.

    See `gfgn.train.statistics.estimate_difference` for `test_share` and `canceling`. With several
    draws, the degrees of freedom are rounded down.
    """
    if len(draws) != len(others):
        raise ValueError(f"draws and others must be as many, got {len(draws)} and {len(others)}")
    if len(draws) == 1:
        return estimate_difference(draws[0], others[0], test_share, canceling=canceling)
    gap = estimate_difference(_average(draws), _average(others), test_share, canceling=canceling)
    error, freedom = _with_draws(gap.error, gap.splits - 1, _means(draws) - _means(others))
    return Estimate(gap.mean, error, math.floor(freedom + 1e-9) + 1)


def _scores(runs: Sequence[Scored]) -> dict[tuple[int, int], float]:
    """The score by split and seed."""
    return {(split, seed): score for split, seed, score in map(as_tuple, runs)}


def _means(draws: Draws) -> NDArray[np.float64]:
    """The mean score of every draw."""
    return np.array([np.mean(list(_scores(runs).values())) for runs in draws])


def _average(draws: Draws) -> list[tuple[int, int, float]]:
    """The mean over draws of every split and seed."""
    tables = [_scores(runs) for runs in draws]
    if any(table.keys() != tables[0].keys() for table in tables):
        raise ValueError("draws must hold the same splits and seeds, got different ones")
    return [(*key, float(np.mean([table[key] for table in tables]))) for key in tables[0]]


def _with_draws(error: float, freedom: float, means: NDArray[np.float64]) -> tuple[float, float]:
    """The standard error of an average over draws that covers the choice of the draws, too, and its degrees of freedom,
    from those over splits and the means of the draws."""
    by_split, by_draw = error**2, float(means.var(ddof=1)) / means.size
    total = by_split + by_draw
    if total == 0:
        return 0.0, freedom
    return math.sqrt(total), total**2 / (by_split**2 / freedom + by_draw**2 / (means.size - 1))
