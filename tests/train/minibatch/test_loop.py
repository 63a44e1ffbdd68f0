"""The loop: which epoch it keeps, when it stops, what it reads, and the three methods in it."""

from collections.abc import Iterator

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks

from gfgn import Graph
from gfgn.nn.registry import MODELS
from gfgn.train.minibatch import minibatches, train_minibatch
from gfgn.train.minibatch.loop import score

METHODS = ["graphsage", "vr-gcn", "graphsaint"]


class Whole:
    """The whole training set as one step: full-batch training."""

    def __init__(self, x: Tensor, graph: Graph, y: Tensor, train: Tensor) -> None:
        self.parts = x, graph, y, train

    def steps(self, epoch: int) -> Iterator[int]:
        yield epoch

    def loss(self, net: nn.Module, batch: int) -> Tensor:
        x, graph, y, train = self.parts
        return cross_entropy(net(x, graph)[train], y[train])


def make(name: str, dropout: float = 0.3, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].build(FEATURES, CLASSES, dropout, 1.0, {"hidden": 16, **options}).double()


@pytest.mark.parametrize("patience", [3, 50])
def test_best_epoch_and_stopping_are_those_of_a_plain_loop(patience: int) -> None:
    x, graph, y, split = blocks()
    net = make("gcn", 0.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05, weight_decay=1e-3)
    epochs = []
    for epoch in range(60):
        net.train()
        optimizer.zero_grad()
        cross_entropy(net(x, graph)[split[0]], y[split[0]]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            logits = net(x, graph)
        right = logits.argmax(1) == y
        val_loss = cross_entropy(logits[split[1]], y[split[1]]).item()
        epochs.append((right[split[1]].float().mean().item(), -val_loss, right[split[2]].float().mean().item(), epoch))
        best = max(epochs, key=lambda entry: entry[:2])
        if epoch - best[3] >= patience:
            break
    net = make("gcn", 0.0)
    fit = train_minibatch(
        net,
        Whole(x, graph, y, split[0]),
        x,
        graph,
        y,
        split,
        lr=0.05,
        weight_decay=1e-3,
        max_epochs=60,
        patience=patience,
    )
    assert (fit.val, fit.epoch) == (best[0], best[3])
    assert fit.test == best[2]
    assert len(fit.history["val"]) == len(epochs)
    assert fit.history["val"] == pytest.approx([entry[0] for entry in epochs])
    assert all(torch.equal(value, fit.state[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("name", "concat"), [(name, False) for name in METHODS] + [(name, True) for name in METHODS[1:]]
)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_method_learns_the_groups(name: str, concat: bool, sparse: bool) -> None:
    x, graph, y, split = blocks()
    given = x.to_sparse_csr() if sparse else x
    net = make(name, concat=True) if concat else make(name)
    options = {"budget": 40} if name == "graphsaint" else {"batch_size": 20}
    batches = minibatches(name, net, given, graph, y, split[0], seed=1, **options)
    fit = train_minibatch(net, batches, given, graph, y, split, lr=0.02, max_epochs=30)
    assert fit.test > 0.75
    assert fit.history["train_loss"][-1] < fit.history["train_loss"][0]


@pytest.mark.parametrize("name", METHODS)
def test_a_run_is_a_function_of_its_seeds(name: str) -> None:
    x, graph, y, split = blocks()
    curves = []
    for disturb in (0, 1):
        net = make(name)
        torch.manual_seed(disturb)
        before = torch.get_rng_state()
        batches = minibatches(name, net, x, graph, y, split[0], seed=1)
        fit = train_minibatch(net, batches, x, graph, y, split, max_epochs=4, seed=5)
        assert torch.equal(torch.get_rng_state(), before)
        curves.append(fit.history)
    assert curves[0] == curves[1]


@pytest.mark.parametrize("name", METHODS)
def test_many_labels_and_many_graphs(name: str) -> None:
    """Two graphs, of which one is trained on; labels are sets."""
    x, graph, y, _ = blocks()
    twice = torch.cat([graph.edge_index, graph.edge_index + NODES], dim=1)
    batch = torch.arange(2).repeat_interleave(NODES)
    both = Graph.from_edge_index(twice, 2 * NODES, batch=batch, dtype=torch.float64)
    labels = torch.stack([y == 0, y != 1, y == 2], dim=1).repeat(2, 1)
    first = batch == 0
    net = make(name)
    batches = minibatches(name, net, x.repeat(2, 1), both, labels, first)
    fit = train_minibatch(net, batches, x.repeat(2, 1), both, labels, (first, ~first, ~first), lr=0.02, max_epochs=20)
    assert fit.test > 0.8


def test_micro_f1_is_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(30, 5, generator=generator), torch.rand(30, 5, generator=generator) > 0.6
    assert score(logits, labels) == pytest.approx(f1_score(labels, logits > 0, average="micro"))
    assert score(-torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)) == 0


def test_bad_arguments_are_named() -> None:
    x, graph, y, split = blocks()
    net = make("gcn")
    with pytest.raises(ValueError, match=r"model must be one of 'graphsage', 'vr-gcn', 'graphsaint', got 'gcn'"):
        minibatches("gcn", net, x, graph, y, split[0])
    with pytest.raises(TypeError, match="net must be a VRGCN, got GCN"):
        minibatches("vr-gcn", net, x, graph, y, split[0])
    batches = minibatches("graphsaint", net, x, graph, y, split[0])
    batch = next(iter(batches.steps(0)))
    with pytest.raises(TypeError, match="net must be a GraphSAINT, got GCN"):
        batches.loss(net, batch)
    with pytest.raises(ValueError, match="train must have a node or more, got an empty mask"):
        minibatches("graphsage", net, x, graph, y, torch.zeros(NODES, dtype=torch.bool))
    with pytest.raises(ValueError, match="y must have 150 rows, one a node, got 149"):
        minibatches("graphsage", net, x, graph, y[1:], split[0])
    with pytest.raises(ValueError, match="patience must be 1 or larger, got 0"):
        train_minibatch(net, Whole(x, graph, y, split[0]), x, graph, y, split, patience=0)
