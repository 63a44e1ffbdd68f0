"""`train_runs`: one function for all kinds of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from gfgn.data.dataset import Dataset
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_replicas
from gfgn.train.minibatch import is_sampled, train_minibatch
from gfgn.train.replica import Replica, Run, Status


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
    """Trains `model` for every replica and returns one `Run` per replica, in order, without histories.

    Runs that train on samples of the graph (`is_sampled`) go to `train_minibatch`, all others to `train_replicas`; see
    these for the arguments.
    """
    runs: dict[Replica, Run] = {}
    together = [replica for replica in replicas if not is_sampled(model, replica)]
    if together:
        options = {**asdict(config), "batch_size": batch_size}
        made = train_replicas(
            model, data, together, device=device, progress=progress, status=status, history=False, **options
        )
        runs.update(zip(together, made, strict=True))
    sampled = [replica for replica in replicas if is_sampled(model, replica)]
    if sampled:
        made = train_minibatch(model, data, sampled, config, device, progress=progress, status=status, history=False)
        runs.update(zip(sampled, made, strict=True))
    return [runs[replica] for replica in replicas]
