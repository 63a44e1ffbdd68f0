"""Learned scores: reading them from networks, their tables, and that nothing is trained twice."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.graph import Graph
from gfgn.paper.outputs import read_csv
from gfgn.paper.scores import (
    COLUMNS,
    DIMENSIONS,
    SUMMARY,
    analyze,
    draw,
    first_layer_scores,
    page,
    read_chosen,
    replace_rows,
    summarize,
    train_scores,
    undecided,
)
from gfgn.runs import grid
from gfgn.train import Replica, Run, train_replicas

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
SETTINGS: dict[str, Any] = {"max_epochs": 3, "patience": 3, "splits": 2}
CONFIGURATION = {"lr": 0.05, "weight_decay": 5e-4, "dropout": 0.5, "lam": 2.0}


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    made = dimensions(80, degree=6, splits=2)
    graph = Graph.from_edge_index(made.graph.edge_index, made.num_nodes)  # no duplicates, no self-loops
    return dataclasses.replace(made, name="cora", graph=graph)


@pytest.fixture(scope="module")
def trained(data: NodeDataset) -> dict[str, Run]:
    """One run per level."""
    return {
        model: train_replicas(model, data, [Replica(**CONFIGURATION)], max_epochs=3, keep_state=True)[0]
        for model in LEVELS
    }


@pytest.mark.parametrize("model", LEVELS)
def test_scores_are_those_of_the_trained_network(model: str, data: NodeDataset, trained: dict[str, Run]) -> None:
    run = trained[model]
    scores = first_layer_scores(data, run)
    rows = {"gfgn-graph": 1, "gfgn-neighbor": data.num_nodes, "gfgn-pair": data.graph.num_edges}[model]
    assert scores.shape == (rows, 64)
    # the summary that training computes of the same gates
    assert run.gates is not None
    assert scores.min().item() == pytest.approx(run.gates["min"], rel=1e-4)
    assert scores.max().item() == pytest.approx(run.gates["max"], rel=1e-4)
    assert torch.allclose(scores, expected_scores(model, data, run), atol=1e-5)


def expected_scores(model: str, data: NodeDataset, run: Run) -> Tensor:
    """`λ σ(inputs W_s)` of the first layer, from the weights of a run."""
    assert run.state is not None
    weight, gate = run.state["convs.0.lin.weight"], run.state["convs.0.gate"]
    z = (data.x @ weight.t()).view(data.num_nodes, gate.size(0), -1)
    source, target = data.graph.edge_index
    if model == "gfgn-graph":
        inputs = z.mean(dim=0, keepdim=True)
    elif model == "gfgn-neighbor":
        degree = torch.bincount(target, minlength=data.num_nodes).clamp(min=1)
        inputs = torch.cat([z, torch.zeros_like(z).index_add(0, target, z[source]) / degree[:, None, None]], dim=2)
    else:
        inputs = torch.cat([z[target], z[source]], dim=2)
    return CONFIGURATION["lam"] * torch.sigmoid(torch.einsum("nki,kio->nko", inputs, gate)).flatten(1)


def test_duplicate_edges_and_self_loops_do_not_count(data: NodeDataset, trained: dict[str, Run]) -> None:
    edges = data.graph.edge_index
    messy = torch.cat([torch.tensor([[3], [3]]), edges, edges[:, :10], torch.tensor([[5], [5]])], dim=1)
    other = dataclasses.replace(data, graph=Graph.from_edge_index(messy, data.num_nodes))
    run = trained["gfgn-pair"]
    assert torch.equal(first_layer_scores(other, run), first_layer_scores(data, run))


def test_summaries_by_dimension(data: NodeDataset, trained: dict[str, Run]) -> None:
    run = trained["gfgn-pair"]
    values, scores = first_layer_scores(data, run).double().numpy(), summarize(data, run)
    assert scores.mean == pytest.approx(values.mean(axis=0))
    assert scores.quantiles.shape == (64, len(COLUMNS))
    assert scores.quantiles[:, 0] == pytest.approx(values.min(axis=0))
    assert scores.quantiles[:, 3] == pytest.approx(np.median(values, axis=0))
    assert scores.below == pytest.approx((values < 0.55).mean())
    assert run.state is not None
    norms = run.state["convs.0.lin.weight"].double().norm(dim=1).numpy()
    assert scores.weight == pytest.approx(norms / norms.max())
    assert scores.idle == pytest.approx((norms < 0.1 * norms.max()).mean())
    summary = dict(zip(SUMMARY, scores.summary_row(), strict=True))
    assert summary["spread"] == pytest.approx(values.mean(axis=0).std())
    assert scores.box == pytest.approx(np.subtract(*np.quantile(values, [0.75, 0.25], axis=0)).mean())


def test_at_graph_level_a_dimension_has_one_score(data: NodeDataset) -> None:
    scores = train_scores("gfgn-graph", data, CONFIGURATION, **SETTINGS)
    assert [each.run.replica.split for each in scores] == [0, 1]
    assert all(each.box == 0 for each in scores)
    assert all((each.std == 0).all() for each in scores)


def test_scores_of_dimensions_without_weights_are_half_of_lambda(data: NodeDataset, trained: dict[str, Run]) -> None:
    run = trained["gfgn-graph"]
    assert run.state is not None
    weight = run.state["convs.0.lin.weight"].clone()
    weight[8:16] = 0  # a whole head
    scores = summarize(data, dataclasses.replace(run, state={**run.state, "convs.0.lin.weight": weight}))
    assert scores.idle >= 8 / 64
    assert scores.mean[8:16] == pytest.approx(1.0)  # λ is 2


def test_without_a_configuration_validation_selects_one(data: NodeDataset) -> None:
    choices = grid(lr=(1e-6, 0.05), weight_decay=5e-4, dropout=0.5, lam=1.0)
    settings = SETTINGS | {"max_epochs": 30, "patience": 30}
    scores = train_scores("gfgn-graph", data, grid=choices, **settings)
    assert {each.run.replica.lr for each in scores} == {0.05}  # the other one is too small to learn


def test_bad_arguments(data: NodeDataset) -> None:
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


def test_read_chosen(tmp_path: Path) -> None:
    path = tmp_path / "chosen.csv"
    path.write_text(CHOSEN, encoding="utf-8")
    expected = {"lr": 0.05, "weight_decay": 5e-5, "dropout": 0.8, "lam": 2.0, "heads": 4, "activation": "elu"}
    assert read_chosen(path) == {("cora", "gfgn-graph"): expected}
    assert read_chosen(tmp_path / "none.csv") == {}


@pytest.fixture(scope="module")
def settings(data: NodeDataset) -> Iterator[dict[str, Any]]:
    """Arguments of `analyze`; without row normalization, the features are three times as large."""
    raw = dataclasses.replace(data, x=3 * data.x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gfgn.data.load", lambda name, root, normalize=True: data if normalize else raw)
        yield {
            "root": None,
            "device": "cpu",
            "figures": {"gfgn-graph": ("cora",), "gfgn-pair": ("cora",)},
            "raw": {"gfgn-graph": ("cora",)},
            "grid": grid(**CONFIGURATION),
            **SETTINGS,
        }


@pytest.fixture(scope="module")
def analyzed(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], list[str]]:
    """The folder of an analysis, its files and its progress."""
    out, lines = tmp_path_factory.mktemp("results") / "scores", list[str]()
    return out, analyze(out, progress=lines.append, **settings), lines


@pytest.fixture
def out(analyzed: tuple[Path, list[Path], list[str]], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(analyzed[0], tmp_path / "scores"))


def test_files(analyzed: tuple[Path, list[Path], list[str]]) -> None:
    _, paths, lines = analyzed
    assert lines == [
        "scores: gfgn-graph on cora, configuration selected by validation",
        "scores: gfgn-pair on cora, configuration selected by validation",
        "scores: gfgn-graph on cora, without row normalization, configuration selected by validation",
    ]
    assert all(path.is_file() for path in paths)
    names = {"summary.csv", "dimensions.csv", "raw.csv", "dimensions.md", "gfgn-graph.svg", "gfgn-pair.svg"}
    assert {path.name for path in paths} == names


def test_without_tables_nothing_is_drawn(tmp_path: Path) -> None:
    assert draw(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_existing_scores_are_not_trained_again(out: Path, settings: dict[str, Any]) -> None:
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    lines: list[str] = []
    analyze(out, progress=lines.append, **settings)
    assert lines == []
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_scores_of_another_configuration_are_replaced(out: Path, settings: dict[str, Any]) -> None:
    (out.parent / "table1").mkdir()
    (out.parent / "table1" / "chosen.csv").write_text(CHOSEN, encoding="utf-8")
    lines: list[str] = []
    analyze(out, progress=lines.append, **settings)
    taken = (
        f"scores: configurations that {out / 'chosen.csv'} lacks are taken from {out.parent / 'table1' / 'chosen.csv'}"
    )
    assert lines == [
        taken,
        "scores: skipping cora: a configuration is not selected yet",
        "scores: gfgn-graph on cora, configuration of chosen.csv",
    ]
    rows = read_csv(out / "summary.csv")
    assert [(row["model"], row["dropout"]) for row in rows] == [("gfgn-graph", "0.8")] * 2 + [("gfgn-pair", "0.5")] * 2
    # chosen.csv of the folder itself takes precedence over that of table1
    (out / "chosen.csv").write_text(CHOSEN.replace("0.8,2.0", "0.2,2.0"), encoding="utf-8")
    analyze(out, progress=lines.append, **settings)
    assert {row["dropout"] for row in read_csv(out / "summary.csv") if row["model"] == "gfgn-graph"} == {"0.2"}


def test_rows_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    replace_rows(path, ("dataset", "model", "x"), [("cora", "gfgn-pair", 1), ("cora", "gfgn-pair", 2)])
    replace_rows(path, ("dataset", "model", "x"), [("texas", "gfgn-graph", 3)])
    replace_rows(path, ("dataset", "model", "x"), [("cora", "gfgn-pair", 4)])  # replaces both rows
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


def test_scores_without_row_normalization_have_their_own_table(out: Path) -> None:
    (first, _) = read_csv(out / "raw.csv")
    assert (first["model"], first["dataset"]) == ("gfgn-graph", "cora")
    text = (out / "dimensions.md").read_text(encoding="utf-8")
    assert text.index("## gfgn-pair") < text.index("## gfgn-graph, without row normalization")


def test_without_matplotlib_there_are_tables_and_a_page(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgn.paper.scores.find_spec", lambda name: None)
    assert [path.name for path in draw(out)] == ["dimensions.md"]


def test_a_dimension_is_undecided_if_its_scores_stay_where_they_began() -> None:
    """Within 0.01 of λ/2, except for a twentieth of the scores at each end."""
    middle = np.tile([0.2, 0.991, 0.995, 1.0, 1.005, 1.009, 1.8], (4, 1))
    middle[1, 5], middle[2, 1], middle[3] = 1.02, 0.98, 0.5
    assert undecided(middle, 2.0).tolist() == [True, False, False, False]
    assert undecided(middle, 1.0).tolist() == [False, False, False, True]


def test_the_page_has_the_numbers() -> None:
    line = {"model": "gfgn-graph", "dataset": "cora", "lam": "2", "below_055": "0.641", "spread": "0.3", "box": "0"}
    line |= {"idle": "0.25"}
    lines = [line | {"min": "0.1", "max": "1.5", "test": "0.8"}, line | {"min": "0.06", "max": "1.4", "test": "0.9"}]
    assert "| cora | 2 | [0.10, 1.50] | [0.06, 1.50] | 64.1% | 0.300 | 0.000 | 25% | 85.0% |" in page(lines, [])
    assert "without row normalization" not in page(lines, [])
    gray = {"gfgn-graph": {"cora": np.array([True, False, False, False])}}
    assert "| 0.000 | 25% | 25% | 85.0% |" in page(lines, [], gray)
