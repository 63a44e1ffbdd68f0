"""Smoothing scores as spectral filters: the coefficients `(1 − sλ)^K` over the spectrum of a graph.

If all nodes share the score `s` of a feature dimension, the aggregation of `K` layers multiplies the component of a
signal along the `i`-th eigenvector of `L = I − Â` by `(1 − s λ_i)^K`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.data import load
from gfgn.graph import Graph
from gfgn.paper.pages import write_csv, write_page
from gfgn.report.style import FAINT, PAGE_WIDTH, save_svg, styled

Floats = NDArray[np.float64]
SCORES = np.arange(1, 11) / 10  # the smoothing scores of the paper's figure
MAX_NODES = 10_000  # limit for dense matrices


def dense_adjacency(graph: Graph) -> Floats:
    """The `[N, N]` adjacency matrix of an undirected graph of at most `MAX_NODES` nodes."""
    if graph.num_nodes > MAX_NODES:
        raise ValueError(f"graph must have at most {MAX_NODES} nodes for a dense matrix, got {graph.num_nodes}")
    source, target = graph.edge_index.cpu().numpy()
    values = np.ones(source.size) if graph.weight is None else graph.weight.detach().double().cpu().numpy()
    dense = scipy.sparse.coo_array((values, (target, source)), shape=(graph.num_nodes,) * 2).toarray()
    if not np.array_equal(dense, dense.T):
        raise ValueError("graph must be undirected for a real spectrum, got one whose edges have a direction")
    return np.asarray(dense)


def normalized_laplacian(graph: Graph) -> Floats:
    """`L = I − D^{−½} A D^{−½}`; rows of isolated nodes are 0, since aggregation does not change them."""
    return np.asarray(scipy.sparse.csgraph.laplacian(dense_adjacency(graph), normed=True))


def filters(eigenvalues: Floats, layers: int) -> Floats:
    """The `[len(SCORES), N]` coefficients `(1 − sλ)^K` of `K` layers."""
    return np.asarray((1 - SCORES[:, None] * eigenvalues) ** layers)


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the filter coefficients over the spectrum of Cora, the figure and a page."""
    data = load("cora", root)
    progress(f"spectral: eigenvalues of the {data.num_nodes:,} × {data.num_nodes:,} Laplacian of {data.name}")
    values = scipy.linalg.eigvalsh(normalized_laplacian(data.graph), overwrite_a=True, check_finite=False)
    eigenvalues = np.asarray(np.clip(values, 0.0, 2.0).round(12), np.float64)  # rounding errors depend on the machine
    coefficients = filters(eigenvalues, 2)
    rows = zip(SCORES, coefficients.min(1), eigenvalues[coefficients.argmin(1)], (coefficients**2).mean(1), strict=True)
    with styled():
        figure = draw(eigenvalues)
    return [
        write_csv(out / "eigenvalues.csv", ["eigenvalue"], eigenvalues[:, None].tolist()),
        save_svg(figure, out / "spectral.svg"),
        write_page(out / "README.md", "spectral", eigenvalues=eigenvalues, rows=list(rows)),
    ]


def draw(eigenvalues: Floats) -> Figure:
    """The filters over the spectrum below a histogram of the eigenvalues: a single filter, and the depth of the paper's
    networks on Cora."""
    # The upper end of the color map is too pale for a line on white.
    colors = [tuple(color) for color in colormaps["viridis"](np.linspace(0.0, 0.9, len(SCORES)))]
    figure = Figure(figsize=(PAGE_WIDTH, 3.1), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, height_ratios=(1, 4))
    for layers, (above, below) in zip((1, 2), grid.T, strict=True):
        above.hist(eigenvalues, bins=60, range=(0.0, 2.0), color=FAINT)
        above.set_title(f"K = {layers} layer{'s' if layers > 1 else ''}", loc="left")
        for coefficients, color in zip(filters(eigenvalues, layers), colors, strict=True):
            below.plot(eigenvalues, coefficients, color=color)
        below.axhline(0, color=FAINT, linewidth=0.6)
        below.set(xlabel="eigenvalue λ of the normalized Laplacian", xlim=(0, 2))
        below.grid(axis="y")
    grid[0, 0].set_ylabel("eigen-\nvalues")
    grid[1, 0].set_ylabel("coefficient $(1 - s\\lambda)^K$")
    norm = BoundaryNorm(np.arange(0.05, 1.1, 0.1), len(SCORES))
    scale = ScalarMappable(norm, ListedColormap(colors))
    bar = figure.colorbar(scale, ax=grid, label="smoothing score s", pad=0.01, aspect=30)
    bar.set_ticks(SCORES.tolist(), labels=[f"{score:g}" for score in SCORES])
    bar.minorticks_off()
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
    figure.suptitle("Spectral filter coefficients on Cora", x=0.01, ha="left", fontsize=9)
    return figure
