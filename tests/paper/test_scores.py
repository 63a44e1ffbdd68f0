"""Scores of trained networks: what is read from them, what is kept, and that nothing is trained twice."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gfgn.data import Dataset
from gfgn.data.generators import dimensions
from gfgn.graph import Graph
from gfgn.nn import GFGN
from gfgn.paper.outputs import read_csv
from gfgn.paper.scores import (
    COLUMNS,
    DIMENSIONS,
    SUMMARY,
    draw,
    first_layer_scores,
    page,
    put,
    read_chosen,
    run,
    summarise,
    train_scores,
)
from gfgn.runs import grid
from gfgn.train import Replica, train_replicas

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
SETTINGS: dict[str, Any] = {"max_epochs": 3, "patience": 3, "splits": 2}
CONFIGURATION = {"lr": 0.05, "weight_decay": 5e-4, "dropout": 0.5, "lam": 2.0}


@pytest.fixture(scope="module")
def data() -> Dataset:
    made = dimensions(80, degree=6, splits=2)
    graph = Graph.from_edge_index(made.graph.edge_index, made.num_nodes)  # every edge given once, and no self-loops
    return dataclasses.replace(made, name="cora", graph=graph)


@pytest.mark.parametrize("model", LEVELS)
def test_scores_are_those_of_the_trained_network(model: str, data: Dataset) -> None:
    replica = Replica(**CONFIGURATION)
    (trained,) = train_replicas(model, data, [replica], max_epochs=5, keep_state=True)
    scores = first_layer_scores(data, trained)
    rows = {"gfgn-graph": 1, "gfgn-neighbor": data.num_nodes, "gfgn-pair": data.graph.num_edges}[model]
    assert scores.shape == (rows, 64)
    # the engine's own summary of the same gates
    assert trained.gates is not None
    assert scores.min().item() == pytest.approx(trained.gates["min"], rel=1e-4)
    assert scores.max().item() == pytest.approx(trained.gates["max"], rel=1e-4)
    # and the layer's own arithmetic, for a network with those weights
    assert trained.state is not None
    network = GFGN(data.num_features, 64, 2, data.num_classes, level=model.removeprefix("gfgn-"), lam=2.0).eval()
    network.load_state_dict(trained.state)
    with torch.no_grad():
        _, expected = network(data.x, data.graph, return_scores=True)
    assert torch.allclose(scores, expected[0], atol=1e-5)


def test_given_self_loops_and_repeated_edges_do_not_count(data: Dataset) -> None:
    (trained,) = train_replicas("gfgn-pair", data, [Replica(**CONFIGURATION)], max_epochs=2, keep_state=True)
    edges = data.graph.edge_index
    messy = torch.cat([torch.tensor([[3], [3]]), edges, edges[:, :10], torch.tensor([[5], [5]])], dim=1)
    other = dataclasses.replace(data, graph=Graph.from_edge_index(messy, data.num_nodes))
    assert torch.equal(first_layer_scores(other, trained), first_layer_scores(data, trained))


def test_summaries_by_dimension(data: Dataset) -> None:
    (trained,) = train_replicas("gfgn-pair", data, [Replica(**CONFIGURATION)], max_epochs=3, keep_state=True)
    scores, found = first_layer_scores(data, trained).double().numpy(), summarise(data, trained)
    assert found.mean == pytest.approx(scores.mean(axis=0))
    assert found.quantiles.shape == (64, len(COLUMNS))
    assert found.quantiles[:, 0] == pytest.approx(scores.min(axis=0))
    assert found.quantiles[:, 3] == pytest.approx(np.median(scores, axis=0))
    assert found.below == pytest.approx((scores < 0.55).mean())
    assert trained.state is not None
    norms = trained.state["convs.0.lin.weight"].double().norm(dim=1).numpy()
    assert found.weight == pytest.approx(norms / norms.max())
    assert found.idle == pytest.approx((norms < 0.1 * norms.max()).mean())
    assert found.spread == pytest.approx(scores.mean(axis=0).std())
    assert found.box == pytest.approx(np.subtract(*np.quantile(scores, [0.75, 0.25], axis=0)).mean())


def test_at_graph_level_a_dimension_has_one_score(data: Dataset) -> None:
    found = train_scores("gfgn-graph", data, CONFIGURATION, **SETTINGS)
    assert [scores.replica.split for scores in found] == [0, 1]
    assert all(scores.box == 0 for scores in found)
    assert all((scores.std == 0).all() for scores in found)


def test_dimensions_without_weights_keep_half_of_lambda(data: Dataset) -> None:
    """What the page says of idle dimensions."""
    (trained,) = train_replicas("gfgn-graph", data, [Replica(**CONFIGURATION)], max_epochs=3, keep_state=True)
    assert trained.state is not None
    trained.state["convs.0.lin.weight"][8:16] = 0  # a whole head
    found = summarise(data, trained)
    assert found.idle >= 8 / 64
    assert found.mean[8:16] == pytest.approx(1.0)  # λ is 2


def test_without_a_configuration_validation_chooses(data: Dataset) -> None:
    choices = grid(lr=(1e-6, 0.05), weight_decay=5e-4, dropout=0.5, lam=1.0)
    settings = SETTINGS | {"max_epochs": 30, "patience": 30}
    found = train_scores("gfgn-graph", data, grid=choices, **settings)
    assert {scores.replica.lr for scores in found} == {0.05}  # the other learns nothing


def test_bad_arguments(data: Dataset) -> None:
    with pytest.raises(ValueError, match="model must be one with gates, got 'gcn'"):
        train_scores("gcn", data, CONFIGURATION)
    with pytest.raises(ValueError, match="splits must be 1 to 2 for 'cora', got 3"):
        train_scores("gfgn-graph", data, CONFIGURATION, splits=3)
    (without,) = train_replicas("gfgn-graph", data, [Replica()], max_epochs=1)
    with pytest.raises(ValueError, match="run must have its state: train with keep_state=True"):
        first_layer_scores(data, without)
    (other,) = train_replicas("mlp", data, [Replica()], max_epochs=1, keep_state=True)
    with pytest.raises(ValueError, match="run must be of a model with gates, got 'mlp'"):
        first_layer_scores(data, other)


CHOSEN = """dataset,model,lr,weight_decay,dropout,lam,own,val,std,runs,chosen
cora,gfgn-graph,0.005,0.0005,0.5,1.0,,0.8,0.01,10,0
cora,gfgn-graph,0.05,5e-05,0.8,2.0,heads=4 activation=elu,0.9,0.01,10,1
"""


def test_chosen_configurations(tmp_path: Path) -> None:
    path = tmp_path / "chosen.csv"
    path.write_text(CHOSEN, encoding="utf-8")
    expected = {"lr": 0.05, "weight_decay": 5e-5, "dropout": 0.8, "lam": 2.0, "heads": 4, "activation": "elu"}
    assert read_chosen(path) == {("cora", "gfgn-graph"): expected}
    assert read_chosen(tmp_path / "none.csv") == {}


@pytest.fixture
def settings(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of `run`; without row normalisation, the features are three times as large."""
    raw = dataclasses.replace(data, x=3 * data.x)
    monkeypatch.setattr("gfgn.data.load", lambda name, root, normalize=True: data if normalize else raw)
    return {
        "root": None,
        "device": "cpu",
        "figures": {"gfgn-graph": ("cora",), "gfgn-pair": ("cora",)},
        "raw": {"gfgn-graph": ("cora",)},
        "grid": grid(**CONFIGURATION),
        **SETTINGS,
    }


