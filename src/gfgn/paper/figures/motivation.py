"""Figures of the paper's motivation: a user's neighbours in two dimensions, and spectral embeddings."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from gfgn.report.style import BLUE, FAINT, INK, ORANGE, PAGE, letter, styled

Floats = NDArray[np.float64]
WIDEST = 7.0
"""Width of the arc, in points, of a similarity of 1."""


def neighbours_figure(similarity: Floats) -> Figure:
    """A user, 0, and its neighbours: arcs as wide as they are similar, a panel a dimension, and both against each
    other.

    Args:
        similarity: `[n, 2]`, from 0 to 1.
    """
    with styled():
        figure = Figure(figsize=(PAGE, 2.55), layout="constrained")
        panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
        for axes, column, name in zip(panels, similarity.T, "AB", strict=False):
            _arcs(axes, column)
            axes.set_title(f"feature dimension {name}", loc="left")
        _against(panels[2], similarity)
        panels[2].set_title("both dimensions", loc="left")
        letter(panels)
        return figure


def _arcs(axes: Axes, similarity: Floats) -> None:
    """The user in the middle, neighbours around it, clockwise from the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(similarity.size) / similarity.size
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    colours = colormaps["Blues"](0.25 + 0.7 * similarity)
    for node in np.argsort(similarity):  # the widest on top
        arc = FancyArrowPatch(
            (0.0, 0.0),
            tuple(place[node]),
            connectionstyle="arc3,rad=0.18",
            arrowstyle="-",
            shrinkA=0,
            shrinkB=0,
            linewidth=WIDEST * similarity[node],
            color=colours[node],
            capstyle="butt",
        )
        axes.add_patch(arc)
    for node, (x, y) in enumerate([(0.0, 0.0), *place]):
        colour = ORANGE if node == 0 else "white"
        axes.plot(x, y, "o", markersize=10, markerfacecolor=colour, markeredgecolor=FAINT, markeredgewidth=0.7)
        axes.annotate(str(node), (x, y), ha="center", va="center", fontsize=6, color=INK)
    axes.set_xlim(-1.15, 1.15)
    axes.set_ylim(-1.15, 1.15)
    axes.set_aspect("equal")
    axes.axis("off")


def _against(axes: Axes, similarity: Floats) -> None:
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.6, linestyle="--")
    for node, (a, b) in enumerate(similarity, start=1):
        axes.plot(a, b, "o", markersize=8, markerfacecolor="white", markeredgecolor=BLUE, markeredgewidth=0.8)
        axes.annotate(str(node), (a, b), ha="center", va="center", fontsize=5.5)
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    axes.set_aspect("equal")
    axes.set_xlabel("similarity in dimension A")
    axes.set_ylabel("similarity in dimension B")
    axes.grid()


def embedding_figure(eigenvalues: Floats, smoothness: Floats, local: Floats, name: str) -> Figure:
    """Smoothness of every dimension of a spectral embedding against its eigenvalue, and how different a node is from
    its neighbours in each of the first dimensions.

    Args:
        eigenvalues: `[n]`.
        smoothness: `[n]`, the sum of squared differences over edges.
        local: `[n, k]`, see `gfgn.paper.motivation.Embedding`.
        name: Name of the graph.
    """
    with styled():
        figure = Figure(figsize=(PAGE, 2.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.axline((1, 1), slope=1, color=FAINT, linewidth=0.8)
        left.plot(eigenvalues[1:], smoothness[1:], ".", color=BLUE, markersize=3, rasterized=True)
        left.set_xscale("log")
        left.set_yscale("log")
        left.set_xlabel("eigenvalue of D − A")
        left.set_ylabel("Σ over edges of (fᵢ − fⱼ)²")
        left.set_title(f"{name}: all {eigenvalues.size - 1:,} dimensions", loc="left")
        left.grid()
        dimension = np.arange(1, local.shape[1] + 1)
        low, lower, middle, upper, high = np.quantile(local, [0.1, 0.25, 0.5, 0.75, 0.9], axis=0)
        right.fill_between(dimension, low, high, color=BLUE, alpha=0.18, linewidth=0, label="80% of the nodes")
        right.fill_between(dimension, lower, upper, color=BLUE, alpha=0.35, linewidth=0, label="50%")
        right.plot(dimension, middle, color=BLUE, label="median")
        right.set_yscale("log")
        right.set_xlabel("dimension of the embedding")
        right.set_ylabel("n (fᵢ − fⱼ)², mean over neighbours")
        right.set_title("nodes against their neighbours", loc="left")
        right.legend(loc="lower right", ncols=3)
        right.grid()
        letter([left, right])
        return figure
