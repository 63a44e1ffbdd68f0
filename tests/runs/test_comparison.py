"""Comparisons: their results, what they store and read back, and the arguments they refuse."""

import json
import math
from typing import Any

import numpy as np
import pytest
from runs.stores import Recorder
from scipy.special import stdtr
from scipy.stats import ttest_rel

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.nn import MODELS
from gfgn.runs import Store, compare, grid, read_comparisons
from gfgn.runs.comparison import comparison_study, keep_study
from gfgn.runs.record import DatasetRecord
from gfgn.train import difference, summarize

QUICK: dict[str, Any] = {"max_epochs": 4, "patience": 4}


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(150, degree=10, splits=3)


def test_gfgn_outperforms_mlp_and_gcn_by_more_than_the_spread() -> None:
    comparison = compare(dimensions(400, degree=12, splits=3), splits=3, max_epochs=100)
    summary = comparison.summary()
    assert list(summary) == ["majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"]
    for model in ("gfgn-graph", "gfgn-neighbor", "gfgn-pair"):
        for baseline in ("mlp", "gcn"):
            spread = max(summary[model].std, summary[baseline].std)
            assert summary[model].mean - summary[baseline].mean > spread
        gain = comparison.gap_to_baseline(model)
        assert gain is not None
        assert gain.mean > 0


def test_baseline_gain_and_settings(data: NodeDataset) -> None:
    comparison = compare(data, ["gcn", "mlp", "gfgn-graph"], splits=3, seeds=2, **QUICK)
    summary = comparison.summary()
    best = comparison.baseline
    assert best is not None
    assert summary[best].mean == max(summary["mlp"].mean, summary["gcn"].mean)
    gain = comparison.gap_to_baseline("gfgn-graph")
    assert gain is not None
    assert gain.mean == pytest.approx(summary["gfgn-graph"].mean - summary[best].mean)
    ours, theirs = (
        [sum(row.test for row in comparison.rows[model] if row.replica.split == split) / 2 for split in range(3)]
        for model in ("gfgn-graph", best)
    )
    share = comparison.dataset.test_share
    assert share == 0.25
    gaps = np.subtract(ours, theirs)
    left = min(1, gaps.var() / (np.var(ours) + np.var(theirs)))
    t = ttest_rel(ours, theirs).statistic / math.sqrt(1 + 3 * left * share)
    assert gain.p == pytest.approx(2 * stdtr(2, -abs(t)))
    assert (gain.low, gain.high) == pytest.approx(difference(*(comparison.rows[m] for m in ("gfgn-graph", best)))[2:4])
    assert summary["mlp"] == summarize(comparison.rows["mlp"], share)
    assert comparison.gap_to_baseline("mlp") is None
    assert "learning rate 0.02, weight decay 0.0005, dropout 0.5, λ 1" in comparison.settings
    assert "at most 4 epochs" in comparison.settings
    assert compare(data, ["gfgn-graph"], splits=1, **QUICK).gap_to_baseline("gfgn-graph") is None


def test_no_run_is_trained_twice(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        first, second = Recorder(), Recorder()
        small = compare(data, ["mlp"], splits=2, store=store, callback=first, **QUICK)
        assert first.events == [("begin", "dimensions", "mlp", 2, 0), ("end", "dimensions", "mlp")]
        assert len(first.rows) == len(store) == 2
        assert first.states
        large = compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=2, store=store, callback=second, **QUICK)
        assert second.events[0] == ("begin", "dimensions", "mlp", 4, 2)
        assert second.events[2] == ("begin", "dimensions", "gfgn-graph", 4, 0)
        assert len(second.rows) == 6
        assert len(store) == 8
        assert {row.key for row in small.rows["mlp"]} < {row.key for row in large.rows["mlp"]}
        again = Recorder()
        assert compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=2, store=store, callback=again, **QUICK) == large
        assert again.rows == []


