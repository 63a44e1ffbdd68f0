"""Bounds on reruns: the spread over seeds, how often honest reruns fail, and the sample."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runs.stores import row

from gfgn.paper.bounds import FALSE_ALARM, LARGEST_SPREAD, Difference, Group, Spread, quantile, run_bound, spread_of
from gfgn.paper.retrain import MEASURES, WORK, CellRuns, Pick, compare, draw_further, draw_sample
from gfgn.runs import Row
from gfgn.runs.study import Cell
from gfgn.train import TrainConfig

NODES = 1000


def make_rows(generator: np.random.Generator, sigma: float, seeds: int = 10, **hyper: Any) -> list[Row]:
    """Runs on ten splits, each with a mean of its own."""
    means = 0.8 + 0.05 * generator.standard_normal(10)
    noise = sigma * generator.standard_normal((2, 10, seeds))
    return [
        row(split, seed, val=means[split] + noise[0, split, seed], test=means[split] + noise[1, split, seed], **hyper)
        for split in range(10)
        for seed in range(seeds)
    ]


def make_cell(generator: np.random.Generator, sigma: float = 0.01, dataset: str = "toy") -> CellRuns:
    chosen, others = make_rows(generator, sigma), make_rows(generator, sigma, 1, lr=0.5)
    nodes = dict.fromkeys(MEASURES, NODES)
    return CellRuns(Cell(dataset, "gfgn-graph"), dataset, TrainConfig(5, 5), tuple(chosen), tuple(others), nodes)


def test_the_spread_is_that_of_seeds_not_of_splits() -> None:
    generator = np.random.default_rng(0)
    spread = spread_of(make_rows(generator, 0.01, 200), "test", NODES)
    assert spread.sigma == pytest.approx(0.01, rel=0.05)
    assert spread.degrees == 10 * 199
    one_seed = [each for lr in (0.1, 0.2, 0.3) for each in make_rows(np.random.default_rng(1), 0.0, 1, lr=lr)]
    noisy = [replace(each, test=each.test + 0.01 * generator.standard_normal()) for each in one_seed]
    spread = spread_of(noisy, "test", NODES)
    assert spread.degrees == 2 * 9
    assert 0.005 < spread.sigma < 0.02


def test_the_spread_is_at_least_one_node_and_at_most_that_of_few_draws() -> None:
    same = [row(split, seed, test=0.5) for split in range(10) for seed in range(10)]
    assert spread_of(same, "test", 100) == Spread(0.01, 90)
    wild = [replace(each, test=0.5 + 0.4 * (-1) ** each.replica.seed) for each in same]
    largest = math.hypot(LARGEST_SPREAD * math.sqrt(0.25 / 100), 0.01)
    assert spread_of(wild, "test", 100) == Spread(pytest.approx(largest), 90)
    assert spread_of(same[:3], "test", 100) == Spread(pytest.approx(largest), math.inf)  # too few to say


def test_quantiles_and_bounds() -> None:
    from scipy import stats

    assert quantile(math.inf, 1e-4) == pytest.approx(stats.norm.isf(5e-5))
    assert quantile(90, 1e-4) == pytest.approx(stats.t.isf(5e-5, 90))
    alarm = FALSE_ALARM / 2 / (5000 * 2)
    assert run_bound(Spread(0.01, 90), 5000) == pytest.approx(math.sqrt(2) * 0.01 * stats.t.isf(alarm / 2, 90))


def test_groups_have_unit_variance_if_reruns_are_other_seeds() -> None:
    """Also if several reruns are compared with the mean of the same split."""
    generator, sigma, sums = np.random.default_rng(3), 0.02, []
    for _ in range(4000):
        recorded = sigma * generator.standard_normal((3, 10)).mean(1)
        reruns = [(split, sigma * generator.standard_normal()) for split in (0, 0, 0, 1, 2, 2)]
        spread = Spread(sigma, 90)
        sums.append(Group([Difference(x - recorded[k], spread, 10, k) for k, x in reruns]).standardized)
    assert np.std(sums) == pytest.approx(1, abs=0.04)
    assert np.mean(sums) == pytest.approx(0, abs=0.05)


def rerun(pick: Pick, generator: np.random.Generator, shift: float = 0.0) -> Any:
    """A run as another seed of the split would be."""
    like = pick.runs.like(pick.row, pick.chosen)
    scores = {m: np.mean([getattr(r, m) for r in like]) + 0.01 * generator.standard_normal() for m in MEASURES}
    return SimpleNamespace(diverged=False, num_parameters=17, val=scores["val"], test=scores["test"] - shift)


@pytest.mark.parametrize(("shift", "found"), [(0.0, 0), (0.03, 20)])
def test_honest_reruns_pass_and_a_shifted_cell_does_not(shift: float, found: int, monkeypatch: Any) -> None:
    monkeypatch.setattr("gfgn.paper.retrain.versions", dict)
    failed = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        cells, sizes = {"toy": [make_cell(generator) for _ in range(2)]}, {"toy": WORK // 12}
        made = [(pick, rerun(pick, generator, shift)) for pick in draw_sample(cells, sizes, seed, False)]
        compared = compare(made, 220, "cpu")
        made += [(pick, rerun(pick, generator, shift)) for pick in draw_further(compared, sizes, seed)]
        failed += bool(compare(made, 220, "cpu").problems)
    assert failed == found


def test_a_sample_has_every_cell_and_no_run_twice() -> None:
    generator = np.random.default_rng(0)
    cells = {name: [make_cell(generator, dataset=name) for _ in range(3)] for name in ("small", "large")}
    sizes = {"small": WORK // 12, "large": 10 * WORK}
    picks = draw_sample(cells, sizes, 1, False)
    small, large = ([pick for pick in picks if pick.runs.data == name] for name in ("small", "large"))
    assert [len(small), len(large)] == [12 + 2, 1 + 2]  # at random, and those that stand out
    assert sum(pick.what_for == "sample" for pick in small) == 12
    for runs in cells["small"]:
        own = [pick for pick in small if pick.runs is runs and pick.what_for == "sample"]
        assert [pick.chosen for pick in own] == [True, False, True, True]
        assert len({pick.row.replica.split for pick in own if pick.chosen}) == 3
    assert picks == draw_sample(cells, sizes, 1, False)
    assert picks != draw_sample(cells, sizes, 2, False)
    full = draw_sample(cells, sizes, 1, True)
    for runs in cells["large"]:
        assert sorted(pick.chosen for pick in full if pick.runs is runs and pick.what_for == "sample") == [
            False,
            True,
            True,
        ]


def test_the_run_that_stands_out_is_in_the_sample() -> None:
    runs = make_cell(np.random.default_rng(0))
    forged = replace(runs.chosen[57], test=runs.chosen[57].test + 0.08)
    honest, runs = runs, replace(runs, chosen=(*runs.chosen[:57], forged, *runs.chosen[58:]))
    elsewhere = [each.spread_elsewhere(forged, True, "test") for each in (honest, runs)]
    assert elsewhere[0] == elsewhere[1]
    assert runs.spreads[True, "test"].sigma > 1.1 * elsewhere[0].sigma  # which would hide it
    assert elsewhere[0].degrees == 9 * 9
    for seed in range(5):
        picks = draw_sample({"toy": [runs]}, {"toy": 10 * WORK}, seed, False)
        assert forged.key in {pick.row.key for pick in picks}


def test_a_suspicious_cell_gets_more_runs(monkeypatch: Any) -> None:
    """A shift of two standard deviations is not beyond the bound of a single run, but beyond that of many."""
    monkeypatch.setattr("gfgn.paper.retrain.versions", dict)
    generator = np.random.default_rng(1)
    cells, sizes = {"toy": [make_cell(generator)]}, {"toy": WORK // 3}
    made = [(pick, rerun(pick, generator, 0.02)) for pick in draw_sample(cells, sizes, 0, False)]
    compared = compare(made, 110, "cpu")
    assert compared.problems == []
    assert (cells["toy"][0], True) in compared.suspicious
    further = draw_further(compared, sizes, 0)
    assert not {pick.row.key for pick in further} & compared.keys
    compared = compare(made + [(pick, rerun(pick, generator, 0.02)) for pick in further], 110, "cpu")
    assert any("chosen configuration: the mean test score of" in line for line in compared.problems)
