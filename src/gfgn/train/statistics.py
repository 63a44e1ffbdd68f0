"""Statistics of runs: means, intervals and paired tests over splits, the best of several models, and average ranks.

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


class Estimate(NamedTuple):
    """A mean with its standard error and the number of values behind it, one per split: what tests and intervals need.

    Attributes:
        error: Standard error of the mean; 0 if all values are equal.
        splits: Number of values, two or more; Student's t has one degree of freedom less.
    """

    mean: float
    error: float
    splits: int

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The interval that contains the truth with probability `level`."""
        half = quantile(self.splits - 1, level) * self.error
        return self.mean - half, self.mean + half

    def p_above(self, value: float = 0.0) -> float:
        """One-sided p-value: how likely a mean this high is if the truth is at most `value`."""
        return float(stdtr(self.splits - 1, (value - self.mean) / max(self.error, _SMALLEST)))

    def p_below(self, value: float = 0.0) -> float:
        """One-sided p-value: how likely a mean this low is if the truth is at least `value`."""
        return float(stdtr(self.splits - 1, (self.mean - value) / max(self.error, _SMALLEST)))

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference of two independent estimates, with the smaller number of degrees of freedom of the two."""
        return Estimate(self.mean - other.mean, math.hypot(self.error, other.error), min(self.splits, other.splits))


_SMALLEST = math.sqrt(np.finfo(np.float64).tiny)


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
    values = np.array([score for _, _, score in map(as_tuple, runs)])
    means = np.array(list(split_means(runs).values()))
    half = quantile(means.size - 1) * standard_error(means, test_share, factor)
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


def estimate(values: Sequence[float], test_share: float | None = None) -> Estimate:
    """The mean of `values`, one per split, two or more, with the standard error of `standard_error`."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        raise ValueError(f"values must be of two or more splits, got {array.size}")
    return Estimate(float(array.mean()), standard_error(array, test_share), array.size)


def estimate_difference(
    runs: Sequence[Scored], others: Sequence[Scored], test_share: float | None = None, *, canceling: bool = True
) -> Estimate:
    """The difference of two models, as in `difference`, as an `Estimate`.

    Args:
        runs: Runs of one model.
        others: Runs of another model with the same splits and seeds.
        test_share: See `standard_error`.
        canceling: Whether the correction for overlap is multiplied by the share of the variance that does not cancel.
            `False` is the plain correction of Nadeau and Bengio, which is too wide for similar models.
    """
    gaps = np.array(list(split_means(_differences(runs, others)).values()))
    if gaps.size < 2:
        raise ValueError(f"runs must be of two or more splits, got {gaps.size}")
    factor = _uncanceled(runs, others) if canceling else 1.0
    return Estimate(float(gaps.mean()), standard_error(gaps, test_share, factor), gaps.size)


