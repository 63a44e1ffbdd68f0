"""Gates against smoothness: the measures, their null, and that nothing is trained twice."""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.graph import Graph
from gfgn.paper.mechanism import (
    COLUMNS,
    Correlation,
    analyze,
    correlate,
    label_part,
    mean_correlation,
    permutation_null,
    rank_correlation,
    read_correlations,
    smoothness,
    train_and_correlate,
)
from gfgn.paper.outputs import read_csv
from gfgn.paper.reproduce import reproduce
from gfgn.paper.spectral import normalized_laplacian
from gfgn.runs import grid
from gfgn.train import Replica, Run, train_replicas

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
CONFIGURATION = {"lr": 0.05, "weight_decay": 5e-4, "dropout": 0.5, "lam": 2.0}
SETTINGS: dict[str, Any] = {"max_epochs": 3, "patience": 3, "splits": 2}


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(80, degree=6, splits=2)


def test_smoothness_is_the_sum_over_edges() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 0, 3, 2], [1, 0, 2, 1, 0, 2, 2, 3]])  # node 4 has no neighbors
    graph = Graph.from_edge_index(edges, 5)
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    degree = [2, 2, 3, 1]
    for column, value in zip(z.t().tolist(), smoothness(z, graph), strict=True):
        energy = sum(
            (column[i] / math.sqrt(degree[i]) - column[j] / math.sqrt(degree[j])) ** 2 for i, j in edges.t().tolist()
        )
        assert value == pytest.approx(-energy / 2 / sum(f * f for f in column))
    values, vectors = np.linalg.eigh(normalized_laplacian(graph))
    assert smoothness(torch.from_numpy(vectors), graph) == pytest.approx(-values, abs=1e-6)  # norms are float32
    assert np.isnan(smoothness(torch.zeros(5, 1), graph)).all()


def test_rank_correlation_is_spearmans() -> None:
    random = np.random.default_rng(0)
    for _ in range(5):
        a, b = random.normal(size=12), random.integers(0, 4, 12).astype(float)
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert math.isnan(rank_correlation(a, np.ones(12)))
    assert math.isnan(rank_correlation(a[:4], b[:4]))
    assert all(math.isnan(value) for value in permutation_null(a, np.ones(12)))


def test_the_null_is_that_of_all_permutations() -> None:
    a, b = np.array([3.0, 1, 4, 1.5, 5, 9]), np.array([2.0, 7, 1, 8, 2, 8])
    every = [spearmanr(np.array(order), b).statistic for order in itertools.permutations(a)]
    low, high, p = permutation_null(a, b)
    assert (low, high) == pytest.approx(np.quantile(every, [0.025, 0.975]), abs=0.03)
    assert p == pytest.approx(np.mean(np.abs(every) >= abs(spearmanr(a, b).statistic) - 1e-12), abs=0.02)
    assert np.var(every) == pytest.approx(1 / 5)  # what `mean_correlation` rests on
    assert permutation_null(np.arange(40.0), np.arange(40.0))[2] == 1 / 10_000


def make(split: int, value: float, count: int = 26) -> Correlation:
    return Correlation("texas", "gfgn-graph", split, value, -0.4, 0.4, 0.5, -value, value, math.nan, count)


def test_mean_correlation() -> None:
    mean = mean_correlation([make(0, 0.5), make(1, 0.3, 11), make(2, math.nan)])
    assert mean.mean == pytest.approx(0.4)
    assert mean.networks == 2
    deviation = math.sqrt(1 / 25 + 1 / 10) / 2
    assert mean.half == pytest.approx(1.96 * deviation, rel=1e-4)
    assert mean.p == pytest.approx(0.0325, abs=5e-4)  # of a normal deviate of 0.4 / 0.187
    assert mean_correlation([make(0, 0.5)], "centered").mean == -0.5
    assert mean_correlation([make(0, 0.5)], "truth").p == 1.0


def test_label_part() -> None:
    z, y = torch.tensor([[1.0, 2], [3, 4], [5, 7], [8, 8]]), torch.tensor([0, 0, 1, -1])
    assert label_part(z, y).tolist() == [[2, 3], [2, 3], [5, 7], [0, 0]]


def trained(data: NodeDataset, model: str, **options: object) -> Run:
    replica = Replica(**CONFIGURATION, options=tuple(options.items()))
    return train_replicas(model, data, [replica], max_epochs=2, keep_state=True)[0]


