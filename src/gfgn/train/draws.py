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
from scipy.special import stdtrit

from gfgn.train.statistics import LEVEL, Scored, Summary, difference, summarize

Draws = Sequence[Sequence[Scored]]  # the runs of each draw: the same splits and seeds


def summarize_draws(draws: Draws, test_share: float | None = None) -> Summary:
    """Summary of the test scores on one or more draws; see `gfgn.train.statistics.summarize` for a single one."""
    if len(draws) == 1:
        return summarize(draws[0], test_share)
    scores = [score for runs in draws for score in _scores(runs).values()]
    means = np.array([np.mean(list(_scores(runs).values())) for runs in draws])
    average = _average(draws)
    interval = _widened(summarize(average, test_share), means, len({split for split, _, _ in average}))
    return interval._replace(std=float(np.std(scores, ddof=1)), runs=len(scores))


def difference_draws(draws: Draws, others: Draws, test_share: float | None = None) -> Summary:
    """Summary of the test scores of one model minus those of another, paired by draw, split and seed."""
    if len(draws) != len(others):
        raise ValueError(f"draws and others must be as many, got {len(draws)} and {len(others)}")
    if len(draws) == 1:
        return difference(draws[0], others[0], test_share)
    gaps = [difference(runs, other, test_share) for runs, other in zip(draws, others, strict=True)]
    first, second = _average(draws), _average(others)
    means = np.array([gap.mean for gap in gaps])
    interval = _widened(difference(first, second, test_share), means, len({split for split, _, _ in first}))
    return interval._replace(runs=sum(gap.runs for gap in gaps))


def _scores(runs: Sequence[Scored]) -> dict[tuple[int, int], float]:
    """The score by split and seed."""
    tuples = (run if isinstance(run, tuple) else (run.replica.split, run.replica.seed, run.test) for run in runs)
    return {(split, seed): score for split, seed, score in tuples}


def _average(draws: Draws) -> list[tuple[int, int, float]]:
    """The mean over draws of every split and seed."""
    tables = [_scores(runs) for runs in draws]
    if any(table.keys() != tables[0].keys() for table in tables):
        raise ValueError("draws must hold the same splits and seeds, got different ones")
    return [(*key, float(np.mean([table[key] for table in tables]))) for key in tables[0]]


def _widened(summary: Summary, means: NDArray[np.float64], splits: int) -> Summary:
    """The summary of an average over draws with an interval that covers the choice of the draws, too."""
    if splits < 2:
        return summary
    by_split = ((summary.high - summary.low) / 2 / float(stdtrit(splits - 1, (1 + LEVEL) / 2))) ** 2
    by_draw = float(means.var(ddof=1)) / means.size
    total = by_split + by_draw
    if total == 0:
        return summary
    freedom = total**2 / (by_split**2 / (splits - 1) + by_draw**2 / (means.size - 1))
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(total)
    return summary._replace(low=summary.mean - half, high=summary.mean + half)
