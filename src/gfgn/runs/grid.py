"""Configurations of hyperparameters: grids of them, and the replicas they stand for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from gfgn.runs.record import GIVEN, HYPER, canonical, import_own
from gfgn.train.replica import Replica

MOST_CONFIGURATIONS = 10_000
Configuration = dict[str, Any]  # hyperparameters by name, as in `Replica.configuration`: all but split and seed


def grid(**choices: Any) -> list[Configuration]:
    """Every combination of the choices; the last one varies fastest.

    Args:
        **choices: For each hyperparameter (`lr`, `weight_decay`, `dropout`, `input_dropout`, `lam`, or an option of the
            model) its values in a list or tuple, or a single value.
    """
    values = {name: tuple(given) if isinstance(given, list | tuple) else (given,) for name, given in choices.items()}
    for name, given in values.items():
        if not given or len(set(given)) < len(given):
            raise ValueError(f"{name} must be one or more distinct values, got {given}")
        if name in ("split", "seed", "options"):
            raise ValueError(f"choices must be hyperparameters or options of a model, got {name!r}")
    size = math.prod(map(len, values.values()))
    if size > MOST_CONFIGURATIONS:
        raise ValueError(f"choices must combine to at most {MOST_CONFIGURATIONS:,} configurations, got {size:,}")
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


PAPER_GRID = grid(lr=(0.005, 0.05), weight_decay=(5e-4, 5e-5), dropout=(0.5, 0.8), lam=(1.0, 2.0))
"""The grid of the paper."""


def make_replica(configuration: Configuration, split: int = 0, seed: int = 0) -> Replica:
    """The replica of a configuration; what is not in `HYPER` or `GIVEN` becomes an option."""
    known = (*HYPER, *GIVEN)
    hyper = {name: configuration[name] for name in known if name in configuration}
    options = tuple((name, value) for name, value in configuration.items() if name not in known)
    return Replica(split, seed, **hyper, options=options)


def make_replicas(
    model: str, configurations: Iterable[Configuration], splits: Iterable[int], seeds: Iterable[int] = (0,)
) -> list[Replica]:
    """Every configuration on every split with every seed, without duplicates.

    Configurations that differ only in what the model ignores (λ without gates, the dropout rate of a model of one's own
    whose constructor does not take it) are duplicates. `splits` are indices.
    """
    import_own(model)
    return list_replicas(model, configurations, splits, seeds)


def list_replicas(
    model: str, configurations: Iterable[Configuration], splits: Iterable[int], seeds: Iterable[int] = (0,)
) -> list[Replica]:
    """`make_replicas` for the name of a model that may stand in a file, and so is not imported."""
    runs = itertools.product(configurations, list(splits), list(seeds))
    return list(dict.fromkeys(canonical(model, make_replica(*run)) for run in runs))
