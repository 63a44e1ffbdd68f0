"""The table of named datasets. To add one, write its loader and give it a line in `DATASETS`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gfgn.data.dataset import Dataset
from gfgn.data.dimensions import dimensions


class Entry(NamedTuple):
    """One named dataset."""

    loader: Callable[[Path | None], Dataset]
    """Takes the folder to keep downloads in (`None`: the default one)."""
    description: str


def _dimensions(root: Path | None) -> Dataset:
    return dimensions()


DATASETS: dict[str, Entry] = {
    "dimensions": Entry(_dimensions, "generated, no download: edges of several reasons, the smooth dimensions known"),
}


def load(name: str, root: str | Path | None = None) -> Dataset:
    """Loads a dataset by its name.

    Args:
        name: One of `DATASETS`.
        root: Folder to keep downloads in; by default the one of the dataset's loader.
    """
    entry = DATASETS.get(name.lower())
    if entry is None:
        close = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(map(repr, DATASETS))}, got {name!r}{hint}")
    return entry.loader(None if root is None else Path(root))
