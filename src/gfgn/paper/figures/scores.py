"""Figures of smoothing scores by dimension: dots at graph level, boxes at neighbor and pair level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from gfgn.paper.titles import title_of
from gfgn.report.style import INK, PAGE_WIDTH, label_panels, model_style, styled

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
UNDECIDED = "#B3B3B3"


def scores_figure(
    quantiles: Mapping[str, Floats], undecided: Mapping[str, Booleans], model: str, line: float
) -> Figure:
    """Draws the scores of every dimension, one panel per dataset: a dot at graph level, else a box from quartile to
    quartile with whiskers at 5% and 95%.

    Args:
        quantiles: `[D, 7]` by dataset: smallest, 5%, 25%, 50%, 75%, 95%, largest.
        undecided: `[D]` by dataset: dimensions whose scores stay at λ/2, which are drawn in gray.
        model: Name of the model.
        line: A score to mark.
    """
    if not undecided:
        raise ValueError("undecided must hold at least one dataset, got none")
    draw, max_columns = (_dots, 4) if model == "gfgn-graph" else (_boxes, 2)
    columns = min(max_columns, len(undecided))
    rows = math.ceil(len(undecided) / columns)
    with styled():
        width = PAGE_WIDTH * max(columns, 2) / max_columns
        figure = Figure(figsize=(width, 0.4 + 1.45 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        panels: list[Axes] = grid.ravel().tolist()
        for axes, (name, gray) in zip(panels, undecided.items(), strict=False):
            axes.axhline(line, color=INK, linewidth=0.6, linestyle="--")
            for shown, color in ((gray, UNDECIDED), (~gray, str(model_style(model)["color"]))):
                if shown.any():
                    draw(axes, np.flatnonzero(shown), quantiles[name][shown], color)
            axes.set_title(title_of(name), loc="left")
            axes.grid(axis="y")
            axes.set_xlim(-1.5, gray.size + 0.5)
        panels[0].set_ylim(bottom=0)  # shared by all panels, once all are drawn
        label_panels(panels[: len(undecided)])
        for axes in panels[len(undecided) :]:
            axes.axis("off")
        for axes in grid[:, 0]:
            axes.set_ylabel("score")
        figure.supxlabel(
            f"dimension of the first layer of {title_of(model)} (gray: undecided, within 0.01 of λ/2)", fontsize=8
        )
        return figure


def _dots(axes: Axes, x: Any, quantiles: Floats, color: str) -> None:
    """Draws the only score of every dimension."""
    axes.plot(x, quantiles[:, 0], "o", color=color, markersize=2.4, markeredgewidth=0)


def _boxes(axes: Axes, x: Any, quantiles: Floats, color: str) -> None:
    _, low, lower, middle, upper, high, _ = quantiles.T
    _strokes(axes, (x, x), (low, high), color=color, linewidth=0.6, alpha=0.7)
    corners = [(x - 0.4, lower), (x - 0.4, upper), (x + 0.4, upper), (x + 0.4, lower)]
    boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    shape = Path.make_compound_path(*(Path(box, closed=False) for box in boxes))
    axes.add_patch(PathPatch(shape, facecolor=color, alpha=0.7, linewidth=0))
    ink = INK if color != UNDECIDED else UNDECIDED
    _strokes(axes, (x - 0.4, x + 0.4), (middle, middle), color=ink, linewidth=0.8)


def _strokes(axes: Axes, x: tuple[Any, Any], y: tuple[Any, Any], **style: Any) -> None:
    """Draws many separate strokes as one line, which keeps files small."""
    gap = np.full(len(x[0]), np.nan)
    axes.plot(np.stack([*x, gap], axis=1).ravel(), np.stack([*y, gap], axis=1).ravel(), **style)
