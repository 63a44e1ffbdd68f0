"""A budget of time: the largest number of trials per model that fits into it, the same for all models."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gfgn.data.dataset import NodeDataset
from gfgn.runs.comparison import comparison_study
from gfgn.runs.grid import make_replicas
from gfgn.runs.record import digest
from gfgn.runs.selection import FACTOR, default_rungs
from gfgn.runs.store import Store
from gfgn.runs.study import Study
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import fit_classical
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_replicas, train_runs
from gfgn.train.minibatch import is_sampled
from gfgn.train.replica import Replica

MOST_TRIALS = 256
WARM_UP, MEASURED = 2, 10  # epochs
SAFETY = 0.9  # fraction of the time to plan for


@dataclass(frozen=True)
class Budget:
    """The number of trials that fits into some minutes, and the estimated time by model in seconds."""

    minutes: float
    trials: int
    seconds: dict[str, float]

    @property
    def fits(self) -> bool:
        """Whether the estimate is within the budget; a single trial may be too much."""
        return sum(self.seconds.values()) <= 60 * self.minutes


def plan_in_time(
    store: Store, dataset: NodeDataset, minutes: float, device: str = "cpu", **settings: Any
) -> tuple[Study, Budget]:
    """The plan of a comparison that tunes every model on as many trials as fit into `minutes`: 1, 2, 4, …, 256.

    The cost of an epoch of every model is measured first, and the estimate assumes that no run ends early. With a
    single trial, all models share one configuration. The choice is kept in the store, so that the same call continues
    where it was interrupted, however fast the machine is then.

    Args:
        store: The store of the comparison.
        **settings: The arguments of `comparison_study`, without `grid` and `trials`.
    """
    if not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"minutes must be a finite number above 0, got {minutes}")
    study = comparison_study(dataset, **settings)
    request = digest(
        [minutes, device, dataset.fingerprint, study.models, study.splits, study.seeds, asdict(study.config)]
    )
    note = store.notes("budget").get(dataset.name)
    if note is None or note.get("request") != request:
        start = time.perf_counter()
        costs = {model: _Cost.measure(dataset, study, model, device) for model in study.models}
        left = SAFETY * 60 * minutes - (time.perf_counter() - start)
        ladder = [2**k for k in range(MOST_TRIALS.bit_length())]
        fitting = [n for n in ladder if sum(cost.seconds(study, n) for cost in costs.values()) <= left]
        trials = max(fitting, default=1)
        seconds = {model: cost.seconds(study, trials) for model, cost in costs.items()}
        note = {"request": request, "trials": trials, "seconds": seconds}
        store.note("budget", dataset.name, note)
    budget = Budget(minutes, note["trials"], note["seconds"])
    return comparison_study(dataset, **settings, trials=budget.trials if budget.trials > 1 else None), budget


def halving_epochs(trials: int, max_epochs: int) -> int:
    """Epochs per split that successive halving of so many trials takes if no run ends early."""
    total = done = 0
    for rung in [*default_rungs(trials, max_epochs), max_epochs]:
        total += trials * (rung - done)
        done, trials = rung, math.ceil(trials / FACTOR)
    return total


@dataclass(frozen=True)
class _Cost:
    """Seconds of a model for one epoch on one split, or for one fit of a model without a network."""

    each: float
    epochs: bool  # whether `each` is an epoch
    halved: bool = True  # whether successive halving stops trials early
    variants: int = 1  # that a single trial chooses from

    @classmethod
    def measure(cls, dataset: NodeDataset, study: Study, model: str, device: str) -> _Cost:
        """Measures a few epochs on all splits, after a warm-up that compiles and allocates."""
        if model in CLASSICAL:
            start = time.perf_counter()
            fit_classical(model, dataset.to("cpu"), dataset.to("cpu").splits[0], study.config.class_weights)
            return cls(time.perf_counter() - start, epochs=False)
        variants = study.models[model]
        replicas = make_replicas(model, variants, range(study.splits))
        sampled = is_sampled(model, replicas[0])
        replicas = replicas[:1] if sampled else replicas
        _seconds(dataset, model, replicas, WARM_UP, study.config, device)
        short = _seconds(dataset, model, replicas, WARM_UP, study.config, device)
        long = _seconds(dataset, model, replicas, WARM_UP + MEASURED, study.config, device)
        return cls(max(long - short, 0.0) / MEASURED / len(replicas), True, not sampled, len(variants))

    def seconds(self, study: Study, trials: int) -> float:
        """The estimated time for so many trials and the final seeds."""
        if not self.epochs:
            return self.each * study.splits
        length = study.config.max_epochs
        tuning = halving_epochs(trials, length) if self.halved else trials * length
        tuning *= self.variants if trials == 1 else 1
        return self.each * study.splits * (tuning + (study.seeds - 1) * length)


def _seconds(
    dataset: NodeDataset, model: str, replicas: Sequence[Replica], epochs: int, config: TrainConfig, device: str
) -> float:
    """Wall-clock time of some epochs, trained as a search trains them."""
    config = replace(config, max_epochs=epochs, patience=epochs)
    start = time.perf_counter()
    if is_sampled(model, replicas[0]):
        train_runs(model, dataset, replicas, config, device)
    else:
        rungs: dict[str, Any] = {"rungs": [1], "prune": lambda epoch, racing, scores: [True] * len(racing)}
        train_replicas(model, dataset, replicas, **asdict(config), device=device, history=False, **rungs)
    return time.perf_counter() - start
