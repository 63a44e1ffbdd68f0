"""Charts of the HTML report as SVG: they take the width of the page, and text keeps its size.

Horizontal positions are percentages and vertical ones pixels, so that a browser places everything anew at any width
without a script. Colors are variables of the page, and marks differ in shape too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

Range = tuple[float, float]
LABEL = 18  # pixels from an axis to the baseline of its labels


@dataclass
class Chart:
    """A plot area with axes; `left` pixels are for the labels of the vertical axis."""

    x: Range
    y: Range
    height: int
    left: int = 12
    parts: list[str] = field(default_factory=list)
    top: int = 10
    bottom: int = 8

    def across(self, x: float) -> str:
        """The horizontal position of a value."""
        return f"{100 * (x - self.x[0]) / (self.x[1] - self.x[0]):.3g}%"

    def down(self, y: float) -> str:
        """The vertical position of a value."""
        return f"{self.height * (self.y[1] - y) / (self.y[1] - self.y[0]):.4g}"

    def x_axis(self, title: str, count: int = 5) -> None:
        """Vertical grid lines with their values below, and the title below these."""
        self.bottom = 2 * LABEL + 12
        for tick in ticks(self.x, count):
            at = self.across(tick)
            self.parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{self.height}"/>')
            self.text(at, self.height + LABEL, f"{tick:g}".replace("-", "−"), "middle")
        self.text("50%", self.height + 2 * LABEL, title, "middle")

    def y_axis(self, title: str, count: int = 5) -> None:
        """Horizontal grid lines with their values to the left, and the title above."""
        self.left, self.top = 48, 30
        self.text("-40", -12, title)
        for tick in ticks(self.y, count):
            at = self.down(tick)
            self.parts.append(f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>')
            self.text("-8", float(at) + 4, f"{tick:g}".replace("-", "−"), "end")

    def text(self, x: str, y: float, content: str, anchor: str = "start", kind: str = "") -> None:
        """A text at a horizontal position, given in percent or pixels."""
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{style} x="{x}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>')

    def dot(self, x: float, y: float, kind: str, name: str = "") -> None:
        """A disk (kind "a") or a hollow square (kind "b"); the name appears under the mouse."""
        if kind == "a":
            tag, place = "circle", f'cx="{self.across(x)}" cy="{self.down(y)}" r="4"'
        else:
            tag, place = "rect", f'x="{self.across(x)}" y="{self.down(y)}" width="7" height="7"'
            place += ' transform="translate(-3.5 -3.5)"'
        title = f"<title>{escape(name)}</title>" if name else ""
        self.parts.append(f'<{tag} class="{kind}" {place}>{title}</{tag}>')

    def line(self, points: Iterable[tuple[float, float | None]], kind: str) -> None:
        """A line through points; a point without a value interrupts it."""
        pieces: list[list[str]] = [[]]
        for x, y in points:
            if y is None:
                pieces.append([])
            else:
                across = 1000 * (x - self.x[0]) / (self.x[1] - self.x[0])
                pieces[-1].append(f"{across:.4g},{self.down(y)}")
        lines = "".join(f'<polyline points="{" ".join(piece)}"/>' for piece in pieces if piece)
        box = f'width="100%" height="{self.height}" viewBox="0 0 1000 {self.height}" preserveAspectRatio="none"'
        self.parts.append(f'<svg class="line {kind}" {box}>{lines}</svg>')

    def segment(self, x: Range, y: Range, kind: str) -> None:
        """A straight line."""
        ends = f'x1="{self.across(x[0])}" x2="{self.across(x[1])}" y1="{self.down(y[0])}" y2="{self.down(y[1])}"'
        self.parts.append(f'<line class="{kind}" {ends}/>')

    def svg(self, alt: str) -> str:
        """The chart as an element of a page, with an alternative text."""
        style = f"height:{self.height}px;width:calc(100% - {self.left + 16}px);"
        style += f"margin:{self.top}px 16px {self.bottom}px {self.left}px"
        body = "\n".join(self.parts)
        return f'<svg class="chart" role="img" aria-label="{escape(alt)}" style="{style}">\n{body}\n</svg>'


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


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """The meaning of marks and lines: pairs of a kind, such as "a" or "line b", and a text."""
    marks = {
        "a": '<circle class="a" cx="12" cy="8" r="4"/>',
        "b": '<rect class="b" x="8.5" y="4.5" width="7" height="7"/>',
    }
    items = []
    for kind, content in entries:
        mark = marks.get(kind, f'<line class="{kind}" x1="0" x2="24" y1="8" y2="8"/>')
        sign = f'<svg class="key" width="24" height="16" aria-hidden="true">{mark}</svg>'
        items.append(f"<li>{sign} {escape(content)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


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
