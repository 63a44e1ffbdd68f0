"""The plot style of all figures: sizes, color-blind-safe colors, one look per model, and reproducible SVG files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gfgn.data.files import replace_text

PAGE_WIDTH = 7.2
"""Width of a figure in inches."""

# The palette of Okabe and Ito, extended by four colors of Tol's.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
WINE, OLIVE, INDIGO, VIOLET = "#882255", "#999933", "#332288", "#AA4499"
INK, FAINT = "#1A1A1A", "#8C8C8C"

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text: a third of the size, and it can be searched
    "svg.hashsalt": "gfgn",  # element ids do not change between runs
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
    "savefig.dpi": 200,  # of what is rasterized inside an SVG
    "savefig.facecolor": "white",
}
"""Matplotlib settings, see `styled`."""

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
MODEL_STYLES: dict[str, dict[str, Any]] = {
    "gfgn-graph": {"color": RED, "marker": "o"},
    "gfgn-neighbor": {"color": BLUE, "marker": "s"},
    "gfgn-pair": {"color": GREEN, "marker": "D"},
    "gfgn-plus": {"color": VIOLET, "marker": "h"},
    "gcn": {"color": BLACK, "marker": "^", "linestyle": "--"},
    "gat": {"color": PINK, "marker": "v", "linestyle": "--"},
    "sgc": {"color": ORANGE, "marker": "<", "linestyle": "--"},
    "arma": {"color": SKY, "marker": ">", "linestyle": "--"},
    "ggnn": {"color": INDIGO, "marker": "P", "linestyle": ":"},
    "appnp": {"color": WINE, "marker": "X", "linestyle": ":"},
    "geom-gcn": {"color": OLIVE, "marker": "p", "linestyle": ":"},
    "mlp": {"color": "#595959", "marker": "*", "linestyle": "-."},
}
"""Solid lines for the GFGN levels, broken ones for baselines; every model has its own marker."""


def model_style(model: str) -> dict[str, Any]:
    """Returns color, marker and line style of a model, the same in every figure."""
    return MODEL_STYLES.get(model, {"color": FAINT, "marker": ".", "linestyle": ":"})


@contextmanager
def styled() -> Iterator[None]:
    """Applies the style to figures created inside the context."""
    with mpl.rc_context(STYLE):
        yield


def save_svg(figure: Figure, path: Path, crop: bool = False) -> Path:
    """Writes a figure as SVG, cropped to what it shows or whole, and returns the path. The same figure always gives the
    same bytes."""
    text = io.StringIO()
    with styled():
        figure.savefig(text, format="svg", metadata=NO_METADATA, bbox_inches="tight" if crop else None)
    page = text.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")  # Verdana is as wide
    page = re.sub(r' (?:d|x|y|transform)="[^"]+"', _shorter, page)
    return replace_text(path, re.sub(r"\n +", "\n", re.sub(r'<g id="[^"]*">', "<g>", page)))


def _shorter(attribute: re.Match[str]) -> str:
    """Coordinates in points with two decimals, without the line ends of a path."""
    rounded = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), attribute[0])
    return re.sub(r" ?\n", "", rounded)


def label_panels(panels: Sequence[Axes]) -> None:
    """Prefixes the panel titles with (a), (b), …"""
    for index, axes in enumerate(panels):
        axes.set_title(f"({chr(ord('a') + index)}) {axes.get_title(loc='left')}", loc="left")
