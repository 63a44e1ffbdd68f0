"""Custom models in the engine: the result of a textbook loop, independence, buffers, and the ways to run."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nets
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import ChebConv, GATConv, GINConv, SAGEConv

from gfgn import Graph
from gfgn.data import NodeDataset, dimensions
from gfgn.nn import find_model
from gfgn.train import Replica, Run, messages, train_replicas
from gfgn.train.custom import CustomProgram, PlainLoop, TrainingMode
from gfgn.train.given import Given
from gfgn.train.task import make_task
from gfgn.train.trial import choose_training_mode

REPLICAS = [Replica(split=k % 2, seed=k, lr=0.01 * (k + 1), dropout=0.5) for k in range(4)]


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=2, seed=1)


def textbook(factory: Callable[..., nn.Module], data: NodeDataset, replica: Replica, epochs: int) -> list[float]:
    """The validation losses of a plain loop."""
    torch.manual_seed(replica.seed)
    model = find_model(factory).build(data.num_features, data.num_classes, replica.dropout)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=replica.lr, weight_decay=replica.weight_decay)
    train, val, _ = data.splits[replica.split]
    losses = []
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, data.graph.edge_index)[train], data.y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(model(data.x, data.graph.edge_index)[val], data.y[val]).item())
    return losses


def without_dropout(in_channels: int, out_channels: int) -> nn.Module:
    module = nets.Normalized(in_channels, out_channels, 8)
    module.forward = partial(_normalized, module)  # type: ignore[method-assign]
    return module


def _normalized(module: nets.Normalized, x: Tensor, edge_index: Tensor) -> Tensor:
    out: Tensor = module.out(module.norm(module.conv(x, edge_index)).relu())
    return out


def test_buffers_and_frozen_parameters_are_those_of_a_textbook_loop(data: NodeDataset) -> None:
    replica = Replica(seed=3, lr=0.05)
    (run,) = train_replicas(without_dropout, data, [replica], 6, 6, keep_state=True)
    assert run.history["val_loss"] == pytest.approx(textbook(without_dropout, data, replica, 6), rel=1e-4)
    assert run.state is not None
    torch.manual_seed(3)
    start = without_dropout(data.num_features, data.num_classes)
    assert torch.equal(run.state["out.bias"], start.out.bias)  # type: ignore[union-attr,arg-type]
    assert int(run.state["norm.module.num_batches_tracked"]) == run.epoch + 1
    start.load_state_dict(run.state)
    start.eval()
    test = data.splits[0].test
    with torch.no_grad():
        right = start(data.x, data.graph.edge_index).argmax(1) == data.y
    assert run.test == pytest.approx(right[test].float().mean().item())


@pytest.mark.parametrize("factory", [nets.Net, nets.Normalized, nets.Gated, nets.Branching, nets.Counting])
def test_a_replica_is_independent_of_its_company(data: NodeDataset, factory: Any) -> None:
    together = train_replicas(factory, data, REPLICAS, 6, 6)
    (alone,) = train_replicas(factory, data, REPLICAS[2:3], 6, 6)
    assert alone.history["val_loss"] == pytest.approx(together[2].history["val_loss"], rel=1e-4)
    assert alone.history["train_loss"] == pytest.approx(together[2].history["train_loss"], rel=1e-4)


def test_dropout_differs_between_seeds_and_rates(data: NodeDataset) -> None:
    replicas = [Replica(seed=0, dropout=rate) for rate in (0.0, 0.5, 0.8)]
    losses = [run.history["train_loss"] for run in train_replicas(nets.Net, data, replicas, 3, 3)]
    assert losses[0] != losses[1] != losses[2]


def is_batched(factory: Any, data: NodeDataset) -> bool:
    model = find_model(factory)
    settings = model.settings("net", [], {"num_nodes": data.num_nodes})
    given = (model, settings, data, torch.device("cpu"), {"dropout": 0.5}, Given())

    def make(mode: TrainingMode) -> CustomProgram:
        return (CustomProgram if mode.batched else PlainLoop)(*given, mode)

    return choose_training_mode(make, make_task(data, [0]), "net", [0]).batched


class Convolution(nn.Module):
    """One of PyG's convolutions."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(F.dropout(x, 0.2, self.training), edge_index)
        return out


