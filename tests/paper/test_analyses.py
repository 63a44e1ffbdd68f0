"""The analyses on small inputs: spectra, parameters, motivation, gates, smoothness, and the Cornell evidence."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.small_studies import write_study
from scipy.stats import spearmanr

from gfgn.data import NodeDataset, load
from gfgn.data.diagnosis import edge_homophily
from gfgn.data.generators.dimensions import dimensions
from gfgn.graph import Graph
from gfgn.paper import cornell, cornell_ranks, mechanism, motivation, networks, parameters, scores, spectral, thesis
from gfgn.paper.pages import read_csv
from gfgn.paper.reproduce import reproduce
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs
from gfgn.runs.grid import grid
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, Study
from gfgn.runs.study_file import read_study
from gfgn.train import Replica, Run, train_replicas
from gfgn.train.statistics import difference

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
HYPER = {"lr": 0.05, "weight_decay": 5e-4, "dropout": 0.5, "lam": 2.0}


def undirected(pairs: list[tuple[int, int]], num_nodes: int) -> Graph:
    half = torch.tensor(pairs).t()
    return Graph.from_edge_index(torch.cat([half, half.flip(0)], dim=1), num_nodes)


# --- spectra, parameters, motivation ----------------------------------------------------------------------------------


def test_spectra_and_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laplacian = spectral.normalized_laplacian(undirected([(k, (k + 1) % 7) for k in range(7)], 7))
    assert np.linalg.eigvalsh(laplacian) == pytest.approx(sorted(1 - math.cos(2 * math.pi * k / 7) for k in range(7)))
    assert spectral.filters(np.array([0.0, 1.0, 2.0]), 2)[4] == pytest.approx([1, 0.25, 0])
    with pytest.raises(ValueError, match="graph must be undirected"):
        spectral.dense_adjacency(Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3))
    with pytest.raises(ValueError, match="at most 10000 nodes"):
        spectral.dense_adjacency(undirected([(0, 1)], 10_001))
    monkeypatch.setattr(spectral, "load", lambda name, root: dimensions(60, degree=6))
    paths = spectral.analyze(tmp_path, root=None, device="cpu", progress=print)
    assert {path.name for path in paths} == {"eigenvalues.csv", "spectral.svg", "README.md"}
    assert len(read_csv(tmp_path / "eigenvalues.csv")) == 60


def test_parameters(tmp_path: Path) -> None:
    count = parameters.count_network("cora", "graph")  # 1433 → 64 → 7, gates 8 · 8² and 7²
    assert count.gcn == 1433 * 64 + 64 + 64 * 7 + 7
    assert count.formula == count.module == count.gcn + 512 + 49
    parameters.analyze(tmp_path, root=None, device="cpu", progress=print)
    rows = read_csv(tmp_path / "networks.csv")
    assert len(rows) == 33
    assert all(row["formula"] == row["module"] for row in rows)


def test_users_and_their_neighbors() -> None:
    graph = Graph.from_edge_index(torch.tensor([[1, 2, 3, 4, 5, 0], [0, 0, 0, 0, 0, 1]]), 6)
    source, target = graph.edge_index.numpy()
    values = np.array([[0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    similarity = motivation.similarities(values, source, target)[:, 0]
    assert similarity[(source == 2) & (target == 0)] == pytest.approx(math.exp(-1 / values.std()))
    (user,) = motivation.list_users(graph, np.stack([source / 10, -source / 5], axis=1))
    assert (user.node, user.correlation) == (0, pytest.approx(-1.0))
    assert sorted(user.neighbors.tolist()) == [1, 2, 3, 4, 5]
    assert motivation.list_users(graph, np.stack([source / 10, np.ones(6)], axis=1)) == []  # constant in one dimension
    users = [user._replace(node=k, correlation=c) for k, c in enumerate((0.9, -0.5, 0.1))]
    assert motivation.median_user(users, 5).node == 2
    with pytest.raises(ValueError, match="neighbors must be a number that some user has, got 7"):
        motivation.median_user(users, 7)


def test_smoothness_of_a_spectral_embedding_is_its_eigenvalue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dimensions(120, degree=18)
    eigenvalues, smooth = motivation.spectral_embedding(data.graph)
    assert smooth == pytest.approx(eigenvalues, abs=1e-10)
    assert motivation.spectral_embedding(undirected([(0, 1), (1, 2), (2, 3), (4, 5)], 7))[0].size == 4
    monkeypatch.setattr(motivation, "load", lambda name, root: data)
    assert len(motivation.analyze(tmp_path, root=None, device="cpu", progress=print)) == 5
    summary = {row["measure"]: float(row["value"]) for row in read_csv(tmp_path / "summary.csv")}
    assert -1 <= summary["motivation: rank correlation, median"] <= 1
    assert summary["motivation: smoothness minus eigenvalue"] < 1e-8


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    made = dimensions(80, degree=6, splits=10)
    graph = Graph.from_edge_index(made.graph.edge_index, made.num_nodes)  # no duplicates, no self-loops
    return dataclasses.replace(made, name="texas", graph=graph)


@pytest.fixture
def trained_quickly(data: NodeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MAX_EPOCHS": 2, "PATIENCE": 2, "PAPER_GRID": grid(**HYPER)}.items():
        monkeypatch.setattr(networks, name, value)
    monkeypatch.setattr(networks, "load", lambda name, root, normalize: dataclasses.replace(data, name=name))


def trained(data: NodeDataset, model: str, **options: int | float) -> Run:
    replica = Replica(**HYPER, options=tuple(options.items()))
    return train_replicas(model, data, [replica], max_epochs=2, keep_state=True)[0]


@pytest.mark.parametrize("model", LEVELS)
def test_gates_are_those_of_the_trained_network(model: str, data: NodeDataset) -> None:
    run = trained(data, model)
    gates = networks.first_layer_gates(data, run)
    rows = {"gfgn-graph": 1, "gfgn-neighbor": data.num_nodes, "gfgn-pair": data.graph.num_edges}[model]
    assert gates.shape == (rows, 64)
    assert run.gates is not None
    assert (gates.min().item(), gates.max().item()) == pytest.approx((run.gates["min"], run.gates["max"]), rel=1e-4)
    with pytest.raises(ValueError, match="run must be of a model with gates"):
        networks.first_layer_gates(data, dataclasses.replace(run, state=None))


def test_configurations_are_read_and_selected(
    data: NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["dataset,model,variant,lr,weight_decay,dropout,lam,own,val,std,runs,chosen"]
    lines += ["texas,gfgn-graph,a,0.05,5e-05,0.8,2.0,heads=4 activation=elu,0.9,0.01,10,1"]
    lines += ["texas,gfgn-graph,a,0.01,5e-05,0.8,2.0,,0.8,0.01,10,0", "texas,gfgn-graph,b,1,1,0,1,,0.8,0.01,10,1"]
    (tmp_path / "chosen.csv").write_text("\n".join(lines))
    expected = {"lr": 0.05, "weight_decay": 5e-5, "dropout": 0.8, "lam": 2.0, "heads": 4, "activation": "elu"}
    assert networks.read_chosen(tmp_path / "chosen.csv", "a") == {("texas", "gfgn-graph"): expected}
    assert networks.read_chosen(tmp_path / "none.csv") == {}
    monkeypatch.setattr(networks, "PAPER_GRID", grid(lr=(1e-6, 0.05), weight_decay=5e-4, dropout=0.5, lam=1.0))
    monkeypatch.setattr(networks, "MAX_EPOCHS", 15)
    runs = networks.train_networks("gfgn-graph", data, None, (0, 1), "cpu")
    assert [(run.replica.split, run.replica.seed, run.replica.lr) for run in runs] == [(0, 0, 0.05), (1, 1, 0.05)]


@pytest.mark.usefixtures("trained_quickly")
def test_scores_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "FIGURES", {"gfgn-graph": ("cora",), "gfgn-pair": ("cora",)})
    monkeypatch.setattr(scores, "RAW", ("cora",))
    out, lines = tmp_path / "scores", list[str]()
    assert scores.draw(out) == []
    paths = scores.analyze(out, root=None, device="cpu", progress=lines.append)
    names = {"summary.csv", "dimensions.csv", "raw.csv", "dimensions.md", "gfgn-graph.svg", "gfgn-pair.svg"}
    assert {path.name for path in paths} == names
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    scores.analyze(out, root=None, device="cpu", progress=lines.append)
    assert len(lines) == 3
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    summary, rows = read_csv(out / "summary.csv"), read_csv(out / "dimensions.csv")
    for model in ("gfgn-graph", "gfgn-pair"):
        first = next(row for row in summary if row["model"] == model)
        own = [row for row in rows if row["model"] == model]
        assert (len(own), first["split"], first["seed"]) == (64, "0", "0")
        assert float(first["min"]) == min(float(row["min"]) for row in own)
        assert float(first["spread"]) == pytest.approx(np.std([float(row["mean"]) for row in own]), rel=1e-3)
    low, high = (f(float(row["min" if f is min else "max"]) for row in summary[:10]) for f in (min, max))
    assert f"[{low:.2f}, {high:.2f}]" in (out / "dimensions.md").read_text(encoding="utf-8")


def test_smoothness_and_rank_correlations() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 0, 3, 2], [1, 0, 2, 1, 0, 2, 2, 3]])  # node 4 has no neighbors
    graph, degree = Graph.from_edge_index(edges, 5), [2, 2, 3, 1]
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    for column, value in zip(z.t().tolist(), mechanism.smoothness(z, graph), strict=True):
        terms = [(column[i] / degree[i] ** 0.5 - column[j] / degree[j] ** 0.5) ** 2 for i, j in edges.t().tolist()]
        assert value == pytest.approx(-sum(terms) / 2 / sum(f * f for f in column))
    a, b = np.array([3.0, 1, 4, 1.5, 5, 9]), np.array([2.0, 7, 1, 8, 2, 8])
    assert mechanism.rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert math.isnan(mechanism.rank_correlation(a, np.ones(6)))
    assert math.isnan(mechanism.rank_correlation(a[:4], b[:4]))
    low, high, p = mechanism.permutation_null(a, b)
    assert (low, high) == pytest.approx((-0.85, 0.85), abs=0.1)
    assert p == pytest.approx(spearmanr(a, b).pvalue, abs=0.1)
    z, y = torch.tensor([[1.0, 2], [3, 4], [5, 7], [8, 8]]), torch.tensor([0, 0, 1, -1])
    assert mechanism.label_part(z, y).tolist() == [[2, 3], [2, 3], [5, 7], [0, 0]]


def test_planted_gates_are_found(data: NodeDataset) -> None:
    """Every hidden dimension is one feature; gates are large where the feature is smooth by construction."""
    run = trained(data, "gfgn-graph", hidden=36, heads=4, gate_bias=0.0)
    assert run.state is not None
    assert data.smooth_dimensions is not None
    bias = torch.where(data.smooth_dimensions, 1.0, -1.0) + torch.linspace(0, 0.1, 36)
    state = run.state | {"convs.0.lin.weight": torch.eye(36), "convs.0.gate": torch.zeros(4, 9, 9)}
    state |= {"convs.0.gate_bias": bias}
    (row,) = mechanism.correlate(data, dataclasses.replace(run, state=state))
    assert row["truth"] == pytest.approx(spearmanr(bias, data.smooth_dimensions).statistic)
    smooth = mechanism.smoothness(data.x.double(), data.graph)
    assert row["rank_correlation"] == pytest.approx(spearmanr(bias, smooth).statistic)
    assert row["dimensions"] == 36
    state["convs.0.lin.weight"][:4] *= 0.01  # vanished weights
    assert mechanism.correlate(data, dataclasses.replace(run, state=state))[0]["dimensions"] == 32


THESIS = """
title: Forms
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models: {gfgn-graph: {lam: [1.0]}, gfgn-pair: {lam: [1.0]}}
splits: 3
seeds: 2
training: {max_epochs: 3, patience: 3}
vary:
  variant:
    dimension: {}
    scalar: {grid: {gate_form: [scalar]}}
    constant: {grid: {gate_form: [constant], lam: [0.1]}}
