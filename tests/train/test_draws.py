"""Statistics over draws of random edges, against a textbook formula and a simulation."""

import math

import numpy as np
import pytest
from scipy.stats import t

from gfgn.train.draws import difference_draws, summarize_draws
from gfgn.train.statistics import TEST_SHARE, estimate_difference, summarize

Runs = list[tuple[int, int, float]]


def table(scores: np.ndarray) -> list[Runs]:
    """Runs by draw, from scores by draw, split and seed."""
    return [[(s, r, float(row[s, r])) for s in range(row.shape[0]) for r in range(row.shape[1])] for row in scores]


def crossed(rng: np.random.Generator, splits: int, draws: int, by_split: float, by_draw: float) -> np.ndarray:
    """Scores with effects of split, draw and both, two seeds each."""
    effects = by_split * rng.normal(size=(1, splits, 1)) + by_draw * rng.normal(size=(draws, 1, 1))
    return effects + 0.5 * rng.normal(size=(draws, splits, 1)) + 0.3 * rng.normal(size=(draws, splits, 2))


def test_one_draw_is_the_summary_of_its_runs() -> None:
    one, other = (table(np.random.default_rng(k).normal(size=(1, 4, 3))) for k in (0, 1))
    assert summarize_draws(one, 0.2) == summarize(one[0], 0.2)
    for canceling in (True, False):
        assert difference_draws(one, other, 0.2, canceling=canceling) == estimate_difference(
            one[0], other[0], 0.2, canceling=canceling
        )


@pytest.mark.parametrize("share", [0.0, None])
def test_the_interval_is_that_of_two_crossed_factors(share: float | None) -> None:
    scores = crossed(np.random.default_rng(2), 6, 4, 1.0, 2.0)
    made, cells = summarize_draws(table(scores), share), scores.mean(axis=2)
    overlap = TEST_SHARE if share is None else share
    split = cells.mean(axis=0).var(ddof=1) * (1 / 6 + overlap)
    draw = cells.mean(axis=1).var(ddof=1) / 4
    freedom = (split + draw) ** 2 / (split**2 / 5 + draw**2 / 3)
    half = t.ppf(0.975, freedom) * math.sqrt(split + draw)
    assert made.mean == pytest.approx(scores.mean())
    assert (made.low, made.high) == pytest.approx((scores.mean() - half, scores.mean() + half))
    assert (made.std, made.runs) == pytest.approx((scores.std(ddof=1), scores.size))


def test_differences_are_paired_by_draw() -> None:
    """What two models have in common, also the effect of a draw, cancels."""
    rng = np.random.default_rng(3)
    scores = crossed(rng, 5, 5, 1.0, 3.0)
    other = scores - 1 + 0.01 * rng.normal(size=scores.shape)
    gap = difference_draws(table(scores), table(other))
    assert gap.mean == pytest.approx((scores - other).mean())
    assert 0 < gap.error < 0.01
    same = difference_draws(table(scores), table(scores))
    assert (same.mean, same.error) == (0, 0)


def test_differences_cover_the_choice_of_draws() -> None:
    """Against the textbook formula for two crossed factors; degrees of freedom are rounded down."""
    rng = np.random.default_rng(5)
    scores, other = crossed(rng, 6, 4, 1.0, 2.0), crossed(rng, 6, 4, 1.0, 2.0)
    gap, cells = difference_draws(table(scores), table(other), 0.25, canceling=False), (scores - other).mean(axis=2)
    split, draw = cells.mean(axis=0).var(ddof=1) * (1 / 6 + 0.25), cells.mean(axis=1).var(ddof=1) / 4
    freedom = (split + draw) ** 2 / (split**2 / 5 + draw**2 / 3)
    assert gap == pytest.approx((cells.mean(), math.sqrt(split + draw), math.floor(freedom) + 1))


@pytest.mark.parametrize(("by_split", "by_draw"), [(1.0, 0.0), (0.2, 2.0), (1.0, 1.0)])
def test_intervals_cover(by_split: float, by_draw: float) -> None:
    """Independent splits: about 95% of the intervals hold the truth, also where draws differ most."""
    rng, hits = np.random.default_rng(4), []
    for _ in range(400):
        made = summarize_draws(table(crossed(rng, 10, 5, by_split, by_draw)), 0.0)
        hits.append(made.low <= 0 <= made.high)
    assert 0.92 <= np.mean(hits) <= 0.995


def test_draws_that_cannot_be_compared() -> None:
    runs = table(np.zeros((2, 3, 2)))
    with pytest.raises(ValueError, match="the same splits and seeds"):
        summarize_draws([runs[0], runs[1][:-1]])
    with pytest.raises(ValueError, match="as many, got 2 and 1"):
        difference_draws(runs, runs[:1])
