"""Configurations of hyperparameters: grids of them, the replicas they stand for, and what a model ignores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gfgn.nn.custom import is_import_name
from gfgn.nn.registry import find_model, known_model
from gfgn.train.catalog import CLASSICAL
from gfgn.train.replica import Replica

COMMON_PARAMS = ("lr", "weight_decay", "dropout", "lam")  # every run has them
OPTIONAL_PARAMS = ("input_dropout", "gate_decay")  # a record keeps them among its options, so that old keys stay valid
MAX_CONFIGURATIONS = 10_000
Configuration = dict[str, Any]  # hyperparameters by name, as in `Replica.configuration`: all but split and seed


def grid(**choices: object) -> list[Configuration]:
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
    if size > MAX_CONFIGURATIONS:
        raise ValueError(f"choices must combine to at most {MAX_CONFIGURATIONS:,} configurations, got {size:,}")
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


PAPER_GRID = grid(lr=(0.005, 0.05), weight_decay=(5e-4, 5e-5), dropout=(0.5, 0.8), lam=(1.0, 2.0))
"""The grid of the paper."""


def distinct(configurations: Iterable[Configuration]) -> list[Configuration]:
    """The configurations without duplicates."""
    return list({tuple(sorted(each.items())): each for each in configurations}.values())


def make_replica(configuration: Configuration, split: int = 0, seed: int = 0) -> Replica:
    """The replica of a configuration; what is not a hyperparameter of every run becomes an option."""
    known = (*COMMON_PARAMS, *OPTIONAL_PARAMS)
    hyper = {name: configuration[name] for name in known if name in configuration}
    options = tuple((name, value) for name, value in configuration.items() if name not in known)
    return Replica(split, seed, **hyper, options=options)


def make_replicas(
    model: str, configurations: Iterable[Configuration], splits: Iterable[int], seeds: Iterable[int] = (0,)
) -> list[Replica]:
    """Every configuration on every split with every seed, without duplicates.

    Configurations that differ only in what the model ignores (λ without gates, the dropout rate of a custom model whose
    constructor does not take it) are duplicates. `splits` are indices.
    """
    import_custom(model)
    return list_replicas(model, configurations, splits, seeds)


def list_replicas(
    model: str, configurations: Iterable[Configuration], splits: Iterable[int], seeds: Iterable[int] = (0,)
) -> list[Replica]:
    """`make_replicas` for the name of a model that may stand in a file, and so is not imported."""
    runs = itertools.product(configurations, list(splits), list(seeds))
    return list(dict.fromkeys(canonical(model, make_replica(*run)) for run in runs))


def canonical(model: str, replica: Replica) -> Replica:
    """The replica without what the model ignores: λ and `gate_decay` if it has no gates, dropout rates that it does not
    take, and all hyperparameters if it has no network."""
    if model in CLASSICAL:
        return Replica(replica.split, replica.seed)
    entry = known_model(model)
    if entry is None:  # a custom model that is not imported has no gates
        return replace(replica, lam=1.0, gate_decay=None) if is_import_name(model) else replica
    if not entry.gated:
        replica = replace(replica, lam=1.0, gate_decay=None)
    rate = replica.input_dropout if entry.takes_input_dropout else None
    return replace(replica, dropout=replica.dropout if entry.takes_dropout else 0.0, input_dropout=rate)


def import_custom(model: str) -> None:
    """Imports a custom model that the caller of a function has named, so that `canonical` knows it."""
    if is_import_name(model):
        find_model(model)


def ignored_params(model: str) -> set[str]:
    """The hyperparameters that a model does not have."""
    entry = known_model(model)
    return {*COMMON_PARAMS, *OPTIONAL_PARAMS} if model in CLASSICAL else set() if entry is None else entry.ignored
