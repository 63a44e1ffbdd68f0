"""Charts of the report: what they show and where; the macro `chart` of `templates/elements.html.j2` draws them as SVG.

A browser places everything anew at any width, without a script. Colors are variables of the page, and marks differ in
shape too: kind "a" is a filled circle, kind "b" a hollow square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Range = tuple[float, float]


class Dot(NamedTuple):
    """A mark; the name appears under the mouse."""

    x: float
    y: float
    kind: str
    name: str = ""


class Segment(NamedTuple):
    """A straight line."""

    x: Range
    y: Range
    kind: str


class Label(NamedTuple):
    """A name at the left and a value at the right, `y` pixels below the top."""

    y: float
    name: str
    value: str


@dataclass
class Chart:
    """A plot area; without a title, the vertical axis has no values.

    Attributes:
        alt: What the chart shows, for those who cannot see it.
        legend: Pairs of a kind, such as "a" or "line b", and its meaning.
        lines: Points by kind; a point without a value interrupts its line.
    """

    x: Range
    y: Range
    height: int
    x_title: str
    alt: str
    y_title: str = ""
    legend: Sequence[tuple[str, str]] = ()
    dots: list[Dot] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    lines: dict[str, list[tuple[float, float | None]]] = field(default_factory=dict)

    def across(self, x: float) -> str:
        """The horizontal position of a value."""
        return f"{100 * (x - self.x[0]) / (self.x[1] - self.x[0]):.3g}%"

    def down(self, y: float) -> float:
        """The vertical position of a value."""
        return float(f"{self.height * (self.y[1] - y) / (self.y[1] - self.y[0]):.4g}")

    def x_ticks(self) -> list[float]:
        """The values below the horizontal axis."""
        return ticks(self.x)

    def y_ticks(self) -> list[float]:
        """The values beside the vertical axis."""
        return ticks(self.y)

    def pieces(self, points: Iterable[tuple[float, float | None]]) -> list[str]:
        """The uninterrupted pieces of a line in an area that is 1000 wide."""
        pieces: list[list[str]] = [[]]
        for x, y in points:
            if y is None:
                pieces.append([])
            else:
                pieces[-1].append(f"{1000 * (x - self.x[0]) / (self.x[1] - self.x[0]):.4g},{self.down(y):g}")
        return [" ".join(piece) for piece in pieces if piece]


def ticks(limits: Range, count: int = 5) -> list[float]:
    """Round values within the limits, about `count` of them."""
    low, high = limits
    step = 10 ** math.floor(math.log10((high - low) / count))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count + 0.5)
    digits = max(0, 2 - math.floor(math.log10(step)))
    values = (round(k * step, digits) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))
    return [value + 0.0 for value in values]  # no negative zero


def padded(values: Iterable[float | None], zero: bool = False) -> Range:
    """The range of the finite values with a margin; it has a length, and contains 0 if `zero`."""
    finite = [value for value in values if value is not None and math.isfinite(value)] or [0.0]
    low, high = min(finite + [0.0] * zero), max(finite + [0.0] * zero)
    margin = 0.06 * (high - low) or max(0.05 * abs(high), 1e-3)
    return low - margin, high + margin


def stack(scores: Sequence[float], step: float = 0.09, height: int = 5) -> list[float]:
    """Vertical offsets that keep runs with the same score, frequent with few test nodes, from hiding each other; after
    `height` of them the offsets start again."""
    seen: dict[float, int] = {}
    offsets = []
    for score in scores:
        number = seen.get(rounded := round(score, 1), 0)
        seen[rounded] = number + 1
        offsets.append(step * (number % height))
    return offsets
