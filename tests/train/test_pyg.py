"""PyG's convolutions and models in the engine: batched, and independent of the other replicas.

`benchmarks/pyg_models.py` is the whole table, with speeds.
"""

import dataclasses
import importlib
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.nn.conv

from gfgn.data import NodeDataset, dimensions
from gfgn.train import Replica, Run, train_replicas

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    networks: Any = importlib.import_module("pyg_networks")

SEQUENTIAL = ["SuperGATConv", "GCN, jk='lstm'", "GraphUNet"]
BATCHED = [
    *sorted(set(networks.CONVOLUTIONS) - set(SEQUENTIAL)),
    "GCN",
    "GraphSAGE",
    "GIN",
    "GAT",
    "PNA",
    "EdgeCNN",
    "LINKX",
    "DeepGCNLayer",
]
EPOCHS = 3


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    """A tiny dataset in float64, where rounding errors stay small."""
    data = dimensions(40, degree=4, splits=2, seed=1)
    return dataclasses.replace(data, x=data.x.double(), graph=data.graph.to(torch.float64))


def train(name: str, data: NodeDataset, chosen: list[Replica]) -> list[Run]:
    return train_replicas(networks.factory(name), data, chosen, max_epochs=EPOCHS)


def losses(run: Run) -> torch.Tensor:
    return torch.tensor([run.history["train_loss"], run.history["val_loss"]], dtype=torch.float64)


REPLICAS = [Replica(split=k % 2, seed=k, lr=0.02, dropout=0.5) for k in range(3)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*BATCHED, *SEQUENTIAL])
def test_alone_as_among_others(name: str, data: NodeDataset, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gfgn"):
        among = train(name, data, REPLICAS)
    assert ("cannot be batched" in caplog.text) == (name in SEQUENTIAL), caplog.text
    (alone,) = train(name, data, REPLICAS[1:2])
    torch.testing.assert_close(losses(among[1]), losses(alone), rtol=1e-9, atol=1e-9)
    assert len({tuple(run.history["train_loss"]) for run in among}) == 3  # each has its own parameters and dropout


def test_every_convolution_of_pyg_is_in_the_table() -> None:
    known = set(torch_geometric.nn.conv.__all__) - {"MessagePassing"}
    assert set(networks.CONVOLUTIONS) | set(networks.NOT_CALLED) == known
    assert len(set(networks.CONVOLUTIONS) - set(SEQUENTIAL)) >= 25
