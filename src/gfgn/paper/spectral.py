"""What a smoothing score does to frequencies: the filter coefficients `(1 − sλ)^K` over a graph's real spectrum.

Where all nodes share the score `s` of a feature dimension and nothing but the aggregation is looked at, `K` layers
multiply the part of a signal that lies along the `i`-th eigenvector of `L = I − Â` by `(1 − s λ_i)^K`.
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
SCORES = tuple(round(0.1 * step, 1) for step in range(1, 11))
"""The smoothing scores of the paper's figure."""
DEPTHS = (1, 2)
"""Numbers of layers that are drawn: one filter, and the depth of the paper's networks on Cora."""
MAX_NODES = 10_000
"""The spectrum is that of a dense matrix."""


def normalized_laplacian(graph: Graph) -> Floats:
    """`[N, N]`: `L = I − D^{−½} A D^{−½}` of an undirected graph; 0 in the rows of nodes without neighbours, which no
    aggregation changes.

    Args:
        graph: The graph, of at most `MAX_NODES` nodes.
    """
    adjacency = dense_adjacency(graph)
    degree = adjacency.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros_like(degree), where=degree > 0)
    laplacian: Floats = -scale[:, None] * adjacency * scale[None, :]
    np.fill_diagonal(laplacian, degree > 0)
    return laplacian


def dense_adjacency(graph: Graph) -> Floats:
    """`[N, N]`: `A` of an undirected graph in double precision.

    Args:
        graph: The graph, of at most `MAX_NODES` nodes.
    """
    if graph.num_nodes > MAX_NODES:
        raise ValueError(f"graph must have at most {MAX_NODES} nodes for a dense matrix, got {graph.num_nodes}")
    source, target = graph.edge_index.cpu().numpy()
    values = np.ones(source.size) if graph.weight is None else graph.weight.detach().double().cpu().numpy()
    dense = scipy.sparse.coo_array((values, (target, source)), shape=(graph.num_nodes,) * 2).toarray()
    if not np.array_equal(dense, dense.T):
        raise ValueError("graph must be undirected for a real spectrum, got one whose edges have a direction")
    return np.asarray(dense)


def spectrum(graph: Graph) -> Floats:
    """`[N]`: the eigenvalues of the normalised Laplacian in ascending order, from 0 to at most 2."""
    values = scipy.linalg.eigvalsh(normalized_laplacian(graph), overwrite_a=True, check_finite=False)
    return np.clip(values, 0.0, 2.0)  # rounding leaves traces beyond the bounds


def filter_coefficients(eigenvalues: Floats, scores: Sequence[float] = SCORES, layers: int = 2) -> Floats:
    """`[len(scores), N]`: `(1 − sλ)^K` for every score and eigenvalue.

    Args:
        eigenvalues: `[N]`.
        scores: The smoothing scores `s`.
        layers: `K`, 1 or larger.
    """
    if layers < 1:
        raise ValueError(f"layers must be 1 or larger, got {layers}")
    return np.asarray((1 - np.asarray(scores)[:, None] * eigenvalues[None, :]) ** layers)


def filter_summary(eigenvalues: Floats, layers: int = 2) -> list[tuple[float, float, float, float]]:
    """For every score of the figure: the smallest coefficient, the eigenvalue where it is, and the share of the energy
    of a signal with the same power at every frequency that the filter lets through."""
    found = []
    for score, row in zip(SCORES, filter_coefficients(eigenvalues, SCORES, layers), strict=True):
        place = int(row.argmin())
        found.append((score, float(row[place]), float(eigenvalues[place]), float(np.mean(row**2))))
    return found


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the spectrum of Cora, the filters' coefficients, the figure and a page; see `gfgn.paper.analyses`
    for the arguments."""
    from gfgn.data import load
    from gfgn.paper.figures.spectral import spectral_figure
    from gfgn.report.style import save

    data = load("cora", root)
    progress(f"spectral: eigenvalues of the {data.num_nodes:,} × {data.num_nodes:,} Laplacian of {data.name}")
    eigenvalues = spectrum(data.graph)
    header = ["eigenvalue", *(f"K=2 s={score}" for score in SCORES)]
    columns = [eigenvalues, *filter_coefficients(eigenvalues, SCORES, 2)]
    paths = [write_csv(out / "coefficients.csv", header, np.stack(columns, axis=1).tolist(), digits=4)]
    paths += save(spectral_figure(eigenvalues, SCORES, DEPTHS, "Cora"), out, "spectral")
    return [*paths, write_text(out / "README.md", _page(eigenvalues))]


def _page(eigenvalues: Floats) -> str:
    zero = int((eigenvalues < 1e-9).sum())
    summary = filter_summary(eigenvalues)
    rows = [(f"{s:g}", f"{low:.3f}", f"{at:.2f}", f"{100 * energy:.1f}%") for s, low, at, energy in summary]
    table = markdown_table(["score s", "smallest coefficient", "at eigenvalue", "energy let through"], rows)
    return f"""# Filter spectral coefficients on Cora

Written by `gfgn reproduce spectral`. The paper's figure draws `h(λ) = (1 − sλ)^K` for scores `s` from 0.1 to 1; it does
not say which `K`, so the figure has one layer (`K = 1`) and the depth of the paper's networks on Cora (`K = 2`).

![Filter spectral coefficients on Cora](spectral.svg)

The spectrum is that of `L = I − D^(−1/2) A D^(−1/2)` of the {eigenvalues.size:,} nodes: from {eigenvalues[0]:.2f} to
{eigenvalues[-1]:.4f}, the value 0 occurring {zero} times, once for each connected component. The histogram above the
curves says how many eigenvalues there are where.

With `K = 2`, a signal that has the same power at every frequency keeps this much of its energy:

{table}

Different scores give differently shaped filters: small ones weaken high frequencies a little, those about 0.5 let
through low frequencies only, and scores towards 1 suppress the middle of the spectrum and let the highest through
again. [coefficients.csv](coefficients.csv) has every eigenvalue with its coefficients at `K = 2`.
"""
