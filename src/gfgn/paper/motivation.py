"""The paper's two motivations for gating each feature dimension, measured on real graphs.

1. Social dimensions: how similar a user of BlogCatalog is to its neighbors depends on the feature dimension. Features
   are reduced to two dimensions by principal component analysis.
2. Spectral embedding: the smoothness of a dimension of the embedding over the graph is its eigenvalue.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.linalg
from matplotlib import colormaps
from matplotlib.axes import Axes
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
from gfgn.report.style import BLUE, FAINT, INK, ORANGE, PAGE_WIDTH, label_panels, save_svg, styled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBORS = 18  # of the user in the paper's figure
MIN_NEIGHBORS = 5  # for a rank correlation
DIMENSIONS = 64  # of the spectral embedding, after the constant one, that are compared node by node
MAX_WIDTH = 7.0  # line width, in points, of a similarity of 1


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


def spectral_embedding(graph: Graph, dimensions: int = DIMENSIONS) -> tuple[Floats, Floats, Floats]:
    """The spectral embedding of a graph's largest connected component, by the eigenvectors of `D − A`.

    Returns the ascending eigenvalues; for every dimension `f`, its smoothness, the sum over edges of `(f_i − f_j)²`;
    and for every node and the first dimensions after the constant one, the mean over its neighbors of
    `n (f_i − f_j)²`, which is 2 for a random pair of nodes.
    """
    component = connected_components(graph)
    nodes = np.flatnonzero(component == np.bincount(component).argmax())
    adjacency = dense_adjacency(graph)[np.ix_(nodes, nodes)]
    degree = adjacency.sum(axis=1)
    values, vectors = scipy.linalg.eigh(np.diag(degree) - adjacency, check_finite=False)
    source, target = np.nonzero(adjacency)
    weight = adjacency[source, target]
    smooth = [weight @ (f[source] - f[target]) ** 2 / 2 for f in vectors.T]  # every edge occurs twice
    first = vectors[:, 1 : 1 + dimensions]
    local = np.zeros_like(first)
    np.add.at(local, source, weight[:, None] * (first[source] - first[target]) ** 2 * values.size)
    return np.clip(values, 0.0, None), np.array(smooth), local / degree[:, None]


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the similarities of a user of BlogCatalog, the smoothness of Cora's embedding, two figures and a page."""
    progress("motivation: principal components of blogcatalog")
    blogs = load("blogcatalog", root)
    source, target = blogs.graph.edge_index.cpu().numpy()
    components, variance = principal_components(blogs.x)
    users = list_users(blogs.graph, similarities(components, source, target))
    # One end of every edge is exchanged for that of a random other one, as if links had nothing to do with features.
    strangers = similarities(components, np.random.default_rng(0).permutation(source), target)
    user = median_user(users)
    progress("motivation: spectral embedding of cora")
    eigenvalues, smooth, local = spectral_embedding(load("cora", root).graph)
    error = float(np.abs(smooth - eigenvalues).max())
    low, median, high = np.quantile([each.correlation for each in users], [0.1, 0.5, 0.9]).tolist()
    different, chance = (
        float(np.mean([(each.similarity.max(axis=1) > 2 * each.similarity.min(axis=1)).mean() for each in group]))
        for group in (users, list_users(blogs.graph, strangers))
    )
    measures = {
        "rank correlation, 10%": low,
        "rank correlation, median": median,
        "rank correlation, 90%": high,
        "neighbors twice as similar in one dimension": different,
        "random nodes twice as similar in one dimension": chance,
        "smoothness minus eigenvalue": 10.0 ** math.ceil(math.log10(error)),  # the digits depend on the machine
    }
    neighbors = zip(itertools.count(1), user.neighbors.tolist(), *user.similarity.T.tolist(), strict=False)
    dimensions = zip(itertools.count(), *(column.round(10).tolist() for column in (eigenvalues, smooth)), strict=False)
    summary = [(f"motivation: {name}", value) for name, value in measures.items()]
    gap = user.similarity[:, 0] - user.similarity[:, 1]
    with styled():
        figures = [draw_neighbors(user.similarity), draw_embedding(eigenvalues, smooth, local)]
    return [
        write_csv(out / "neighbors.csv", ["neighbor", "node", "similarity A", "similarity B"], neighbors, digits=4),
        write_csv(out / "embedding.csv", ["dimension", "eigenvalue", "smoothness"], dimensions, digits=8),
        write_csv(out / "summary.csv", ["measure", "value"], summary, digits=4),
        save_svg(figures[0], out / "neighbors.svg"),
        save_svg(figures[1], out / "embedding.svg"),
        write_page(
            out / "README.md", "motivation", variance=variance, users=len(users), user=user, measures=measures,
            contrasts=[int(gap.argmax()), int(gap.argmin())], nodes=eigenvalues.size,
            rough=np.quantile(smoothness(blogs).double().cpu().numpy(), [0, 0.05, 0.95]), features=blogs.num_features,
            spread=np.median(local, axis=0),
        ),
    ]  # fmt: skip


