"""Figures of the paper's motivation: a user's neighbors in two dimensions, and a spectral embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from gfgn.report.style import BLUE, FAINT, INK, ORANGE, PAGE_WIDTH, label_panels, styled

Floats = NDArray[np.float64]
MAX_WIDTH = 7.0  # line width, in points, of a similarity of 1


def neighbors_figure(similarity: Floats) -> Figure:
    """Draws the `[n, 2]` similarities of a user to its neighbors: one panel per dimension, and one with both."""
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 2.55), layout="constrained")
        panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
        for axes, column, name in zip(panels, similarity.T, "AB", strict=False):
            _arcs(axes, column)
            axes.set_title(f"feature dimension {name}", loc="left")
        _scatter(panels[2], similarity)
        panels[2].set_title("both dimensions", loc="left")
        label_panels(panels)
        return figure


def _arcs(axes: Axes, similarity: Floats) -> None:
    """Draws the user in the center and its neighbors clockwise from the top; wide arcs are similar neighbors."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(similarity.size) / similarity.size
    position = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    colors = colormaps["Blues"](0.25 + 0.7 * similarity)
    for node in np.argsort(similarity):  # the widest on top
        line: Any = {"linewidth": MAX_WIDTH * similarity[node], "color": colors[node], "capstyle": "butt"}
        shape: Any = {"connectionstyle": "arc3,rad=0.18", "arrowstyle": "-", "shrinkA": 0, "shrinkB": 0}
        axes.add_patch(FancyArrowPatch((0.0, 0.0), tuple(position[node]), **shape, **line))
    for node, (x, y) in enumerate([(0.0, 0.0), *position]):
        color = ORANGE if node == 0 else "white"
        axes.plot(x, y, "o", markersize=10, markerfacecolor=color, markeredgecolor=FAINT, markeredgewidth=0.7)
        axes.annotate(str(node), (x, y), ha="center", va="center", fontsize=6, color=INK)
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    axes.axis("off")


def _scatter(axes: Axes, similarity: Floats) -> None:
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.6, linestyle="--")
    for node, (a, b) in enumerate(similarity, start=1):
        axes.plot(a, b, "o", markersize=8, markerfacecolor="white", markeredgecolor=BLUE, markeredgewidth=0.8)
        axes.annotate(str(node), (a, b), ha="center", va="center", fontsize=5.5)
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    axes.set(xlabel="similarity in dimension A", ylabel="similarity in dimension B")
    axes.grid()


def embedding_figure(eigenvalues: Floats, smoothness: Floats, local: Floats, name: str) -> Figure:
    """Draws the smoothness of every dimension of a spectral embedding against its eigenvalue, and the distribution over
    nodes of their distance to their neighbors in each of the first dimensions; see `gfgn.paper.motivation.Embedding`.
    """
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 2.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.axline((1, 1), slope=1, color=FAINT, linewidth=0.8)
        left.plot(eigenvalues[1:], smoothness[1:], ".", color=BLUE, markersize=3, rasterized=True)
        left.set(xscale="log", yscale="log", xlabel="eigenvalue of D − A", ylabel="Σ over edges of (fᵢ − fⱼ)²")
        left.set_title(f"{name}: all {eigenvalues.size - 1:,} dimensions", loc="left")
        left.grid()
        dimension = np.arange(1, local.shape[1] + 1)
        low, lower, middle, upper, high = np.quantile(local, [0.1, 0.25, 0.5, 0.75, 0.9], axis=0)
        right.fill_between(dimension, low, high, color=BLUE, alpha=0.18, linewidth=0, label="80% of the nodes")
        right.fill_between(dimension, lower, upper, color=BLUE, alpha=0.35, linewidth=0, label="50%")
        right.plot(dimension, middle, color=BLUE, label="median")
        right.set(yscale="log", xlabel="dimension of the embedding", ylabel="n (fᵢ − fⱼ)², mean over neighbors")
        right.set_title("distance of nodes to their neighbors", loc="left")
        right.legend(loc="lower right", ncols=3)
        right.grid()
        label_panels([left, right])
        return figure
