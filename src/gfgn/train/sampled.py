"""Runs of models that see a sample of the graph at a time, and one function for all kinds of training.

`train_runs` sends what trains in batches of replicas to `train_replicas` and the rest through `gfgn.sampling`, one run
after the other. A model that can do both trains on samples where its options name one of the sampler's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from gfgn.data.dataset import Dataset
from gfgn.nn.registry import Model, find_model
from gfgn.train.config import TrainConfig, precision
from gfgn.train.loop import fitting_threads, train_replicas
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.task import with_sparse_features

SAMPLING: Mapping[str, tuple[str, ...]] = {
    "graphsage": ("batch_size",),
    "vr-gcn": ("batch_size", "fanout"),
    "graphsaint": ("sampler", "budget", "length", "coverage"),
}
"""Options of the samplers, by model, see `gfgn.sampling.minibatches`."""
FANOUTS = (25, 10)
"""Neighbours of a node in graphsage's last layers, from its paper; layers below have the last number."""


def is_sampled(model: str, replica: Replica) -> bool:
    """Whether a run trains on samples of the graph."""
    entry = find_model(model)
    return not entry.replicas or any(name in SAMPLING.get(model, ()) for name, _ in replica.options)


def train_runs(
    model: str,
    data: Dataset,
    replicas: Sequence[Replica],
    config: TrainConfig,
    device: torch.device | str = "cpu",
    *,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
    batch_size: int | None = None,
) -> list[Run]:
    """Trains `model` for every replica, in whichever way it trains, and returns one `Run` a replica, in order.

    Args:
        model: Name of the model.
        data: The dataset.
        replicas: The runs to make.
        config: How they are trained. Of runs on samples, a step is a sample whatever `graphs_per_step` is.
        device: Where.
        progress: Called with each run as it finishes.
        status: Called now and then with how far the runs are.
        batch_size: How many replicas train at a time; as many as fit if `None`.
    """
    together = [replica for replica in replicas if not is_sampled(model, replica)]
    settings: dict[str, Any] = {"progress": progress, "status": status, "history": False, "batch_size": batch_size}
    made = train_replicas(model, data, together, device=device, **asdict(config), **settings) if together else []
    runs = dict(zip(together, made, strict=True))
    alone = [replica for replica in replicas if is_sampled(model, replica)]
    if alone:
        check_sampled(model, data, config)
        moved, start = with_sparse_features(data.to(device)), time.perf_counter()
        for replica in alone:
            with fitting_threads(data), precision(config, moved.y.device):
                runs[replica] = _train(model, moved, replica, config, _watch(status, len(alone), len(runs), start))
            if progress is not None:
                progress(runs[replica])
    return [runs[replica] for replica in replicas]


def _train(
    model: str, data: Dataset, replica: Replica, config: TrainConfig, watch: Callable[[int, float, float], None]
) -> Run:
    """One run on samples of the graph. It depends on its replica alone; the global random state is left as it was."""
    from gfgn.train.minibatch import minibatches, train_minibatch

    start, entry = time.perf_counter(), find_model(model)
    own: dict[str, Any] = {name: value for name, value in replica.options if name in SAMPLING[model]}
    net, settings = _build(model, entry, data, replica)
    if model == "graphsage":
        own["fanouts"] = (*FANOUTS, *[FANOUTS[-1]] * settings["layers"])[: settings["layers"]]
    split = data.splits[replica.split]
    batches = minibatches(model, net, data.x, data.graph, data.y, split.train, seed=replica.seed, **own)
    fit = train_minibatch(
        net,
        batches,
        data.x,
        data.graph,
        data.y,
        split,
        lr=replica.lr,
        weight_decay=replica.weight_decay,
        max_epochs=config.max_epochs,
        patience=config.patience,
        seed=replica.seed,
        progress=watch,
    )
    return Run(
        replica=replica,
        model=model,
        val=fit.val,
        test=fit.test,
        epoch=fit.epoch,
        epochs=len(fit.history["val"]),
        history={},
        seconds=time.perf_counter() - start,
        num_parameters=sum(parameter.numel() for parameter in net.parameters()),
    )


def _build(model: str, entry: Model, data: Dataset, replica: Replica) -> tuple[nn.Module, dict[str, Any]]:
    """The model with a replica's initial parameters, and its settings."""
    options = tuple((name, value) for name, value in replica.options if name not in SAMPLING[model])
    settings = entry.settings(model, options, {"num_nodes": data.num_nodes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(replica.seed)
        net = entry.build(data.num_features, data.num_classes, replica.dropout, replica.lam, settings)
    return net.to(data.x.device, data.x.dtype), settings


def _watch(
    status: Callable[[Status], None] | None, replicas: int, finished: int, start: float
) -> Callable[[int, float, float], None]:
    """Tells `status` of every epoch of one run."""

    def watch(epoch: int, score: float, loss: float) -> None:
        if status is not None:
            seconds = time.perf_counter() - start
            status(Status(replicas, finished, 1, epoch + 1, score, seconds, None))

    return watch


def check_sampled(model: str, data: Dataset, config: TrainConfig) -> None:
    """Refuses what a model that trains on samples cannot do."""
    usual = TrainConfig()
    if any(getattr(config, name) != getattr(usual, name) for name in ("clip", "schedule", "class_weights", "best")):
        raise ValueError(
            f"protocol must leave clip, schedule, class_weights and best as usual for {model}, which trains on "
            f"samples, got {config}"
        )
    if data.metric == "roc_auc":
        raise ValueError(f"data must be measured by accuracy or micro-F1 for {model}, got {data.metric}")
