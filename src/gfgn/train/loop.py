"""`train_replicas`: one model for every replica of a list, many at a time. `train_runs`: all kinds of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.nn.custom import Factory, factory_name
from gfgn.nn.registry import Model, find_model
from gfgn.train.catalog import CLASSICAL
from gfgn.train.checkpoint import Checkpoint
from gfgn.train.classical import find_network, train_classical
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import is_sampled, train_minibatch
from gfgn.train.progress import Progress
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.settings import precision
from gfgn.train.task import check_splits, with_dense_features, with_sparse_features
from gfgn.train.trainer import Prune, Trainer


def train_replicas(
    model: str | Factory,
    data: NodeDataset,
    replicas: Sequence[Replica],
    max_epochs: int = 400,
    patience: int = 100,
    device: torch.device | str = "cpu",
    *,
    clip: float | None = None,
    schedule: str = "constant",
    class_weights: bool = False,
    graphs_per_step: int | None = None,
    best: str = "score",
    tf32: bool = False,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
    history: bool = True,
    keep_state: bool = False,
    gates: bool = True,
    batch_size: int | None = None,
    rungs: Sequence[int] = (),
    prune: Prune | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
) -> list[Run]:
    """Trains `model` for every replica and returns one `Run` per replica, in order.

    Adam minimizes the cross-entropy of the training nodes; every epoch is validated. The best epoch is the one with the
    best validation score (the lower validation loss breaks ties) unless `best` says otherwise, and training ends
    `patience` epochs after it. The test score is evaluated once, at the best epoch. The result of a replica depends
    neither on the other replicas nor on the global random state, which is neither read nor changed. Several threads may
    train at the same time; on a GPU, one after the other.

    During a call on a GPU the precision of matrix products may be changed for the whole process
    (`torch.set_float32_matmul_precision`); it is restored afterwards.
    `max_epochs`, `patience`, `clip`, `schedule`, `class_weights`, `graphs_per_step`, `best` and `tf32` are those of
    `TrainConfig`. Programs that train on the CPU are faster inside `keep_freed_memory()`.

    Args:
        model: Name of the model (see `gfgn.nn.MODELS`), or a custom model: `package.module:Class`, the class, or
            a function that returns a module; see `gfgn.nn.custom`.
        data: The dataset.
        replicas: The runs to train.
        device: `"cpu"`, `"cuda"` or `"mps"`.
        progress: Called with each run as it finishes, in the caller's thread.
        status: Called with the progress of training now and then, in the caller's thread.
        history: Whether runs keep their losses and scores of every epoch.
        keep_state: Whether runs keep the parameters of their best epoch.
        gates: Whether runs of a model with gates keep a summary of these.
        batch_size: Number of replicas that train at a time; as many as fit if `None`.
        rungs: Epochs after which `prune` is called.
        prune: Called with the epoch, all replicas still in training and their best validation scores so far; returns
            which of them continue. The others are `dropped`: their test score is not evaluated.
        checkpoint: Folder for checkpoints, from which the same call resumes after an interruption; `None` for none,
            as is required with `prune`.
        checkpoint_every: Epochs between two checkpoints.
    """
    config = TrainConfig(max_epochs, patience, clip, schedule, class_weights, graphs_per_step, best, tf32)
    entry, name = find_model(model), model if isinstance(model, str) else factory_name(model)
    _check(name, entry, data, replicas, config)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be 1 or larger, got {batch_size}")
    if bool(rungs) != (prune is not None):
        raise ValueError(f"rungs and prune must be given together, got rungs={list(rungs)} and prune={prune}")
    if any(rung < 1 for rung in rungs):
        raise ValueError(f"rungs must be epochs from 1 on, got {list(rungs)}")
    if checkpoint is not None and prune is not None:
        raise ValueError("checkpoint must be None with prune, whose runs reach every rung together, got both")
    if not replicas:
        return []
    saves = None
    if checkpoint is not None:
        kept = {"history": history, "keep_state": keep_state, "gates": gates}
        saves = Checkpoint(Path(checkpoint), name + entry.code, data, replicas, config, checkpoint_every, kept)
    reports = Progress(len(replicas), progress, status)
    with precision(config, torch.device(device)):
        moved = data.to(device)
        moved = with_dense_features(moved) if entry.custom else with_sparse_features(moved)
        trainer = Trainer(name, entry, moved, replicas, config, reports, history, keep_state, gates, batch_size, saves)
        trainer.train(sorted(set(rungs)), prune)
    return [reports.runs[index] for index in range(len(replicas))]


def train_runs(
    model: str,
    data: NodeDataset,
    replicas: Sequence[Replica],
    config: TrainConfig,
    device: torch.device | str = "cpu",
    *,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
    history: bool = False,
    batch_size: int | None = None,
    rungs: Sequence[int] = (),
    prune: Prune | None = None,
) -> list[Run]:
    """Trains `model` for every replica and returns one `Run` per replica, in order, by default without histories.

    Models without a network go to `train_classical`, runs that train on samples of the graph (`is_sampled`) to
    `train_minibatch`, and all others to `train_replicas`; see these for the arguments.
    """
    if model in CLASSICAL:
        return train_classical(model, data, replicas, config, progress=progress, status=status)
    find_network(model)
    options: dict[str, Any] = {"device": device, "progress": progress, "status": status, "history": history}
    runs: dict[Replica, Run] = {}
    together = [replica for replica in replicas if not is_sampled(model, replica)]
    if together:
        options_of_batches = options | {"batch_size": batch_size, "rungs": rungs, "prune": prune}
        made = train_replicas(model, data, together, **asdict(config), **options_of_batches)
        runs.update(zip(together, made, strict=True))
    sampled = [replica for replica in replicas if is_sampled(model, replica)]
    if sampled:
        runs.update(zip(sampled, train_minibatch(model, data, sampled, config, **options), strict=True))
    return [runs[replica] for replica in replicas]


def _check(model: str, entry: Model, data: NodeDataset, replicas: Sequence[Replica], config: TrainConfig) -> None:
    if not entry.batchable:
        raise ValueError(f"model must be one that trains in batches of replicas, got {model!r}, which does not")
    if data.inductive and not entry.inductive:
        raise ValueError(f"model must run on graphs it has not seen for {data.name!r}, got {model!r}, which does not")
    check_splits(data, (replica.split for replica in replicas))
    if config.class_weights and data.multilabel:
        raise ValueError(f"class_weights must be False for multi-label data, got True for {data.name!r}")
    if config.graphs_per_step is not None and not data.inductive:
        raise ValueError(
            f"graphs_per_step must be None for {data.name!r}, whose graphs do not each belong to one part of the split"
        )
