"""`train_minibatch`: trains a model on samples of the graph, one run after the other."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gfgn import metrics
from gfgn.data.dataset import NodeDataset
from gfgn.data.mapped import is_mapped
from gfgn.nn.model import GFGN
from gfgn.nn.registry import find_model, known_model
from gfgn.ops.seeded import seeded_dropout
from gfgn.train.batch import HISTORY
from gfgn.train.config import TrainConfig, initial_best, update_best_
from gfgn.train.layerwise import infer_layerwise
from gfgn.train.minibatch.batches import Minibatches
from gfgn.train.minibatch.graphsage import NeighborBatches
from gfgn.train.minibatch.graphsaint import SaintBatches
from gfgn.train.minibatch.levels import LevelBatches
from gfgn.train.minibatch.vr_gcn import ControlVariateBatches
from gfgn.train.program import seeded_module
from gfgn.train.progress import Progress
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.settings import precision, threads_for
from gfgn.train.task import Part, check_splits, make_task, with_features, with_sparse_features

# How each model that can train on samples does so.
METHODS: Mapping[str, type[Minibatches]] = {
    "graphsage": NeighborBatches,
    "graphsaint": SaintBatches,
    "vr-gcn": ControlVariateBatches,
    "gfgn-graph": LevelBatches,
    "gfgn-neighbor": LevelBatches,
    "gfgn-pair": LevelBatches,
}
# Options of a `Replica` that configure the sampling, by model.
SAMPLING: Mapping[str, tuple[str, ...]] = {model: method.options for model, method in METHODS.items()}


def is_sampled(model: str, replica: Replica) -> bool:
    """Whether a run trains on samples: its model trains in no other way, or its options configure the sampling."""
    entry = known_model(model)  # a custom model has no such options
    only = entry is not None and not entry.batchable
    return only or any(name in SAMPLING.get(model, ()) for name, _ in replica.options)


def check_sampled(model: str, config: TrainConfig) -> None:
    """Raises an error if training on samples does not support the configuration."""
    default = TrainConfig()
    if any(getattr(config, name) != getattr(default, name) for name in ("clip", "class_weights", "best")):
        raise ValueError(
            f"config must have the default clip, class_weights and best for {model}, which trains on samples, got "
            f"{config}"
        )


def train_minibatch(
    model: str,
    data: NodeDataset,
    replicas: Sequence[Replica],
    config: TrainConfig | None = None,
    device: torch.device | str = "cpu",
    *,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
    history: bool = True,
    keep_state: bool = False,
) -> list[Run]:
    """Trains `model` on samples of the graph for every replica and returns one `Run` per replica, in order.

    Best epoch, early stopping and metrics are those of `train_replicas`, as are the settings of PyTorch that change
    during the call. Validation and test see whole graphs. `progress`, `status`, `history` and `keep_state` are those of
    `train_replicas`.

    Args:
        model: `"graphsage"`, `"graphsaint"`, `"vr-gcn"`, `"gfgn-graph"`, `"gfgn-neighbor"` or `"gfgn-pair"`.
        data: The dataset.
        replicas: The runs to train. Their options are those of the model and of its method: `NeighborBatches`,
            `SaintBatches`, `ControlVariateBatches` or `LevelBatches`.
        config: How to train; `clip`, `class_weights` and `best` must have their defaults, `graphs_per_step` is ignored,
            and the learning rate changes from epoch to epoch only.
        device: `"cpu"` or `"cuda"`.
    """
    if model not in METHODS:
        raise ValueError(f"model must be one of {', '.join(map(repr, METHODS))}, got {model!r}")
    config = config or TrainConfig()
    check_sampled(model, config)
    check_splits(data, (replica.split for replica in replicas))
    with precision(config, torch.device(device)):
        data = with_sparse_features(data.to(device))
    reports = Progress(len(replicas), progress, status)
    for index, replica in enumerate(replicas):
        start = time.perf_counter()
        with threads_for(data), precision(config, data.y.device):
            prepared = with_features(data, find_model(model).applied(replica.options)["features"])
            run = fit(model, *prepare(model, prepared, replica), prepared, replica, config, reports)
        kept: dict[str, Any] = {"history": run.history if history else {}, "state": run.state if keep_state else None}
        reports.finish(index, replace(run, seconds=time.perf_counter() - start, **kept))
    return [reports.runs[index] for index in range(len(replicas))]


def prepare(model: str, data: NodeDataset, replica: Replica) -> tuple[nn.Module, Minibatches]:
    """The model with a replica's initial parameters, and its mini-batches."""
    entry, sampling = find_model(model), SAMPLING[model]
    own = [(name, value) for name, value in replica.options if name not in sampling]
    settings = entry.settings(model, own, {"num_nodes": data.num_nodes})
    net = seeded_module(entry, data, settings, replica.seed, replica.dropout, replica.lam, replica.input_dropout)
    net = net.to(data.x.device, data.x.dtype)
    options: dict[str, Any] = {name: value for name, value in replica.options if name in sampling}
    return net, METHODS[model](net, data, data.splits[replica.split].train, seed=replica.seed, **options)


