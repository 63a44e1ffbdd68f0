"""Every model on real graphs: Cora and Texas."""

import dataclasses
import math
import os
from pathlib import Path

import pytest
import torch

from gfgn.data import NodeDataset, load
from gfgn.nn.registry import MODELS
from gfgn.train import Replica, train_replicas
from gfgn.train.settings import num_threads

REPLICAS = [Replica(split=0, seed=0), Replica(split=0, seed=1, lr=0.005, dropout=0.2)]
FEW_LAYERS = {"gcnii": (("layers", 4),)}


@pytest.fixture(scope="module", params=["texas", "cora"])
def real(request: pytest.FixtureRequest) -> NodeDataset:
    root = os.environ.get("GFGN_DATA", "")
    if not root or not any((Path(root) / folder).is_dir() for folder in (request.param, request.param.title())):
        pytest.skip(f"GFGN_DATA does not name a folder with {request.param}")
    return load(request.param, root=root)


@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model.batchable])
def test_training(model: str, real: NodeDataset) -> None:
    replicas = [dataclasses.replace(replica, options=FEW_LAYERS.get(model, ())) for replica in REPLICAS]
    with num_threads(1):
        runs = train_replicas(model, real, replicas, max_epochs=2, keep_state=True)
    for run in runs:
        assert all(math.isfinite(value) for values in run.history.values() for value in values)
        assert 0 <= run.test <= 1
        assert run.state is not None
        assert all(torch.isfinite(value).all() for value in run.state.values())
        assert len(set(run.history["train_loss"])) == 2
