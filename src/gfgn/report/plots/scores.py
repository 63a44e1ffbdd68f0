"""Figures of smoothing scores by dimension: values at graph level, boxes at neighbour and pair level."""

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

from gfgn.experiments.titles import title_of
from gfgn.report.plots.style import FAINT, INK, PAGE, letter, look_of, styled

Floats = NDArray[np.float64]


def values_figure(scores: Mapping[str, Floats], model: str, line: float) -> Figure:
    """The score of every dimension, a panel a dataset.

    Args:
        scores: `[D]` by dataset.
        model: Name of the model.
        line: A score to mark.
    """
    colour = look_of(model)["color"]

    def draw(axes: Axes, values: Floats) -> None:
        places = np.arange(values.size)
        _strokes(axes, (places, places), (np.full_like(values, line), values), color=colour, alpha=0.35, linewidth=0.7)
        axes.plot(places, values, "o", color=colour, markersize=2.2, markeredgewidth=0)

    return _panels(scores, model, line, draw, most=4)


def boxes_figure(quantiles: Mapping[str, Floats], model: str, line: float) -> Figure:
    """A box a dimension from the lower to the upper quartile, its whiskers reaching to 5% and 95%, a panel a dataset.

    Args:
        quantiles: `[D, 7]` by dataset: smallest, 5%, 25%, 50%, 75%, 95%, largest.
        model: Name of the model.
        line: A score to mark.
    """
    colour = look_of(model)["color"]

    def draw(axes: Axes, values: Floats) -> None:
        places = np.arange(values.shape[0])
        _, low, lower, middle, upper, high, _ = values.T
        _strokes(axes, (places, places), (low, high), color=colour, linewidth=0.6, alpha=0.7)
        corners = [(places - 0.4, lower), (places - 0.4, upper), (places + 0.4, upper), (places + 0.4, lower)]
        boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
        shape = Path.make_compound_path(*(Path(box, closed=False) for box in boxes))
        axes.add_patch(PathPatch(shape, facecolor=colour, alpha=0.7, linewidth=0))
        _strokes(axes, (places - 0.4, places + 0.4), (middle, middle), color=INK, linewidth=0.8)

    return _panels(quantiles, model, line, draw, most=2)


def _strokes(axes: Axes, x: tuple[Any, Any], y: tuple[Any, Any], **look: Any) -> None:
    """Many separate strokes as one line, which keeps files small."""
    gap = np.full(len(x[0]), np.nan)
    axes.plot(np.stack([*x, gap], axis=1).ravel(), np.stack([*y, gap], axis=1).ravel(), **look)


def _panels(values: Mapping[str, Floats], model: str, line: float, draw: Any, most: int) -> Figure:
    """A panel a dataset, at most so many in a row."""
    if not values:
        raise ValueError("values must hold at least one dataset, got none")
    columns = min(most, len(values))
    rows = math.ceil(len(values) / columns)
    with styled():
        figure = Figure(figsize=(PAGE * max(columns, 2) / max(most, 2), 0.4 + 1.45 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        panels: list[Axes] = grid.ravel().tolist()
        for axes, (name, found) in zip(panels, values.items(), strict=False):
            axes.axhline(line, color=FAINT, linewidth=0.7, linestyle="--")
            draw(axes, found)
            axes.set_title(title_of(name), loc="left")
            axes.grid(axis="y")
            axes.set_ylim(bottom=0)
        letter(panels[: len(values)])
        for axes in panels[len(values) :]:
            axes.axis("off")
        for axes in grid[:, 0]:
            axes.set_ylabel("score")
        figure.supxlabel(f"dimension of the first layer of {title_of(model)}", fontsize=8)
        return figure