def test_finished_runs_survive_an_interruption(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            compare(data, ["mlp", "gcn"], splits=3, store=store, callback=Recorder(stop=3), **QUICK)
        assert len(store) == 3
        (partial,) = read_comparisons(store)
        assert partial.models == ("mlp",)
        assert partial.incomplete == {"gcn": (0, 3)}
        recorder = Recorder()
        whole = compare(data, ["mlp", "gcn"], splits=3, store=store, callback=recorder, **QUICK)
        assert [row.model for row in recorder.rows] == ["gcn"] * 3
        assert whole.incomplete == {}


# --- tuned ------------------------------------------------------------------------------------------------------------

CHOICES = grid(lr=(1e-4, 0.05), lam=(1.0, 2.0))


def test_every_model_is_tuned_on_validation_scores(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        recorder = Recorder()
        settings: dict[str, Any] = {"grid": CHOICES, "max_epochs": 20}
        comparison = compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=3, store=store, callback=recorder, **settings)
        # four configurations, or two without λ, on two splits; then two more seeds of the chosen one
        assert [event[3:] for event in recorder.events if event[0] == "begin"] == [(2 * 2 + 4, 0), (4 * 2 + 4, 0)]
        assert len(store) == len(recorder.rows) == 20
        for model, candidates in (("mlp", 2), ("gfgn-graph", 4)):
            selection = comparison.selections[model]
            assert len(selection.candidates) == candidates
            assert selection.best["lr"] == 0.05
            rows = comparison.rows[model]
            assert {(row.replica.split, row.replica.seed) for row in rows} == {
                (k, s) for k in range(2) for s in range(3)
            }
            assert {json.dumps(row.replica.configuration) for row in rows} == {json.dumps(selection.best)}
            assert comparison.rows[model][0].replica.configuration == selection.best
        assert "grid of 4 (learning rate 0.0001 or 0.05; λ 1 or 2)" in comparison.settings
        assert read_comparisons(store) == [comparison]
        again = Recorder()
        compare(data, ["mlp", "gfgn-graph"], splits=2, seeds=3, store=store, callback=again, **settings)
        assert [event[3:] for event in again.events if event[0] == "begin"] == [(8, 8), (12, 12)]
        assert again.rows == []


def test_trials_tune_every_model_by_successive_halving(data: NodeDataset) -> None:
    models, settings = ["mlp", "gfgn-graph"], {"trials": 4, "max_epochs": 40}
    with Store(":memory:") as store:
        recorder = Recorder()
        comparison = compare(data, models, 2, 2, store=store, callback=recorder, **settings)
        # four trials on two splits, then another seed of the chosen one
        assert [event[3:] for event in recorder.events if event[0] == "begin"] == [(4 * 2 + 2, 0)] * 2
        assert len(recorder.rows) == 20
        for model in models:
            candidates = comparison.selections[model].candidates
            assert [each.dropped for each in candidates] == [False, True, True, True]
            assert comparison.rows[model][0].replica.configuration == candidates[0].configuration
            assert len(comparison.rows[model]) == 4
        tried = {model: {row.replica.lr for row in recorder.rows if row.model == model} for model in models}
        assert len(tried["mlp"]) == 4
        assert tried["mlp"] == tried["gfgn-graph"]
        assert all(0.5 <= row.replica.lam <= 2 for row in recorder.rows if row.model == "gfgn-graph")
        assert {row.epochs for row in recorder.rows if row.dropped} == {10, 20}
        assert "4 random ones (learning rate, weight decay, dropout, λ)" in comparison.settings
        assert read_comparisons(store) == [comparison]
        assert compare(data, models, 2, 2, store=store, callback=recorder, **settings) == comparison
        assert len(recorder.rows) == 20


# --- read back --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"grid": CHOICES}, {"trials": 3}])
def test_a_comparison_is_read_as_it_was_kept(settings: dict[str, Any], data: NodeDataset) -> None:
    study = comparison_study(data, ["mlp", "gcn"], 2, **settings, **QUICK)
    with Store(":memory:") as store:
        keep_study(store, study, DatasetRecord.of(data))
        (comparison,) = read_comparisons(store)
    assert (comparison.study, comparison.dataset) == (study, DatasetRecord.of(data))
    assert list(comparison.study.models) == ["mlp", "gcn"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": []}, "models must name at least one of mlp, "),
        ({"models": ["mlp", "mlp"]}, "models must be different from each other, got mlp, mlp"),
        ({"models": ["mlpp"]}, r"got 'mlpp'; did you mean 'mlp'\?"),
        ({"splits": 4}, "splits must be 1 to 3 for 'dimensions', got 4"),
        ({"splits": 1, "seeds": 0}, "seeds must be 1 or larger, got 0"),
        ({"splits": 1, "grid": []}, "grid must hold at least one configuration, got none"),
        ({"splits": 1, "trials": 0}, "trials must be 1 to 10,000, got 0"),
        ({"splits": 1, "trials": 2, "grid": [{}]}, "trials must not be given together with grid, got 2"),
        ({"splits": 1, "max_epochs": 0}, "max_epochs must be 1 or larger, got 0"),
        ({"splits": 1, "lr": -1.0}, "lr must be a finite number above 0, got -1"),
    ],
)
def test_bad_arguments(data: NodeDataset, arguments: dict[str, Any], message: str) -> None:
    with Store(":memory:") as store:
        with pytest.raises(ValueError, match=message):
            compare(data, **arguments, store=store)
        assert store.notes("comparison") == {}


