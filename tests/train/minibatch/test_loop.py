"""Training on samples: the best epoch, early stopping, seeding, and the three methods."""

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks, two_graphs

from gfgn.data import NodeDataset
from gfgn.nn.registry import find_model
from gfgn.train import Replica, TrainConfig, train_minibatch
from gfgn.train.minibatch import METHODS
from gfgn.train.minibatch.batches import Minibatches
from gfgn.train.minibatch.loop import fit
from gfgn.train.progress import Progress

DATA = blocks()
every_model = pytest.mark.parametrize("model", METHODS)


class FullBatch(Minibatches):
    """The whole training set as one step."""

    def __init__(self, net: nn.Module, data: NodeDataset, train: Tensor) -> None:
        super().__init__(net, data, train, seed=0)
        self.graph = data.graph

    def steps(self, epoch: int) -> Iterator[int]:
        yield epoch

    def loss(self, batch: int) -> Tensor:
        return cross_entropy(self.net(self.x, self.graph)[self.train], self.y[self.train])


def gcn() -> nn.Module:
    torch.manual_seed(0)
    model = find_model("gcn")
    return model.build(FEATURES, CLASSES, 0.0, 1.0, model.settings("gcn", (("hidden", 16),), {})).double()


@pytest.mark.parametrize(("patience", "schedule"), [(3, "constant"), (50, "constant"), (50, "cosine"), (50, "step")])
def test_best_epoch_and_stopping_are_those_of_a_plain_loop(patience: int, schedule: str) -> None:
    x, graph, y, split = DATA.x, DATA.graph, DATA.y, DATA.splits[0]
    net = gcn()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=1e-3)
    factors = {"constant": lambda t: 1.0, "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2}
    factors["step"] = lambda t: (1.0, 0.1, 0.01)[int(3 * t)]
    epochs = []
    for epoch in range(30):
        optimizer.param_groups[0]["lr"] = 0.05 * factors[schedule](epoch / 30)
        net.train()
        optimizer.zero_grad()
        cross_entropy(net(x, graph)[split.train], y[split.train]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            logits = net(x, graph)
        right = logits.argmax(1) == y
        val_loss = cross_entropy(logits[split.val], y[split.val]).item()
        epochs.append(
            (right[split.val].float().mean().item(), -val_loss, right[split.test].float().mean().item(), epoch)
        )
        best = max(epochs, key=lambda entry: entry[:2])
        if epoch - best[3] >= patience:
            break
    net = gcn()
    replica, config = Replica(lr=0.05, weight_decay=1e-3), TrainConfig(30, patience, schedule=schedule)
    result = fit("gcn", net, FullBatch(net, DATA, split.train), DATA, replica, config, Progress(1))
    assert (result.val, result.test, result.epoch) == (best[0], best[2], best[3])
    assert result.history["val"] == [entry[0] for entry in epochs]
    assert result.history["val_loss"] == pytest.approx([-entry[1] for entry in epochs])
    assert all(torch.equal(value, result.state[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("model", "concat", "sparse"),
    [("graphsage", None, True), ("vr-gcn", False, True), ("vr-gcn", True, True), ("vr-gcn", True, False),
     ("graphsaint", False, False), ("graphsaint", True, True)],
)  # fmt: skip
def test_every_method_learns_the_classes(model: str, concat: bool | None, sparse: bool) -> None:
    sampling = ("budget", 40) if model == "graphsaint" else ("batch_size", 20)
    options = (("hidden", 16), sampling, *([] if concat is None else [("concat", concat)]))
    replica = Replica(seed=1, lr=0.05, dropout=0.2, options=options)
    [run] = train_minibatch(model, blocks(sparse), [replica], TrainConfig(max_epochs=12))
    assert run.test > 0.75
    assert run.history["train_loss"][-1] < run.history["train_loss"][0]


@every_model
def test_a_run_is_a_function_of_its_replica(model: str) -> None:
    replica, histories = Replica(seed=5, dropout=0.3, options=(("hidden", 8),)), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        [run] = train_minibatch(model, DATA, [replica], TrainConfig(max_epochs=3), keep_state=True)
        assert torch.equal(torch.get_rng_state(), before)
        histories.append(run.history)
    assert histories[0] == histories[1]
    assert run.state is not None


@pytest.mark.parametrize("model", [model for model in METHODS if model != "gfgn-graph"])  # its gate is of one graph
def test_multi_label_nodes_of_several_graphs(model: str) -> None:
    """One of two graphs is trained on."""
    replica = Replica(lr=0.05, dropout=0.2, options=(("hidden", 16),))
    [run] = train_minibatch(model, two_graphs(), [replica], TrainConfig(max_epochs=20))
    assert run.test > 0.8


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"model must be one of 'graphsage', .*'gfgn-pair', got 'gcn'"):
        train_minibatch("gcn", DATA, [Replica()])
    with pytest.raises(TypeError, match=r"net must have layers, .* for ControlVariateBatches, got GCN without layers"):
        METHODS["vr-gcn"](gcn(), DATA, DATA.splits[0].train)
    with pytest.raises(TypeError, match="net must have convolve for SaintBatches, got Linear without convolve"):
        METHODS["graphsaint"](nn.Linear(2, 2), DATA, DATA.splits[0].train)
    with pytest.raises(ValueError, match="train must select at least one node, got an empty mask"):
        FullBatch(gcn(), DATA, torch.zeros(NODES, dtype=torch.bool))
    with pytest.raises(ValueError, match="train must have 150 rows, one per node, got 149"):
        FullBatch(gcn(), DATA, torch.ones(NODES - 1, dtype=torch.bool))
