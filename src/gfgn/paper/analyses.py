"""The analyses that `gfgn reproduce` runs in addition to the studies, by name.

Every analysis is a module with a function `analyze(out, *, root, device, progress)`, which writes its files into the
folder `out` and returns their paths. It expects the folders of the studies (`table1`, `noise`, …) next to `out`, the
datasets in `root` (see `gfgn.data.load`), trains on `device`, and calls `progress` with one line per step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any


def _call(name: str, function: str, *positional: Any, **named: Any) -> list[Path]:
    """Calls a function of the module `gfgn.paper.<name>`, which is imported only now."""
    paths: list[Path] = getattr(import_module(f"gfgn.paper.{name}"), function)(*positional, **named)
    return paths


ANALYSES: dict[str, Callable[..., list[Path]]] = {
    "spectral": partial(_call, "spectral", "analyze"),  # filters over Cora's spectrum
    "motivation": partial(_call, "motivation", "analyze"),  # the paper's two motivations
    "parameters": partial(_call, "parameters", "analyze"),  # parameter counts
    "scores": partial(_call, "scores", "analyze"),  # learned smoothing scores
    "claims": partial(_call, "claims", "analyze"),  # verdicts on the statements of the paper
}


def redraw(name: str, out: Path) -> list[Path]:
    """Draws the figures of an analysis with a function `draw` again, from the tables in its folder."""
    return _call(name, "draw", out)
