"""`train_replicas`: trains one model once for every replica of a list."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gfgn.data.dataset import Dataset
from gfgn.train.models import HIDDEN, builder
from gfgn.train.replica import Replica, Run

SMALL = 2**23
"""Values in an edge-wise tensor below which one thread is the better choice."""


def train_replicas(
    model: str,
    data: Dataset,
    replicas: Sequence[Replica],
    max_epochs: int = 400,
    patience: int = 100,
    device: torch.device | str = "cpu",
    progress: Callable[[Run], None] | None = None,
    keep_state: bool = False,
) -> list[Run]:
    """Trains `model` for every replica and returns one `Run` a replica, in order.

    Adam on the cross-entropy of the training nodes, validation after every epoch. The best epoch is the one
    with the best validation score, the lower validation loss breaking ties; training ends `patience` epochs
    after it. The test score is read once, at the best epoch. A replica's result depends on nothing but
    itself: not on the others in the list, nor on the global random state, which is left as it was.

    Args:
        model: Name of the model, see `gfgn.train.MODELS`.
        data: The dataset.
        replicas: The runs to make.
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement after which a run ends.
        device: Where to train.
        progress: Called with each run as it finishes.
        keep_state: Whether runs keep the parameters of their best epoch.
    """
    build = builder(model)
    if data.metric != "accuracy":
        raise ValueError(f"data must be measured by accuracy, the only measure so far; {data.name} is by {data.metric}")
    for name, value in (("max_epochs", max_epochs), ("patience", patience)):
        if value < 1:
            raise ValueError(f"{name} must be 1 or larger, got {value}")
    for replica in replicas:
        _check_split(data, replica.split)

    data = data.to(device)
    cuda = [data.x.device] if data.x.is_cuda else []
    runs = []
    for replica in replicas:
        start = time.perf_counter()
        with torch.random.fork_rng(devices=cuda), fitting_threads(data):
            torch.manual_seed(replica.seed)
            net = build(data.num_features, data.num_classes, replica).to(device)
            best, history = _fit(net, data, replica, max_epochs, patience)
            net.load_state_dict(best.state)
            test, _ = _evaluate(net, data, data.splits[replica.split].test)
        run = Run(
            replica=replica,
            model=model,
            val=best.score,
            test=test,
            epoch=best.epoch,
            history=history,
            seconds=time.perf_counter() - start,
            num_parameters=sum(p.numel() for p in net.parameters()),
            state=best.state if keep_state else None,
        )
        runs.append(run)
        if progress is not None:
            progress(run)
    return runs


@contextmanager
def fitting_threads(data: Dataset) -> Iterator[None]:
    """One thread for a small graph: its operations are too short to share, and on a busy machine threads that wait
    for each other make them many times slower."""
    before = torch.get_num_threads()
    if data.graph.num_edges * HIDDEN < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Best:
    """The best epoch so far and its parameters."""

    def __init__(self) -> None:
        self.score, self.loss, self.epoch = float("-inf"), float("inf"), -1
        self.state: dict[str, Tensor] = {}

    def update(self, score: float, loss: float, epoch: int, net: nn.Module) -> None:
        if self.epoch >= 0 and (score, -loss) <= (self.score, -self.loss):
            return
        self.score, self.loss, self.epoch = score, loss, epoch
        self.state = {name: value.detach().clone() for name, value in net.state_dict().items()}


def _fit(
    net: nn.Module, data: Dataset, replica: Replica, max_epochs: int, patience: int
) -> tuple[_Best, dict[str, list[float]]]:
    split = data.splits[replica.split]
    optimizer = torch.optim.Adam(net.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    best = _Best()
    history: dict[str, list[float]] = {"train_loss": [], "val_loss": [], "val": []}
    for epoch in range(max_epochs):
        net.train()
        optimizer.zero_grad()
        loss = cross_entropy(net(data.x, data.graph)[split.train], data.y[split.train])
        loss.backward()
        optimizer.step()
        score, val_loss = _evaluate(net, data, split.val)
        for name, value in (("train_loss", loss.item()), ("val_loss", val_loss), ("val", score)):
            history[name].append(value)
        best.update(score, val_loss, epoch, net)
        if epoch - best.epoch >= patience:
            break
    return best, history


@torch.no_grad()
def _evaluate(net: nn.Module, data: Dataset, mask: Tensor) -> tuple[float, float]:
    """Accuracy and cross-entropy on the nodes of `mask`."""
    net.eval()
    logits, labels = net(data.x, data.graph)[mask], data.y[mask]
    return (logits.argmax(1) == labels).float().mean().item(), cross_entropy(logits, labels).item()


def _check_split(data: Dataset, split: int) -> None:
    if split >= len(data.splits):
        raise ValueError(f"split must be below {len(data.splits)}, the number of splits of {data.name!r}, got {split}")
    for part, mask in data.splits[split]._asdict().items():
        if not mask.any():
            raise ValueError(f"split {split} of {data.name!r} must have {part} nodes, got an empty mask")
