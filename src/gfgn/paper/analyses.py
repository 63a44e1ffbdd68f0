"""The analyses that `gfgn reproduce` runs in addition to the studies, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol


class Analysis(Protocol):
    """An analysis writes its files and returns their paths.

    Args:
        out: Folder for the files. The folders of the studies (`table1`, `noise`, …) are expected next to it.
        root: Folder of all datasets, see `gfgn.data.load`; `None` for the default.
        device: Device for training.
        progress: Receives one line per step.
    """

    def __call__(self, out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]: ...


def _call(name: str, function: str) -> Callable[..., list[Path]]:
    """Returns a function of the module `gfgn.paper.<name>`, which is imported when it is called."""

    def call(*positional: Any, **named: Any) -> list[Path]:
        paths: list[Path] = getattr(import_module(f"gfgn.paper.{name}"), function)(*positional, **named)
        return paths

    return call


ANALYSES: dict[str, Analysis] = {
    name: _call(name, "analyze") for name in ("spectral", "motivation", "parameters", "scores", "claims")
}
"""`spectral`: filters over Cora's spectrum; `motivation`: the paper's two motivations; `parameters`: parameter counts;
`scores`: learned smoothing scores; `claims`: verdicts on the statements of the paper."""


def redraw(name: str, out: Path) -> list[Path]:
    """Draws the figures of an analysis again, from the tables in its folder, and returns the paths.

    Args:
        name: Name of an analysis with a function `draw`.
        out: Its folder.
    """
    return _call(name, "draw")(out)
