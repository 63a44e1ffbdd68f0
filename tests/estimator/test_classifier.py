"""`GFGNClassifier` learns, predicts for any kind of input, and behaves as scikit-learn expects."""

import dataclasses
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from estimator.graphs import make_graph
from safetensors.torch import load_file
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data

from gfgn import GFGNClassifier, GFGNConv, GraphNodes
from gfgn.data import contextual_sbm, dimensions, random_splits
from gfgn.estimator.members import entropy, fit_confidence, fit_temperature, map_confidence

QUICK: dict[str, Any] = {"max_epochs": 40, "device": "cpu", "random_state": 0}
X, Y, EDGES = make_graph()
HIDDEN = np.arange(len(Y)) % 4 == 0  # nodes whose label the classifier does not see
LABELS = np.where(HIDDEN, -1, Y)


@pytest.fixture(scope="module")
def fitted() -> GFGNClassifier:
    return GFGNClassifier("pair", **QUICK).fit(X, LABELS, edge_index=EDGES)


def test_it_predicts_hidden_labels(fitted: GFGNClassifier) -> None:
    predicted = fitted.predict(X, edge_index=EDGES)
    assert (predicted == Y)[HIDDEN].mean() > 0.8
    assert fitted.score(X, Y, edge_index=EDGES) == pytest.approx((predicted == Y).mean())
    assert fitted.score(X, LABELS, edge_index=EDGES) == pytest.approx((predicted == Y)[~HIDDEN].mean())


def test_probabilities_agree_with_predictions(fitted: GFGNClassifier) -> None:
    p = fitted.predict_proba(X, edge_index=EDGES)
    assert p.shape == (len(Y), 3)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (fitted.classes_[p.argmax(1)] == fitted.predict(X, edge_index=EDGES)).all()
    np.testing.assert_allclose(fitted.decision_function(X, edge_index=EDGES), np.log(p.clip(1e-12)))


def test_the_level_is_chosen_on_validation() -> None:
    clf = GFGNClassifier(**QUICK).fit(X, LABELS, edge_index=EDGES)
    assert set(clf.level_scores_) == {"graph", "neighbor", "pair"}
    assert clf.level_scores_[clf.level_] == max(clf.level_scores_.values())
    alone = GFGNClassifier(clf.level_, **QUICK).fit(X, LABELS, edge_index=EDGES)
    np.testing.assert_allclose(alone.predict_proba(X, EDGES), clf.predict_proba(X, EDGES), rtol=1e-4, atol=1e-6)


def test_an_ensemble_has_the_networks_of_its_parts() -> None:
    clf = GFGNClassifier("graph", 3, **QUICK).fit(X, LABELS, edge_index=EDGES)
    assert clf.transform(X, EDGES).shape == (len(Y), 3 * 64)
    assert clf.val_score_ == pytest.approx(np.mean([max(history["val"]) for history in clf.history_]))
    single = GFGNClassifier("graph", 1, scale="none", **QUICK).fit(X, LABELS, edge_index=EDGES)
    several = GFGNClassifier("graph", 2, scale="none", **QUICK).fit(X, LABELS, edge_index=EDGES)
    assert several.history_[0] == single.history_[0]
    assert several.history_[1] != single.history_[0]


def test_embeddings_are_the_input_of_the_last_layer(fitted: GFGNClassifier, tmp_path: Path) -> None:
    weights = load_file(fitted.save(tmp_path) / "model.safetensors")
    h, graph = torch.from_numpy(fitted.transform(X, EDGES)), fitted.encode(X, EDGES).graph
    conv = GFGNConv(64, 3, level="pair", heads=1, gate_bias=True)
    conv.load_state_dict({name.removeprefix("convs.1."): w[0] for name, w in weights.items() if "convs.1." in name})
    log_p = conv(h, graph).log_softmax(1).double() / fitted.temperature_
    np.testing.assert_allclose(log_p.softmax(1).detach(), fitted.predict_proba(X, EDGES), rtol=1e-4, atol=1e-6)


