"""Files that analyses write and read: tables as CSV, text, and runs of other studies."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], digits: int = 6) -> Path:
    """Writes a table and returns its path; numbers that are not whole have `digits` significant digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([_cell(value, digits) for value in row] for row in rows)
    return path


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a table by column; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_text(path: Path, text: str) -> Path:
    """Writes text, which ends with one line break, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    return path


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; the first column is aligned left, the others right where they hold numbers."""
    body = [[str(value).replace("|", "\\|") for value in row] for row in rows]
    numeric = [bool(body) and all(_is_number(row[place]) for row in body) for place in range(len(header))]
    rule = ["--:" if number and place else ":--" for place, number in enumerate(numeric)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(header), rule, *body])


def _cell(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return value


def _is_number(text: str) -> bool:
    plain = text.replace(",", "").replace("%", "").replace("−", "-").strip()
    try:
        float(plain or "0")
    except ValueError:
        return False
    return True
