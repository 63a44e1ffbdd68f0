"""Figures of spectra: filter coefficients over eigenvalues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.report.style import FAINT, PAGE, styled

Floats = NDArray[np.float64]


def spectral_figure(eigenvalues: Floats, scores: Sequence[float], depths: Sequence[int], name: str) -> Figure:
    """`(1 − sλ)^K` over the spectrum, a curve a score and a panel a depth, under a histogram of the eigenvalues.

    Args:
        eigenvalues: `[N]`, ascending.
        scores: The smoothing scores.
        depths: The values of `K`.
        name: Name of the graph.
    """
    with styled():
        figure = Figure(figsize=(PAGE, 3.1), layout="constrained")
        grid = figure.add_gridspec(2, len(depths), height_ratios=(1, 4))
        panels: list[Axes] = []
        for place, layers in enumerate(depths):
            above, below = figure.add_subplot(grid[0, place]), figure.add_subplot(grid[1, place])
            _histogram(above, eigenvalues)
            above.set_title(f"K = {layers} layer{'s' if layers > 1 else ''}", loc="left")
            _curves(below, eigenvalues, scores, layers)
            above.set_xlim(below.get_xlim())
            panels += [above, below]
        panels[0].set_ylabel("eigen-\nvalues")
        panels[1].set_ylabel("coefficient $(1 - s\\lambda)^K$")
        bar = figure.colorbar(
            ScalarMappable(_steps(scores), ListedColormap(_colours(scores))),
            ax=panels,
            label="smoothing score s",
            pad=0.01,
            aspect=30,
        )
        bar.set_ticks(list(scores), labels=[f"{score:g}" for score in scores])
        bar.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
        figure.suptitle(f"Filter spectral coefficients on {name}", x=0.01, ha="left", fontsize=9)
        return figure


def _histogram(axes: Axes, eigenvalues: Floats) -> None:
    counts, edges = np.histogram(eigenvalues, bins=60, range=(0.0, 2.0))
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=FAINT)
    axes.tick_params(labelbottom=False)


def _curves(axes: Axes, eigenvalues: Floats, scores: Sequence[float], layers: int) -> None:
    for score, colour in zip(scores, _colours(scores), strict=True):
        axes.plot(eigenvalues, (1 - score * eigenvalues) ** layers, color=colour)
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.set_xlabel("eigenvalue λ of the normalised Laplacian")
    axes.grid(axis="y")
    axes.set_xlim(0, 2)


def _colours(scores: Sequence[float]) -> list[tuple[float, ...]]:
    """One a score, without the palest end of the scale, which is too faint for a line on white."""
    return [tuple(colour) for colour in colormaps["viridis"](np.linspace(0.0, 0.9, len(scores)))]


def _steps(scores: Sequence[float]) -> BoundaryNorm:
    """Every score in the middle of its step."""
    step = scores[1] - scores[0]
    return BoundaryNorm([scores[0] - step / 2, *(score + step / 2 for score in scores)], len(scores))
