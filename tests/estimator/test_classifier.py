"""`GFGNClassifier` learns, predicts for any kind of input, and behaves as scikit-learn expects."""

import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
import torch
from estimator.graphs import make_graph
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data
from torch_geometric.edge_index import EdgeIndex

from gfgn import GFGNClassifier, Graph, Nodes
from gfgn.data import NodeDataset, contextual_sbm
from gfgn.estimator.inputs import unpack
from gfgn.estimator.labels import read_labels, read_validation
from gfgn.estimator.members import fit_confidence, fit_temperature, map_confidence, temper

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


def test_an_ensemble_averages_its_members() -> None:
    clf = GFGNClassifier("graph", 4, scale="none", **QUICK).fit(X, LABELS, edge_index=EDGES)
    members = clf._member_probabilities(clf._encode(X, EDGES, None)[0])
    assert members.shape == (4, len(Y), 3)
    expected = temper(members.mean(0), clf.temperature_, False).numpy()
    np.testing.assert_allclose(clf.predict_proba(X, EDGES), expected)
    assert len(clf.history_) == 4
    assert clf.transform(X, EDGES).shape == (len(Y), 4 * 64)
    single = GFGNClassifier("graph", 1, scale="none", **QUICK).fit(X, LABELS, edge_index=EDGES)
    assert single.history_[0]["val"] == pytest.approx(clf.history_[0]["val"])


def test_embeddings_are_the_input_of_the_last_layer(fitted: GFGNClassifier) -> None:
    h = torch.from_numpy(fitted.transform(X, EDGES))
    dataset, _ = fitted._encode(X, EDGES, None)
    members = fitted._members
    conv: Any = members.network(0).convs[-1]  # type: ignore[index]
    logits = conv(h, dataset.graph).double()
    np.testing.assert_allclose(logits.numpy(), members.logits(dataset.x, dataset.graph)[0], rtol=1e-5, atol=1e-6)


def edge_inputs() -> dict[str, Any]:
    both = np.concatenate([EDGES, EDGES[::-1]], 1)
    matrix = scipy.sparse.coo_array((np.ones(both.shape[1]), (both[1], both[0])), shape=(len(Y), len(Y))).tocsr()
    matrix.data[:] = 1
    graph = nx.Graph()
    graph.add_nodes_from(range(len(Y)))
    graph.add_edges_from(EDGES.T.tolist())
    return {
        "tensor": torch.from_numpy(EDGES),
        "lists": EDGES.tolist(),
        "EdgeIndex": EdgeIndex(torch.from_numpy(EDGES), sparse_size=(len(Y), len(Y))),
        "SciPy": matrix,
        "sparse tensor": torch.sparse_coo_tensor(torch.from_numpy(both), torch.ones(both.shape[1]))
        .coalesce()
        .bool()
        .float(),
        "NetworkX": graph,
        "data frame": pd.DataFrame({"source": EDGES[0], "target": EDGES[1]}),
        "Graph": Graph.from_edge_index(torch.from_numpy(both), len(Y)),
        "both directions": both,
    }


@pytest.mark.parametrize("kind", edge_inputs())
def test_every_kind_of_edges_gives_the_same_prediction(fitted: GFGNClassifier, kind: str) -> None:
    edges = edge_inputs()[kind]
    np.testing.assert_allclose(fitted.predict_proba(X, edges), fitted.predict_proba(X, EDGES), rtol=1e-5)


@pytest.mark.parametrize("kind", ["tensor", "csr", "float64", "list"])
def test_every_kind_of_features_gives_the_same_prediction(fitted: GFGNClassifier, kind: str) -> None:
    same = {
        "tensor": torch.from_numpy(X),
        "csr": scipy.sparse.csr_array(X),
        "float64": X.astype(np.float64),
        "list": X.tolist(),
    }
    if kind == "csr":  # sparse columns are not centered: another encoding, to be fitted as such
        clf = GFGNClassifier("graph", **QUICK).fit(same[kind], LABELS, EDGES)
        assert (clf.predict(same[kind], EDGES) == Y)[HIDDEN].mean() > 0.7
        return
    np.testing.assert_allclose(fitted.predict_proba(same[kind], EDGES), fitted.predict_proba(X, EDGES), rtol=1e-5)


def test_data_frames_with_names_categories_and_missing_values() -> None:
    names = [f"n{k}" for k in np.random.default_rng(1).permutation(len(Y))]
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(6)], index=names)
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
    assert clf._facts["labelled"] == {"train": int(train.sum()), "val": int(val.sum()), "test": 0}
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
    assert clf._facts["labelled"]["train"] + clf._facts["labelled"]["val"] == (~HIDDEN).sum()
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
    assert directed._facts["edges"] < clf._facts["edges"]


