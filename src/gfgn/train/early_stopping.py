"""The best epoch of each replica, and early stopping by it."""

from __future__ import annotations

import torch
from torch import Tensor

from gfgn.train.config import BEST, TrainConfig


def initial_best(count: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The state of `count` replicas that `update_best_` keeps, before the first epoch."""
    worst = torch.full((count,), torch.inf, dtype=dtype, device=device)
    return {
        "best_score": -worst,
        "best_loss": worst,
        "best_epoch": torch.full((count,), -1, device=device),
        "alive": torch.ones(count, dtype=torch.bool, device=device),
    }


def update_best_(state: dict[str, Tensor], epoch: Tensor, score: Tensor, loss: Tensor, config: TrainConfig) -> Tensor:
    """Updates best epochs and early stopping in place after an epoch, `[1]`, with `[R]` validation scores and losses.

    The first epoch always counts as the best so far, even if its loss is not finite. Returns a mask, `[R]`, of the
    replicas whose best epoch this is.
    """
    better = BEST[config.best](score, loss, state["best_score"], state["best_loss"])
    better = state["alive"] & (better | (epoch == 0))
    for name, value in (("best_score", score), ("best_loss", loss), ("best_epoch", epoch.expand_as(better))):
        state[name].copy_(torch.where(better, value, state[name]))
    state["alive"].logical_and_(epoch - state["best_epoch"] < config.patience)
    return better
