"""Search spaces, and random configurations drawn from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gfgn.data.streams import Stream
from gfgn.runs.grid import COMMON_PARAMS, Configuration
from gfgn.runs.record import Value


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