def test_data_frames_with_names_categories_and_missing_values() -> None:
    names = [f"n{k}" for k in np.random.default_rng(1).permutation(len(Y))]
    frame = pd.DataFrame(X.copy(), columns=[f"f{k}" for k in range(6)], index=names)
    frame["color"] = np.where(Y == 0, "red", "blue")
    frame.loc[names[3], "f1"] = np.nan
    edges = pd.DataFrame({"source": [names[k] for k in EDGES[0]], "target": [names[k] for k in EDGES[1]]})
    labels = pd.Series(np.array(["a", "b", "c"])[Y], index=names).where(~HIDDEN, None)
    clf = GFGNClassifier("neighbor", **QUICK).fit(frame, labels, edge_index=edges)
    assert list(clf.feature_names_in_) == list(frame.columns)
    assert list(clf.classes_) == ["a", "b", "c"]
    assert (clf.predict(frame, edge_index=edges) == np.array(["a", "b", "c"])[Y])[HIDDEN].mean() > 0.8
    assert len(clf.smoothing_scores_) == len(clf.encoder_.feature_names)
    graph = nx.Graph(list(edges.itertuples(index=False, name=None)))
    np.testing.assert_allclose(clf.predict_proba(frame, graph), clf.predict_proba(frame, edges), rtol=1e-5)


def test_a_pyg_data_has_everything(fitted: GFGNClassifier) -> None:
    val = torch.from_numpy(np.arange(len(Y)) % 4 == 1)
    train = torch.from_numpy(np.arange(len(Y)) % 4 >= 2)
    data = Data(
        x=torch.from_numpy(X), y=torch.from_numpy(Y), edge_index=torch.from_numpy(EDGES), train_mask=train, val_mask=val
    )
    clf = GFGNClassifier("pair", **QUICK).fit(data)
    assert clf.facts_["labelled"] == {"train": int(train.sum()), "val": int(val.sum()), "test": 0}
    test = ~(train | val).numpy()
    assert (clf.predict(data) == Y)[test].mean() > 0.7


def test_new_nodes_and_new_graphs(fitted: GFGNClassifier) -> None:
    x, y, edges = make_graph(300, seed=5)
    assert (fitted.predict(x, edges) == y).mean() > 0.7
    # Nodes that have no path to the old ones change nothing for these at pair level.
    joined = np.concatenate([EDGES, edges + len(Y)], 1)
    old = fitted.predict_proba(np.concatenate([X, x]), joined)[: len(Y)]
    np.testing.assert_allclose(old, fitted.predict_proba(X, EDGES), rtol=1e-4, atol=1e-7)


def test_several_labels_per_node() -> None:
    labels = np.stack([Y == 0, Y != 1, X[:, 4] > 0], 1).astype(float)
    seen = labels.copy()
    seen[HIDDEN] = np.nan
    clf = GFGNClassifier("neighbor", **QUICK | {"max_epochs": 100}).fit(X, seen, edge_index=EDGES)
    assert clf.predict_proba(X, EDGES).shape == (len(Y), 3)
    assert (clf.predict(X, EDGES) == labels)[HIDDEN].mean() > 0.75
    assert clf.facts_["labelled"]["train"] + clf.facts_["labelled"]["val"] == (~HIDDEN).sum()
    assert ((clf.decision_function(X, EDGES) > 0) == clf.predict(X, EDGES)).all()


def test_trials_are_tuned_on_validation() -> None:
    clf = GFGNClassifier("graph", trials=4, **QUICK).fit(X, LABELS, EDGES)
    assert clf.best_params_["lr"] != clf.lr


def test_weights_and_directions_matter() -> None:
    edges = np.sort(EDGES, 0)  # in one direction: the opposite of an edge has its weight
    weight = np.random.default_rng(0).random(edges.shape[1]) + 0.1
    clf = GFGNClassifier("graph", **QUICK).fit(X, LABELS, edges, weight)
    plain = clf.predict_proba(X, edges)
    assert not np.allclose(clf.predict_proba(X, edges, weight), plain)
    directed = GFGNClassifier("graph", directed=True, **QUICK).fit(X, LABELS, EDGES)
    assert directed.facts_["edges"] < clf.facts_["edges"]


# --- scikit-learn ---------------------------------------------------------------------------------


