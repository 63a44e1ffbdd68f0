"""Pages from Jinja2 templates, Markdown tables and CSV files, and the names that papers use."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from gfgn import pages
from gfgn.data.files import atomic_write, replace_text
from gfgn.runs.text import NONE

T = TypeVar("T")
NAMES = (
    *("MLP", "GCN", "GAT", "SGC", "ARMA", "GGNN", "APPNP", "Geom-GCN", "GFGN-graph", "GFGN-neighbor", "GFGN-pair"),
    *("GraphSAGE", "VR-GCN", "GaAN", "GeniePath", "GraphSAINT", "GATv2", "GCNII", "GPRGNN", "H2GCN", "ACM-GCN"),
    *("LINKX", "ResGated", "BlogCatalog", "Flickr", "Texas", "Wisconsin", "Cornell", "Cornell-corrected", "Actor"),
    *("Cora", "Citeseer", "Pubmed", "PPI"),
)
TITLES = {name.lower(): name for name in NAMES}
TITLES |= {"gfgn-plus": "GFGN+", "gfgn-plus-graph": "GFGN+ graph", "gfgn-plus-pair": "GFGN+ pair"}


def title_of(name: str) -> str:
    """The title of a model or dataset, or the name itself; a suffix such as ` (stand-in)` is kept."""
    base, _, suffix = name.partition(" ")
    return f"{TITLES.get(base, base)} {suffix}".strip()


def number(value: float | None, digits: int = 2, sign: str = "") -> str:
    """A number as text; zero has no sign, and `None` is a dash."""
    if value is None:
        return NONE
    text = f"{value:{sign}.{digits}f}".replace("-", "−")
    return text if re.search("[1-9]", text) else text.lstrip("+−")


def signed(value: float | None, digits: int = 2) -> str:
    """A number with its sign."""
    return number(value, digits, "+")


def span(low: float, high: float, digits: int = 2, sign: str = "") -> str:
    """An interval as text."""
    return f"[{number(low, digits, sign)}, {number(high, digits, sign)}]"


def grouped(items: Iterable[T], *attributes: str) -> Iterable[tuple[object, list[T]]]:
    """Items by the values of attributes, in the order in which these first occur."""
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(attrgetter(*attributes)(item), []).append(item)
    return groups.items()


def render(template: str, **context: object) -> str:
    """The text of a page from a template of this package; one empty line separates its parts."""
    functions = {"title_of": title_of, "number": number, "signed": signed, "span": span, "grouped": grouped}
    text = pages.render(f"paper/templates/{template}.md.j2", **functions, **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def write_page(path: Path, template: str, **context: object) -> Path:
    """Writes a page from a template and returns its path."""
    return replace_text(path, render(template, **context))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], digits: int = 6) -> Path:
    """Writes a table, floats with `digits` significant digits, and returns its path."""
    with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{cell:.{digits}g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table by column; an empty list if there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def group_by(lines: Iterable[Mapping[str, str]], *columns: str) -> dict[tuple[str, ...], list[Mapping[str, str]]]:
    """The rows of a table by the values of some columns."""
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in columns), []).append(line)
    return groups
