"""`code_version`: which code trained a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

UNKNOWN = "unknown"  # of runs that were recorded without it
TRAINING = ("graph.py", "nn", "ops", "sampling", "train")  # what makes a result from data and a `Replica`


@cache
def code_version() -> str:
    """The first 8 digits of the SHA-256 of the source of all that trains, the same in a checkout and in a wheel.

    The data have fingerprints of their own, and a model of the user's own has its file's hash.
    """
    package, content = files("gfgn"), hashlib.sha256()
    try:
        for name, source in sorted(_sources(package, TRAINING)):
            content.update(f"{name}\n{len(source)}\n".encode() + source)
    except OSError:  # an installation without sources
        return UNKNOWN
    return content.hexdigest()[:8]


def _sources(folder: Traversable, names: tuple[str, ...], prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Path and content of the Python files of a folder and of those in it."""
    for name in names:
        entry = folder / name
        if entry.is_dir():
            yield from _sources(entry, tuple(each.name for each in entry.iterdir()), f"{prefix}{name}/")
        elif name.endswith(".py"):
            yield f"{prefix}{name}", entry.read_bytes().replace(b"\r\n", b"\n")
