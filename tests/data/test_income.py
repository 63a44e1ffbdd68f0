"""A column of large numbers that has nothing to do with the labels must not ruin a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gfgn.data import contextual_sbm, read
from gfgn.train import Replica, train_replicas

SIZE = 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen features with standard deviation 1 that follow class and graph, and an income around 50,000."""
    folder = tmp_path_factory.mktemp("income")
    generated = contextual_sbm(SIZE, classes=3, degree=6, homophily=0.6, signal=1.0)
    nodes = pd.DataFrame(generated.x.numpy(), columns=[f"f{k}" for k in range(generated.num_features)])
    nodes = nodes.assign(id=np.arange(SIZE), label=generated.y.numpy())
    nodes["income"] = np.random.default_rng(0).normal(50_000, 10_000, SIZE).round(2)
    source, target = generated.graph.edge_index.numpy()
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges = pd.DataFrame({"source": source[source < target], "target": target[source < target]})
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


def accuracy(folder: Path, **options: object) -> float:
    """The mean over ten splits and two seeds."""
    dataset = read(folder, **options)  # type: ignore[arg-type]
    settings = {"lr": 0.02, "weight_decay": 5e-4, "dropout": 0.5, "lam": 1.0}
    replicas = [Replica(split=split, seed=seed, **settings) for split in range(10) for seed in range(2)]
    runs = train_replicas("gfgn-graph", dataset, replicas, max_epochs=60, patience=60, device="cpu")
    return float(np.mean([run.test for run in runs]))


def test_a_large_random_column_costs_less_than_one_point(folder: Path) -> None:
    without = accuracy(folder, drop=["income"])
    assert without > 0.7
    assert accuracy(folder) == pytest.approx(without, abs=0.01)
    assert accuracy(folder, scale="none") < 0.4  # a third is the largest class
