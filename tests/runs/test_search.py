"""Searches draw from their distributions, stop poor configurations, and rank the rest by validation scores."""

import math
from collections import Counter

import numpy as np
import pytest
from runs.stores import Recorder

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import (
    Choice,
    LogUniform,
    Store,
    Uniform,
    grid,
    make_replicas,
    random_search,
    sample,
    successive_halving,
    train_missing,
)
from gfgn.runs.selection import HalvingState, default_rungs
from gfgn.train import Replica, TrainConfig

OWN_SPACE = {"lr": LogUniform(1e-3, 1e-1), "dropout": Uniform(0.2, 0.8), "hidden": Choice((16, 32))}
QUICK = TrainConfig(6, 6)


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=3)


def test_draws_follow_their_distributions() -> None:
    drawn = sample(OWN_SPACE, 4000, seed=1)
    logs = np.log10([each["lr"] for each in drawn])
    assert -3 <= logs.min() < -2.95
    assert -1.05 < logs.max() <= -1
    assert np.histogram(logs, 4, (-3, -1))[0] == pytest.approx([1000] * 4, rel=0.1)
    rates = [each["dropout"] for each in drawn]
    assert np.histogram(rates, 3, (0.2, 0.8))[0] == pytest.approx([1333] * 3, rel=0.1)
    assert Counter(each["hidden"] for each in drawn)[16] == pytest.approx(2000, rel=0.1)
    assert abs(np.corrcoef(logs, rates)[0, 1]) < 0.06


def test_a_larger_draw_begins_with_the_same_configurations() -> None:
    assert sample(OWN_SPACE, 5) == sample(dict(reversed(OWN_SPACE.items())), 9)[:5]
    assert sample(OWN_SPACE, 5, seed=1) != sample(OWN_SPACE, 5)
    alone = sample({"lr": OWN_SPACE["lr"]}, 5)
    assert [each["lr"] for each in sample(OWN_SPACE, 5)] == [each["lr"] for each in alone]
    quantiles = sample({name: Uniform(0.0, 1.0) for name in ("a", "b")}, 200)
    assert abs(np.corrcoef([list(each.values()) for each in quantiles], rowvar=False)[0, 1]) < 0.2
    assert all(float(f"{each['lr']:.4g}") == each["lr"] for each in sample(OWN_SPACE, 20))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1, 1), "low and high must be finite and low must be smaller, got 1 and 1"),
        (lambda: LogUniform(0, 1), "low must be above 0, got 0"),
        (lambda: LogUniform(1, math.inf), "low and high must be finite"),
        (lambda: Choice(()), r"values must be a tuple of one or more values, got \(\)"),
        (lambda: sample(OWN_SPACE, 0), "count must be 1 or larger, got 0"),
        (lambda: sample({}, 1), "space must name one or more of lr, weight_decay, dropout, lam"),
    ],
)
def test_bad_spaces(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_random_search_trains_what_is_missing(data: NodeDataset) -> None:
    recorder = Recorder()
    space = {"lr": LogUniform(1e-3, 1e-1), "dropout": Choice((0.0, 0.5))}
    with Store(":memory:") as store:
        first = random_search(store, data, "mlp", space, 3, range(2), config=QUICK, callback=recorder)
        assert len(recorder.rows) == 6
        more = random_search(store, data, "mlp", space, 4, range(2), config=QUICK, callback=recorder)
        assert len(recorder.rows) == 8
    assert {str(each.configuration) for each in first.candidates} < {
        str(each.configuration) for each in more.candidates
    }
    scores = [each.val for each in more.candidates]
    assert scores == sorted(scores, reverse=True)
    by_lr: dict[float, list[float]] = {}
    for row in recorder.rows:
        by_lr.setdefault(row.replica.lr, []).append(row.val)
    assert more.best["lr"] == max(by_lr, key=lambda lr: np.mean(by_lr[lr]))


# --- successive halving -----------------------------------------------------------------------------------------------


def test_rungs() -> None:
    assert default_rungs(16, 400) == [25, 50, 100, 200]
    assert default_rungs(1000, 400) == [12, 25, 50, 100, 200]  # never before 10 epochs
    assert default_rungs(1, 400) == default_rungs(8, 5) == []


def test_a_race_stops_whole_configurations_by_their_means() -> None:
    replicas = make_replicas("mlp", grid(lr=(0.1, 0.2, 0.3, 0.4)), range(2))
    race = HalvingState(replicas)
    # 0.2 has the single best run and 0.3 the best mean; 0.4 ties with 0.1, and the smaller rate goes on
    scores = {0.1: (0.6, 0.6), 0.2: (0.9, 0.1), 0.3: (0.7, 0.7), 0.4: (0.6, 0.6)}
    kept = race(10, replicas, [scores[each.lr][each.split] for each in replicas])
    assert {each.lr for each, stays in zip(replicas, kept, strict=True) if stays} == {0.1, 0.3}
    assert kept.count(True) == 4
    # one run of 0.3 has finished meanwhile and is not in the list: it still counts
    race.note([Replica(1, lr=0.3)], [0.95])
    left = [Replica(0, lr=0.1), Replica(1, lr=0.1), Replica(0, lr=0.3)]
    assert race(20, left, [0.8, 0.8, 0.7]) == [False, False, True]
    assert race(40, left[2:], [0.7]) == [True]  # the last one is never stopped


def test_halving_keeps_the_best_and_records_what_it_stopped(data: NodeDataset) -> None:
    configurations = grid(lr=(1e-5, 1e-4, 0.02, 0.05))
    config, recorder = TrainConfig(40, 40), Recorder()
    with Store(":memory:") as store:
        selection = successive_halving(
            store, data, "gfgn-graph", configurations, range(3), rungs=[10, 20], config=config, callback=recorder
        )
        assert [each.dropped for each in selection.candidates] == [False, True, True, True]
        assert selection.best["lr"] in (0.02, 0.05)
        epochs = Counter(row.epochs for row in recorder.rows if row.dropped)
        assert epochs == {10: 6, 20: 3}
        assert all(math.isnan(row.test) == row.dropped for row in recorder.rows)
        assert len(store.rows()) == 3
        assert len(store.rows(dropped=True)) == 12
        # runs that were not stopped are the same as without a search
        alone = Store(":memory:")
        (chosen,) = {row.replica.lr for row in store.rows()}
        whole = train_missing(alone, data, "gfgn-graph", make_replicas("gfgn-graph", grid(lr=chosen), range(3)), config)
        assert [(row.key, row.val, row.test) for row in store.rows()] == [(row.key, row.val, row.test) for row in whole]


def test_a_finished_search_is_read_and_an_interrupted_one_starts_again(data: NodeDataset) -> None:
    configurations = grid(lr=(1e-4, 0.02, 0.05))

    def search(store: Store, recorder: Recorder) -> list[float]:
        selection = successive_halving(
            store, data, "gfgn-graph", configurations, [0], rungs=[3], config=QUICK, callback=recorder
        )
        return [each.configuration["lr"] for each in selection.candidates]

    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            search(store, Recorder(stop=1))
        recorder = Recorder()
        first = search(store, recorder)
        assert len(recorder.rows) == 3
        assert search(store, recorder) == first
        assert len(recorder.rows) == 3
        # training the whole grid afterwards trains the stopped runs, and does not change the result of the search
        train_missing(store, data, "gfgn-graph", make_replicas("gfgn-graph", configurations, [0]), QUICK)
        assert len(store.rows()) == 3
        assert search(store, recorder) == first