# --- scikit-learn ---------------------------------------------------------------------------------


def test_clone_and_pickle(fitted: GFGNClassifier) -> None:
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X, EDGES), fitted.predict_proba(X, EDGES))


def test_the_same_random_state_gives_the_same_model(fitted: GFGNClassifier) -> None:
    again = GFGNClassifier("pair", **QUICK).fit(X, LABELS, edge_index=EDGES)
    np.testing.assert_array_equal(again.predict_proba(X, EDGES), fitted.predict_proba(X, EDGES))


def test_grid_search_keeps_the_graph_whole() -> None:
    search = GridSearchCV(GFGNClassifier("neighbor", **QUICK), {"lr": [1e-5, 0.02]}, cv=3, error_score="raise")
    search.fit(Nodes(X, EDGES), Y)
    assert search.best_params_ == {"lr": 0.02}
    assert search.best_score_ > 0.7
    assert search.predict(Nodes(X, EDGES)[:5]).shape == (5,)


def test_cross_validation_sees_no_label_of_the_test_fold() -> None:
    """With labels that features and edges say nothing about, folds score at chance."""
    random = np.random.default_rng(3).integers(2, size=len(Y))
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    scores = cross_val_score(GFGNClassifier("pair", **QUICK), Nodes(X, EDGES), random, cv=folds)
    assert abs(scores.mean() - 0.5) < 0.15


def test_rows_without_their_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"edge_index must hold nodes 0 to 59.*pass Nodes\(X, edge_index\) as X"):
        GFGNClassifier(**QUICK).fit(X[:60], Y[:60], EDGES)


def test_pipelines_route_the_edges() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        clf = GFGNClassifier("graph", scale="none", **QUICK)
        pipeline = make_pipeline(StandardScaler(), clf).fit(X, LABELS, edge_index=EDGES)
        assert (pipeline.predict(X, edge_index=EDGES) == Y)[HIDDEN].mean() > 0.75
        assert pipeline.score(X, Y, edge_index=EDGES) > 0.75


def test_html_names_what_was_learned(fitted: GFGNClassifier) -> None:
    page = fitted._repr_html_()
    assert "most from neighbors" in page
    assert "most from neighbors" not in GFGNClassifier()._repr_html_()


# --- bad input ------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "level": ({"level": "edge"}, {}, r"level must be 'auto', 'graph', 'neighbor' or 'pair', got 'edge'"),
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
    "full mask": ({}, {"val_mask": np.ones(120, dtype=bool)}, r"val_mask must leave labelled nodes outside"),
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
    assert by_index._facts["labelled"] == {"train": int((~HIDDEN).sum()) - 20, "val": 20, "test": 0}
    np.testing.assert_array_equal(by_index.predict_proba(X, EDGES), by_mask.predict_proba(X, EDGES))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_masks_of_numbers_are_masks(dtype: torch.dtype) -> None:
    """Integers 0 and 1, one per node, were the indices 0 and 1."""
    labels, val = read_labels(Y, len(Y)), torch.arange(len(Y)) % 3 == 0
    assert (read_validation(val.to(dtype), labels) == val.numpy()).all()
    data = Data(x=torch.from_numpy(X), y=torch.from_numpy(Y), train_mask=(~val).to(dtype), val_mask=val.to(dtype))
    given = unpack(data, None, None)
    assert torch.equal(given.val_mask, val)
    assert torch.equal(given.y, torch.from_numpy(Y))
    with pytest.raises(
        ValueError, match=r"train_mask of a Data must be a \[N\] tensor of booleans, got shape \[120, 2\]"
    ):
        unpack(Data(x=data.x, train_mask=torch.stack([val, ~val], 1)), None, None)


