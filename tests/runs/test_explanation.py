"""The explanation of a comparison agrees with plain loops and scikit-learn, and is computed once."""

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import confusion_matrix

import gfgn.runs.explanation as module
from gfgn.data import NodeDataset, dimensions
from gfgn.data.encoder import FeatureEncoder, raw_features
from gfgn.runs import Comparison, Explanation, Store, compare, explain, smoothness
from gfgn.runs.comparison import read_comparisons
from gfgn.runs.explanation import RetrainedRun, choose_run, find_extremes, permutation_importance, permute_columns

QUICK: dict[str, Any] = {"splits": 2, "max_epochs": 30}


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(240, degree=10, splits=2)


@pytest.fixture(scope="module")
def store(data: NodeDataset) -> Store:
    return Store(":memory:")


@pytest.fixture(scope="module")
def comparison(data: NodeDataset, store: Store) -> Comparison:
    return compare(data, ["mlp", "gfgn-graph", "gfgn-pair"], store=store, **QUICK)


@pytest.fixture(scope="module")
def note(data: NodeDataset, store: Store, comparison: Comparison) -> Explanation:
    result = explain(store, data, comparison)
    assert result is not None
    return result


def explained(data: NodeDataset, model: str, epochs: int = 3) -> Explanation:
    """The explanation of a comparison of one model."""
    with Store(":memory:") as store:
        note = explain(store, data, compare(data, [model], splits=1, store=store, max_epochs=epochs))
    assert note is not None
    return note


def pretend(comparison: Comparison, **val: float) -> Comparison:
    """The comparison with other validation scores."""
    runs = [dataclasses.replace(row, val=val.get(row.model.replace("-", "_"), 0.0)) for row in comparison.runs]
    return dataclasses.replace(comparison, runs=runs)


def test_the_run_is_chosen_by_validation_score(comparison: Comparison) -> None:
    row = choose_run(pretend(comparison, mlp=0.4, gfgn_pair=0.6))
    assert row is not None
    assert (row.model, row.replica.split, row.replica.seed) == ("gfgn-pair", 0, 0)
    row = choose_run(pretend(comparison, mlp=0.8, gfgn_pair=0.6), ("graph", "pair"))
    assert row is not None
    assert row.model == "gfgn-pair"
    row = choose_run(pretend(comparison, mlp=float("nan"), gfgn_graph=0.1))
    assert row is not None
    assert row.model == "gfgn-graph"


