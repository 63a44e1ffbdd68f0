"""Figures of smoothing scores by dimension: values at graph level, boxes at neighbour and pair level."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from gfgn.paper.titles import title_of
from gfgn.report.style import INK, PAGE, letter, look_of, styled

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
IDLE = "#B3B3B3"


def values_figure(scores: Mapping[str, Floats], idle: Mapping[str, Booleans], model: str, line: float) -> Figure:
    """The score of every dimension, a panel a dataset.

    Args:
        scores: `[D]` by dataset.
        idle: `[D]` by dataset: dimensions that carry nothing, which are drawn in grey.
        model: Name of the model.
        line: A score to mark.
    """

    def draw(axes: Axes, name: str, chosen: Booleans, colour: str) -> None:
        axes.plot(np.flatnonzero(chosen), scores[name][chosen], "o", color=colour, markersize=2.4, markeredgewidth=0)

    return _panels(idle, model, line, draw, most=4)


def boxes_figure(quantiles: Mapping[str, Floats], idle: Mapping[str, Booleans], model: str, line: float) -> Figure:
    """A box a dimension from the lower to the upper quartile, its whiskers reaching to 5% and 95%, a panel a dataset.

    Args:
        quantiles: `[D, 7]` by dataset: smallest, 5%, 25%, 50%, 75%, 95%, largest.
        idle: `[D]` by dataset: dimensions that carry nothing, which are drawn in grey.
        model: Name of the model.
        line: A score to mark.
    """

    def draw(axes: Axes, name: str, chosen: Booleans, colour: str) -> None:
        places = np.flatnonzero(chosen)
        _, low, lower, middle, upper, high, _ = quantiles[name][chosen].T
        _strokes(axes, (places, places), (low, high), color=colour, linewidth=0.6, alpha=0.7)
        corners = [(places - 0.4, lower), (places - 0.4, upper), (places + 0.4, upper), (places + 0.4, lower)]
        boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
        shape = Path.make_compound_path(*(Path(box, closed=False) for box in boxes))
        axes.add_patch(PathPatch(shape, facecolor=colour, alpha=0.7, linewidth=0))
        ink = INK if colour != IDLE else IDLE
        _strokes(axes, (places - 0.4, places + 0.4), (middle, middle), color=ink, linewidth=0.8)

    return _panels(idle, model, line, draw, most=2)


def _strokes(axes: Axes, x: tuple[Any, Any], y: tuple[Any, Any], **look: Any) -> None:
    """Many separate strokes as one line, which keeps files small."""
    gap = np.full(len(x[0]), np.nan)
    axes.plot(np.stack([*x, gap], axis=1).ravel(), np.stack([*y, gap], axis=1).ravel(), **look)


def _panels(
    idle: Mapping[str, Booleans],
    model: str,
    line: float,
    draw: Callable[[Axes, str, Booleans, str], None],
    most: int,
) -> Figure:
    """A panel a dataset, at most so many in a row; `draw` is called for the idle dimensions and for the others."""
    if not idle:
        raise ValueError("idle must hold at least one dataset, got none")
    columns = min(most, len(idle))
    rows = math.ceil(len(idle) / columns)
    with styled():
        figure = Figure(figsize=(PAGE * max(columns, 2) / max(most, 2), 0.4 + 1.45 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        panels: list[Axes] = grid.ravel().tolist()
        for axes, (name, unused) in zip(panels, idle.items(), strict=False):
            axes.axhline(line, color=INK, linewidth=0.6, linestyle="--")
            for chosen, colour in ((unused, IDLE), (~unused, str(look_of(model)["color"]))):
                if chosen.any():
                    draw(axes, name, chosen, colour)
            axes.set_title(title_of(name), loc="left")
            axes.grid(axis="y")
            axes.set_xlim(-1.5, unused.size + 0.5)
        panels[0].set_ylim(bottom=0)  # of all, once all is drawn
        letter(panels[: len(idle)])
        for axes in panels[len(idle) :]:
            axes.axis("off")
        for axes in grid[:, 0]:
            axes.set_ylabel("score")
        figure.supxlabel(f"dimension of the first layer of {title_of(model)} (grey: weights vanished)", fontsize=8)
        return figure
