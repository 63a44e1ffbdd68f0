"""Comparisons: what they claim, what they keep and read back, what they refuse."""

import dataclasses
import json
from typing import Any

import pytest
from scipy.stats import ttest_rel

from gfgn.data import Dataset, load
from gfgn.data.generators import dimensions
from gfgn.nn.registry import MODELS
from gfgn.runs import ProgressCallback, Row, Store, grid, read_comparisons
from gfgn.runs import comparison as compare
from gfgn.runs.comparison import Plan, make_plan, rank_models, run_comparison
from gfgn.runs.gates import gates_note
from gfgn.train import Replica, Status

QUICK: dict[str, Any] = {"max_epochs": 4, "patience": 4}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dimensions(150, degree=10, splits=3)


class Log(ProgressCallback):
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.rows: list[Row] = []
        self.states: list[Status] = []

    def begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.events.append(("begin", dataset, model, runs, kept))

    def finished(self, row: Row) -> None:
        self.rows.append(row)

    def status(self, status: Status) -> None:
        self.states.append(status)

    def end(self, dataset: str, model: str) -> None:
        self.events.append(("end", dataset, model))


def test_gfgn_is_ahead_of_mlp_and_gcn_by_more_than_the_spread() -> None:
    comparison = compare(load("dimensions"), splits=3)
    summary = comparison.summary()
    assert list(summary) == ["mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"]
    for model in ("gfgn-graph", "gfgn-neighbor", "gfgn-pair"):
        for baseline in ("mlp", "gcn"):
            spread = max(summary[model].std, summary[baseline].std)
            assert summary[model].mean - summary[baseline].mean > spread
        gain = comparison.gain(model)
        assert gain is not None
        assert gain.low > 0


def test_baseline_gain_and_settings(data: Dataset) -> None:
    comparison = compare(data, ["gcn", "mlp", "gfgn-graph"], splits=3, seeds=2, **QUICK)
    summary = comparison.summary()
    best = comparison.best_baseline
    assert best is not None
    assert summary[best].mean == max(summary["mlp"].mean, summary["gcn"].mean)
    gain, tested = comparison.gain("gfgn-graph"), comparison.significance("gfgn-graph")
    assert gain is not None
    assert tested is not None
    assert gain.mean == tested.mean == pytest.approx(summary["gfgn-graph"].mean - summary[best].mean)
    ours, theirs = (
        [sum(row.test for row in comparison.of(model) if row.replica.split == split) / 2 for split in range(3)]
        for model in ("gfgn-graph", best)
    )
    assert tested.t_p == pytest.approx(ttest_rel(ours, theirs).pvalue)
    assert comparison.gain("mlp") is None
    assert "learning rate 0.02, weight decay 0.0005, dropout 0.5, λ 1" in comparison.settings
    assert "at most 4 epochs" in comparison.settings
    assert compare(data, ["gfgn-graph"], splits=1, **QUICK).gain("gfgn-graph") is None


def test_every_run_is_kept_and_none_is_made_twice(data: Dataset) -> None:
    with Store(":memory:") as store:
        first, second = Log(), Log()
        small = compare(data, ["mlp"], splits=2, store=store, callback=first, **QUICK)
        assert first.events == [("begin", "dimensions", "mlp", 2, 0), ("end", "dimensions", "mlp")]
        assert len(first.rows) == len(store) == 2
        assert first.states
        large = compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=2, store=store, callback=second, **QUICK)
        assert second.events[0] == ("begin", "dimensions", "mlp", 4, 2)
        assert second.events[2] == ("begin", "dimensions", "gfgn-graph", 4, 0)
        assert len(second.rows) == 6
        assert len(store) == 8
        assert {row.key for row in small.runs} < {row.key for row in large.runs}
        again = Log()
        assert compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=2, store=store, callback=again, **QUICK) == large
        assert again.rows == []


