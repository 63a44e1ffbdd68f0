"""Means, standard deviations, intervals, paired tests and ranks, each against SciPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gfgn.train import Replica, Run, difference, summarize
from gfgn.train.statistics import (
    TEST_SHARE,
    average_ranks,
    best_interval,
    dataset_ranks,
    estimate,
    estimate_difference,
    holm,
    paired_test,
    rank_intervals,
    split_means,
)


def run(split: int, seed: int, test: float) -> Run:
    return Run(
        replica=Replica(split, seed),
        model="mlp",
        val=0.0,
        test=test,
        epoch=0,
        epochs=1,
        history={},
        seconds=0.0,
        num_parameters=1,
    )


def test_summary() -> None:
    summary = summarize([run(0, 0, 0.6), run(1, 0, 0.8), run(2, 0, 0.7)])
    assert summary.mean == pytest.approx(0.7)
    assert summary.std == pytest.approx(0.1)
    assert summary.runs == 3
    alone = summarize([run(0, 0, 0.6), run(0, 1, 0.8)])
    assert (alone.mean, alone.runs) == (pytest.approx(0.7), 2)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_difference_is_paired() -> None:
    ours = [run(0, 0, 0.7), run(1, 0, 0.9)]
    theirs = [run(1, 0, 0.8), run(0, 0, 0.6)]
    gain = difference(ours, theirs)
    assert gain.mean == gain.low == gain.high == pytest.approx(0.1)
    assert gain.std == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="of the same splits and seeds"):
        difference(ours, theirs[:1])


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="runs must hold at least one run"):
        summarize([])
    for share in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"test_share must be a finite number, 0 or larger, got {share}"):
            summarize([(0, 0, 0.5), (1, 0, 0.6)], share)


@pytest.mark.parametrize("size", [2, 5, 10, 40])
def test_interval_of_independent_splits_against_scipy(size: int) -> None:
    values = np.random.default_rng(size).normal(0.8, 0.05, size)
    summary = summarize([(split, 0, value) for split, value in enumerate(values)], test_share=0.0)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (summary.low, summary.high) == pytest.approx((theirs.low, theirs.high))


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.floats(0, 2))
def test_interval_is_around_the_mean_and_wider_for_overlapping_splits(values: list[float], share: float) -> None:
    runs = [(split, 0, value) for split, value in enumerate(values)]
    plain, corrected = summarize(runs, 0.0), summarize(runs, share)
    factor = math.sqrt((1 / len(values) + share) * len(values))
    assert (corrected.low + corrected.high) / 2 == pytest.approx(np.mean(values), abs=1e-9)
    assert corrected.high - corrected.low == pytest.approx(factor * (plain.high - plain.low), abs=1e-9)
    assert summarize(runs) == summarize(runs, TEST_SHARE)


def test_summary_against_scipy() -> None:
    scores = np.random.default_rng(0).normal(0.8, 0.05, (6, 3))
    summary = summarize([(split, seed, scores[split, seed]) for split in range(6) for seed in range(3)])
    described = stats.describe(scores.ravel())
    assert summary.mean == pytest.approx(described.mean)
    assert summary.std == pytest.approx(math.sqrt(described.variance))
    assert summary.runs == described.nobs
    error = stats.sem(scores.mean(1)) * math.sqrt(1 + 6 * TEST_SHARE)
    assert (summary.low, summary.high) == pytest.approx(stats.t.interval(0.95, 5, described.mean, error))


def draws(seed: int, shift: float, splits: int, seeds: int = 2) -> list[tuple[int, int, float]]:
    values = np.random.default_rng(seed).normal(0.8 + shift, 0.05, (splits, seeds))
    return [(split, number, float(values[split, number])) for split in range(splits) for number in range(seeds)]


@pytest.mark.parametrize("splits", [2, 3, 10, 60])
def test_paired_test_against_scipy(splits: int) -> None:
    ours, theirs = draws(0, 0.02, splits), draws(1, 0.0, splits)
    result = paired_test(ours[::-1], theirs, test_share=0.0)
    first, second = list(split_means(ours).values()), list(split_means(theirs).values())
    t = stats.ttest_rel(first, second)
    assert result.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert (result.t, result.t_p) == pytest.approx((t.statistic, t.pvalue))
    assert result.splits == splits
    assert paired_test(theirs, ours, 0.0).t == pytest.approx(-result.t)
    assert paired_test(theirs, ours, 0.0).t_p == pytest.approx(result.t_p)


def test_correction_for_overlapping_splits() -> None:
    """After Nadeau and Bengio: 1/k + c instead of 1/k; c is less for differences."""
    ours, theirs = draws(0, 0.05, 10), draws(1, 0.0, 10)
    means = np.array(list(split_means(ours).values()))
    half = stats.t.ppf(0.975, 9) * means.std(ddof=1) * math.sqrt(1 / 10 + 0.5)
    assert summarize(ours, test_share=0.5).high - means.mean() == pytest.approx(half)
    others = np.array(list(split_means(theirs).values()))
    share = 0.5 * min(1, (means - others).var() / (means.var() + others.var()))
    plain, corrected = paired_test(ours, theirs, test_share=0.0), paired_test(ours, theirs, test_share=0.5)
    assert corrected.t == pytest.approx(plain.t * math.sqrt((1 / 10) / (1 / 10 + share)))
    assert corrected.t_p == pytest.approx(2 * stats.t.sf(abs(corrected.t), 9))
    assert corrected.t_p > plain.t_p
    assert paired_test(ours, theirs) == paired_test(ours, theirs, TEST_SHARE)
    with pytest.raises(ValueError, match="test_share must be a finite number, 0 or larger, got -1"):
        paired_test(ours, theirs, test_share=-1)


def test_nothing_is_corrected_that_cancels() -> None:
    """Two models that differ by the same noise on every split are as good as independent splits; a model that is
    compared with a constant has the interval of its score."""
    ours, noise = draws(0, 0.0, 10, 1), draws(1, -0.8, 10, 1)
    theirs = [(split, seed, score + 1e-4 * shift[2]) for (split, seed, score), shift in zip(ours, noise, strict=True)]
    assert difference(ours, theirs).high == pytest.approx(difference(ours, theirs, 0.0).high, abs=1e-8)
    gap, score = difference(ours, [(split, seed, 0.5) for split, seed, _ in ours]), summarize(ours)
    assert (gap.low, gap.high) == pytest.approx((score.low - 0.5, score.high - 0.5))


@pytest.mark.parametrize("splits", [2, 5, 10])
def test_the_interval_excludes_0_where_the_test_is_significant(splits: int) -> None:
    ours, theirs = draws(0, 0.0, splits), draws(1, 0.0, splits)
    for shift in np.linspace(-0.5, 0.5, 41):
        moved = [(split, seed, score + shift) for split, seed, score in ours]
        gap, test = difference(moved, theirs, 0.25), paired_test(moved, theirs, 0.25)
        assert (gap.low > 0 or gap.high < 0) == (test.t_p < 0.05)


def test_degenerate_cases_of_the_paired_test() -> None:
    alone = paired_test([(0, 0, 0.7), (0, 1, 0.9)], [(0, 0, 0.5), (0, 1, 0.5)])
    assert alone.mean == pytest.approx(0.3)
    assert math.isnan(alone.t_p)
    same = draws(0, 0.0, 5)
    assert paired_test(same, same) == (0.0, 0.0, 1.0, 5)
    constant = paired_test([(split, 0, 0.75) for split in range(6)], [(split, 0, 0.5) for split in range(6)])
    assert constant.t > 1e6
    assert constant.t_p < 1e-12
    with pytest.raises(ValueError, match="of the same splits and seeds"):
        paired_test(same, same[:-1])
    with pytest.raises(ValueError, match="each split and seed once"):
        difference([*same, same[0]], same)


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=6))
def test_ranks_against_scipy(table: list[list[int]]) -> None:
    names = [f"model {k}" for k in range(len(table))]
    scores = {
        name: dict(zip("abc", map(float, values), strict=True)) for name, values in zip(names, table, strict=True)
    }
    expected = stats.rankdata(-np.array(table), axis=0).mean(1)
    assert average_ranks(scores) == pytest.approx(dict(zip(names, expected, strict=True)))


def test_a_model_is_ranked_on_datasets_with_a_score() -> None:
    scores = {"a": {"x": 0.9, "y": 0.1}, "b": {"x": 0.8}, "c": {"x": 0.7, "y": float("nan"), "z": 0.5}}
    assert average_ranks(scores) == {"a": 1.0, "b": 2.0, "c": 2.0}
    with pytest.raises(ValueError, match="scores must hold a score of every model, got none of b"):
        average_ranks({"a": {"x": 0.9}, "b": {"x": float("nan")}})
    with pytest.raises(ValueError, match="ties must be 'average' or 'min', got 'max'"):
        average_ranks(scores, ties="max")  # type: ignore[arg-type]


# --- several tests, the best of several, and ranks over graphs --------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_against_its_definition(p_values: list[float]) -> None:
    """Stepping down: the hypothesis with the k-th smallest p-value is rejected if all up to it pass α / (m − k + 1)."""
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, index in enumerate(np.argsort(p_values, kind="stable")):
            if (len(p_values) - rank) * p_values[index] > alpha:
                break
            rejected.add(int(index))
        assert rejected == {index for index, p in enumerate(adjusted) if p <= alpha}


def test_estimates_against_scipy() -> None:
    values, others = np.random.default_rng(0).normal(size=(2, 8))
    mean = estimate(values.tolist(), test_share=0)
    assert mean.p_above(0.3) == pytest.approx(stats.ttest_1samp(values, 0.3, alternative="greater").pvalue)
    assert mean.p_below(0.3) == pytest.approx(stats.ttest_1samp(values, 0.3, alternative="less").pvalue)
    low, high = mean.interval()
    assert mean.p_above(low) == pytest.approx(0.025)
    assert mean.p_below(high) == pytest.approx(0.025)
    runs, rest = ([(split, 0, float(v)) for split, v in enumerate(each)] for each in (values, others))
    gap = estimate_difference(runs, rest, 0.25)
    assert gap.interval() == pytest.approx(difference(runs, rest, 0.25)[2:4])
    assert 2 * min(gap.p_above(), gap.p_below()) == pytest.approx(paired_test(runs, rest, 0.25).t_p)
    assert estimate_difference(runs, rest, 0.25, canceling=False).error >= gap.error
    apart = mean - estimate(others.tolist(), test_share=0)
    assert apart.error == pytest.approx(math.sqrt(values.var(ddof=1) / 8 + others.var(ddof=1) / 8))
    for call in (lambda: estimate([1.0]), lambda: estimate_difference(runs[:1], rest[:1])):
        with pytest.raises(ValueError, match="two or more splits"):
            call()


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize(("models", "ahead"), [(3, 0.0), (8, 0.0), (3, 3.0)])
def test_the_best_of_several_is_covered(models: int, ahead: float, correlation: float) -> None:
    """Of equally good models, the interval of the one with the best mean is too high; `best_interval` is not."""
    draw, truths = np.random.default_rng(models), np.zeros(models)
    truths[0] = ahead
    picked = covered = 0
    times = 2000
    for _ in range(times):
        values = truths + math.sqrt(1 - correlation) * draw.normal(size=(10, models))
        values += math.sqrt(correlation) * draw.normal(size=(10, 1))
        estimates = [estimate(column.tolist(), test_share=0) for column in values.T]
        low, high = best_interval(estimates)
        covered += low <= ahead <= high
        low, high = max(estimates, key=lambda each: each.mean).interval()
        picked += low <= ahead <= high
    assert covered / times >= 0.94
    if models == 8 and not correlation:
        assert picked / times < 0.86
    if ahead:
        assert covered / times <= 0.985  # not wider than it has to be where one model is clearly the best


def test_rank_intervals() -> None:
    scores = {"a": dict.fromkeys("xyz", 0.9), "b": dict.fromkeys("xyz", 0.8), "c": {"x": 0.95, "y": 0.1}}
    assert dataset_ranks(scores) == {
        "a": {"x": 2.0, "y": 1.0, "z": 1.0},
        "b": {"x": 3.0, "y": 2.0, "z": 2.0},
        "c": {"x": 1.0, "y": 3.0},
    }
    intervals = rank_intervals(scores)
    assert intervals["a"] == (1.0, 2.0)
    assert intervals["c"] == (1.0, 3.0)
    assert rank_intervals(scores) == intervals
    same = {"a": dict.fromkeys("xyz", 0.9), "b": dict.fromkeys("xyz", 0.8)}
    assert rank_intervals(same) == {"a": (1.0, 1.0), "b": (2.0, 2.0)}


def test_coverage_of_rank_intervals_of_nine_graphs() -> None:
    """As the docstring says: too narrow, but not by much."""
    draw, times, covered = np.random.default_rng(0), 200, 0
    lead = np.array([0.0, 0.3, 0.6, 0.9])
    truth = np.mean([stats.rankdata(-(lead + row))[0] for row in draw.normal(size=(10_000, 4))])
    for _ in range(times):
        table = lead[:, None] + draw.normal(size=(4, 9))
        scores = {str(k): {str(g): float(v) for g, v in enumerate(row)} for k, row in enumerate(table)}
        low, high = rank_intervals(scores, resamples=300)["0"]
        covered += low <= truth <= high
    assert 0.84 <= covered / times <= 0.96