def test_every_network_has_its_own_validation_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    original = GFGNClassifier._fit_dataset

    def _fit_dataset(self: GFGNClassifier, dataset: NodeDataset, *arguments: Any) -> GFGNClassifier:
        seen["splits"] = dataset.splits
        return original(self, dataset, *arguments)

    monkeypatch.setattr(GFGNClassifier, "_fit_dataset", _fit_dataset)
    clf = GFGNClassifier("graph", 5, **QUICK | {"max_epochs": 2}).fit(X, LABELS, EDGES)
    vals = torch.stack([split.val for split in seen["splits"]])
    assert vals.shape == (5, len(Y))
    assert vals.unique(dim=0).size(0) == 5
    assert all(torch.equal(split.train | split.val, torch.from_numpy(~HIDDEN)) for split in seen["splits"])
    # Calibrated by the networks that did not train on a node.
    p = clf._member_probabilities(clf._encode(X, EDGES, None)[0])
    nodes = [n for n in range(len(Y)) if vals[:, n].any()]
    mean = torch.stack([torch.stack([p[r, n] for r in range(5) if vals[r, n]]).mean(0) for n in nodes])
    assert clf.temperature_ == pytest.approx(fit_temperature(mean, torch.from_numpy(Y[nodes]), False), rel=1e-3)
    clf.fit(X, LABELS, EDGES, val_mask=vals[0])
    assert len(seen["splits"]) == 1


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
    """Hidden nodes, from the most to the least certain fifth, where the disagreement of the networks is reversed."""
    data = contextual_sbm(500, classes=4, degree=4, homophily=0.4, signal=1.5, seed=1)
    x, y, hidden = data.x.numpy(), data.y.numpy(), np.arange(500) % 2 == 0
    clf = GFGNClassifier("neighbor", 3, **QUICK | {"max_epochs": 60}).fit(x, np.where(hidden, -1, y), data.graph)
    right = (clf.predict(x, data.graph) == y)[hidden]

    def accuracies(uncertainty: Any) -> list[float]:
        return [float(right[fifth].mean()) for fifth in np.array_split(np.argsort(uncertainty[hidden]), 5)]

    first, *_, last = accuracies(clf.predict_uncertainty(x, data.graph))
    assert first > last + 0.3
    members = clf._member_probabilities(clf._encode(x, data.graph, None)[0]).numpy()
    top = members.mean(0).argmax(1)[:, None]
    first, *_, last = accuracies(np.take_along_axis(members.std(0), top, 1)[:, 0])
    assert first < last


def test_uncertainty_is_the_entropy_of_the_probabilities(fitted: GFGNClassifier) -> None:
    p = fitted.predict_proba(X, EDGES)
    by_hand = [-sum(q * np.log(q) for q in row if q > 0) / np.log(3) for row in p]
    np.testing.assert_allclose(fitted.predict_uncertainty(X, EDGES), by_hand)
    several = GFGNClassifier("graph", **QUICK).fit(X, np.stack([Y == 0, Y != 1], 1).astype(int), EDGES)
    p = several.predict_proba(X, EDGES)
    by_hand = [np.mean([-q * np.log2(q) - (1 - q) * np.log2(1 - q) for q in row]) for row in p]
    np.testing.assert_allclose(several.predict_uncertainty(X, EDGES), by_hand)
    for classes in range(2, 60):
        np.testing.assert_allclose(fitted._uncertainty(np.eye(classes)), 0)
        equal = fitted._uncertainty(np.full((1, classes), 1 / classes))
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
def test_number_of_heads(options: dict[str, Any], heads: int) -> None:
    """That of the model by default: of GFGN+ it follows the depth."""
    clf = GFGNClassifier("neighbor", **options, **{**QUICK, "max_epochs": 2}).fit(X, LABELS, edge_index=EDGES)
    gates = [state for name, state in clf._members.states.items() if name.rpartition(".")[2] == "gate"]
    assert gates[0].shape[-3] == heads


def test_gfgn_plus(tmp_path: Path) -> None:
    """Depth and level by validation; a deep one, with the running statistics of its batch norm, is saved and loaded."""
    clf = GFGNClassifier("neighbor", model="gfgn-plus", **QUICK).fit(X, LABELS, edge_index=EDGES)
    assert clf.best_params_["layers"] in (1, 8)
    assert (clf.predict(X, edge_index=EDGES) == Y)[HIDDEN].mean() > 0.8
    deep = GFGNClassifier("pair", model="gfgn-plus", num_layers=3, replicas=2, **QUICK)
    deep.fit(X, LABELS, edge_index=EDGES)
    assert (deep._members.model, deep.best_params_["layers"]) == ("gfgn-plus-pair", 3)
    assert any(name.endswith("running_mean") for name in deep._members.states)
    loaded = GFGNClassifier.load(deep.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(X, EDGES), deep.predict_proba(X, EDGES))
    assert deep.transform(X, edge_index=EDGES).shape == (len(Y), 2 * 64)
    with pytest.raises(ValueError, match="model must be 'gfgn' or 'gfgn-plus', got 'gcn'"):
        GFGNClassifier(model="gcn").fit(X, LABELS, edge_index=EDGES)
