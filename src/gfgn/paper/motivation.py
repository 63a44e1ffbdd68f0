"""The paper's two motivations for gating each feature dimension, measured on real graphs.

1. Social dimensions: how similar a user of BlogCatalog is to its neighbors depends on the feature dimension. Features
   are reduced to two dimensions by principal component analysis.
2. Spectral embedding: the smoothness of a dimension of the embedding over the graph is its eigenvalue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import scipy.linalg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from torch import Tensor

from gfgn.data import load
from gfgn.data.diagnosis import connected_components, smoothness
from gfgn.graph import Graph
from gfgn.paper.pages import write_csv, write_page
from gfgn.paper.spectral import dense_adjacency
from gfgn.report.style import BLUE, FAINT, PAGE_WIDTH, label_panels, save_svg, styled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBORS = 18  # of the user in the paper's figure
MIN_NEIGHBORS = 5  # for a rank correlation


def principal_components(x: Tensor) -> tuple[Floats, Floats]:
    """The `[N, 2]` features along their principal components and the fraction of the variance of each. Signs are such
    that the entry of largest magnitude is positive."""
    model = PCA(2, svd_solver="arpack", random_state=0)
    values = model.fit_transform(x.to_dense().double().cpu().numpy())
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=0)[None, :], axis=0)
    return np.asarray(values * np.sign(largest)), np.asarray(model.explained_variance_ratio_)


def similarities(values: Floats, source: Integers, target: Integers) -> Floats:
    """The similarities `exp(−|a − b| / σ)` of the two ends of every edge in every column of `values`; `σ` is the
    standard deviation over all nodes."""
    return np.asarray(np.exp(-np.abs(values[source] - values[target]) / values.std(axis=0)))


class User(NamedTuple):
    """A user and its neighbors."""

    node: int
    neighbors: Integers
    similarity: Floats  # `[len(neighbors), 2]`, to the user in the two dimensions
    correlation: float  # rank correlation of the two columns

    @property
    def contrast(self) -> float:
        """The fraction of the neighbors that are more than twice as similar in one dimension as in the other."""
        return float((self.similarity.max(axis=1) > 2 * self.similarity.min(axis=1)).mean())


def list_users(graph: Graph, similarity: Floats) -> list[User]:
    """All nodes with enough neighbors whose similarities, `[E, 2]`, are not constant in either dimension."""
    source, target = graph.edge_index.cpu().numpy()
    order = np.argsort(target, kind="stable")
    groups = np.split(order, np.searchsorted(target[order], np.arange(1, graph.num_nodes)))
    known = [
        (node, edges)
        for node, edges in enumerate(groups)
        if edges.size >= MIN_NEIGHBORS and np.ptp(similarity[edges], axis=0).min() > 0
    ]
    return [User(v, source[e], similarity[e], float(spearmanr(*similarity[e].T).statistic)) for v, e in known]


def median_user(users: list[User], neighbors: int = NEIGHBORS) -> User:
    """The user with the median rank correlation, not the best one, among those with `neighbors` neighbors."""
    candidates = sorted((user for user in users if user.neighbors.size == neighbors), key=lambda user: user.correlation)
    if not candidates:
        raise ValueError(f"neighbors must be a number that some user has, got {neighbors}, which none has")
    return candidates[(len(candidates) - 1) // 2]


def spectral_embedding(graph: Graph) -> tuple[Floats, Floats]:
    """The ascending eigenvalues of `D − A` for a graph's largest connected component, and the smoothness of every
    eigenvector `f`: the sum over edges of `(f_i − f_j)²`."""
    component = connected_components(graph)
    nodes = np.flatnonzero(component == np.bincount(component).argmax())
    adjacency = dense_adjacency(graph)[np.ix_(nodes, nodes)]
    values, vectors = scipy.linalg.eigh(np.diag(adjacency.sum(axis=1)) - adjacency, check_finite=False)
    source, target = np.nonzero(adjacency)
    weight = adjacency[source, target]
    smooth = [weight @ (f[source] - f[target]) ** 2 / 2 for f in vectors.T]  # every edge occurs twice
    return np.clip(values, 0.0, None), np.array(smooth)


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the similarities of a user of BlogCatalog, the smoothness of Cora's embedding, a figure and a page."""
    progress("motivation: principal components of blogcatalog")
    blogs = load("blogcatalog", root)
    source, target = blogs.graph.edge_index.cpu().numpy()
    components, variance = principal_components(blogs.x)
    users = list_users(blogs.graph, similarities(components, source, target))
    # One end of every edge is exchanged for that of a random other one, as if links had nothing to do with features.
    strangers = similarities(components, np.random.default_rng(0).permutation(source), target)
    user = median_user(users)
    progress("motivation: spectral embedding of cora")
    eigenvalues, smooth = spectral_embedding(load("cora", root).graph)
    low, median, high = np.quantile([each.correlation for each in users], [0.1, 0.5, 0.9]).tolist()
    measures = {
        "rank correlation, 10%": low,
        "rank correlation, median": median,
        "rank correlation, 90%": high,
        "neighbors twice as similar in one dimension": fmean(user.contrast for user in users),
        "random nodes twice as similar in one dimension": fmean(u.contrast for u in list_users(blogs.graph, strangers)),
        # Rounded up, because the digits depend on the machine.
        "smoothness minus eigenvalue": 10.0 ** math.ceil(math.log10(np.abs(smooth - eigenvalues).max())),
    }
    rough = np.quantile(smoothness(blogs).double().cpu().numpy(), [0, 0.05, 0.95])
    neighbors = zip(range(1, NEIGHBORS + 1), user.neighbors.tolist(), *user.similarity.T.tolist(), strict=True)
    dimensions = zip(range(len(smooth)), eigenvalues.round(10).tolist(), smooth.round(10).tolist(), strict=True)
    with styled():
        figure = draw(user.similarity, eigenvalues, smooth)
    return [
        write_csv(out / "neighbors.csv", ["neighbor", "node", "similarity A", "similarity B"], neighbors, digits=4),
        write_csv(out / "embedding.csv", ["dimension", "eigenvalue", "smoothness"], dimensions, digits=8),
        write_csv(out / "summary.csv", ["measure", "value"], [(f"motivation: {k}", v) for k, v in measures.items()], 4),
        save_svg(figure, out / "motivation.svg"),
        write_page(
            out / "README.md", "motivation", variance=variance, users=len(users), user=user, measures=measures,
            gap=user.similarity[:, 0] - user.similarity[:, 1], nodes=eigenvalues.size, rough=rough,
            features=blogs.num_features,
        ),
    ]  # fmt: skip


def draw(similarity: Floats, eigenvalues: Floats, smooth: Floats) -> Figure:
    """The `[n, 2]` similarities of a user to its neighbors, and the smoothness of every dimension of an embedding."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color=FAINT, linewidth=0.6, linestyle="--")
    for node, (a, b) in enumerate(similarity, start=1):
        left.plot(a, b, "o", markersize=8, markerfacecolor="white", markeredgecolor=BLUE, markeredgewidth=0.8)
        left.annotate(str(node), (a, b), ha="center", va="center", fontsize=5.5)
    left.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    left.set(xlabel="similarity in dimension A", ylabel="similarity in dimension B")
    left.set_title("a user's neighbors", loc="left")
    right.axline((1, 1), slope=1, color=FAINT, linewidth=0.8)
    right.plot(eigenvalues[1:], smooth[1:], ".", color=BLUE, markersize=3, rasterized=True)
    right.set(xscale="log", yscale="log", xlabel="eigenvalue of D − A", ylabel="Σ over edges of (fᵢ − fⱼ)²")
    right.set_title(f"Cora: all {eigenvalues.size - 1:,} dimensions", loc="left")
    for axes in (left, right):
        axes.grid()
    label_panels([left, right])
    return figure
