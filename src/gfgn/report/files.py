"""What reports write: pages and tables of features, which replace files of gfgn only."""

from __future__ import annotations

import csv
from pathlib import Path

from gfgn.data.files import atomic_write
from gfgn.literal import csv_cell
from gfgn.runs.explanation import Features

GENERATOR = '<meta name="generator" content="gfgn">'  # in the head of every page
EARLIER = "--blue: #0072B2"  # in that of earlier releases
GATES = "feature,gate_"  # the start of every table of features


class ForeignFileError(ValueError):
    """Raised instead of replacing a file that gfgn has not written."""


def check_page(path: Path) -> None:
    """Refuses to overwrite a file that is not a report of gfgn."""
    if path.is_file() and path.stat().st_size:
        with path.open(encoding="utf-8", errors="replace") as file:
            start = file.read(2000)
        if GENERATOR not in start and EARLIER not in start:
            raise ForeignFileError(
                f"the report must not replace a file of somebody else, got {path}: name another folder"
            )


def write_features(features: Features, path: Path) -> None:
    """Writes features with gates, smoothness and importance as CSV; another file of that name is not replaced."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(GATES):
        raise ForeignFileError(
            f"path must be in a folder whose {path.name} gfgn may overwrite, but {path} is something else"
        )
    columns = {"feature": features.names} | {f"gate_{level}": values for level, values in features.gates.items()}
    columns |= {name: getattr(features, name) for name in ("smoothness", "importance", "importance_std")}
    columns |= {name: values for name in ("follows", "source") if (values := getattr(features, name)) is not None}
    with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(csv_cell, row) for row in zip(*columns.values(), strict=True))