def test_planted_gates_are_found(data: NodeDataset) -> None:
    """Every hidden dimension is one feature; gates are large where the feature is smooth by construction, and nearly
    so where the measured smoothness is."""
    run = trained(data, "gfgn-graph", hidden=36, heads=4, gate_bias=0.0)
    assert run.state is not None
    assert data.smooth_dimensions is not None
    bias = torch.where(data.smooth_dimensions, 1.0, -1.0) + torch.linspace(0, 0.1, 36)
    state = run.state | {"convs.0.lin.weight": torch.eye(36), "convs.0.gate": torch.zeros(4, 9, 9)}
    found = correlate(data, dataclasses.replace(run, state=state | {"convs.0.gate_bias": bias}))
    assert found.truth == pytest.approx(spearmanr(bias, data.smooth_dimensions).statistic)
    assert found.dimensions == 36
    z = data.x.double()
    assert found.rank_correlation == pytest.approx(spearmanr(bias, smoothness(z, data.graph)).statistic)
    centered = smoothness(z - z.mean(0), data.graph)
    assert found.centered == pytest.approx(spearmanr(bias, centered).statistic)
    follows = correlate(
        data, dataclasses.replace(run, state=state | {"convs.0.gate_bias": torch.from_numpy(centered).float()})
    )
    assert follows.centered > 0.99
    without = torch.eye(36)
    without[:4] *= 0.01  # vanished weights
    some = correlate(
        data, dataclasses.replace(run, state=state | {"convs.0.gate_bias": bias, "convs.0.lin.weight": without})
    )
    assert some.dimensions == 32


@pytest.mark.parametrize("model", LEVELS)
def test_networks_are_independent_and_the_configuration_is_selected(model: str, data: NodeDataset) -> None:
    choices = grid(lr=(1e-6, 0.05), weight_decay=5e-4, dropout=0.5, lam=1.0)
    settings = SETTINGS | {"max_epochs": 15, "patience": 15}
    configuration, made = train_and_correlate(model, data, grid=choices, **settings)
    assert configuration["lr"] == 0.05
    assert [(each.dataset, each.model, each.split) for each in made] == [("dimensions", model, k) for k in range(2)]
    assert all(-1 <= each.rank_correlation <= 1 and each.null_low < 0 < each.null_high for each in made)
    run = train_replicas(
        model, data, [Replica(split=1, seed=1, **configuration)], max_epochs=15, patience=15, keep_state=True
    )[0]
    assert correlate(data, run) == made[1]


CHOSEN = """dataset,model,variant,lr,weight_decay,dropout,lam,own,val,std,runs,chosen
texas,gfgn-graph,dimension,0.05,5e-05,0.8,1.5,,0.9,0.01,10,1
texas,gfgn-graph,scalar,0.005,5e-05,0.8,1.5,gate_form=scalar,0.9,0.01,10,1
"""


def test_files(data: NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfgn.data.load", lambda name, root: dataclasses.replace(data, name=name))
    out, lines = tmp_path / "thesis", list[str]()
    arguments: dict[str, Any] = {"root": None, "device": "cpu", "progress": lines.append}
    arguments |= {"grid": grid(**CONFIGURATION), "datasets": ["texas"], "models": ["gfgn-graph", "gfgn-pair"]}
    paths = analyze(out, **arguments, **SETTINGS)
    assert [path.name for path in paths] == ["mechanism.csv", "mechanism.svg"]
    assert lines == [f"mechanism: {m} on texas, configuration selected by validation" for m in LEVELS[::2]]
    before = (out / "mechanism.csv").read_bytes()
    analyze(out, **arguments, **SETTINGS)
    assert len(lines) == 2
    assert (out / "mechanism.csv").read_bytes() == before
    assert tuple(read_csv(out / "mechanism.csv")[0]) == COLUMNS
    assert [each.split for each in read_correlations(out / "mechanism.csv")] == [0, 1, 0, 1]
    (out / "chosen.csv").write_text(CHOSEN, encoding="utf-8")  # only the cell of one gate per dimension counts
    analyze(out, **arguments, **SETTINGS)
    assert lines[2:] == ["mechanism: gfgn-graph on texas, configuration of chosen.csv"]
    assert [line["lam"] for line in read_csv(out / "mechanism.csv")] == ["1.5", "1.5", "2", "2"]
    with pytest.raises(ValueError, match=r"datasets must be among texas, .*, got 'karate'"):
        analyze(out, **arguments | {"datasets": ["karate"]})


def test_only_some_analyses_have_parts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="datasets must not be given for 'spectral', which has no parts"):
        reproduce("spectral", tmp_path, device="cpu", datasets=["cora"])
