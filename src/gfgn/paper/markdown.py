"""Sections and numbers of the pages of studies, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gfgn.runs.text import NONE

LEFT_ALIGNED = ("configuration", "where", "change", "reason", "own axes")  # as the first column; others are right

Lines = list[str]


def number(value: float | None, sign: str = "") -> str:
    """A number with two digits after the point; a dash for `None`."""
    if value is None:
        return NONE
    return "0.00" if float(f"{value:.2f}") == 0 else f"{value:{sign}.2f}".replace("-", "−")


def section(title: str, words: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """A title, a paragraph, unless it is empty, and a table."""
    rule = [":--" if k == 0 or head in LEFT_ALIGNED else "--:" for k, head in enumerate(heads)]
    table = [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
    return [title, "", *([words, ""] if words else []), *table]