def test_what_is_finished_survives_an_interruption(data: Dataset) -> None:
    class Stop(ProgressCallback):
        def end(self, dataset: str, model: str) -> None:
            raise KeyboardInterrupt

    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            compare(data, ["mlp", "gcn"], splits=3, store=store, callback=Stop(), **QUICK)
        assert len(store) == 3
        (found,) = read_comparisons(store)
        assert found.models == ("mlp",)
        assert found.incomplete == {"gcn": (0, 3)}
        log = Log()
        whole = compare(data, ["mlp", "gcn"], splits=3, store=store, callback=log, **QUICK)
        assert [row.model for row in log.rows] == ["gcn"] * 3
        assert whole.incomplete == {}


# --- tuned ------------------------------------------------------------------------------------------------------------

CHOICES = grid(lr=(1e-4, 0.05), lam=(1.0, 2.0))


def test_every_model_is_tuned_by_validation(data: Dataset) -> None:
    with Store(":memory:") as store:
        log = Log()
        settings: dict[str, Any] = {"grid": CHOICES, "max_epochs": 20}
        comparison = compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=3, store=store, callback=log, **settings)
        # four configurations, two where λ means nothing, on two splits; then two more seeds of the chosen one
        assert [event[3:] for event in log.events if event[0] == "begin"] == [(2 * 2 + 4, 0), (4 * 2 + 4, 0)]
        assert len(store) == len(log.rows) == 20
        for model, candidates in (("mlp", 2), ("gfgn-graph", 4)):
            selection = comparison.selections[model]
            assert len(selection.candidates) == candidates
            assert selection.best["lr"] == 0.05
            rows = comparison.of(model)
            assert {(row.replica.split, row.replica.seed) for row in rows} == {
                (k, s) for k in range(2) for s in range(3)
            }
            assert {json.dumps(row.replica.configuration) for row in rows} == {json.dumps(selection.best)}
            assert comparison.configuration(model) == selection.best
        assert "grid of 4 (learning rate 0.0001 or 0.05; λ 1 or 2)" in comparison.settings
        assert read_comparisons(store) == [comparison]
        once_more = Log()
        compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=3, store=store, callback=once_more, **settings)
        assert [event[3:] for event in once_more.events if event[0] == "begin"] == [(8, 8), (12, 12)]
        assert once_more.rows == []


def test_an_unfinished_tuning_is_left_out(data: Dataset) -> None:
    plan = make_plan(data, ["gfgn-graph"], 2, 2, grid=CHOICES, **QUICK)
    with Store(":memory:") as store:
        run_comparison(store, data, plan)
        assert len(store) == plan.count("gfgn-graph") == 10
        for lacking, have in (({"lr": 1e-4, "split": 1}, 6), ({"seed": 1}, 8)):
            with Store(":memory:") as part:
                keys = {row.key for row in store.rows(**lacking)}
                part.add(row for row in store.rows() if row.key not in keys)
                part.note("comparison", "dimensions", plan.to_json())
                (found,) = read_comparisons(part)
                assert found.rows == {}
                assert found.incomplete == {"gfgn-graph": (have, 10)}


# --- read back --------------------------------------------------------------------------------------------------------


def test_a_plan_survives_json(data: Dataset) -> None:
    plan = make_plan(data, ["mlp"], 2, grid=CHOICES, **QUICK)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_the_last_comparison_of_each_dataset_is_read(data: Dataset) -> None:
    other = dataclasses.replace(data, name="other")
    with Store(":memory:") as store:
        compare(data, ["mlp"], splits=2, store=store, **QUICK)
        compare(other, ["mlp", "gcn"], splits=1, store=store, **QUICK)
        last = compare(data, ["gcn", "mlp"], splits=2, store=store, **QUICK)
        first, second = read_comparisons(store)
        assert (first.dataset.name, second) == ("other", last)
        ranks = rank_models([first, second])
        assert set(ranks) == {"mlp", "gcn"}
        assert sum(ranks.values()) == pytest.approx(3)


