"""Runs that are not finite have no score and are never the best epoch; the others beside them are unaffected."""

import math
from dataclasses import replace

import pytest
import torch

from gfgn.data import NodeDataset, dimensions
from gfgn.runs import Store, compare
from gfgn.train import Replica, TrainConfig, train_replicas
from gfgn.train.config import initial_best, update_best_

HEALTHY, WILD = Replica(seed=1), Replica(seed=1, lr=1e25)


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(80, degree=6, splits=2, seed=1)


@pytest.mark.parametrize("model", ["mlp", "gcn", "gat", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"])
def test_a_learning_rate_of_1e25(data: NodeDataset, model: str) -> None:
    wild, healthy = train_replicas(model, data, [WILD, HEALTHY], max_epochs=8, patience=4, keep_state=True)
    assert wild.diverged
    assert math.isnan(wild.test)
    assert (wild.epoch, wild.epochs, wild.gates) == (-1, 4, None)
    [alone] = train_replicas(model, data, [HEALTHY], max_epochs=8, patience=4)
    assert not healthy.diverged
    assert (healthy.val, healthy.test, healthy.epoch) == (alone.val, alone.test, alone.epoch)


def test_huge_features(data: NodeDataset) -> None:
    huge = replace(data, x=torch.full_like(data.x, 3e38))
    [run] = train_replicas("mlp", huge, [HEALTHY], max_epochs=3)
    assert run.diverged


@pytest.mark.parametrize("best", ["score", "loss", "last"])
def test_only_finite_epochs_can_be_the_best(best: str) -> None:
    state, config = initial_best(3, torch.float32), TrainConfig(best=best)
    losses = [[math.nan, 0.5, math.inf], [0.4, math.nan, math.nan], [math.nan, math.inf, math.nan]]
    for epoch, loss in enumerate(losses):
        update_best_(state, torch.tensor([epoch]), torch.tensor([0.9, 0.8, 0.7]), torch.tensor(loss), config)
    assert state["best_epoch"].tolist() == [1, 0, -1]


def test_a_comparison_says_how_many_runs_diverged(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        options = {"gcn": {"lr": 1e25}, "gfgn-graph": {"lr": 1e25}}
        models = ["majority", "mlp", "gcn", "gfgn-graph", "gfgn-pair"]
        result = compare(data, models, 2, options=options, max_epochs=5, store=store)
    assert result.diverged == {"gcn": 2, "gfgn-graph": 2}
    assert result.scored == ("majority", "mlp", "gfgn-pair")
    assert result.baseline in ("majority", "mlp")
    assert result.gap_to_baseline("gfgn-graph") is None
    content = {entry["model"]: entry for entry in result.to_json()["models"]}
    assert (content["gcn"]["diverged"], content["gcn"]["mean"], content["gcn"]["val"]) == (2, None, None)
    assert content["mlp"]["diverged"] == 0
