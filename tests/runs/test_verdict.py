"""What comparisons mean: from made-up scores, where the right answer is plain, and on graphs whose truth is known."""

import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from runs.stores import RECORD, made_study, row

from gfgn.data import NodeDataset, dimensions
from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.runs import compare
from gfgn.runs.advice import MODELS, suited_models
from gfgn.runs.comparison import Comparison
from gfgn.runs.text import score
from gfgn.runs.verdict import headline, judge, reads
from gfgn.train import TrainConfig

NOISE = (0.01, -0.02, 0.0, 0.02, -0.01)


def made_up(splits: int = 5, metric: str = "accuracy", guess: float | None = None, **scores: Any) -> Comparison:
    """Models with these mean scores on validation and test, or a pair of them, with noise over splits."""
    rows = {}
    for shift, (name, given) in enumerate(scores.items()):
        model = name.replace("_", "-")
        val, test = given if isinstance(given, tuple) else (given, given)
        noise = [NOISE[(k + shift) % 5] for k in range(splits)]
        rows[model] = [row(k, model=model, val=val + noise[k], test=test + noise[k]) for k in range(splits)]
    guesses = () if guess is None else (guess,) * len(RECORD.split_fingerprints)
    record = replace(RECORD, num_classes=4, metric=metric, guesses=guesses)
    runs = [each for of_model in rows.values() for each in of_model]
    return Comparison(made_study(rows, splits, TrainConfig(5, 5)), runs, {record.name: record})


def test_what_models_read() -> None:
    kinds = {model: reads(model) for model in MODELS}
    assert [model for model, kind in kinds.items() if kind == "graph"] == ["gcn", *MODELS[-3:]]
    assert [model for model, kind in kinds.items() if kind == "features"] == [*MODELS[1:3], "mlp"]
    assert (reads("majority"), reads("label-propagation"), reads("linkx")) == ("labels", "edges", "graph")


# --- headline ---------------------------------------------------------------------------------------------------------


def test_the_headline_names_the_model_chosen_on_validation() -> None:
    comparison = made_up(majority=0.3, mlp=0.6, gcn=(0.8, 0.7), gfgn_pair=(0.7, 0.9))
    text = headline(comparison)
    assert text.startswith("gcn, chosen on validation, has a test accuracy of 70.0% [")
    assert "+40.0 [" in text
    assert "points above the majority class (30.0%); the graph helps: +10.0 [" in text
    assert text.endswith("points over models without it, on either side the best on validation in each split.")


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"mlp": 0.6, "gcn": 0.602}, "the graph is not shown to help: +0.2 ["),
        ({"mlp": 0.9, "gcn": 0.6}, "mlp, chosen on validation, .*; the graph hurts: −30.0 ["),
        ({"mlp": 0.6, "gradient_boosting": 0.7}, "gradient-boosting, chosen on validation, has a test .*]."),
        ({"majority": (0.5, 0.6), "mlp": 0.6}, "points and so not shown to be above the majority class (60.0%)."),
        ({"majority": 0.6}, "majority has a test accuracy of 60.0% [.*]."),
        (
            {"majority": 0.6, "mlp": (0.7, 0.4), "gcn": (0.65, 0.6)},
            "not shown to be above .*; the graph is not shown to help: +20.0 [",
        ),
    ],
)
def test_what_else_the_headline_says(scores: dict[str, float], expected: str) -> None:
    pattern = ".*".join(map(re.escape, expected.split(".*")))
    text = headline(made_up(**scores))
    assert re.search(pattern, text), text
    if "graph" not in expected:
        assert "graph" not in text


def test_with_all_kinds_of_models_the_headline_is_the_verdict() -> None:
    """As after `gfgn advise`, whose page would otherwise say that the graph helps where edges alone suffice."""
    comparison = made_up(majority=0.3, mlp=0.6, label_propagation=0.9, gcn=0.8)
    assert headline(comparison) == judge(comparison).sentence
    assert headline(comparison).startswith("Edges alone suffice")
    without = made_up(majority=0.3, logistic_regression=0.6, gcn=0.8)  # as for multi-label data
    assert headline(without) == judge(without).sentence


@pytest.mark.parametrize("guess", [0.2, 0.35, None])
def test_the_number_of_the_headline_is_that_of_the_table(guess: float | None) -> None:
    """Whatever model was the best of a split, and whether the majority class or guessing scores more."""
    comparison = made_up(guess=guess, majority=0.3, mlp=0.7, gcn=0.71)
    table, floor = comparison.summary(), guess if guess == 0.35 else 0.3
    text = f"{score(table['gcn'].mean - floor, 'accuracy', sign='+')} ["
    name = "guessing (35.0%)" if guess == 0.35 else "the majority class (30.0%)"
    assert re.search(f"{re.escape(text)}[^;]*] points above {re.escape(name)};", headline(comparison))


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "scores"),
    [
        ("graph", {"logistic_regression": 0.6, "label_propagation": 0.7, "gcn": 0.9}),
        ("features", {"logistic_regression": 0.9, "label_propagation": 0.7, "gcn": 0.9}),
        ("features", {"logistic_regression": 0.95, "label_propagation": 0.9, "gcn": 0.7}),
        ("edges", {"logistic_regression": 0.6, "label_propagation": 0.9, "gcn": 0.9}),
        ("edges", {"logistic_regression": 0.6, "label_propagation": 0.9, "gcn": 0.8}),
        ("nothing", {"logistic_regression": 0.3, "label_propagation": 0.31, "gcn": 0.3}),
        ("graph", {"mlp": 0.6, "gcn": 0.9}),
        # chosen on validation: the graph model that is best on test does not count
        ("features", {"mlp": 0.6, "gcn": (0.8, 0.6), "gfgn_pair": (0.5, 0.9)}),
    ],
)
def test_the_simplest_kind_that_no_other_beats(kind: str, scores: dict[str, Any]) -> None:
    verdict = judge(made_up(majority=0.3, **scores))
    assert verdict.kind == kind
    starts = {"graph": "A graph model is worth it: gcn", "features": "Features alone suffice", "edges": "Edges alone"}
    assert verdict.sentence.startswith(starts.get(kind, "Nothing is shown to beat the majority class"))
    assert kind == "nothing" or "a fit of gcn takes 0.12 s, one of" in verdict.sentence
    assert verdict.gaps["graph − features"].mean == pytest.approx(-verdict.gaps["features − graph"].mean)


