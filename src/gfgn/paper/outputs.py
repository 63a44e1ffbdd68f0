"""Reading and writing of the files of the analyses: CSV, text and Markdown tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gfgn.data.files import atomic_write, replace_text


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], digits: int = 6) -> Path:
    """Writes a table, floats with `digits` significant digits, and returns its path."""
    with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([f"{cell:.{digits}g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a table by column; an empty list if there is no such file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_text(path: Path, text: str) -> Path:
    """Writes text that ends with exactly one line break and returns the path."""
    return replace_text(path, text.rstrip("\n") + "\n")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a Markdown table; columns of numbers, except for the first column, are aligned right."""
    body = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    numeric = [bool(body) and all(_is_number(row[column]) for row in body) for column in range(len(header))]
    rule = ["--:" if number and column else ":--" for column, number in enumerate(numeric)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(header), rule, *body])


def _is_number(text: str) -> bool:
    plain = text.replace(",", "").replace("%", "").replace("−", "-").strip()
    try:
        float(plain or "0")
    except ValueError:
        return False
    return True
