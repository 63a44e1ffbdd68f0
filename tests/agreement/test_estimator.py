"""The same thing given to `GFGNClassifier` in two documented ways has the same answer, or an error that names it."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from estimator.graphs import make_graph
from estimator.tables import write_tables
from sklearn.metrics import accuracy_score
from torch_geometric.data import Data
from typer.testing import CliRunner

from gfgn import GFGNClassifier, GraphNodes
from gfgn.cli import app
from gfgn.estimator import members

X, Y, EDGES = make_graph(60)
NAMES = np.array(["a", "b", "c"])
KNOWN = np.arange(len(Y)) % 4 > 0
LABELS = np.where(KNOWN, Y, -1)
SPARSE = np.where(abs(X) < 0.7, 0, X)


def fit(X: Any = X, y: Any = LABELS, edges: Any = EDGES, val_mask: Any = None, **parameters: Any) -> GFGNClassifier:
    given = {"level": "neighbor", "replicas": 2, "max_epochs": 3, "device": "cpu", "random_state": 0} | parameters
    return GFGNClassifier(**given).fit(X, y, edges, val_mask=val_mask)


@pytest.fixture(scope="module")
def fitted() -> GFGNClassifier:
    return fit()


@pytest.fixture(scope="module")
def p(fitted: GFGNClassifier) -> Any:
    return fitted.predict_proba(X, EDGES)


def data(**attributes: Any) -> Data:
    return Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), **attributes)


# --- training -------------------------------------------------------------------------------------

LABELS_AS: dict[str, Any] = {
    "list": LABELS.tolist(),
    "column": LABELS[:, None],
    "float": np.where(KNOWN, Y, np.nan),
    "tensor": torch.from_numpy(LABELS),
    "Series": pd.Series(LABELS),
    "Int64": pd.Series(LABELS).astype("Int64").where(KNOWN, pd.NA),
    "DataFrame": pd.DataFrame({"y": LABELS}),
    "names": np.where(KNOWN, NAMES[Y], None),
    "names and NaN": np.where(KNOWN, NAMES[Y].astype(object), np.nan),
    "categories": pd.Series(pd.Categorical.from_codes(LABELS, NAMES)),
}
FEATURES_AS: dict[str, Any] = {
    "list": X.tolist(),
    "float64": X.astype(np.float64),
    "Fortran": np.asfortranarray(X),
    "tensor": torch.from_numpy(X),
    "DataFrame": pd.DataFrame(X, columns=list("abcdef")),
    "Float32": pd.DataFrame(X, columns=list("abcdef")).astype("Float32"),
}


@pytest.mark.parametrize("kind", LABELS_AS)
def test_labels(kind: str, p: Any) -> None:
    np.testing.assert_array_equal(fit(y=LABELS_AS[kind]).predict_proba(X, EDGES), p)


@pytest.mark.parametrize("kind", FEATURES_AS)
def test_features(kind: str, p: Any) -> None:
    np.testing.assert_array_equal(fit(FEATURES_AS[kind]).predict_proba(FEATURES_AS[kind], EDGES), p)


def test_sparse_features() -> None:
    expected = fit(scipy.sparse.csr_array(SPARSE)).predict_proba(SPARSE, EDGES)
    tensor = torch.from_numpy(SPARSE)
    same = (scipy.sparse.csc_array(SPARSE), scipy.sparse.coo_matrix(SPARSE), tensor.to_sparse_csr(), tensor.to_sparse())
    for x in same:
        np.testing.assert_array_equal(fit(x).predict_proba(x, EDGES), expected)


def test_the_whole_of_a_graph_and_its_edges(p: Any) -> None:
    order = np.random.default_rng(0).permutation(np.flatnonzero(KNOWN))
    train = torch.from_numpy(KNOWN)
    for clf in (
        fit(GraphNodes(X, EDGES), edges=None),
        fit(GraphNodes(X, EDGES)[order], LABELS[order], None),
        fit(data(y=torch.from_numpy(LABELS)), None, None),
        fit(data(y=torch.from_numpy(Y), train_mask=train), None, None),
    ):
        np.testing.assert_array_equal(clf.predict_proba(X, EDGES), p)


def test_seeds(p: Any) -> None:
    for seed in (np.int64(0), np.random.RandomState(0)):
        np.testing.assert_array_equal(fit(random_state=seed).predict_proba(X, EDGES), p)


def test_a_second_fit_is_like_the_first(p: Any) -> None:
    clf = fit(*make_graph(40, seed=3))
    np.testing.assert_array_equal(clf.fit(X, LABELS, EDGES).predict_proba(X, EDGES), p)


def test_validation_nodes() -> None:
    mask = KNOWN & (np.arange(len(Y)) % 5 == 0)
    nodes = np.flatnonzero(mask)
    expected = fit(val_mask=mask).predict_proba(X, EDGES)
    for same in (
        nodes,
        nodes.tolist(),
        mask.tolist(),
        torch.from_numpy(mask),
        torch.from_numpy(nodes),
        pd.Series(mask),
        mask.astype(int),
        torch.from_numpy(mask).byte(),
    ):
        np.testing.assert_array_equal(fit(val_mask=same).predict_proba(X, EDGES), expected)


# --- prediction -----------------------------------------------------------------------------------


def test_predictions_follow_from_probabilities(fitted: GFGNClassifier, p: Any) -> None:
    np.testing.assert_array_equal(fitted.predict(X, EDGES), fitted.classes_[p.argmax(1)])
    np.testing.assert_array_equal(fitted.decision_function(X, EDGES).argmax(1), p.argmax(1))
    uncertainty = fitted.predict_uncertainty(X, EDGES)
    assert (uncertainty >= 0).all()
    assert (uncertainty <= 1).all()
    np.testing.assert_array_equal(fit().fit_transform(X, LABELS, EDGES), fitted.transform(X, EDGES))


def test_some_nodes_of_a_graph(fitted: GFGNClassifier, p: Any) -> None:
    mask = np.arange(len(Y)) % 3 == 0
    for key in (
        mask,
        mask.tolist(),
        np.flatnonzero(mask),
        torch.from_numpy(mask),
        pd.Series(mask),
        slice(None, None, 3),
    ):
        np.testing.assert_array_equal(fitted.predict_proba(GraphNodes(X, EDGES)[key]), p[mask])
    some = GraphNodes(X, EDGES)[mask]
    np.testing.assert_array_equal(fitted.predict_uncertainty(some), fitted.predict_uncertainty(X, EDGES)[mask])
    np.testing.assert_array_equal(fitted.transform(some), fitted.transform(X, EDGES)[mask])
    np.testing.assert_array_equal(fitted.predict_proba(data()), p)


def test_another_order_of_the_nodes(fitted: GFGNClassifier, p: Any) -> None:
    turned = fitted.predict_proba(X[::-1].copy(), len(Y) - 1 - EDGES)
    np.testing.assert_allclose(turned[::-1], p, rtol=1e-12)


def test_layer_by_layer(fitted: GFGNClassifier, p: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "LARGE", 50)
    np.testing.assert_allclose(fitted.predict_proba(X, EDGES), p, rtol=1e-12)


def test_every_way_to_keep_a_classifier(fitted: GFGNClassifier, p: Any, tmp_path: Path) -> None:
    loaded = GFGNClassifier.load(fitted.save(tmp_path / "a"))
    twice = GFGNClassifier.load(loaded.save(tmp_path / "b"))
    for same in (
        loaded,
        twice,
        pickle.loads(pickle.dumps(fitted)),
        pickle.loads(pickle.dumps(loaded)),
        copy.copy(fitted),
    ):
        np.testing.assert_array_equal(same.predict_proba(X, EDGES), p)
        for name in (name for name in vars(fitted) if name.endswith("_") and name != "encoder_"):
            np.testing.assert_array_equal(getattr(same, name), getattr(fitted, name), err_msg=name)


# --- scores ---------------------------------------------------------------------------------------


def test_score_is_the_accuracy_on_known_labels(fitted: GFGNClassifier) -> None:
    right = fitted.predict(X, EDGES) == Y
    weight = np.random.default_rng(0).random(len(Y))
    expected = right[KNOWN].mean()
    for kind in ("list", "column", "float", "tensor", "Series", "Int64", "DataFrame"):
        assert fitted.score(X, LABELS_AS[kind], edge_index=EDGES) == pytest.approx(expected), kind
    assert fitted.score(X, np.where(KNOWN, Y, None), edge_index=EDGES) == pytest.approx(expected)
    assert fitted.score(GraphNodes(X, EDGES)[KNOWN], Y[KNOWN]) == pytest.approx(expected)
    assert fitted.score(data(y=torch.from_numpy(LABELS))) == pytest.approx(expected)
    weighted = accuracy_score(Y[KNOWN], fitted.predict(X, EDGES)[KNOWN], sample_weight=weight[KNOWN])
    assert fitted.score(X, LABELS, weight, edge_index=EDGES) == pytest.approx(weighted)


def test_score_of_names(fitted: GFGNClassifier) -> None:
    clf = fit(y=LABELS_AS["names"])
    expected = fitted.score(X, LABELS, edge_index=EDGES)
    for kind in ("names", "names and NaN", "categories"):
        assert clf.score(X, LABELS_AS[kind], edge_index=EDGES) == pytest.approx(expected), kind
    other = np.where(Y == 0, "ab", NAMES[Y])  # a class that begins like another one
    assert clf.score(X, other, edge_index=EDGES) == pytest.approx((clf.predict(X, EDGES) == other).mean())


def test_score_refuses_what_is_not_a_class(fitted: GFGNClassifier) -> None:
    with pytest.raises(ValueError, match="continuous"):
        fitted.score(X, Y + 0.4, edge_index=EDGES)


def test_score_of_several_labels() -> None:
    """A node with one unknown label is unknown, in `fit` and in `score`."""
    labels = np.stack([Y == 0, Y != 1], 1).astype(float)
    seen = labels.copy()
    seen[~KNOWN, 1] = np.nan
    clf = fit(y=seen)
    right = (clf.predict(X, EDGES) == labels).all(1)
    assert clf.score(X, seen, edge_index=EDGES) == pytest.approx(right[KNOWN].mean())


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--directed"]], ids=str)
def test_the_command_and_python(options: list[str], tmp_path: Path) -> None:
    write_tables(tmp_path / "own", 90)
    quick = ["--level", "pair", "--replicas", "2", "--epochs", "3", "--device", "cpu"]
    for command in (
        ["train", "own", "--out", "model", *quick, *options],
        ["predict", "model", "own", "--all", "--out", "found.parquet"],
    ):
        places = [str(tmp_path / word) if word in ("own", "model", "found.parquet") else word for word in command]
        result = CliRunner().invoke(app, places)
        assert result.exit_code == 0, result.output
    clf, found = GFGNClassifier.load(tmp_path / "model"), pd.read_parquet(tmp_path / "found.parquet")
    nodes = pd.read_csv(tmp_path / "own" / "nodes.csv", index_col="id", parse_dates=["joined"]).drop(columns="label")
    edges = pd.read_csv(tmp_path / "own" / "edges.csv")
    assert clf.directed == bool(options)
    np.testing.assert_allclose(clf.predict_proba(nodes, edges), found[[f"p_{name}" for name in clf.classes_]])
    np.testing.assert_allclose(clf.predict_uncertainty(nodes, edges), found["uncertainty"])
    np.testing.assert_array_equal(clf.predict(nodes, edges), found["prediction"])
