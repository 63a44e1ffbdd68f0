"""`Replica`, one run to make, and `Run`, what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Replica:
    """One training run: which split, which seed, which hyper-parameters.

    Attributes:
        split: Place in the dataset's `splits`.
        seed: Of initialisation and dropout.
        lr: Learning rate of Adam.
        weight_decay: L2 penalty on all parameters.
        dropout: Dropout rate on the input of every layer.
        lam: λ, the largest value a gate can take; models without gates ignore it.
    """

    split: int = 0
    seed: int = 0
    lr: float = 0.02
    weight_decay: float = 5e-4
    dropout: float = 0.5
    lam: float = 1.0

    def __post_init__(self) -> None:
        for name in ("split", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or larger, got {getattr(self, name)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a finite number above 0, got {self.lr}")
        for name in ("weight_decay", "lam"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number, 0 or larger, got {value}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        replica: What was run.
        model: Name of the model.
        val: Best validation score.
        test: Test score at that epoch, read once.
        epoch: That epoch, counted from 0.
        history: `"train_loss"`, `"val_loss"` and `"val"`, one value an epoch.
        seconds: Wall-clock time of the run.
        num_parameters: Number of learned values.
        state: Parameters at the best epoch, if they were asked for.
    """

    replica: Replica
    model: str
    val: float
    test: float
    epoch: int
    history: dict[str, list[float]] = field(repr=False)
    seconds: float
    num_parameters: int
    state: dict[str, Tensor] | None = field(default=None, repr=False)