@pytest.fixture
def out(settings: dict[str, Any], tmp_path: Path) -> Path:
    """The folder of a run."""
    run(tmp_path / "scores", progress=lambda line: None, **settings)
    return tmp_path / "scores"


def test_files(settings: dict[str, Any], tmp_path: Path) -> None:
    said: list[str] = []
    paths = run(tmp_path, progress=said.append, **settings)
    assert said == [
        "scores: gfgn-graph on cora, a configuration chosen by validation",
        "scores: gfgn-pair on cora, a configuration chosen by validation",
        "scores: gfgn-graph on cora, features as they come, a configuration chosen by validation",
    ]
    assert all(path.is_file() for path in paths)
    names = {"summary.csv", "dimensions.csv", "raw.csv", "dimensions.md", "gfgn-graph.svg", "gfgn-pair.svg"}
    assert {path.name for path in paths} >= names


def test_without_tables_nothing_is_drawn(tmp_path: Path) -> None:
    assert draw(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_trained_again(out: Path, settings: dict[str, Any]) -> None:
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    said: list[str] = []
    run(out, progress=said.append, **settings)
    assert said == []
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_another_configuration_is_trained_anew(out: Path, settings: dict[str, Any]) -> None:
    (out.parent / "table1").mkdir()
    (out.parent / "table1" / "chosen.csv").write_text(CHOSEN, encoding="utf-8")
    said: list[str] = []
    run(out, progress=said.append, **settings)
    assert said == [
        "scores: waiting until all configurations are chosen on cora",
        "scores: gfgn-graph on cora, the configuration that was chosen",
    ]
    rows = read_csv(out / "summary.csv")
    assert [(row["model"], row["dropout"]) for row in rows] == [("gfgn-graph", "0.8")] * 2 + [("gfgn-pair", "0.5")] * 2
    # the study's own choice in the folder goes before that of table1
    (out / "chosen.csv").write_text(CHOSEN.replace("0.8,2.0", "0.2,2.0"), encoding="utf-8")
    run(out, progress=said.append, **settings)
    assert {row["dropout"] for row in read_csv(out / "summary.csv") if row["model"] == "gfgn-graph"} == {"0.2"}


def test_a_table_keeps_one_row_a_place(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    put(path, ("dataset", "model", "x"), [("cora", "gfgn-pair", 1), ("cora", "gfgn-pair", 2)])
    put(path, ("dataset", "model", "x"), [("texas", "gfgn-graph", 3)])
    put(path, ("dataset", "model", "x"), [("cora", "gfgn-pair", 4)])  # in place of what was there
    assert path.read_text(encoding="utf-8").splitlines()[1:] == ["texas,gfgn-graph,3", "cora,gfgn-pair,4"]


def test_tables_agree(out: Path) -> None:
    summary, by_dimension = (read_csv(out / name) for name in ("summary.csv", "dimensions.csv"))
    for model in ("gfgn-graph", "gfgn-pair"):
        first = next(row for row in summary if row["model"] == model)
        rows = [row for row in by_dimension if row["model"] == model]
        assert len(rows) == 64
        assert float(first["min"]) == min(float(row["min"]) for row in rows)
        assert float(first["max"]) == max(float(row["max"]) for row in rows)
    assert tuple(summary[0]) == SUMMARY
    assert tuple(by_dimension[0]) == DIMENSIONS


def test_features_as_they_come_are_kept_apart(out: Path) -> None:
    (first, _) = read_csv(out / "raw.csv")
    assert (first["model"], first["dataset"]) == ("gfgn-graph", "cora")
    text = (out / "dimensions.md").read_text(encoding="utf-8")
    assert text.index("## gfgn-pair") < text.index("## gfgn-graph, features as they come")


def test_without_matplotlib_there_are_tables_and_a_page(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgn.paper.scores.find_spec", lambda name: None)
    assert [path.name for path in draw(out)] == ["dimensions.md"]


def test_the_page_has_the_numbers() -> None:
    line = {"model": "gfgn-graph", "dataset": "cora", "lam": "2", "below_055": "0.641", "spread": "0.3", "box": "0"}
    line |= {"idle": "0.25"}
    lines = [line | {"min": "0.1", "max": "1.5", "test": "0.8"}, line | {"min": "0.06", "max": "1.4", "test": "0.9"}]
    assert "| cora | 2 | [0.10, 1.50] | [0.06, 1.50] | 64.1% | 0.300 | 0.000 | 25% | 85.0% |" in page(lines, [])
    assert "as they come" not in page(lines, [])