def fit(
    model: str,
    net: nn.Module,
    batches: Minibatches,
    data: NodeDataset,
    replica: Replica,
    config: TrainConfig,
    reports: Progress,
) -> Run:
    """Trains `net` with Adam on mini-batches and validates it on whole graphs after every epoch.

    In the end `net` has the parameters of the best epoch. The global random state is neither read nor changed.
    """
    start = time.perf_counter()
    optimizer = torch.optim.Adam(net.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    task = make_task(data, [replica.split])
    best = initial_best(1, torch.float64)
    history: dict[str, list[float]] = {name: [] for name in HISTORY}
    state = net.state_dict()
    dropout = seeded_dropout(replica.seed)
    for epoch in range(config.max_epochs):
        set_rate(optimizer, replica.lr, config, epoch)
        train_loss = _train_epoch(net, batches, optimizer, epoch, dropout)
        score, loss = evaluate(net, task.val, data.metric)
        for name, value in zip(HISTORY, (train_loss, loss.item(), score.item()), strict=True):
            history[name].append(value)
        if update_best_(best, torch.tensor([epoch]), score, loss, config):
            state = {name: value.detach().clone() for name, value in net.state_dict().items()}
        reports.add_epochs(1)
        reports.report(epoch + 1, best["best_score"].tolist)
        if not best["alive"]:
            break
    net.load_state_dict(state)
    tested = evaluate(net, task.test, data.metric)
    return make_run(model, net, replica, best, history, tested, time.perf_counter() - start)


def set_rate(optimizer: torch.optim.Optimizer, lr: float, config: TrainConfig, epoch: int) -> None:
    """Sets the learning rate of an epoch, by the schedule."""
    rate = lr * config.learning_rates(config.max_epochs)[epoch].item()
    for group in optimizer.param_groups:
        group["lr"] = rate


def make_run(
    model: str,
    net: nn.Module,
    replica: Replica,
    best: Mapping[str, Tensor],
    history: dict[str, list[float]],
    tested: tuple[Tensor, Tensor],
    seconds: float,
) -> Run:
    """The run of a net with the parameters of its best epoch; `tested` are its score and loss on the test nodes."""
    (test, loss), diverged = tested, int(best["best_epoch"]) < 0
    return Run(
        replica=replica,
        model=model,
        val=math.nan if diverged else best["best_score"].item(),
        test=math.nan if diverged or not loss.isfinite() else test.item(),
        epoch=int(best["best_epoch"]),
        epochs=len(history["val"]),
        history=history,
        seconds=seconds,
        num_parameters=sum(parameter.numel() for parameter in net.parameters()),
        state={name: value.detach().clone() for name, value in net.state_dict().items()},
    )


def _train_epoch(
    net: nn.Module, batches: Minibatches, optimizer: torch.optim.Optimizer, epoch: int, dropout: seeded_dropout
) -> float:
    """Trains one epoch and returns the mean loss of its steps."""
    net.train()
    total, count = 0.0, 0
    for batch in batches.steps(epoch):
        optimizer.zero_grad()
        with dropout:
            loss = batches.loss(batch)
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / max(count, 1)


@torch.no_grad()
def evaluate(net: nn.Module, part: Part, metric: str) -> tuple[Tensor, Tensor]:
    """`[1]` score and `[1]` loss of a model on the nodes of a part, on the CPU in float64.

    A GFGN computes layer by layer where the part is in files, or on another device, which may be smaller than it.
    """
    net.eval()
    in_files = is_mapped(part.graph)
    if isinstance(net, GFGN) and (in_files or next(net.parameters()).device != part.x.device):
        logits = infer_layerwise(net, part.x, part.graph, scratch=tempfile.gettempdir() if in_files else None)
    else:
        logits = net(part.x, part.graph)
    score, loss = metrics.evaluate(metric, logits.unsqueeze(0), part.y, part.masks, part.weights())
    return score.double().cpu(), loss.double().cpu()
