"""Smoothing scores as spectral filters: the coefficients `(1 − sλ)^K` over the spectrum of a graph.

If all nodes share the score `s` of a feature dimension, the aggregation of `K` layers multiplies the component of a
signal along the `i`-th eigenvector of `L = I − Â` by `(1 − s λ_i)^K`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from gfgn.graph import Graph
from gfgn.paper.outputs import markdown_table, write_csv, write_text

Floats = NDArray[np.float64]
SCORES = tuple(round(0.1 * step, 1) for step in range(1, 11))  # the smoothing scores of the paper's figure
DEPTHS = (1, 2)  # numbers of layers: a single filter, and the depth of the paper's networks on Cora
MAX_NODES = 10_000  # limit for dense matrices


def normalized_laplacian(graph: Graph) -> Floats:
    """Returns `L = I − D^{−½} A D^{−½}`; rows of isolated nodes are 0, since aggregation does not change them."""
    adjacency = dense_adjacency(graph)
    degree = adjacency.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    laplacian: Floats = -scale[:, None] * adjacency * scale[None, :]
    np.fill_diagonal(laplacian, degree > 0)
    return laplacian


def dense_adjacency(graph: Graph) -> Floats:
    """Returns the `[N, N]` adjacency matrix of an undirected graph of at most `MAX_NODES` nodes."""
    if graph.num_nodes > MAX_NODES:
        raise ValueError(f"graph must have at most {MAX_NODES} nodes for a dense matrix, got {graph.num_nodes}")
    source, target = graph.edge_index.cpu().numpy()
    values = np.ones(source.size) if graph.weight is None else graph.weight.detach().double().cpu().numpy()
    dense = scipy.sparse.coo_array((values, (target, source)), shape=(graph.num_nodes,) * 2).toarray()
    if not np.array_equal(dense, dense.T):
        raise ValueError("graph must be undirected for a real spectrum, got one whose edges have a direction")
    return np.asarray(dense)


def spectrum(graph: Graph) -> Floats:
    """Returns the `[N]` eigenvalues of the normalized Laplacian in ascending order, from 0 to at most 2."""
    values = scipy.linalg.eigvalsh(normalized_laplacian(graph), overwrite_a=True, check_finite=False)
    return np.asarray(np.clip(values, 0.0, 2.0).round(12))  # rounding errors depend on the machine


def filter_coefficients(eigenvalues: Floats, scores: Sequence[float] = SCORES, layers: int = 2) -> Floats:
    """Returns the `[len(scores), N]` coefficients `(1 − sλ)^K` of `K` layers."""
    if layers < 1:
        raise ValueError(f"layers must be 1 or larger, got {layers}")
    return np.asarray((1 - np.asarray(scores)[:, None] * eigenvalues[None, :]) ** layers)


def filter_summary(eigenvalues: Floats, layers: int = 2) -> list[tuple[float, float, float, float]]:
    """Returns for every score of the figure: the score, the smallest coefficient, its eigenvalue, and the fraction of
    the energy of white noise that passes the filter."""
    coefficients = filter_coefficients(eigenvalues, SCORES, layers)
    columns = coefficients.min(axis=1), eigenvalues[coefficients.argmin(axis=1)], (coefficients**2).mean(axis=1)
    return list(zip(SCORES, *(column.tolist() for column in columns), strict=True))


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the filter coefficients over the spectrum of Cora, the figure and a page."""
    from gfgn.data import load
    from gfgn.paper.figures.spectral import spectral_figure
    from gfgn.report.style import save_svg

    data = load("cora", root)
    progress(f"spectral: eigenvalues of the {data.num_nodes:,} × {data.num_nodes:,} Laplacian of {data.name}")
    eigenvalues = spectrum(data.graph)
    header = ["eigenvalue", *(f"K=2 s={score}" for score in SCORES)]
    columns = [eigenvalues, *filter_coefficients(eigenvalues, SCORES, 2)]
    return [
        write_csv(out / "coefficients.csv", header, np.stack(columns, axis=1).tolist(), digits=4),
        save_svg(spectral_figure(eigenvalues, SCORES, DEPTHS, "Cora"), out / "spectral.svg"),
        write_text(out / "README.md", _page(eigenvalues)),
    ]


def _page(eigenvalues: Floats) -> str:
    zeros = int((eigenvalues < 1e-9).sum())
    summary = filter_summary(eigenvalues)
    rows = [(f"{s:g}", f"{low:.3f}", f"{at:.2f}", f"{100 * energy:.1f}%") for s, low, at, energy in summary]
    table = markdown_table(["score s", "smallest coefficient", "at eigenvalue", "energy that passes"], rows)
    return f"""# Spectral filter coefficients on Cora

Written by `gfgn reproduce spectral`. The paper's figure shows `h(λ) = (1 − sλ)^K` for scores `s` from 0.1 to 1 but does
not state `K`. The figure here shows one layer (`K = 1`) and the depth of the paper's networks on Cora (`K = 2`).

![Spectral filter coefficients on Cora](spectral.svg)

The spectrum is that of `L = I − D^(−1/2) A D^(−1/2)` with {eigenvalues.size:,} nodes. It ranges from
{eigenvalues[0]:.2f} to {eigenvalues[-1]:.4f}; the eigenvalue 0 occurs {zeros} times, once per connected component.
The histogram above the curves shows the distribution of the eigenvalues.

With `K = 2`, this is how much of the energy of white noise passes the filter:

{table}

Different scores give filters of different shapes. Small scores attenuate high frequencies slightly, scores near 0.5 are
low-pass filters, and scores near 1 suppress the middle of the spectrum but let the highest frequencies pass again.
[coefficients.csv](coefficients.csv) has the coefficients of every eigenvalue at `K = 2`.
"""