def best_interval(estimates: Sequence[Estimate], level: float = LEVEL) -> tuple[float, float]:
    """The interval of the largest of several truths: "the gain of the best level", with the choice inside the interval.

    The model with the best mean on the test nodes is often a lucky one. Its own interval, as if it had been chosen
    beforehand, lies too high: with eight equally good models it contains the truth in about 84% of cases. This interval
    is `[max_k low_k, max_k high_k]`, where the lower ends share the error probability among the `K` models (Bonferroni)
    and the upper ends need not. It is below the truth only if the truly best model's own upper end is, and above it
    only if *some* lower end is above its own truth. So it contains the truth with at least the probability that the
    intervals of single models have, whatever their correlation.

    Choosing on all splits but one and scoring on the last one would not do: splits of one graph share their nodes, so
    that the split left out has taken part in the choice.
    """
    if not estimates:
        raise ValueError("estimates must hold at least one estimate, got none")
    stricter = 1 - (1 - level) / len(estimates)
    lows, highs = ([each.interval(at)[end] for each in estimates] for at, end in ((stricter, 0), (level, 1)))
    return max(lows), max(highs)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order: all that are below α can be rejected together.

    The probability that any of these rejections is wrong is then at most α, however the tests depend on each other
    (Holm, 1979). The smallest of `m` p-values is multiplied by `m`, the next by `m − 1`, and so on; an adjusted value
    is at least that of any smaller p-value, and at most 1.
    """
    if any(math.isnan(p) or not 0 <= p <= 1 for p in p_values):
        raise ValueError(f"p_values must be from 0 to 1, got {list(p_values)}")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


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
    gaps = list(split_means(_differences(runs, baseline)).values())
    if len(gaps) < 2:
        return PairedTest(gaps[0], math.nan, math.nan, 1)
    mean, error, count = estimate_difference(runs, baseline, test_share)
    if not max(map(abs, gaps)) > 1e-12:  # rounding errors of equal scores
        return PairedTest(mean, 0.0, 1.0, count)
    statistic = mean / max(error, _SMALLEST)
    return PairedTest(mean, statistic, 2 * float(stdtr(count - 1, -abs(statistic))), count)


Ties = Literal["average", "min"]


def average_ranks(scores: Mapping[str, Mapping[str, float]], ties: Ties = "average") -> dict[str, float]:
    """The rank of each model, averaged over the datasets on which it has a score; 1 is the best.

    Args:
        scores: Mean score by model and dataset; NaN counts as no score.
        ties: Rank of models with the same score: `"average"`, the mean of their ranks, or `"min"`, the best of them, as
            in the table of the paper.
    """
    return {model: sum(own.values()) / len(own) for model, own in dataset_ranks(scores, ties).items()}


def dataset_ranks(scores: Mapping[str, Mapping[str, float]], ties: Ties = "average") -> dict[str, dict[str, float]]:
    """The rank of each model on each dataset on which it has a score, see `average_ranks`."""
    if ties not in ("average", "min"):
        raise ValueError(f"ties must be 'average' or 'min', got {ties!r}")
    from scipy.stats import rankdata

    ranks: dict[str, dict[str, float]] = {model: {} for model in scores}
    for dataset in dict.fromkeys(name for of_model in scores.values() for name in of_model):
        here = {model: of_model.get(dataset, math.nan) for model, of_model in scores.items()}
        here = {model: score for model, score in here.items() if not math.isnan(score)}
        for model, rank in zip(here, rankdata([-score for score in here.values()], method=ties), strict=True):
            ranks[model][dataset] = float(rank)
    unranked = [model for model, of_model in ranks.items() if not of_model]
    if unranked:
        raise ValueError(f"scores must hold a score of every model, got none of {', '.join(unranked)}")
    return ranks


def rank_intervals(
    scores: Mapping[str, Mapping[str, float]], ties: Ties = "average", resamples: int = 10_000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95% bootstrap intervals of the average ranks: graphs are drawn with replacement, the same ones for all models.

    They answer how far the ranks depend on which graphs happen to be in the table. The scores themselves are taken as
    they are, and percentiles of few graphs are too narrow: with nine graphs, they contain the truth in about 90% of
    cases.
    """
    ranks = dataset_ranks(scores, ties)
    names = list(dict.fromkeys(name for own in ranks.values() for name in own))
    table = np.array([[own.get(name, math.nan) for name in names] for own in ranks.values()])
    picks = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), resamples)
    known = ~np.isnan(table)
    counts = picks @ known.T  # `[resamples, models]`, of the graphs on which a model has a rank
    means = np.where(counts > 0, picks @ np.where(known, table, 0.0).T / np.maximum(counts, 1), math.nan)
    low, high = np.nanquantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {model: (float(low[k]), float(high[k])) for k, model in enumerate(ranks)}


def split_means(runs: Sequence[Scored]) -> dict[int, float]:
    """The mean score of each split over its seeds, splits in order."""
    by_split: dict[int, list[float]] = {}
    for split, _, score in map(as_tuple, runs):
        by_split.setdefault(split, []).append(score)
    return {split: float(np.mean(by_split[split])) for split in sorted(by_split)}


def _uncanceled(runs: Sequence[Scored], others: Sequence[Scored]) -> float:
    """The share of the variance of two models' scores over splits that is left in their difference; at most 1."""
    first, second = (np.array(list(split_means(each).values())) for each in (runs, others))
    total = first.var() + second.var()
    return float(min(1.0, (first - second).var() / total)) if total > 0 else 1.0


def quantile(freedom: float, level: float = LEVEL) -> float:
    """The quantile of Student's t for a two-sided interval; NaN without a degree of freedom."""
    return float(stdtrit(freedom, (1 + level) / 2)) if freedom > 0 else math.nan


def as_tuple(run: Scored) -> tuple[int, int, float]:
    """Split, seed and score of a run."""
    return run if isinstance(run, tuple) else (run.replica.split, run.replica.seed, run.test)


def _differences(runs: Sequence[Scored], others: Sequence[Scored]) -> list[tuple[int, int, float]]:
    """Split, seed and difference of the scores of each pair of runs."""
    first, second = ({(split, seed): score for split, seed, score in map(as_tuple, each)} for each in (runs, others))
    if not first or first.keys() != second.keys():
        raise ValueError(
            f"runs and others must be of the same splits and seeds, got {sorted(first)} and {sorted(second)}"
        )
    if len(first) < len(runs) or len(second) < len(others):
        raise ValueError("runs and others must hold each split and seed once, got duplicates")
    return [(split, seed, score - second[split, seed]) for (split, seed), score in first.items()]
