"""Configurations of hyperparameters: grids and random draws of them, their replicas, and what a model ignores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gfgn.data.streams import Stream
from gfgn.nn.custom import is_import_name
from gfgn.nn.registry import find_model, known_model
from gfgn.train.catalog import CLASSICAL
from gfgn.train.replica import Replica

COMMON_PARAMS = ("lr", "weight_decay", "dropout", "lam")  # every run has them
OPTIONAL_PARAMS = ("input_dropout", "gate_decay")  # a record keeps them among its options, so that old keys stay valid
MAX_CONFIGURATIONS = 10_000
Value = bool | int | float | str | None
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


# --- random configurations --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Uniform:
    """Any value from `low` to `high`, uniformly distributed."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"low and high must be finite and low must be smaller, got {self.low} and {self.high}")

    def draw(self, quantile: float) -> float:
        """The value at a quantile from 0 to 1, rounded to four digits."""
        return min(max(float(f"{self._at(quantile):.4g}"), self.low), self.high)

    def _at(self, quantile: float) -> float:
        return self.low + quantile * (self.high - self.low)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Any value from `low` to `high`, its logarithm uniformly distributed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise ValueError(f"low must be above 0, got {self.low}")

    def _at(self, quantile: float) -> float:
        return float(self.low * (self.high / self.low) ** quantile)


@dataclass(frozen=True)
class Choice:
    """One of several values with equal probability."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple) or not self.values:
            raise ValueError(f"values must be a tuple of one or more values, got {self.values!r}")

    def draw(self, quantile: float) -> Value:
        """The value at a quantile from 0 to below 1."""
        return self.values[min(int(quantile * len(self.values)), len(self.values) - 1)]


Space = Mapping[str, Uniform | LogUniform | Choice]  # by name of a hyperparameter or option of a model
SPACE: Space = {
    "lr": LogUniform(1e-3, 1e-1),
    "weight_decay": LogUniform(1e-5, 1e-2),
    "dropout": Uniform(0.0, 0.8),
    "lam": Uniform(0.5, 2.0),
}
"""The default search space; models without gates ignore λ."""


def sample(space: Space, count: int, seed: int = 0) -> list[Configuration]:
    """Draws `count` random configurations from a space. A larger `count` begins with the same ones.

    The values of one axis depend on its name and range, `count` and `seed` alone: models whose spaces share some axes
    have the same values on these.
    """
    if count < 1:
        raise ValueError(f"count must be 1 or larger, got {count}")
    if not space:
        raise ValueError(f"space must name one or more of {', '.join(COMMON_PARAMS)} or options of a model, got none")
    draws = {name: Stream(seed, *name.encode()).uniform(count).tolist() for name in sorted(space)}
    return [{name: space[name].draw(draws[name][number]) for name in draws} for number in range(count)]
