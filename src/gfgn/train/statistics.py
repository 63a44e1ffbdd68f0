"""Statistics of runs: means, standard deviations and intervals over splits, paired tests, and average ranks.

A run is a `Run`, a row of a store or a plain `(split, seed, score)`. Seeds of one split share their test nodes and are
not independent: they are averaged before statistics over splits. Random splits of one graph are not independent either,
because they share nodes: Student's t-intervals and t-tests have the variance corrected by Nadeau and Bengio (2003).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from gfgn.train.replica import Replica

LEVEL = 0.95
TEST_SHARE = 0.25  # of random splits with 20% test nodes, the default of `random_splits`


class Tested(Protocol):
    """A finished run: a `Run`, or a row of a store."""

    @property
    def replica(self) -> Replica: ...
    @property
    def test(self) -> float: ...


Scored = Tested | tuple[int, int, float]  # or split, seed and score


class Summary(NamedTuple):
    """Mean, sample standard deviation, 95% interval of the mean (NaN with a single split), and number of runs."""

    mean: float
    std: float
    low: float
    high: float
    runs: int


class PairedTest(NamedTuple):
    """Paired t-test of one model against another over splits.

    Attributes:
        mean: Mean difference of the scores, averaged over the seeds of a split.
        t, t_p: Statistic and two-sided p-value.
        splits: Number of splits.
    """

    mean: float
    t: float
    t_p: float
    splits: int


def summarize(runs: Sequence[Scored], test_share: float | None = None) -> Summary:
    """Summary of the test scores.

    Args:
        runs: Runs of one model.
        test_share: Number of test nodes over the number of all other nodes of a split, see `standard_error`.
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    return _summarize(runs, test_share)


def _summarize(runs: Sequence[Scored], test_share: float | None, factor: float = 1.0) -> Summary:
    values = np.array([score for _, _, score in map(_as_tuple, runs)])
    means = np.array(list(split_means(runs).values()))
    half = _quantile(means.size) * standard_error(means, test_share, factor)
    center, std = float(means.mean()), float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Summary(float(values.mean()), std, center - half, center + half, values.size)


def difference(runs: Sequence[Scored], others: Sequence[Scored], test_share: float | None = None) -> Summary:
    """Summary of the test scores of `runs` minus those of `others`, paired by split and seed.

    What splits have in common, the difficulty of their shared test nodes, cancels in the difference of two models that
    fail on the same nodes. The correction for overlap is therefore multiplied by the share of the variance over splits
    that does not cancel, `s² / (s₁² + s₂²)`, at most 1: `s²` is the variance of the difference, `s₁²` and `s₂²` those
    of the two scores.

    Args:
        runs: Runs of one model.
        others: Runs of another model with the same splits and seeds.
        test_share: See `standard_error`.
    """
    return _summarize(_differences(runs, others), test_share, _uncanceled(runs, others))


def standard_error(values: NDArray[np.float64], test_share: float | None = None, factor: float = 1.0) -> float:
    """Standard error of the mean of `values`, one per split: `s √(1 / J + factor · test_share)`; NaN with a single one.

    `s` is the standard deviation of the `J` values. `1 / J` alone would be right for independent splits. Random splits
    of one graph share nodes; `test_share`, the number of test nodes over the number of nodes that a model has been
    trained or validated on, corrects for it. It is 0 for independent splits and `TEST_SHARE` by default. `factor` is 1
    for scores, see `difference` for differences.
    """
    share = TEST_SHARE if test_share is None else test_share
    if not (math.isfinite(share) and share >= 0):
        raise ValueError(f"test_share must be a finite number, 0 or larger, got {test_share}")
    return float(values.std(ddof=1)) * math.sqrt(1 / values.size + factor * share) if values.size > 1 else math.nan


