"""`train_minibatch`: a plain training loop for models that see a sample of the graph at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gfgn.graph import Graph


class Minibatches(Protocol):
    """How a method cuts an epoch into steps, and what it minimises in each."""

    def steps(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, the same whenever it is asked for."""
        ...

    def loss(self, net: nn.Module, batch: Any) -> Tensor:
        """What the step minimises."""
        ...


@dataclass(frozen=True)
class Fit:
    """What came of a training run.

    Attributes:
        val: Best validation score.
        test: Test score at that epoch, read once.
        epoch: That epoch, counted from 0.
        history: `"train_loss"`, `"val_loss"` and `"val"`, one value an epoch.
        state: Parameters at the best epoch.
        seconds: Wall-clock time.
    """

    val: float
    test: float
    epoch: int
    history: dict[str, list[float]] = field(repr=False)
    state: dict[str, Tensor] = field(repr=False)
    seconds: float


def train_minibatch(
    net: nn.Module,
    batches: Minibatches,
    x: Tensor,
    graph: Graph,
    y: Tensor,
    split: tuple[Tensor, Tensor, Tensor],
    *,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    max_epochs: int = 400,
    patience: int = 100,
    seed: int = 0,
    progress: Callable[[int, float, float], None] | None = None,
) -> Fit:
    """Trains `net` on the mini-batches and measures it on the whole graph after every epoch.

    Adam; the best epoch is the one with the best validation score, the lower validation loss breaking ties; training
    ends `patience` epochs after it. The test score is read once, at the best epoch, whose parameters `net` has in the
    end. The global random state is left as it was.

    Args:
        net: The model; `net(x, graph)` gives logits.
        batches: The method, see `Minibatches`.
        x: `[N, F]`, dense or sparse CSR.
        graph: The whole graph.
        y: `[N]` classes, or `[N, L]` boolean labels, then scored by micro-F1.
        split: Boolean masks of training, validation and test nodes.
        lr: Learning rate.
        weight_decay: L2 penalty on all parameters.
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement after which it ends.
        seed: Of dropout; batches have seeds of their own.
        progress: Called with each epoch's number, validation score and loss.
    """
    for name, value in (("max_epochs", max_epochs), ("patience", patience)):
        if value < 1:
            raise ValueError(f"{name} must be 1 or larger, got {value}")
    start = time.perf_counter()
    _, val, test = split
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, weight_decay=weight_decay)
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val": []}
    best: tuple[float, float] | None = None
    best_epoch, state = -1, net.state_dict()
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        for epoch in range(max_epochs):
            train_loss = _one_epoch(net, batches, optimizer, epoch)
            score, loss = evaluate(net, x, graph, y, val)
            for name, number in (("train_loss", train_loss), ("val_loss", loss), ("val", score)):
                history[name].append(number)
            if best is None or (score, -loss) > best:
                best, best_epoch = (score, -loss), epoch
                state = {name: value.detach().clone() for name, value in net.state_dict().items()}
            if progress is not None:
                progress(epoch, score, loss)
            if epoch - best_epoch >= patience:
                break
    net.load_state_dict(state)
    assert best is not None
    tested, _ = evaluate(net, x, graph, y, test)
    return Fit(best[0], tested, best_epoch, history, state, time.perf_counter() - start)


def _one_epoch(net: nn.Module, batches: Minibatches, optimizer: torch.optim.Optimizer, epoch: int) -> float:
    net.train()
    total, count = 0.0, 0
    for batch in batches.steps(epoch):
        optimizer.zero_grad()
        loss = batches.loss(net, batch)
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / max(count, 1)


@torch.no_grad()
def evaluate(net: nn.Module, x: Tensor, graph: Graph, y: Tensor, mask: Tensor) -> tuple[float, float]:
    """Score and loss on the nodes of `mask`, with the whole graph."""
    net.eval()
    logits, labels = net(x, graph)[mask], y[mask]
    return score(logits, labels), node_losses(logits, labels).mean().item()


def score(logits: Tensor, labels: Tensor) -> float:
    """Accuracy, or micro-F1 of boolean labels: `2 TP / (2 TP + FP + FN)`."""
    if labels.dim() == 1:
        return (logits.argmax(1) == labels).float().mean().item()
    guessed = logits > 0
    hits, wrong = (guessed & labels).sum().item(), (guessed ^ labels).sum().item()
    return 2 * hits / (2 * hits + wrong) if hits + wrong else 0.0


def node_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each node: cross-entropy, of each label and averaged where labels are many."""
    if labels.dim() == 1:
        return cross_entropy(logits, labels, reduction="none")
    return binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="none").mean(1)


def check_labels(y: Tensor, train: Tensor, graph: Graph) -> None:
    """Refuses labels and masks that do not fit the graph, and a mask without nodes."""
    for name, value in (("y", y), ("train", train)):
        if value.size(0) != graph.num_nodes:
            raise ValueError(f"{name} must have {graph.num_nodes} rows, one a node, got {value.size(0)}")
    if not bool(train.any()):
        raise ValueError("train must have a node or more, got an empty mask")


def shuffled(nodes: Tensor, size: int, key: int) -> Iterator[Tensor]:
    """The nodes in a random order that depends on the key, in batches of `size`."""
    if size < 1:
        raise ValueError(f"batch_size must be 1 or larger, got {size}")
    order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(key)).to(nodes.device)
    yield from nodes[order].split(size)