def test_grid_search_keeps_the_graph_whole() -> None:
    search = GridSearchCV(GFGNClassifier("neighbor", **QUICK), {"lr": [1e-5, 0.02]}, cv=3, error_score="raise")
    search.fit(GraphNodes(X, EDGES), Y)
    assert search.best_params_ == {"lr": 0.02}
    assert search.best_score_ > 0.7
    assert search.predict(GraphNodes(X, EDGES)[:5]).shape == (5,)


def test_cross_validation_sees_no_label_of_the_test_fold() -> None:
    """With labels that features and edges say nothing about, folds score at chance."""
    random = np.random.default_rng(3).integers(2, size=len(Y))
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    scores = cross_val_score(GFGNClassifier("pair", **QUICK), GraphNodes(X, EDGES), random, cv=folds)
    assert abs(scores.mean() - 0.5) < 0.15


def test_rows_without_their_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"edge_index must hold nodes 0 to 59.*pass GraphNodes\(X, edge_index\) as X"):
        GFGNClassifier(**QUICK).fit(X[:60], Y[:60], EDGES)


def test_pipelines_route_the_edges() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        clf = GFGNClassifier("graph", scale="none", **QUICK)
        pipeline = make_pipeline(StandardScaler(), clf).fit(X, LABELS, edge_index=EDGES)
        assert (pipeline.predict(X, edge_index=EDGES) == Y)[HIDDEN].mean() > 0.75
        assert pipeline.score(X, Y, edge_index=EDGES) > 0.75