def paired_test(runs: Sequence[Scored], baseline: Sequence[Scored], test_share: float | None = None) -> PairedTest:
    """Tests the test scores of `runs` against those of `baseline`, paired over splits.

    The standard error is that of `difference`. The p-value is NaN with a single split, and 1 if all differences are 0.

    Args:
        runs: Runs of one model.
        baseline: Runs of another model with the same splits and seeds.
        test_share: See `standard_error`.
    """
    gaps = np.array(list(split_means(_differences(runs, baseline)).values()))
    mean, count = float(gaps.mean()), gaps.size
    error = standard_error(gaps, test_share, _uncanceled(runs, baseline))
    if count < 2:
        return PairedTest(mean, math.nan, math.nan, count)
    if not np.abs(gaps).max() > 1e-12:  # rounding errors of equal scores
        return PairedTest(mean, 0.0, 1.0, count)
    statistic = mean / max(error, math.sqrt(np.finfo(np.float64).tiny))
    return PairedTest(mean, statistic, 2 * float(stdtr(count - 1, -abs(statistic))), count)


def average_ranks(
    scores: Mapping[str, Mapping[str, float]], ties: Literal["average", "min"] = "average"
) -> dict[str, float]:
    """The rank of each model, averaged over the datasets on which it has a score; 1 is the best.

    Args:
        scores: Mean score by model and dataset; NaN counts as no score.
        ties: Rank of models with the same score: `"average"`, the mean of their ranks, or `"min"`, the best of them, as
            in the table of the paper.
    """
    if ties not in ("average", "min"):
        raise ValueError(f"ties must be 'average' or 'min', got {ties!r}")
    from scipy.stats import rankdata

    ranks: dict[str, list[float]] = {model: [] for model in scores}
    for dataset in dict.fromkeys(name for of_model in scores.values() for name in of_model):
        here = {model: of_model.get(dataset, math.nan) for model, of_model in scores.items()}
        here = {model: score for model, score in here.items() if not math.isnan(score)}
        for model, rank in zip(here, rankdata([-score for score in here.values()], method=ties), strict=True):
            ranks[model].append(float(rank))
    unranked = [model for model, of_model in ranks.items() if not of_model]
    if unranked:
        raise ValueError(f"scores must hold a score of every model, got none of {', '.join(unranked)}")
    return {model: sum(of_model) / len(of_model) for model, of_model in ranks.items()}


def split_means(runs: Sequence[Scored]) -> dict[int, float]:
    """The mean score of each split over its seeds, splits in order."""
    by_split: dict[int, list[float]] = {}
    for split, _, score in map(_as_tuple, runs):
        by_split.setdefault(split, []).append(score)
    return {split: float(np.mean(by_split[split])) for split in sorted(by_split)}


def _uncanceled(runs: Sequence[Scored], others: Sequence[Scored]) -> float:
    """The share of the variance of two models' scores over splits that is left in their difference; at most 1."""
    first, second = (np.array(list(split_means(each).values())) for each in (runs, others))
    total = first.var() + second.var()
    return float(min(1.0, (first - second).var() / total)) if total > 0 else 1.0


def _quantile(count: int) -> float:
    """The quantile of Student's t for the mean of `count` values; NaN for a single one."""
    return float(stdtrit(count - 1, (1 + LEVEL) / 2)) if count > 1 else math.nan


def _as_tuple(run: Scored) -> tuple[int, int, float]:
    return run if isinstance(run, tuple) else (run.replica.split, run.replica.seed, run.test)


def _differences(runs: Sequence[Scored], others: Sequence[Scored]) -> list[tuple[int, int, float]]:
    """Split, seed and difference of the scores of each pair of runs."""
    first, second = ({(split, seed): score for split, seed, score in map(_as_tuple, each)} for each in (runs, others))
    if not first or first.keys() != second.keys():
        raise ValueError(
            f"runs and others must be of the same splits and seeds, got {sorted(first)} and {sorted(second)}"
        )
    if len(first) < len(runs) or len(second) < len(others):
        raise ValueError("runs and others must hold each split and seed once, got duplicates")
    return [(split, seed, score - second[split, seed]) for (split, seed), score in first.items()]