CONVOLUTIONS: dict[str, Callable[..., nn.Module]] = {
    "GATConv": lambda i, o: GATConv(i, o, heads=2, concat=False, dropout=0.3),
    "SAGEConv": lambda i, o: SAGEConv(i, o),
    "GINConv": lambda i, o: GINConv(nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, o))),
    "ChebConv": lambda i, o: ChebConv(i, o, K=3),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_pyg_are_batched(data: NodeDataset, name: str) -> None:
    def network(in_channels: int, out_channels: int) -> nn.Module:
        return Convolution(CONVOLUTIONS[name](in_channels, out_channels))

    assert is_batched(network, data)


@pytest.mark.parametrize(
    ("factory", "batched"),
    [(nets.Net, True), (nets.Normalized, True), (nets.Gated, True), (nets.Branching, False), (nets.Counting, False)],
)
def test_a_batch_must_have_the_results_of_each_alone(data: NodeDataset, factory: Any, batched: bool) -> None:
    assert is_batched(factory, data) is batched


def test_the_reason_is_logged_once(data: NodeDataset, caplog: pytest.LogCaptureFixture) -> None:
    messages._logged.clear()
    with caplog.at_level(logging.INFO, "gfgn"):
        for _ in range(2):
            train_replicas(nets.Branching, data, REPLICAS[:1], 1, 1)
    (message,) = [record.getMessage() for record in caplog.records if "one run at a time" in record.getMessage()]
    assert message.startswith("nets:Branching trains one run at a time, because it cannot be batched: ")
    assert "control flow" in message


def test_errors_of_a_model_are_raised(data: NodeDataset) -> None:
    with pytest.raises(ValueError, match=r"forward of WrongShape must return shape \[60, \d\], nodes by classes, got"):
        train_replicas(nets.WrongShape, data, REPLICAS, 2, 2)
    with pytest.raises(ValueError, match=r"options of nets:Net must be among hidden_channels, features, got 'hidden'"):
        train_replicas("nets:Net", data, [Replica(options=(("hidden", 3),))], 2, 2)


def test_sparse_features_are_given_as_dense_ones(data: NodeDataset) -> None:
    x = torch.where(torch.rand(60, 40) < 0.1, 1.0, 0.0)
    dense = NodeDataset(
        "d", data.graph, x, data.y, data.num_classes, "accuracy", [str(k) for k in range(40)], data.splits
    )
    sparse = NodeDataset(
        "s", data.graph, x.to_sparse_csr(), data.y, data.num_classes, "accuracy", dense.feature_names, data.splits
    )
    runs = [train_replicas(nets.Net, each, REPLICAS[:2], 4, 4) for each in (dense, sparse)]
    for run, other in zip(*runs, strict=True):
        assert run.history == other.history
    replica = Replica(dropout=0.0)
    (run,) = train_replicas(nets.Net, sparse, [replica], 4, 4)  # products with the sparse matrix
    assert run.history["val_loss"] == pytest.approx(textbook(nets.Net, dense, replica, 4), rel=1e-4)


def test_weights_of_edges_reach_a_model_that_takes_them(data: NodeDataset) -> None:
    weight = torch.rand(data.graph.num_edges) + 0.5
    graph = Graph.from_edge_index(data.graph.edge_index, 60, weight)
    weighted = NodeDataset("w", graph, data.x, data.y, data.num_classes, data.metric, data.feature_names, data.splits)
    losses = [train_replicas(nets.Normalized, each, REPLICAS[:1], 3, 3)[0].history for each in (data, weighted)]
    assert losses[0] != losses[1]


class Stop(Exception):
    """Interrupts the training of a test."""


@pytest.mark.parametrize("factory", [nets.Normalized, nets.Branching])
def test_checkpoints_hold_buffers(data: NodeDataset, tmp_path: Path, factory: Any) -> None:
    calls = iter(range(5))

    def interrupt(_: Any) -> None:
        if next(calls, None) is None:
            raise Stop

    settings: dict[str, Any] = {"max_epochs": 12, "patience": 12, "keep_state": True}
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 1}
    whole = train_replicas(factory, data, REPLICAS, **settings)
    with pytest.raises(Stop):
        train_replicas(factory, data, REPLICAS, **settings, **saves, status=interrupt)
    resumed: list[Run] = train_replicas(factory, data, REPLICAS, **settings, **saves)
    for run, other in zip(whole, resumed, strict=True):
        assert run.history == other.history
        assert run.state is not None
        assert other.state is not None
        assert all(torch.equal(run.state[name], other.state[name]) for name in run.state)


# --- constants --------------------------------------------------------------------------------------------------------