def test_features_and_input_dropout_are_settings_of_all_models() -> None:
    data = dimensions(60, degree=6, splits=2)
    settings: dict[str, Any] = {"models": ["mlp", "gcn"], "splits": 1, "max_epochs": 3}
    plain = compare(data, **settings)
    changed = compare(
        data, **settings, features="normalized", input_dropout=0.1, options={"mlp": {"features": "given"}}
    )
    assert {model: rows[0].replica.input_dropout for model, rows in changed.rows.items()} == {"mlp": 0.1, "gcn": 0.1}
    assert [dict(rows[0].replica.options)["features"] for rows in changed.rows.values()] == ["given", "normalized"]
    assert "input dropout 0.1, features normalized" in changed.settings
    assert changed.rows["gcn"][0].val != plain.rows["gcn"][0].val
    with pytest.raises(ValueError, match="features must be 'given' or 'normalized', got 'raw'"):
        compare(data, **settings, features="raw")


def test_the_depth_of_gfgn_plus_is_chosen_on_validation(data: NodeDataset) -> None:
    """Between its variants without tuning, as one of the drawn options with trials, and not if it is given."""
    with Store(":memory:") as store:
        comparison = compare(data, ["mlp", "gfgn-plus"], splits=2, store=store, **QUICK)
        [stored] = read_comparisons(store)
    variants = MODELS["gfgn-plus"].variants
    candidates = comparison.selections["gfgn-plus"].candidates
    assert len(candidates) == len(variants) == 2
    assert "mlp" not in comparison.selections
    assert stored.study == comparison.study
    assert "gfgn-plus with the best layers 1 or 8" in comparison.settings
    deep = comparison.study.models["gfgn-plus"][1]
    assert (deep["layers"], deep["lr"], deep["weight_decay"]) == (8, 0.01, 0.0)
    given = comparison_study(data, ["gfgn-plus"], 2, lr=0.3, options={"gfgn-plus": {"layers": 4}}).models["gfgn-plus"]
    assert {(each["layers"], each["lr"]) for each in given} == {(4, 0.3)}
    drawn = comparison_study(data, ["mlp", "gfgn-plus"], 2, trials=16).models
    shared, own = drawn["mlp"], drawn["gfgn-plus"]
    assert {each["layers"] for each in own} == {1, 8}
    assert [each["lr"] for each in own] == [each["lr"] for each in shared]
