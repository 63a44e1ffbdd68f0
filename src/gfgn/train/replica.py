"""`Replica`, one run to make; `Run`, what came of it; `Status`, how far the runs are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Option = int | float | str | bool


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
        options: Further parameters of the model as `(name, value)` pairs, see `gfgn.train.MODELS`; kept in order of
            their names. Replicas that differ in them are trained in different batches.
    """

    split: int = 0
    seed: int = 0
    lr: float = 0.02
    weight_decay: float = 5e-4
    dropout: float = 0.5
    lam: float = 1.0
    options: tuple[tuple[str, Option], ...] = ()

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
        options = tuple(sorted((str(name), value) for name, value in self.options))
        if len(dict(options)) < len(options):
            raise ValueError(f"options must name each parameter once, got {options}")
        object.__setattr__(self, "options", options)

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything but split and seed."""
        own = {name: getattr(self, name) for name in ("lr", "weight_decay", "dropout", "lam")}
        return own | dict(self.options)


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        replica: What was run.
        model: Name of the model.
        val: Best validation score.
        test: Test score at that epoch, read once; not a number for a run that was dropped.
        epoch: That epoch, counted from 0.
        epochs: How many epochs were trained.
        history: `"train_loss"`, `"val_loss"` and `"val"`, one value an epoch; empty if not asked for.
        seconds: Wall-clock time; of runs that trained together, this one's share of it.
        num_parameters: Number of learned values.
        state: Parameters at the best epoch, if they were asked for.
        gates: Of a model with gates, how the first layer's are distributed at the best epoch: `"min"`, `"mean"`,
            `"max"`, `"std"`, and `"below_055"`, the share below 0.55.
        dropped: Whether a search gave the run up before its end.
    """

    replica: Replica
    model: str
    val: float
    test: float
    epoch: int
    epochs: int
    history: dict[str, list[float]] = field(repr=False)
    seconds: float
    num_parameters: int
    state: dict[str, Tensor] | None = field(default=None, repr=False)
    gates: dict[str, float] | None = field(default=None, repr=False)
    dropped: bool = False


@dataclass(frozen=True)
class Status:
    """How far a call of `train_replicas` is.

    Attributes:
        replicas: How many runs were asked for.
        finished: How many are done.
        alive: How many are training at the moment.
        epoch: Epochs the latter have trained.
        best_val: The best validation score so far.
        seconds: Time since the call.
        seconds_left: Estimate of the time to go, or `None` while there is no telling.
    """

    replicas: int
    finished: int
    alive: int
    epoch: int
    best_val: float
    seconds: float
    seconds_left: float | None
