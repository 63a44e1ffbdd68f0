"""Statistics of runs: mean and spread, bootstrap intervals over splits, paired tests, and average ranks.

Wherever runs are taken, a `Run`, a row of a store or a plain `(split, seed, score)` will do. Seeds of one split share
their test nodes and are not independent: they are averaged before anything is said about splits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gfgn.data.streams import Stream
from gfgn.train.replica import Replica

Floats = NDArray[np.float64]
RESAMPLES = 10_000


class Tested(Protocol):
    """A finished run: a `Run`, or a row of a store."""

    @property
    def replica(self) -> Replica: ...
    @property
    def test(self) -> float: ...


Scored = Tested | tuple[int, int, float]
"""A finished run, or its split, seed and score."""


class Summary(NamedTuple):
    """Mean, sample standard deviation, interval of the mean, and the number of runs behind them."""

    mean: float
    std: float
    low: float
    high: float
    runs: int


def in_percent(mean: float, std: float, runs: int, digits: int = 1) -> str:
    """A score as mean ± standard deviation, in percent; one run has no deviation."""
    return f"{100 * mean:.{digits}f}" + (f" ± {100 * std:.{digits}f}" if runs > 1 else "")


class PairedTest(NamedTuple):
    """Whether one model is better than another, over splits that both were run on.

    Attributes:
        mean: Mean difference of the scores, seeds of a split averaged.
        t: Statistic of the paired t-test.
        t_p: Its two-sided p-value.
        w: Statistic of the Wilcoxon signed-rank test.
        w_p: Its two-sided p-value.
        splits: Number of splits.
    """

    mean: float
    t: float
    t_p: float
    w: float
    w_p: float
    splits: int


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


def summarize(runs: Sequence[Scored]) -> Summary:
    """Summary of the test scores."""
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    return _summary([(split, score) for split, _, score in map(_place, runs)])


def difference(runs: Sequence[Scored], others: Sequence[Scored]) -> Summary:
    """Summary of the test scores of `runs` less those of `others`, paired by split and seed."""
    return _summary([(split, score) for (split, _), score in _differences(runs, others).items()])


def paired_test(runs: Sequence[Scored], baseline: Sequence[Scored], test_share: float | None = None) -> PairedTest:
    """Tests the test scores of `runs` against those of `baseline`, paired over splits.

    With a single split there is nothing to test, and p-values are NaN; where all differences are zero they are 1.

    Args:
        runs: Runs of one model.
        baseline: Runs of another, of the same splits and seeds.
        test_share: Number of test nodes over number of training nodes. Random splits of one graph overlap, and the
            plain t-test takes them for independent; given this share, its variance is corrected after Nadeau and
            Bengio (2003). The Wilcoxon test stays as it is.
    """
    if test_share is not None and not (math.isfinite(test_share) and test_share >= 0):
        raise ValueError(f"test_share must be a finite number, 0 or larger, got {test_share}")
    by_split = split_means([(split, seed, gap) for (split, seed), gap in _differences(runs, baseline).items()])
    gaps = np.array(list(by_split.values()))
    mean, count = float(gaps.mean()), gaps.size
    if count < 2:
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, count)
    if not np.abs(gaps).max() > 1e-12:  # what is left of equal scores after averaging
        return PairedTest(mean, 0.0, 1.0, 0.0, 1.0, count)
    from scipy.stats import t, wilcoxon  # slow to import, and needed here only

    statistic = mean / _standard_error(gaps, test_share)
    ranked = wilcoxon(gaps)
    p = 2 * float(t.sf(abs(statistic), count - 1))
    return PairedTest(mean, statistic, p, float(ranked.statistic), float(ranked.pvalue), count)


def average_ranks(
    scores: Mapping[str, Mapping[str, float]], ties: Literal["average", "min"] = "average"
) -> dict[str, float]:
    """The rank of each model among all, averaged over datasets; 1 is the best.

    A model is ranked on the datasets that it has a score on, as the paper does.

    Args:
        scores: Mean score by model and dataset; NaN counts as no score.
        ties: What models with the same score get: `"average"`, the mean of their ranks, or `"min"`, the best of them,
            which is what the paper's own table has.
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
    for split, _, score in map(_place, runs):
        by_split.setdefault(split, []).append(score)
    return {split: float(np.mean(by_split[split])) for split in sorted(by_split)}


def _place(run: Scored) -> tuple[int, int, float]:
    return run if isinstance(run, tuple) else (run.replica.split, run.replica.seed, run.test)


def _differences(runs: Sequence[Scored], others: Sequence[Scored]) -> dict[tuple[int, int], float]:
    first, second = ({(split, seed): score for split, seed, score in map(_place, each)} for each in (runs, others))
    if not first or first.keys() != second.keys():
        raise ValueError(
            f"runs and others must be of the same splits and seeds, got {sorted(first)} and {sorted(second)}"
        )
    if len(first) < len(runs) or len(second) < len(others):
        raise ValueError("runs and others must hold each split and seed once, got some more often")
    return {place: first[place] - second[place] for place in first}


def _standard_error(gaps: Floats, test_share: float | None) -> float:
    """Of the mean of the differences; `test_share` is what the training sets of random splits have in common."""
    spread = max(float(gaps.var(ddof=1)), np.finfo(np.float64).tiny)
    return math.sqrt(spread * (1 / gaps.size + (test_share or 0.0)))


def _summary(scores: list[tuple[int, float]]) -> Summary:
    values = np.array([score for _, score in scores])
    low, high = bootstrap_interval(list(split_means([(split, 0, score) for split, score in scores]).values()))
    std = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Summary(float(values.mean()), std, low, high, values.size)
