"""Figure of filter coefficients over the spectrum of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.report.style import FAINT, PAGE_WIDTH, styled

Floats = NDArray[np.float64]


def spectral_figure(eigenvalues: Floats, scores: Sequence[float], depths: Sequence[int], name: str) -> Figure:
    """Draws `(1 − sλ)^K` over the spectrum below a histogram of the eigenvalues: one curve per score (evenly spaced)
    and one panel per depth `K`."""
    step = scores[1] - scores[0]
    norm = BoundaryNorm([scores[0] - step / 2, *(score + step / 2 for score in scores)], len(scores))
    # The upper end of the color map is too pale for a line on white.
    colors = [tuple(color) for color in colormaps["viridis"](np.linspace(0.0, 0.9, len(scores)))]
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 3.1), layout="constrained")
        grid = figure.subplots(2, len(depths), sharex=True, squeeze=False, height_ratios=(1, 4))
        for layers, (above, below) in zip(depths, grid.T, strict=True):
            counts, edges = np.histogram(eigenvalues, bins=60, range=(0.0, 2.0))
            above.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=FAINT)
            above.set_title(f"K = {layers} layer{'s' if layers > 1 else ''}", loc="left")
            for score, color in zip(scores, colors, strict=True):
                below.plot(eigenvalues, (1 - score * eigenvalues) ** layers, color=color)
            below.axhline(0, color=FAINT, linewidth=0.6)
            below.set_xlabel("eigenvalue λ of the normalized Laplacian")
            below.grid(axis="y")
            below.set_xlim(0, 2)
        grid[0, 0].set_ylabel("eigen-\nvalues")
        grid[1, 0].set_ylabel("coefficient $(1 - s\\lambda)^K$")
        colored = ScalarMappable(norm, ListedColormap(colors))
        bar = figure.colorbar(colored, ax=grid, label="smoothing score s", pad=0.01, aspect=30)
        bar.set_ticks(list(scores), labels=[f"{score:g}" for score in scores])
        bar.minorticks_off()
        bar.ax.tick_params(length=0)
        bar.outline.set_visible(False)
        figure.suptitle(f"Spectral filter coefficients on {name}", x=0.01, ha="left", fontsize=9)
        return figure
