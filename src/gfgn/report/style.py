"""The style that all figures for print share: sizes, colours that colour-blind readers tell apart, and files that come
out the same to the byte whenever they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN, PAGE = 3.5, 7.2
"""Widths in inches of a column and of a page."""
DPI = 200

# Okabe and Ito's palette.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
WINE, OLIVE = "#882255", "#999933"  # of Tol's, for models beyond the eight
INK, FAINT = "#1A1A1A", "#8C8C8C"

STYLE: Any = {
    "svg.fonttype": "path",  # the same in every reader, whatever typefaces it has
    "svg.hashsalt": "gfgn",
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "figure.dpi": DPI,
    "savefig.facecolor": "white",
}

# Gated levels in full colour with markers of their own; baselines told apart by marker and dash too.
LOOKS: dict[str, dict[str, Any]] = {
    "gfgn-graph": {"color": RED, "marker": "o"},
    "gfgn-neighbor": {"color": BLUE, "marker": "s"},
    "gfgn-pair": {"color": GREEN, "marker": "D"},
    "gcn": {"color": BLACK, "marker": "^", "linestyle": "--"},
    "gat": {"color": PINK, "marker": "v", "linestyle": "--"},
    "sgc": {"color": ORANGE, "marker": "<", "linestyle": "--"},
    "arma": {"color": SKY, "marker": ">", "linestyle": "--"},
    "ggnn": {"color": FAINT, "marker": "P", "linestyle": ":"},
    "appnp": {"color": WINE, "marker": "X", "linestyle": ":"},
    "geom-gcn": {"color": OLIVE, "marker": "p", "linestyle": ":"},
    "mlp": {"color": "#595959", "marker": "*", "linestyle": "-."},
}


def look_of(model: str) -> dict[str, Any]:
    """Colour, marker and dash of a model, the same in every figure."""
    return LOOKS.get(model, {"color": FAINT, "marker": ".", "linestyle": ":"})


@contextmanager
def styled() -> Iterator[None]:
    """Within it, figures are drawn in the style."""
    with mpl.rc_context(STYLE):
        yield


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes `name.svg` into a folder and returns its path in a list. What is drawn is all that decides the bytes: no
    date, no version, no random names."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    with styled():
        figure.savefig(path, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    return [path]


def letter(panels: Sequence[Axes]) -> None:
    """Puts (a), (b), … before the titles of panels."""
    for place, axes in enumerate(panels):
        axes.set_title(f"({chr(ord('a') + place)}) {axes.get_title(loc='left')}", loc="left")