# --- bad input ------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "level": ({"level": "edge"}, {}, r"level must be 'auto', 'graph', 'neighbor' or 'pair', got 'edge'"),
    "model": ({"model": "gcn"}, {}, "model must be 'gfgn' or 'gfgn-plus', got 'gcn'"),
    "replicas": ({"replicas": 0}, {}, r"replicas must be an integer, 1 or larger, got 0"),
    "val_fraction": ({"val_fraction": 1.0}, {}, r"val_fraction must be above 0 and below 1, got 1.0"),
    "metric": ({"metric": "f2"}, {}, r"metric must be one of .*, got 'f2'"),
    "scale": ({"scale": "max"}, {}, r"scale must be .*, got 'max'"),
    "transposed": ({}, {"edge_index": EDGES.T}, r"edge_index must hold integers of shape \[2, E\].*transpose it"),
    "negative": ({}, {"edge_index": EDGES - 1}, r"edge_index must hold nodes 0 to 119.*, got -1"),
    "weights": ({}, {"edge_weight": [1.0]}, r"edge_weight must have one value per edge, 480, got 1"),
    "weight": ({}, {"edge_weight": np.full(480, -1.0)}, r"edge_weight must hold finite numbers, 0 or larger, got -1.0"),
    "short y": ({}, {"y": Y[:7]}, r"y must have one value per node, 120, got 7"),
    "fractions": ({}, {"y": X[:, 0]}, r"y must hold classes, got the fraction"),
    "one class": ({}, {"y": np.zeros(120, dtype=int)}, r"y must hold at least two classes, got one class"),
    "no labels": ({}, {"y": np.full(120, -1)}, r"y must hold at least two classes, got no label"),
    "no y": ({}, {"y": None}, r"requires y to be passed, but the target y is None"),
    "mask": (
        {},
        {"val_mask": np.ones(3, dtype=bool)},
        r"val_mask must have shape \[120\], one value per node, got \[3\]",
    ),
    "repeated index": (
        {},
        {"val_mask": [3, 5, 5]},
        r"val_mask must be \[120\] booleans or distinct indices, 0 to 119, got 5, 2 times",
    ),
    "index": ({}, {"val_mask": [3, 120]}, r"distinct indices, 0 to 119, got 120, 1 times"),
    "full mask": ({}, {"val_mask": np.ones(120, dtype=bool)}, r"val_mask must leave labeled nodes outside"),
    "frame": (
        {},
        {"edge_index": pd.DataFrame({"a": [0], "b": [1], "c": [2]})},
        r"edge_index has no column 'source', only a, b, c",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    parameters, arguments, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        GFGNClassifier(**QUICK | parameters).fit(X, **{"y": LABELS, "edge_index": EDGES} | arguments)


def test_columns_and_ids_of_data_frames() -> None:
    """Columns are matched by name and ids must be unique, as in tables."""
    frame = pd.DataFrame(X, index=[f"n{k}" for k in range(len(X))]).rename(columns=lambda k: f"f{k}")
    edges = pd.DataFrame({"from": frame.index[EDGES[0]], "to": frame.index[EDGES[1]]})
    fitted = GFGNClassifier("pair", max_epochs=5, device="cpu").fit(frame, LABELS, edge_index=edges)
    expected = fitted.predict_proba(frame, edge_index=edges)
    np.testing.assert_array_equal(fitted.predict_proba(frame[frame.columns[::-1]], edge_index=edges), expected)
    twice = frame.rename(index={"n7": "n3"})
    with pytest.raises(
        ValueError, match="index of X must hold every id once, got 'n3' more than once, in rows 3 and 7"
    ):
        fitted.predict_proba(twice, edge_index=edges)


def test_prediction_needs_the_edges_and_the_columns(fitted: GFGNClassifier) -> None:
    with pytest.raises(
        ValueError, match="edge_index must be given, because the model was trained on a graph with edges"
    ):
        fitted.predict(X)
    assert fitted.predict(X, np.empty((2, 0), dtype=int)).shape == (len(Y),)
    with pytest.raises(ValueError, match="X has 5 features, but GFGNClassifier is expecting 6"):
        fitted.predict(X[:, :5], EDGES)


def test_validation_nodes_are_as_given() -> None:
    val = np.flatnonzero(~HIDDEN)[:20]
    by_index = GFGNClassifier("graph", **QUICK).fit(X, LABELS, EDGES, val_mask=val)
    by_mask = GFGNClassifier("graph", **QUICK).fit(X, LABELS, EDGES, val_mask=np.isin(np.arange(len(Y)), val))
    assert by_index.facts_["labelled"] == {"train": int((~HIDDEN).sum()) - 20, "val": 20, "test": 0}
    np.testing.assert_array_equal(by_index.predict_proba(X, EDGES), by_mask.predict_proba(X, EDGES))


class Seed(np.random.RandomState):
    """Draws one number."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def randint(self, *_: Any, **__: Any) -> int:
        return self.number


def test_a_node_is_calibrated_by_the_networks_that_did_not_train_on_it() -> None:
    def fit(seed: int, replicas: int) -> GFGNClassifier:
        options = QUICK | {"scale": "none", "random_state": Seed(seed)}
        return GFGNClassifier("graph", replicas, **options).fit(X, LABELS, EDGES)

    both, single = fit(5, 2), [fit(5, 1), fit(6, 1)]
    p = np.stack([clf.predict_proba(X, EDGES) ** clf.temperature_ for clf in single])
    p /= p.sum(-1, keepdims=True)  # not calibrated
    val = np.stack([clf._splits[0].val.numpy() for clf in single])
    assert (val[0] != val[1]).any()
    known = val.any(0)
    mean = (p * val[..., None]).sum(0)[known] / val.sum(0)[known, None]
    expected = fit_temperature(torch.from_numpy(mean), torch.from_numpy(Y[known]), False)
    assert both.temperature_ == pytest.approx(expected, rel=1e-3)


# --- datasets -------------------------------------------------------------------------------------


def test_a_dataset_is_taken_as_it_is() -> None:
    """Its first split counts: test nodes are held out, and validation nodes validate."""
    data = dimensions(200, degree=6, splits=2)
    clf = GFGNClassifier("pair", 2, **QUICK).fit(data)
    split = data.splits[0]
    assert torch.equal(torch.stack(clf._splits[0]), torch.stack(split))
    hidden = np.where(split.test, -1, data.y)
    same = GFGNClassifier("pair", 2, scale="none", **QUICK).fit(data.x, hidden, data.graph, val_mask=split.val)
    np.testing.assert_array_equal(clf.predict_proba(data), same.predict_proba(data.x, data.graph))
    assert clf.predict(GraphNodes(data)[:5]).tolist() == clf.predict(data)[:5].tolist()
    other = contextual_sbm(60, classes=3, features=7)
    with pytest.raises(ValueError, match="X must have the features of the model"):
        clf.predict(other)
    with pytest.raises(ValueError, match=r"edge_index .* NodeDataset"):
        clf.fit(data, edge_index=EDGES)


def test_validation_nodes_of_a_dataset_are_drawn_if_it_has_none() -> None:
    data = dimensions(200, degree=6, splits=1)
    data = dataclasses.replace(data, splits=random_splits(200, 1, train=0.75, val=0.0))
    clf = GFGNClassifier("graph", 2, **QUICK).fit(data)
    assert torch.equal(clf._splits[0].test, data.splits[0].test)
    assert clf._splits[0].val.sum() == pytest.approx(30, abs=5)


def test_two_classes_are_judged_by_the_area_under_the_curve() -> None:
    for y, metric in ((Y == 0, "roc_auc"), (np.arange(len(Y)) < 3, "accuracy"), (Y, "accuracy")):
        clf = GFGNClassifier("graph", **QUICK | {"max_epochs": 2}).fit(X, y.astype(int), EDGES)
        assert clf.facts_["metric"] == metric  # no curve where the validation nodes have one class


def test_a_graph_without_edges_is_named() -> None:
    with pytest.warns(UserWarning, match="no edge_index"):
        GFGNClassifier("graph", **QUICK | {"max_epochs": 2}).fit(X, Y)


# --- calibration ----------------------------------------------------------------------------------


def test_the_temperature_is_found() -> None:
    """Labels drawn from probabilities that are then sharpened: the temperature undoes it."""
    random = np.random.default_rng(0)
    logits = torch.from_numpy(random.normal(size=(20_000, 4)))
    y = torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    assert fit_temperature((2.5 * logits).softmax(1), y, False) == pytest.approx(2.5, rel=0.05)
    assert fit_temperature(logits.softmax(1), y, False) == pytest.approx(1.0, rel=0.05)


def test_confidence_is_mapped_to_accuracy() -> None:
    """Top probabilities that are wrong by a curve: the map undoes it, and predictions stay as they are."""
    random = np.random.default_rng(0)
    p = torch.from_numpy(random.dirichlet([0.6] * 4, size=20_000))
    top, index = p.max(1)
    right = torch.from_numpy(random.random(len(p))) < top.sqrt()  # more often right than it says
    y = torch.where(right, index, (index + 1) % 4)
    curve = fit_confidence(p, y)
    assert curve is not None
    mapped = map_confidence(p, curve)
    np.testing.assert_allclose(mapped.sum(1), 1)
    assert (mapped.argmax(1) == index).all()
    assert (mapped.max(1).values - top.sqrt()).abs().mean() < 0.02
    order = top.argsort()
    assert (mapped.max(1).values[order].diff() >= -1e-9).all()
    assert fit_confidence(p[:999], y[:999]) is None


def test_the_largest_probability_stays_the_largest() -> None:
    p = torch.tensor([[0.34, 0.33, 0.33], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    mapped = map_confidence(p, [[0.0, 1.0], [0.01, 0.2]])
    assert (mapped.argmax(1) == 0).all()
    np.testing.assert_allclose(mapped.sum(1), 1)
    assert mapped[1, 0] == pytest.approx(0.5)  # no less than the second one


def test_uncertain_predictions_are_wrong_more_often() -> None:
    """Hidden nodes, from the most to the least certain fifth."""
    data = contextual_sbm(500, classes=4, degree=4, homophily=0.4, signal=1.5, seed=1)
    x, y, hidden = data.x.numpy(), data.y.numpy(), np.arange(500) % 2 == 0
    clf = GFGNClassifier("neighbor", 3, **QUICK | {"max_epochs": 60}).fit(x, np.where(hidden, -1, y), data.graph)
    right = (clf.predict(x, data.graph) == y)[hidden]

    uncertainty = clf.predict_uncertainty(x, data.graph)
    first, *_, last = [float(right[fifth].mean()) for fifth in np.array_split(np.argsort(uncertainty[hidden]), 5)]
    assert first > last + 0.3


def test_uncertainty_is_the_entropy_of_the_probabilities(fitted: GFGNClassifier) -> None:
    p = fitted.predict_proba(X, EDGES)
    by_hand = [-sum(q * np.log(q) for q in row if q > 0) / np.log(3) for row in p]
    np.testing.assert_allclose(fitted.predict_uncertainty(X, EDGES), by_hand)
    several = GFGNClassifier("graph", **QUICK).fit(X, np.stack([Y == 0, Y != 1], 1).astype(int), EDGES)
    p = several.predict_proba(X, EDGES)
    by_hand = [np.mean([-q * np.log2(q) - (1 - q) * np.log2(1 - q) for q in row]) for row in p]
    np.testing.assert_allclose(several.predict_uncertainty(X, EDGES), by_hand)
    for classes in range(2, 60):
        np.testing.assert_allclose(entropy(np.eye(classes)), 0)
        equal = entropy(np.full((1, classes), 1 / classes))
        assert equal == [pytest.approx(1)]
        assert equal <= 1


# --- files ----------------------------------------------------------------------------------------


def test_a_saved_model_predicts_the_same(fitted: GFGNClassifier, tmp_path: Path) -> None:
    again = GFGNClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X, EDGES), fitted.predict_proba(X, EDGES))
    assert again.get_params() == fitted.get_params()
    assert again.history_ == fitted.history_
    np.testing.assert_allclose(again.smoothing_scores_, fitted.smoothing_scores_)


@pytest.mark.parametrize(
    ("options", "heads"),
    [
        ({}, 8),
        ({"heads": 2}, 2),
        ({"model": "gfgn-plus", "num_layers": 1}, 1),
        ({"model": "gfgn-plus", "num_layers": 3}, 8),
        ({"model": "gfgn-plus", "num_layers": 1, "heads": 4}, 4),
    ],
)
def test_number_of_heads(options: dict[str, Any], heads: int, tmp_path: Path) -> None:
    """That of the model by default: of GFGN+ it follows the depth."""
    clf = GFGNClassifier("neighbor", **options, **{**QUICK, "max_epochs": 2}).fit(X, LABELS, edge_index=EDGES)
    weights = load_file(clf.save(tmp_path) / "model.safetensors")
    assert next(value for name, value in weights.items() if name.endswith(".gate")).shape[-3] == heads


def test_gfgn_plus(tmp_path: Path) -> None:
    """Depth and level by validation; a deep one, with the running statistics of its batch norm, is saved and loaded."""
    clf = GFGNClassifier("neighbor", model="gfgn-plus", **QUICK).fit(X, LABELS, edge_index=EDGES)
    assert clf.best_params_["layers"] in (1, 8)
    assert (clf.predict(X, edge_index=EDGES) == Y)[HIDDEN].mean() > 0.8
    deep = GFGNClassifier("pair", model="gfgn-plus", num_layers=3, replicas=2, **QUICK)
    deep.fit(X, LABELS, edge_index=EDGES)
    assert deep.best_params_["layers"] == 3
    loaded = GFGNClassifier.load(deep.save(tmp_path / "model"))
    assert any(name.endswith("running_mean") for name in load_file(tmp_path / "model" / "model.safetensors"))
    assert np.array_equal(loaded.predict_proba(X, EDGES), deep.predict_proba(X, EDGES))
    assert deep.transform(X, edge_index=EDGES).shape == (len(Y), 2 * 64)


def test_labels_with_missing_values_of_pandas_and_half_precision() -> None:
    quick = QUICK | {"max_epochs": 2}
    names = pd.Series(np.array(["a", "b", "c"])[Y], dtype="string").mask(HIDDEN)
    answers = pd.Series(Y == 0, dtype="boolean").mask(HIDDEN)
    repeated = pd.DataFrame(X, index=np.zeros(len(Y), dtype=int))
    for y, classes in ((names, ["a", "b", "c"]), (answers, [False, True])):
        clf = GFGNClassifier("graph", **quick).fit(repeated, y, EDGES)
        assert clf.classes_.tolist() == classes
        assert set(clf.predict(repeated, EDGES).tolist()) <= set(classes)
        assert clf.score(repeated, y, edge_index=EDGES) >= 0
    half = torch.from_numpy(X).bfloat16()
    clf = GFGNClassifier("graph", **quick).fit(half, LABELS, EDGES)
    np.testing.assert_array_equal(clf.predict_proba(half, EDGES), clf.predict_proba(half.float(), EDGES))