def test_models_that_cannot_be_explained_are_skipped(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        able = compare(data, ["majority", "graphsaint"], splits=1, store=store, max_epochs=1)
        assert explain(store, data, able) is None
        assert read_comparisons(store)[0].explanation is None


def test_the_run_trained_again_is_the_run_of_the_store(note: Explanation, comparison: Comparison) -> None:
    run = note.run
    row = comparison.rows[run.model][0]
    assert (run.key, run.epoch, run.epochs) == (row.key, row.epoch, row.epochs)
    assert run.test == pytest.approx(row.test, abs=1e-5)
    assert run.val == pytest.approx(row.val, abs=1e-5)
    assert run.configuration == row.replica.configuration


def test_classes_are_those_of_the_test_nodes(data: NodeDataset, note: Explanation, comparison: Comparison) -> None:
    again = RetrainedRun.of(comparison.rows[note.run.model][0], data, "cpu")
    mask = data.splits[0].test
    with torch.no_grad():
        predicted = again.network(data.x, data.graph).argmax(1)
    assert np.array_equal(note.classes.confusion, confusion_matrix(data.y[mask], predicted[mask], labels=range(6)))
    assert note.classes.class_names == tuple("012345")
    right = sum(note.classes.confusion[k][k] for k in range(6))
    assert right / int(mask.sum()) == pytest.approx(note.run.test, abs=1e-5)


def test_curves_are_thinned_and_keep_the_best_epoch(comparison: Comparison, data: NodeDataset) -> None:
    run = RetrainedRun.of(comparison.rows["mlp"][0], data, "cpu").run
    whole = module.thinned(run.history, run.epoch)
    assert whole["epoch"] == list(range(run.epochs))
    assert whole["val"][run.epoch] == pytest.approx(run.val, abs=1e-5)
    values = [float(k) for k in range(5000)]
    values[7] = float("nan")
    thin = module.thinned(dict.fromkeys(run.history, values), 7)
    assert len(thin["epoch"]) <= 200
    assert {0, 7, 4999} <= set(thin["epoch"])
    assert thin["val"][thin["epoch"].index(7)] is None
    assert thin["val"][-1] == 4999


def test_features(data: NodeDataset, note: Explanation) -> None:
    features = note.features
    assert features.model.startswith("gfgn-")
    assert features.names == data.feature_names
    assert set(features.gates) == {"graph", "neighbor", "pair"}
    assert features.smoothness == pytest.approx(smoothness(data).tolist(), abs=1e-4)
    assert data.smooth_dimensions is not None
    assert features.follows == data.smooth_dimensions.tolist()
    assert None not in features.importance


def test_importance_finds_the_features_that_a_model_reads() -> None:
    x = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    label = x[:, 1] + x[:, 3] > 0

    def score(x: torch.Tensor) -> float:
        return float(((x[:, 1] + x[:, 3] > 0) == label).float().mean())

    drops = permutation_importance(score, x, [[0], [1], [2, 4], [1, 3]], repeats=4)
    assert drops.shape == (4, 4)
    assert (drops[[0, 2]] == 0).all()
    assert (drops[1] > 0.1).all()
    assert (drops[3] > drops[1]).all()
    assert torch.equal(drops, permutation_importance(score, x, [[0], [1], [2, 4], [1, 3]], repeats=4))


def test_permuted_columns_are_the_same_dense_and_sparse() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 6, generator=generator) * (torch.rand(20, 6, generator=generator) < 0.4)
    order = np.random.default_rng(0).permutation(20)
    expected = x.clone()
    for row in range(20):
        expected[row, [1, 4]] = x[int(order[row]), [1, 4]]
    before = x.clone()
    assert torch.equal(permute_columns(x, [1, 4], order), expected)
    assert torch.equal(permute_columns(x.to_sparse_csr(), [1, 4], order).to_dense(), expected)
    assert torch.equal(x, before)


