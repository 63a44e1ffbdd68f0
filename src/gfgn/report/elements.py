"""Elements of the HTML report: headings, tables, figures. Everything that comes from a user is escaped here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from gfgn.runs.record import is_gfgn

SHORT = 18  # characters of a text that does not wrap


class Bold(str):
    """A table cell in bold."""


class Prose(str):
    """A left-aligned table cell that wraps."""


def heading(level: int, text: str, id: str = "") -> str:
    """A heading; `id` makes it the target of a link."""
    target = f' id="{id}"' if id else ""
    return f"<h{level}{target}>{escape(text)}</h{level}>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, note: str = "") -> str:
    """A table whose first column is the head of its rows; rows of a GFGN are tinted. `caption` says what the table
    shows to those who cannot see it, `note` below it is for everybody."""
    header = "".join(f'<th scope="col"{_kind(head)}>{escape(head)}</th>' for head in heads)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td{_kind(cell)}>{escape(cell)}</td>" for cell in others)
        tint = ' class="gfgn"' if is_gfgn(first) else ""
        lines.append(f"<tr{tint}>{row_head(first)}{cells}</tr>")
    body = "\n".join(lines)
    content = f"<table>\n{hidden_caption(caption)}<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    return scrolling(content, caption) + (f"\n{soft(note)}" if note else "")


def row_head(text: str) -> str:
    """The first cell of a row; a long text wraps."""
    kind = ' class="long"' if len(text) > SHORT else ""
    return f'<th scope="row"{kind}>{escape(text)}</th>'


def hidden_caption(text: str) -> str:
    """The caption of a table, for screen readers."""
    return f'<caption class="unseen">{escape(text)}</caption>\n'


def scrolling(content: str, label: str) -> str:
    """Content that scrolls sideways, by keyboard too, if it is wider than the page."""
    return f'<div class="wide" role="region" aria-label="{escape(label)}" tabindex="0">{content}</div>'


def soft(text: str) -> str:
    """A paragraph in small print."""
    return f'<p class="soft">{escape(text)}</p>'


def figure(content: str, caption: str) -> str:
    """A chart with its caption."""
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def folded(summary: str, content: str) -> str:
    """Content that a click shows."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>"


def data(content: Any) -> str:
    """Data for the page's script as JSON in which no character can end the element or begin another one."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'


def number(value: float | None, digits: int) -> str:
    """A number with a minus sign instead of a hyphen; a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def _kind(cell: str) -> str:
    return f' class="{type(cell).__name__.lower()}"' if isinstance(cell, Bold | Prose) else ""
