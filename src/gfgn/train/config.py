"""`TrainConfig`: how runs are trained; and the best epoch of each replica, with early stopping by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gfgn.data.messages import shown

MAX_EPOCHS = 1_000_000  # the losses of all epochs are kept in memory
# The factor of the learning rate as a function of the fraction of steps done.
SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": torch.ones_like,
    "cosine": lambda progress: (1 + torch.cos(torch.pi * progress)) / 2,
    "step": lambda progress: 0.1 ** (progress * 3).floor(),
}
# Whether an epoch with `score` and `loss` is better than the best one so far, with score `top` and loss `low`.
BEST: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "score": lambda score, loss, top, low: (score > top) | ((score == top) & (loss < low)),
    "loss": lambda score, loss, top, low: loss < low,
    "last": lambda score, loss, top, low: torch.ones_like(score, dtype=torch.bool),
}


@dataclass(frozen=True)
class TrainConfig:
    """How runs are trained and when they end.

    Attributes:
        patience: Epochs without improvement of the validation score after which a run ends.
        clip: Largest norm of a replica's gradient, or `None`.
        schedule: Of the learning rate: `"constant"`, `"cosine"` (to 0 at the last epoch) or `"step"` (divided by 10
            after each third of the epochs).
        class_weights: Whether every class has the same weight in the loss, however many nodes it has.
        graphs_per_step: For inductive data, the number of training graphs per step; `None` for all of them.
        best: What the best epoch and early stopping go by, on the validation nodes: `"score"` (the lower loss breaks
            ties) or `"loss"`; with `"last"` the last epoch is the best, so that no run stops early.
        tf32: Whether a GPU may multiply float32 matrices in TF32: faster, with 11 instead of 24 significant bits. For
            networks so wide that matrix products dominate.
    """

    max_epochs: int = 400
    patience: int = 100
    clip: float | None = None
    schedule: str = "constant"
    class_weights: bool = False
    graphs_per_step: int | None = None
    best: str = "score"
    tf32: bool = False

    def __post_init__(self) -> None:
        for name in ("max_epochs", "patience", "graphs_per_step"):
            value = getattr(self, name)
            if value is None and name == "graphs_per_step":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} must be a whole number, got {shown(value)}")
            if value < 1:
                raise ValueError(f"{name} must be 1 or larger, got {shown(value)}")
        if self.max_epochs > MAX_EPOCHS:
            raise ValueError(f"max_epochs must be at most {MAX_EPOCHS:,}, got {shown(self.max_epochs)}")
        if self.clip is not None and not (isinstance(self.clip, int | float) and self.clip > 0):
            raise ValueError(f"clip must be above 0, got {shown(self.clip)}")
        for name in ("class_weights", "tf32"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {shown(getattr(self, name))}")
        for name, known in (("schedule", SCHEDULES), ("best", BEST)):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {shown(value)}")

    def learning_rates(self, steps: int) -> Tensor:
        """The factor of the learning rate at each of `steps` steps."""
        return SCHEDULES[self.schedule](torch.arange(steps, dtype=torch.float64) / steps)


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

    An epoch whose loss or score is not finite is never the best one; a replica without any other has epoch −1. Returns
    a mask, `[R]`, of the replicas whose best epoch this is.
    """
    better = BEST[config.best](score, loss, state["best_score"], state["best_loss"])
    better = state["alive"] & better & loss.isfinite() & score.isfinite()
    for name, value in (("best_score", score), ("best_loss", loss), ("best_epoch", epoch.expand_as(better))):
        state[name].copy_(torch.where(better, value, state[name]))
    state["alive"].logical_and_(epoch - state["best_epoch"] < config.patience)
    return better