def test_columns_of_one_source_are_permuted_together(data: NodeDataset) -> None:
    city = np.array(["Bonn", "Kiel", "Ulm"])[data.y.numpy() // 2]
    raw = raw_features(pd.DataFrame({"city": city, "size": data.x[:, 0].numpy()}))
    encoder = FeatureEncoder.fit(raw)
    changes: dict[str, Any] = {"x": encoder.transform(raw), "feature_names": encoder.feature_names, "encoder": encoder}
    table = dataclasses.replace(data, **changes, smooth_dimensions=None)
    features = explained(table, "mlp", epochs=60).features
    assert features.source == ["city", "city", "city", "size"]
    *cities, size = features.importance
    assert len(set(cities)) == 1
    assert cities[0] > 0.1
    assert cities[0] > size


def test_wide_data_has_candidates_only(
    data: NodeDataset, comparison: Comparison, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DIMENSIONS", 20)
    monkeypatch.setattr(module, "CANDIDATES", 10)
    monkeypatch.setattr("gfgn.runs.gates.MAX_DIMENSIONS", 20)
    again = RetrainedRun.of(comparison.rows["gfgn-pair"][0], data, "cpu")
    features = module.explain_features(again, data)
    assert list(features.gates) == ["graph"]
    chosen = [k for k, value in enumerate(features.importance) if value is not None]
    assert len(chosen) == 10
    order = np.argsort(features.gates["graph"], kind="stable")
    assert {*order[:2].tolist(), *order[-2:].tolist()} <= set(chosen)


def test_extreme_edges_are_those_of_the_gates(data: NodeDataset, comparison: Comparison) -> None:
    again = RetrainedRun.of(comparison.rows["gfgn-pair"][0], data, "cpu")
    named = dataclasses.replace(data, node_ids=np.array([f"n{k}" for k in range(240)]), class_names=list("abcdef"))
    found = find_extremes(again, named)
    assert (found.kind, found.total) == ("edges", data.graph.num_edges)
    with torch.no_grad():
        _, scores = again.network(data.x, data.graph.edge_index, return_scores=True)
    gates = scores[0].mean(1)
    assert [row.gate for row in found.most] == pytest.approx(gates.topk(10).values.tolist(), abs=1e-4)
    assert [row.gate for row in found.least] == pytest.approx((-(-gates).topk(10).values).tolist(), abs=1e-4)
    source, target = data.graph.edge_index[:, int(gates.argmax())].tolist()
    degree = (data.graph.edge_index[1] == source).sum()
    assert found.most[0].nodes[0] == {"id": f"n{source}", "class": "abcdef"[data.y[source]], "degree": degree}
    assert found.most[0].nodes[1]["id"] == f"n{target}"


def test_extreme_nodes(data: NodeDataset) -> None:
    edges = data.graph.edge_index
    without = type(data.graph).from_edge_index(edges[:, edges[1] != 5], data.num_nodes)  # no edge ends at node 5
    data = dataclasses.replace(data, graph=without)
    with Store(":memory:") as store:
        row = compare(data, ["gfgn-neighbor"], splits=1, store=store, max_epochs=5).rows["gfgn-neighbor"][0]
    again = RetrainedRun.of(row, data, "cpu")
    found = find_extremes(again, data)
    assert (found.kind, found.total, found.directed) == ("nodes", 239, True)
    with torch.no_grad():
        gates = again.network(data.x, data.graph, return_scores=True)[1][0].mean(1)
    gates[5] = 0.0
    assert found.most[0].nodes[0]["id"] == str(int(gates.argmax()))
    gates[5] = 1.0
    assert found.least[0].nodes[0]["id"] == str(int(gates.argmin()))


def test_it_is_computed_once_and_read_with_the_comparison(
    data: NodeDataset, store: Store, comparison: Comparison, note: Explanation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Explanation.from_json(json.loads(json.dumps(note.to_json(), allow_nan=False))) == note
    monkeypatch.setattr(module, "train_replicas", None)
    assert explain(store, data, comparison) == note
    assert Explanation.from_json(read_comparisons(store)[0].explanation or {}) == note
    with pytest.raises(TypeError):  # other names: it trains again
        explain(store, dataclasses.replace(data, class_names=list("abcdef")), comparison)
    only = compare(data, ["mlp"], store=store, **QUICK)
    if note.run.model != "mlp":
        assert only.explanation is None


def test_without_a_gfgn_there_are_no_gates(data: NodeDataset) -> None:
    note = explained(data, "mlp")
    assert (note.gated, note.extremes, note.features.gates) == (None, None, {})
    assert note.features.model == "mlp"


def test_multilabel_data(data: NodeDataset) -> None:
    labels = torch.stack([data.y % 2 == 0, data.y > 2], 1)
    several = dataclasses.replace(data, y=labels, num_classes=2, metric="micro_f1", class_names=["even", "large"])
    note = explained(several, "gfgn-pair")
    assert note.classes.multilabel
    assert note.extremes is not None
    assert note.extremes.most[0].nodes[0]["class"] is None


@pytest.mark.parametrize(("model", "kind"), [("gfgn-plus", "nodes"), ("gfgn-plus-pair", "edges")])
def test_gates_of_gfgn_plus_are_explained(data: NodeDataset, model: str, kind: str) -> None:
    note = explained(data, model)
    assert note.gated is not None
    assert note.extremes is not None
    assert (note.gated.model, note.extremes.kind) == (model, kind)
    assert note.features.level == ("pair" if kind == "edges" else "neighbor")
