"""Custom models in the engine against plain loops of PyTorch; what cannot agree is refused by name."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gfgn import Graph
from gfgn.data import Dataset, dimensions
from gfgn.ops.thread_count import num_threads
from gfgn.runs import Store
from gfgn.runs.comparison import compare
from gfgn.train import Replica, train_replicas


@pytest.fixture
def data() -> Dataset:
    return dimensions(40, degree=4, splits=2, seed=1)


class Linear(nn.Module):
    """The network that the others of this page change."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        neighbors = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
        out: Tensor = self.lin(x + neighbors)
        return out


# --- the data ---------------------------------------------------------------------------------------------------------


class InPlaceDropout(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, self.training, inplace=True), edge_index)


class InPlaceReLU(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x.relu_(), edge_index)


class Scaling(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x.data.mul_(0.5)
        return super().forward(x, edge_index)


class ThroughNumPy(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x.numpy()[0, 0] = 7
        return super().forward(x, edge_index)


class Rewiring(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index[0] = edge_index[1]
        return super().forward(x, edge_index)


class Clamping(Linear):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        edge_weight.clamp_(max=0.6)
        return super().forward(x, edge_index)


class Degrees(Linear):
    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        graph.degree.add_(1)
        return super().forward(x, graph.edge_index)


class OutOfRange(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index.add_(1)
        return super().forward(x, edge_index)


class Late(Linear):
    """Changes the features after some steps, when it has been tried."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        Late.calls += 1
        if Late.calls > 30:
            x.data.zero_()
        return super().forward(x, edge_index)


CHANGING: list[tuple[type[nn.Module], str]] = [
    (InPlaceDropout, "x"),
    (InPlaceReLU, "x"),
    (Scaling, "x"),
    (ThroughNumPy, "x"),
    (Rewiring, "edge_index"),
    (Clamping, "edge_weight"),
    (Degrees, "graph.degree"),
    (OutOfRange, "edge_index"),
    (Late, "x"),
]


def weighted(data: Dataset) -> Dataset:
    weight = torch.linspace(0.5, 1.5, data.graph.num_edges)
    graph = Graph.from_edge_index(data.graph.edge_index, data.num_nodes, weight)
    return Dataset("w", graph, data.x, data.y, data.num_classes, data.metric, data.feature_names, data.splits)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("model", "name"), CHANGING)
def test_a_module_that_changes_its_arguments_is_refused(
    data: Dataset, model: type[nn.Module], name: str, threads: int
) -> None:
    Late.calls = 0
    data = weighted(data)
    before = copy.deepcopy((data.x, data.graph))
    replicas = [Replica(split=seed % 2, seed=seed) for seed in range(3)]
    with num_threads(threads), pytest.raises(ValueError, match=rf"{model.__name__} must not change .* got {name} "):
        train_replicas(model, data, replicas, 20, 20)
    assert torch.equal(data.x, before[0])
    assert torch.equal(data.graph.edge_index, before[1].edge_index)
    assert torch.equal(data.graph.degree, before[1].degree)


def test_no_score_from_changed_data_is_kept(data: Dataset) -> None:
    with Store(":memory:") as store:
        with pytest.raises(ValueError, match="InPlaceReLU must not change"):
            compare(data, [f"{__name__}:InPlaceReLU", "gcn"], splits=1, max_epochs=2, store=store)
        assert len(store) == 0
        (row,) = compare(data, ["gcn"], splits=1, max_epochs=2, store=store).rows["gcn"]
    (run,) = train_replicas("gcn", dimensions(40, degree=4, splits=2, seed=1), [row.replica], 2)
    assert run.test == row.test