def test_changed_data_are_other_data(data: Dataset) -> None:
    changed = dataclasses.replace(data, x=data.x + 1)
    with Store(":memory:") as store:
        compare(data, ["mlp"], splits=1, store=store, **QUICK)
        gates_note(store, data)
        log = Log()
        found = compare(changed, ["mlp"], splits=1, store=store, callback=log, **QUICK)
        assert len(log.rows) == 1
        assert found.gates is None


def test_gates_are_worked_out_once(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    import gfgn.runs.gates as module

    with Store(":memory:") as store:
        note = gates_note(store, data)
        assert note is not None
        assert [len(values) for values in note["levels"].values()] == [36, 36, 36]
        assert sum(note["smooth"]) == 24
        assert note["roughness"] is None
        monkeypatch.setattr(module, "gates_by_dimension", None)
        assert gates_note(store, data) == note
        assert compare(data, ["mlp"], splits=1, store=store, **QUICK).gates == note
    monkeypatch.undo()
    monkeypatch.setattr(module, "MAX_DIMENSIONS", 35)
    with Store(":memory:") as store:
        assert gates_note(store, data) is None
        monkeypatch.undo()
        unknown = dataclasses.replace(data, smooth_dimensions=None)
        found = gates_note(store, unknown)
        assert found is not None
        assert found["smooth"] is None
        assert len(found["roughness"]) == 36


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": []}, "models must name at least one of mlp, "),
        ({"models": ["mlp", "mlp"]}, "models must be different from each other, got mlp, mlp"),
        ({"models": ["mlpp"]}, r"got 'mlpp'; did you mean 'mlp'\?"),
        ({"splits": 4}, "splits must be 1 to 3 for 'dimensions', got 4"),
        ({"splits": 1, "seeds": 0}, "seeds must be 1 or larger, got 0"),
        ({"splits": 1, "grid": []}, "grid must hold at least one configuration, got none"),
        ({"splits": 1, "max_epochs": 0}, "max_epochs must be 1 or larger, got 0"),
        ({"splits": 1, "lr": -1.0}, "lr must be a finite number above 0, got -1"),
    ],
)
def test_bad_arguments(data: Dataset, arguments: dict[str, Any], message: str) -> None:
    with Store(":memory:") as store:
        with pytest.raises(ValueError, match=message):
            compare(data, **arguments, store=store)
        assert store.notes("comparison") == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicas": False}, "data must be measured by accuracy or micro-F1 for gcn, got roc_auc"),
        ({"inductive": False}, "models must run on graphs they have not seen for 'dimensions', got gcn"),
    ],
)
def test_models_that_cannot_are_refused_before_any_trains(
    change: dict[str, bool], message: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "gcn", dataclasses.replace(MODELS["gcn"], **change))
    monkeypatch.setitem(data.__dict__, "inductive", True)
    monkeypatch.setitem(data.__dict__, "metric", "roc_auc")
    with pytest.raises(ValueError, match=message):
        make_plan(data, ["mlp", "gcn"], 1)


def test_models_that_train_on_samples(data: Dataset) -> None:
    found = compare(data, ["gcn", "vr-gcn", "graphsaint"], 2, max_epochs=3)
    assert {model: len(rows) for model, rows in found.rows.items()} == {"gcn": 2, "vr-gcn": 2, "graphsaint": 2}
    assert all(0 <= row.test <= 1 for rows in found.rows.values() for row in rows)


def test_the_shared_configuration(data: Dataset) -> None:
    plan = make_plan(data, ["gfgn-graph", "mlp"], 1, lr=0.1, lam=2.0)
    assert plan.final("gfgn-graph", plan.configurations[0]) == [Replica(lr=0.1, lam=2.0)]
    assert plan.final("mlp", plan.configurations[0]) == [Replica(lr=0.1)]
    assert plan.tuning("mlp") == []