@pytest.mark.parametrize(("metric", "name"), [("average_precision", "a random ranking"), ("macro_f1", "guessing")])
def test_a_guess_that_beats_the_majority_class_is_the_floor(metric: str, name: str) -> None:
    scores = {"majority": 0.3, "logistic_regression": 0.4, "gcn": 0.39}
    assert judge(made_up(metric=metric, **scores)).kind == "features"
    verdict = judge(made_up(metric=metric, guess=0.4, **scores))
    assert verdict.kind == "nothing"
    assert verdict.sentence.startswith(f"Nothing is shown to beat {name} (40.0%): the best on validation, ")
    assert verdict.gaps["features − guessing"].mean == pytest.approx(0)


def test_a_verdict_tests_what_it_names() -> None:
    """Graph models beat guessing; features alone do not, and are not shown to be worse: neither can be named."""
    comparison, shifts = made_up(majority=0.3, mlp=0.6, gcn=(0.8, 0.62)), (0.4, -0.4, 0.4, -0.4, 0.0)
    runs = [replace(run, test=0.5 + shifts[run.split]) if run.model == "mlp" else run for run in comparison.runs]
    verdict = judge(replace(comparison, runs=runs))
    assert verdict.kind == "undecided"
    assert verdict.gaps["graph − guessing"].low > 0
    assert verdict.gaps["features − guessing"].low < 0 > verdict.gaps["graph − features"].low
    assert verdict.sentence.startswith("Undecided: gcn has a test accuracy of 62.0% [")
    assert "points above the majority class (30.0%), but graph models are +12.0 [" in verdict.sentence


def test_a_single_split_gives_no_verdict() -> None:
    comparison = made_up(1, majority=0.3, mlp=0.6, gcn=0.9)
    verdict = judge(comparison)
    assert math.isnan(verdict.gaps["graph − features"].low)
    assert verdict.kind == "undecided"
    assert "A single split gives no interval and so no verdict; mlp: test accuracy of 58.0%" in verdict.sentence
    assert "nan" not in verdict.sentence + headline(comparison)


def test_what_a_verdict_needs() -> None:
    with pytest.raises(
        ValueError, match="must have the majority class, a model of the features and a graph model, got"
    ):
        judge(made_up(majority=0.3, gcn=0.6))


# --- advice -----------------------------------------------------------------------------------------------------------

FEW = ("majority", "logistic-regression", "label-propagation", "gcn", "gfgn-graph")
BLOCKS = partial(contextual_sbm, 500, classes=3, degree=8)
TRUTH = {
    "dimensions": ("graph", partial(dimensions, 400, reasons=2, degree=30, smooth_noise=5.0)),
    "both": ("graph", partial(BLOCKS, homophily=0.6, signal=1.8)),
    "edges": ("edges", partial(BLOCKS, homophily=0.7, signal=0.0)),
    "features": ("features", partial(BLOCKS, homophily=1 / 3, signal=2.5)),
    "neither": ("nothing", partial(BLOCKS, homophily=1 / 3, signal=0.0)),
}


@pytest.mark.parametrize("case", TRUTH)
@pytest.mark.parametrize("seed", range(2))
def test_the_verdict_is_right_where_the_truth_is_known(case: str, seed: int) -> None:
    """`benchmarks/advice.py` has all models, larger graphs and twenty seeds."""
    truth, make = TRUTH[case]
    verdict = judge(compare(make(seed=seed), FEW, 10, max_epochs=60, patience=20))
    assert verdict.kind == truth, verdict.sentence


@pytest.mark.parametrize("seed", [2, 12, 16])
def test_a_random_ranking_is_no_signal(seed: int) -> None:
    """Labels that know nothing of edges and features: `benchmarks/noise_verdicts.py` has 200 graphs, every metric."""
    y = (torch.randperm(200, generator=torch.Generator().manual_seed(seed)) < 30).long()
    data = contextual_sbm(200, features=4, degree=6, homophily=0.5, signal=0.0, seed=seed)
    models = ("majority", "logistic-regression", "label-propagation", "gcn")
    verdict = judge(compare(replace(data, y=y, metric="average_precision"), models, 10, max_epochs=10))
    assert verdict.kind in ("nothing", "undecided"), verdict.sentence
    assert verdict.floor.name == "a random ranking"
    assert 0.19 < verdict.floor.mean < 0.25  # and not 0.15, the fraction of positive nodes


def test_models_that_suit_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    data: NodeDataset = dimensions(60, degree=6, splits=1)
    assert suited_models(data) == MODELS
    monkeypatch.setitem(data.__dict__, "inductive", True)
    assert set(MODELS) - set(suited_models(data)) == {"label-propagation"}