"""


@pytest.mark.usefixtures("trained_quickly")
def test_the_page_of_the_thesis_and_the_mechanism(tmp_path: Path) -> None:
    path, out = write_study(tmp_path, THESIS, "thesis"), tmp_path / "thesis"
    assert reproduce(path, out, device="cpu").made == 2 * 3 * 6
    assert "Not measured yet: `gfgn reproduce mechanism`." in (out / "README.md").read_text(encoding="utf-8")
    results, lines = Results(read_study(path), read_runs(out / "runs.csv.gz")), list[str]()
    gap = thesis.compare(results, "scalar", "constant")["karate", "gfgn-pair"]
    rows = [results[Cell("karate", "gfgn-pair", form)].rows for form in ("scalar", "constant")]
    assert gap.low == 100 * difference(*rows, results.test_share(Cell("karate", "gfgn-pair", "scalar"))).low
    for _ in range(2):
        paths = mechanism.analyze(out, root=None, device="cpu", progress=lines.append, datasets=["texas"])
    assert [path.name for path in paths] == ["mechanism.csv", "mechanism.svg"]
    assert len(lines) == 3
    table = [row for row in read_csv(out / "mechanism.csv") if row["model"] == "gfgn-graph"]
    assert [row["split"] for row in table] == [str(k) for k in range(10)]
    mean = f"{mechanism.mean_correlation(table).mean:+.2f}".replace("-", "−")
    assert f"| Texas | GFGN-graph | {mean}" in thesis.sections(results, out)


# --- Cornell ----------------------------------------------------------------------------------------------------------


def twins(linked: bool, size: int = 60) -> NodeDataset:
    """Twins with the same features and class, each linked with its twin, or with the next node of another pair."""
    pair, node = torch.arange(size) // 2, torch.arange(0, size, 2)
    x = torch.randn(size // 2, 20, generator=torch.Generator().manual_seed(0))[pair]
    other = node + 1 if linked else (node + 3) % size
    graph = Graph.from_edge_index(torch.stack([torch.cat([node, other]), torch.cat([other, node])]), size)
    names = [f"f{k}" for k in range(20)]
    changes = {"graph": graph, "x": x, "y": pair % 3, "num_classes": 3, "splits": [], "feature_names": names}
    return dataclasses.replace(load("karate"), **changes, node_ids=None)  # type: ignore[arg-type]


def test_links_that_belong_to_the_nodes_are_told_from_those_that_do_not() -> None:
    karate = load("karate")
    made, edges = cornell.measure(karate, permutations=20), karate.graph.edge_index.t().tolist()
    x = karate.x.to_dense().double().numpy()
    similar = [x[i] @ x[j] / math.sqrt(x[i] @ x[i]) / math.sqrt(x[j] @ x[j]) for i, j in edges]
    assert made["similarity"][0] == pytest.approx(np.mean(similar))
    assert made["homophily"][0] == pytest.approx(edge_homophily(karate.graph, karate.y))
    right, wrong = (cornell.measure(twins(linked), permutations=400) for linked in (True, False))
    for summary in (cornell.compare_to_permuted(*measured) for measured in right.values()):
        assert summary["_p"] == pytest.approx(1 / 401)
        assert summary["_z"] > 4
    assert all(cornell.compare_to_permuted(*each)["_p"] > 0.01 for each in wrong.values() if each[0] > 0)


def made_results(models: dict[str, float], moved: dict[str, float]) -> tuple[Study, list[RunRecord]]:
    """Runs of some models of the study: the first configuration is chosen, and scores depend on model and split."""
    study, rows = load_study("cornell"), []
    for graph, means in (("cornell", models), ("cornell-corrected", moved)):
        record = DatasetRecord(graph, graph, tuple(map(str, range(10))), False, "accuracy", "", 9, 9, 9, 3)
        for model, mean in means.items():
            plan = study.plan(Cell(graph, model))
            best = set(plan.final(plan.configurations[0]))
            for replica in dict.fromkeys([*plan.tuning(), *best]):
                val, test = 0.9 if replica in best else 0.5, mean + 0.001 * ((7 * replica.split) % 5)
                rows.append(RunRecord.of(Run(replica, model, val, test, 1, 2, {}, 0.1, 3), record, plan.config))
    return study, rows


def test_ranks_on_both_graphs() -> None:
    first = {"mlp": 0.7, "gcn": 0.6, "sgc": 0.5, "gat": 0.4}
    results = Results(*made_results(first, {"mlp": 0.6, "gcn": 0.7, "sgc": 0.4, "gat": 0.5}))
    compared = cornell_ranks.compare_columns(results)
    assert compared is not None
    ranks = {model: tuple(place.rank for place in both) for model, both in compared.models.items()}
    assert ranks == {"gcn": (2, 1), "mlp": (1, 2), "gat": (4, 3), "sgc": (3, 4)}
    assert compared.spearman == pytest.approx(0.6)
    assert compared.kendall == pytest.approx(2 / 6)  # four of six pairs agree
    assert compared.halves == pytest.approx([1, 1])
    rows = [results[Cell("cornell-corrected", model)].rows for model in ("gcn", "mlp")]
    assert compared.models["gcn"][1].gap.low == pytest.approx(100 * difference(*rows, 0.25).low)
    few = {model: first[model] for model in ("mlp", "gcn", "sgc")}
    assert cornell_ranks.compare_columns(Results(*made_results(few, few))) is None


def test_without_runs_or_tables_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "cornell").mkdir()
    paths = cornell.draw(tmp_path / "cornell")
    assert [path.name for path in paths] == ["ranks.csv", "evidence.md"]
    text = paths[-1].read_text(encoding="utf-8")
    assert "Not measured yet." in text
    assert "No study has all runs" in text
