"""Statistics of runs: mean and standard deviation, bootstrap intervals over splits, paired tests, and average ranks.

A run is a `Run`, a row of a store or a plain `(split, seed, score)`. Seeds of one split share their test nodes and are
not independent: they are averaged before statistics over splits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from gfgn.data.streams import Stream
from gfgn.train.replica import Replica

RESAMPLES = 10_000


class Tested(Protocol):
    """A finished run: a `Run`, or a row of a store."""

    @property
    def replica(self) -> Replica: ...
    @property
    def test(self) -> float: ...


Scored = Tested | tuple[int, int, float]  # or split, seed and score


class Summary(NamedTuple):
    """Mean, sample standard deviation, bootstrap interval of the mean, and number of runs."""

    mean: float
    std: float
    low: float
    high: float
    runs: int


def in_percent(mean: float, std: float, runs: int, digits: int = 1) -> str:
    """Mean ± standard deviation in percent; the mean only for a single run."""
    return f"{100 * mean:.{digits}f}" + (f" ± {100 * std:.{digits}f}" if runs > 1 else "")


class PairedTest(NamedTuple):
    """Paired tests of one model against another over splits.

    Attributes:
        mean: Mean difference of the scores, averaged over the seeds of a split.
        t, t_p: Statistic and two-sided p-value of the paired t-test.
        w, w_p: Statistic and two-sided p-value of the Wilcoxon signed-rank test.
        splits: Number of splits.
    """

    mean: float
    t: float
    t_p: float
    w: float
    w_p: float
    splits: int


def bootstrap_interval(values: Sequence[float], level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of `values`, one per split; of a single value, that value twice."""
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
    values = np.array([score for _, _, score in map(_as_tuple, runs)])
    low, high = bootstrap_interval(list(split_means(runs).values()))
    std = float(values.std(ddof=1)) if values.size > 1 else 0.0
    return Summary(float(values.mean()), std, low, high, values.size)


def difference(runs: Sequence[Scored], others: Sequence[Scored]) -> Summary:
    """Summary of the test scores of `runs` minus those of `others`, paired by split and seed."""
    return summarize(_differences(runs, others))


def paired_test(runs: Sequence[Scored], baseline: Sequence[Scored], test_share: float | None = None) -> PairedTest:
    """Tests the test scores of `runs` against those of `baseline`, paired over splits.

    P-values are NaN with a single split, and 1 if all differences are 0.

    Args:
        runs: Runs of one model.
        baseline: Runs of another model with the same splits and seeds.
        test_share: Number of test nodes over number of training nodes. The plain t-test assumes independent splits,
            but random splits of one graph overlap; with this ratio its variance is corrected after Nadeau and Bengio
            (2003). The Wilcoxon test is not corrected.
    """
    if test_share is not None and not (math.isfinite(test_share) and test_share >= 0):
        raise ValueError(f"test_share must be a finite number, 0 or larger, got {test_share}")
    gaps = np.array(list(split_means(_differences(runs, baseline)).values()))
    mean, count = float(gaps.mean()), gaps.size
    if count < 2:
        return PairedTest(mean, math.nan, math.nan, math.nan, math.nan, count)
    if not np.abs(gaps).max() > 1e-12:  # rounding errors of equal scores
        return PairedTest(mean, 0.0, 1.0, 0.0, 1.0, count)
    from scipy.stats import t, wilcoxon  # slow to import

    spread = max(float(gaps.var(ddof=1)), np.finfo(np.float64).tiny)
    statistic = mean / math.sqrt(spread * (1 / count + (test_share or 0.0)))
    ranked = wilcoxon(gaps)
    p = 2 * float(t.sf(abs(statistic), count - 1))
    return PairedTest(mean, statistic, p, float(ranked.statistic), float(ranked.pvalue), count)


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
