"""Means, spreads and bootstrap intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfgn.train import Replica, Run, bootstrap_interval, difference, summarize


def run(split: int, seed: int, test: float) -> Run:
    return Run(Replica(split, seed), "mlp", 0.0, test, 0, {}, 0.0, 1)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_interval_holds_the_mean_and_stays_inside(values: list[float]) -> None:
    low, high = bootstrap_interval(values)
    slack = 1e-9
    assert min(values) - slack <= low <= np.mean(values) + slack
    assert np.mean(values) - slack <= high <= max(values) + slack


def test_interval_covers_about_as_often_as_it_says() -> None:
    """Of normal samples of 20, a percentile bootstrap of 95% covers a little less: 92 to 94 in 100."""
    draw = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_interval(draw.normal(size=20).tolist())
        covered += low <= 0 <= high
    assert 0.87 <= covered / 200 <= 0.98


def test_a_lower_level_is_narrower_and_the_result_repeats() -> None:
    values = [0.1, 0.5, 0.3, 0.9]
    wide, narrow = bootstrap_interval(values), bootstrap_interval(values, level=0.5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert bootstrap_interval(values) == wide


def test_summary() -> None:
    summary = summarize([run(0, 0, 0.6), run(1, 0, 0.8), run(2, 0, 0.7)])
    assert summary.mean == pytest.approx(0.7)
    assert summary.std == pytest.approx(0.1)
    assert summary.runs == 3
    assert summarize([run(0, 0, 0.6)]) == (0.6, 0.0, 0.6, 0.6, 1)


def test_seeds_of_a_split_are_not_independent() -> None:
    """Ten seeds on two splits say as much on the mean over splits as one seed on each."""
    once = summarize([run(0, 0, 0.6), run(1, 0, 0.8)])
    often = summarize([run(split, seed, (0.6, 0.8)[split]) for split in range(2) for seed in range(10)])
    assert (once.low, once.high) == pytest.approx((often.low, often.high))


def test_difference_is_paired() -> None:
    ours = [run(0, 0, 0.7), run(1, 0, 0.9)]
    theirs = [run(1, 0, 0.8), run(0, 0, 0.6)]
    gain = difference(ours, theirs)
    assert gain.mean == gain.low == gain.high == pytest.approx(0.1)
    assert gain.std == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="of the same splits and seeds"):
        difference(ours, theirs[:1])


def test_bad_values() -> None:
    with pytest.raises(ValueError, match="values must be a non-empty sequence of finite numbers"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="values must be a non-empty sequence of finite numbers"):
        bootstrap_interval([0.1, float("nan")])
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        bootstrap_interval([0.1], level=95)
    with pytest.raises(ValueError, match="runs must hold at least one run"):
        summarize([])
