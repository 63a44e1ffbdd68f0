"""Parameters that are set after `fit`: what is fitted stays as it is, or an error names the difference."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimator.graphs import make_graph
from sklearn.base import clone

from gfgn import GFGNClassifier

X, Y, EDGES = make_graph(60)
FITTED: dict[str, Any] = {"level": "graph", "max_epochs": 3, "device": "cpu", "random_state": 0}
OTHER: dict[str, Any] = {
    "level": "pair",
    "replicas": 3,
    "model": "gfgn-plus",
    "hidden_channels": 16,
    "num_layers": 3,
    "heads": 2,
    "lam": 0.5,
    "dropout": 0.1,
    "lr": 0.1,
    "weight_decay": 0.1,
    "max_epochs": 9,
    "patience": 2,
    "metric": "macro_f1",
    "class_weights": True,
    "scale": "none",
    "directed": True,
    "val_fraction": 0.5,
    "batch_size": 16,
    "fanout": 2,
    "trials": 2,
    "device": "auto",
    "random_state": 1,
}
"""Another value of every parameter."""


def answers(clf: GFGNClassifier) -> list[Any]:
    p = clf.predict_proba(X, EDGES)
    return [p, clf.transform(X, EDGES), clf.predict_uncertainty(X, EDGES), clf.score(X, Y, edge_index=EDGES)]


def assert_same(got: list[Any], expected: list[Any]) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clf = GFGNClassifier(**FITTED).fit(X, Y, EDGES)
    return clf.save(tmp_path_factory.mktemp("saved"))


def test_every_parameter_is_here() -> None:
    assert OTHER.keys() == inspect.signature(GFGNClassifier).parameters.keys()


@pytest.mark.parametrize("name", OTHER)
def test_a_parameter_that_is_set_after_fit(name: str, saved: Path, tmp_path: Path) -> None:
    clf, fitted = GFGNClassifier.load(saved), GFGNClassifier.load(saved)
    before = getattr(clf, name)
    clf.set_params(**{name: OTHER[name]})
    if name == "directed":
        for method in (clf.predict, clf.predict_proba, clf.predict_uncertainty, clf.decision_function, clf.transform):
            with pytest.raises(ValueError, match="directed must be False, as in fit, got True: fit again"):
                method(X, EDGES)
        with pytest.raises(ValueError, match="directed must be False, as in fit, got True: fit again"):
            clf.score(X, Y, edge_index=EDGES)
    else:
        assert_same(answers(clf), answers(fitted))
    again = GFGNClassifier.load(clf.save(tmp_path))  # is saved as it was fitted; the device is not part of it
    assert getattr(again, name) == (OTHER[name] if name == "device" else before)
    assert_same(answers(again), answers(fitted))
    assert clone(clf).get_params() == clf.get_params()


def test_parameters_count_from_the_next_fit() -> None:
    clf = GFGNClassifier(**FITTED).fit(X, Y, EDGES).set_params(directed=True, scale="none")
    fresh = GFGNClassifier(**FITTED, directed=True, scale="none")
    assert_same(answers(clf.fit(X, Y, EDGES)), answers(fresh.fit(X, Y, EDGES)))