def draw_neighbors(similarity: Floats) -> Figure:
    """The `[n, 2]` similarities of a user to its neighbors: one panel per dimension, and one with both."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.55), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    for axes, column, name in zip(panels, similarity.T, "AB", strict=False):
        _draw_star(axes, column)
        axes.set_title(f"feature dimension {name}", loc="left")
    axes = panels[2]
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.6, linestyle="--")
    for node, (a, b) in enumerate(similarity, start=1):
        axes.plot(a, b, "o", markersize=8, markerfacecolor="white", markeredgecolor=BLUE, markeredgewidth=0.8)
        axes.annotate(str(node), (a, b), ha="center", va="center", fontsize=5.5)
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    axes.set(xlabel="similarity in dimension A", ylabel="similarity in dimension B")
    axes.grid()
    axes.set_title("both dimensions", loc="left")
    label_panels(panels)
    return figure


def _draw_star(axes: Axes, similarity: Floats) -> None:
    """The user in the center and its neighbors clockwise from the top; wide lines are similar neighbors."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(similarity.size) / similarity.size
    position = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    colors = colormaps["Blues"](0.25 + 0.7 * similarity)
    for node in np.argsort(similarity):  # the widest on top
        x, y = position[node]
        axes.plot([0, x], [0, y], color=colors[node], linewidth=MAX_WIDTH * similarity[node], solid_capstyle="butt")
    for node, (x, y) in enumerate([(0.0, 0.0), *position]):
        color = ORANGE if node == 0 else "white"
        axes.plot(x, y, "o", markersize=10, markerfacecolor=color, markeredgecolor=FAINT, markeredgewidth=0.7)
        axes.annotate(str(node), (x, y), ha="center", va="center", fontsize=6, color=INK)
    axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    axes.axis("off")


def draw_embedding(eigenvalues: Floats, smooth: Floats, local: Floats) -> Figure:
    """The smoothness of every dimension of a spectral embedding against its eigenvalue, and the distribution over nodes
    of their distance to their neighbors in each of the first dimensions."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.axline((1, 1), slope=1, color=FAINT, linewidth=0.8)
    left.plot(eigenvalues[1:], smooth[1:], ".", color=BLUE, markersize=3, rasterized=True)
    left.set(xscale="log", yscale="log", xlabel="eigenvalue of D − A", ylabel="Σ over edges of (fᵢ − fⱼ)²")
    left.set_title(f"Cora: all {eigenvalues.size - 1:,} dimensions", loc="left")
    dimension = np.arange(1, local.shape[1] + 1)
    low, lower, middle, upper, high = np.quantile(local, [0.1, 0.25, 0.5, 0.75, 0.9], axis=0)
    right.fill_between(dimension, low, high, color=BLUE, alpha=0.18, linewidth=0, label="80% of the nodes")
    right.fill_between(dimension, lower, upper, color=BLUE, alpha=0.35, linewidth=0, label="50%")
    right.plot(dimension, middle, color=BLUE, label="median")
    right.set(yscale="log", xlabel="dimension of the embedding", ylabel="n (fᵢ − fⱼ)², mean over neighbors")
    right.set_title("distance of nodes to their neighbors", loc="left")
    right.legend(loc="lower right", ncols=3)
    for axes in (left, right):
        axes.grid()
    label_panels([left, right])
    return figure
