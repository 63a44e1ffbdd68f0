"""The number of trials of a comparison that fit into some minutes, from the measured cost of an epoch of each model."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Unpack

from gfgn.data.dataset import NodeDataset
from gfgn.runs.comparison import DEFAULT_MODELS, Settings, comparison_study
from gfgn.runs.grid import make_replicas
from gfgn.runs.record import digest
from gfgn.runs.selection import FACTOR, default_rungs
from gfgn.runs.store import Store
from gfgn.runs.study import Study
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import fit_classical
from gfgn.train.loop import train_runs
from gfgn.train.minibatch import is_sampled

MAX_TRIALS = 256
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
    store: Store,
    dataset: NodeDataset,
    minutes: float,
    device: str = "cpu",
    *,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    **settings: Unpack[Settings],
) -> tuple[Study, Budget]:
    """The plan of a comparison that tunes every model on as many trials as fit into `minutes`: 1, 2, 4, …, 256.

    The cost of an epoch of every model is measured first, and the estimate assumes that no run ends early. With a
    single trial, all models share one configuration. The choice is kept in the store, so that the same call continues
    where it was interrupted, however fast the machine is then.

    Args:
        store: The store of the comparison.
        **settings: See `comparison_study`, without `grid` and `trials`.
    """
    if not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"minutes must be a finite number above 0, got {minutes}")
    study = comparison_study(dataset, models, splits, seeds, **settings)
    request = digest(
        [minutes, device, dataset.fingerprint, study.models, study.splits, study.seeds, asdict(study.config)]
    )
    note = store.notes("budget").get(dataset.name)
    if note is None or note.get("request") != request:
        start = time.perf_counter()
        costs = {model: seconds_per_epoch(dataset, study, model, device) for model in study.models}
        left = SAFETY * 60 * minutes - (time.perf_counter() - start)
        ladder = [2**k for k in range(MAX_TRIALS.bit_length())]
        fitting = [n for n in ladder if sum(_seconds(study, m, n, cost) for m, cost in costs.items()) <= left]
        trials = max(fitting, default=1)
        seconds = {model: _seconds(study, model, trials, cost) for model, cost in costs.items()}
        note = {"request": request, "trials": trials, "seconds": seconds}
        store.note("budget", dataset.name, note)
    budget = Budget(minutes, note["trials"], note["seconds"])
    settings["trials"] = budget.trials if budget.trials > 1 else None
    return comparison_study(dataset, models, splits, seeds, **settings), budget


def halving_epochs(trials: int, max_epochs: int) -> int:
    """Epochs per split that successive halving of so many trials takes if no run ends early."""
    total = done = 0
    for rung in [*default_rungs(trials, max_epochs), max_epochs]:
        total += trials * (rung - done)
        done, trials = rung, math.ceil(trials / FACTOR)
    return total


def _is_sampled(study: Study, model: str) -> bool:
    return is_sampled(model, make_replicas(model, study.models[model], [0])[0])


def _seconds(study: Study, model: str, trials: int, each: float) -> float:
    """The estimated time for so many trials and the final seeds, from the cost of an epoch on one split."""
    if model in CLASSICAL:
        return each * study.splits
    length = study.config.max_epochs
    tuning = trials * length if _is_sampled(study, model) else halving_epochs(trials, length)
    tuning *= len(study.models[model]) if trials == 1 else 1
    return each * study.splits * (tuning + (study.seeds - 1) * length)


def seconds_per_epoch(dataset: NodeDataset, study: Study, model: str, device: str) -> float:
    """Seconds of a model for one epoch on one split, or for one fit of a model without a network.

    A few epochs are measured on all splits, trained as a search trains them, after a warm-up that compiles.
    """
    if model in CLASSICAL:
        start, moved = time.perf_counter(), dataset.to("cpu")
        fit_classical(model, moved, moved.splits[0], study.config.class_weights)
        return time.perf_counter() - start
    sampled, replicas = _is_sampled(study, model), make_replicas(model, study.models[model], range(study.splits))
    replicas = replicas[:1] if sampled else replicas
    seconds = []
    for epochs in (WARM_UP, WARM_UP, WARM_UP + MEASURED):
        config = replace(study.config, max_epochs=epochs, patience=epochs)
        start = time.perf_counter()
        train_runs(
            model, dataset, replicas, config, device, rungs=[1], prune=lambda _, racing, __: [True] * len(racing)
        )
        seconds.append(time.perf_counter() - start)
    return max(seconds[2] - seconds[1], 0.0) / MEASURED / len(replicas)
