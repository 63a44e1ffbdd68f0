"""Graphs without edges train, with every model."""

import math
from dataclasses import replace

import pytest
import torch

from gfgn.data import NodeDataset, dimensions
from gfgn.graph import Graph
from gfgn.nn import MODELS
from gfgn.train import Replica, TrainConfig
from gfgn.train.catalog import CLASSICAL
from gfgn.train.loop import train_runs


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    data = dimensions(40, degree=4, splits=1)
    return replace(data, graph=Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), data.num_nodes))


@pytest.mark.parametrize("model", [*MODELS, *CLASSICAL])
def test_a_graph_without_edges_trains(data: NodeDataset, model: str) -> None:
    runs = train_runs(model, data, [Replica(seed=0), Replica(seed=1)], TrainConfig(3, 3))
    for run in runs:
        assert not run.diverged
        assert math.isfinite(run.test)
    gated = model in MODELS and MODELS[model].gate_level(()) in ("graph", "neighbor")
    assert (runs[0].gates is None) == (not gated)
