"""`TrainConfig`: how runs are trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TrainConfig:
    """How runs are trained and when they end.

    Attributes:
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement of the validation score after which a run ends.
        clip: Largest norm of a replica's gradient, or `None`.
        schedule: Of the learning rate: `"constant"`, `"cosine"` (to 0 at the last epoch) or `"step"` (a tenth after
            each third of the epochs).
        class_weights: Whether every class has the same weight in the loss, however many nodes it has.
        graphs_per_step: Of inductive data, how many training graphs make up a step; `None` for all of them.
        best: What the best epoch goes by on the validation nodes, and early stopping with it: `"score"` (the lower loss
            breaks ties) or `"loss"`; or `"last"`, whose best epoch is the last one, so that nothing ends a run early.
        tf32: Whether a GPU with units for TF32 multiplies float32 matrices in it: with eleven binary digits of each
            number and not 24, in a fraction of the time. For networks so wide that training waits for products.
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
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or larger, got {value}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, got {self.clip}")
        for name, known in (("schedule", SCHEDULES), ("best", BEST)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")

    def learning_rates(self, steps: int) -> Tensor:
        """What the learning rate is multiplied by at each of `steps` steps."""
        return SCHEDULES[self.schedule](torch.arange(steps, dtype=torch.float64) / steps)


@contextlib.contextmanager
def precision(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Products of float32 matrices on a GPU as `config` wants them, and afterwards as they were."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if config.tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": torch.ones_like,
    "cosine": lambda progress: (1 + torch.cos(torch.pi * progress)) / 2,
    "step": lambda progress: 0.1 ** (progress * 3).floor(),
}
BEST: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "score": lambda score, loss, top, low: (score > top) | ((score == top) & (loss < low)),
    "loss": lambda score, loss, top, low: loss < low,
    "last": lambda score, loss, top, low: torch.ones_like(score, dtype=torch.bool),
}
"""Whether an epoch is better than the best one so far, by score and loss of the two."""
