"""`Replica`, one run to train; `Run`, its result; `Status`, the progress of a call."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Option = int | float | str | bool


@dataclass(frozen=True)
class Replica:
    """One training run: split, seed and hyperparameters.

    Attributes:
        split: Index into the dataset's `splits`.
        seed: Seed of initialization and dropout.
        lr, weight_decay: Learning rate of Adam, and L2 penalty on all parameters.
        dropout: Dropout rate on the input of every layer.
        lam: λ, the largest value of a gate; models without gates ignore it.
        options: Further parameters of the model as `(name, value)` pairs, see `gfgn.nn.MODELS`; sorted by name.
            Replicas with different options train in different batches.
        input_dropout: Dropout rate of the features, the input of the first layer; `None` for `dropout`.
        gate_decay: A prior of their own for the parameters of gates, instead of `weight_decay`: every step ends with
            `w ← w / (1 + lr · gate_decay)`, so that they stay below about `1 / gate_decay`, and gates, for a large one,
            are constants. `None` for `weight_decay`; models without gates ignore it.
    """

    split: int = 0
    seed: int = 0
    lr: float = 0.02
    weight_decay: float = 5e-4
    dropout: float = 0.5
    lam: float = 1.0
    options: tuple[tuple[str, Option], ...] = ()
    input_dropout: float | None = None
    gate_decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("split", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or larger, got {getattr(self, name)}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a finite number above 0, got {self.lr}")
        for name in ("weight_decay", "lam", *(() if self.gate_decay is None else ("gate_decay",))):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number, 0 or larger, got {value}")
        for name, rate in (("dropout", self.dropout), ("input_dropout", self.input_rate)):
            if not 0 <= rate < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {rate}")
        options = tuple(sorted((str(name), value) for name, value in self.options))
        if len(dict(options)) < len(options):
            raise ValueError(f"options must name each parameter once, got {options}")
        object.__setattr__(self, "options", options)

    @property
    def configuration(self) -> dict[str, Any]:
        """All hyperparameters: everything but split and seed, and those of `given`."""
        hyper = {name: getattr(self, name) for name in ("lr", "weight_decay", "dropout", "lam")}
        return hyper | self.given | dict(self.options)

    @property
    def given(self) -> dict[str, float]:
        """`input_dropout` and `gate_decay` by their names, if they are given."""
        values = {"input_dropout": self.input_dropout, "gate_decay": self.gate_decay}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def input_rate(self) -> float:
        """Dropout rate of the features."""
        return self.dropout if self.input_dropout is None else self.input_dropout


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        val: Validation score at the best epoch; NaN for a run that diverged.
        test: Test score at the best epoch, evaluated once; NaN for a run that was dropped or diverged.
        epoch, epochs: The best epoch, counted from 0 (−1 for a run that diverged), and the number of epochs trained.
        history: `"train_loss"`, `"val_loss"` and `"val"`, one value per epoch; empty if not requested.
        seconds: Wall-clock time; for runs that trained together, this run's fraction of it.
        state: Parameters at the best epoch, if requested.
        gates: For a model with gates, the distribution of the first layer's gates at the best epoch: `"min"`,
            `"mean"`, `"max"`, `"std"` and `"below_055"`, the fraction below 0.55.
        dropped: Whether a search stopped the run early.
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

    @property
    def diverged(self) -> bool:
        """Whether no epoch had a finite validation loss: the run has no score."""
        return math.isnan(self.val)


@dataclass(frozen=True)
class Status:
    """The progress of a training call.

    Attributes:
        replicas, finished: Number of requested and of finished runs.
        alive, epoch: Number of runs in the batch that reports, and epochs it has trained.
        best_val: The best validation score so far.
        seconds, seconds_left: Time since the call, and estimate of the remaining time; `None` until a fifth of
            the runs have finished.
    """

    replicas: int
    finished: int
    alive: int
    epoch: int
    best_val: float
    seconds: float
    seconds_left: float | None
