"""The analyses by name: what `gfgn reproduce` runs beside the studies that train a table.

Each is a function `(out, *, root, device, progress)` that writes its files and returns their paths:

- `out`: Folder for its files. Its neighbours in the same folder are the studies' (`table1`, `noise`, …), whose
  `runs.csv.gz` and `chosen.csv` some analyses read.
- `root`: Folder of all datasets, see `gfgn.data.load`; `None` for the usual one.
- `device`: Where to train, if anything is trained.
- `progress`: Is told, in a line, what is being done.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast


class Analysis(Protocol):
    """What every analysis is, see the module."""

    def __call__(self, out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]: ...


def _analysis(name: str) -> Analysis:
    """The function `analyse` of the module of that name, which is imported when it is first called."""

    def analysis(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
        function = cast(Analysis, import_module(f"gfgn.paper.{name}").analyse)
        return function(out, root=root, device=device, progress=progress)

    analysis.__name__ = analysis.__qualname__ = name
    return analysis


ANALYSES: dict[str, Analysis] = {
    name: _analysis(name) for name in ("spectral", "motivation", "parameters", "scores", "claims")
}
"""`spectral`, filters over Cora's spectrum; `motivation`, the paper's two reasons; `parameters`, counts; `scores`, what
gates learn; `claims`, the paper's sentences judged by all that is there."""


def redraw(name: str, out: Path) -> list[Path]:
    """Draws the figures of an analysis that belongs to a study again, from the tables in its folder; returns the paths.

    Args:
        name: Of the analysis.
        out: Its folder.
    """
    function: Callable[[Path], list[Path]] = import_module(f"gfgn.paper.{name}").draw
    return function(out)
