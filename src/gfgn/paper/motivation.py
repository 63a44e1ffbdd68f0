"""The paper's two motivations for gating each feature dimension, measured on real graphs.

1. Social dimensions: how similar a user of BlogCatalog is to its neighbors depends on the feature dimension. Features
   are reduced to two dimensions by principal component analysis.
2. Spectral embedding: the smoothness of a dimension of the embedding over the graph is its eigenvalue.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.paper.outputs import markdown_table, write_csv, write_text
from gfgn.paper.spectral import dense_adjacency

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBORS = 18  # of the user in the paper's figure
MIN_NEIGHBORS = 5  # for a rank correlation
DIMENSIONS = 64  # of the spectral embedding, after the constant one, that are compared node by node


# --- social dimensions ------------------------------------------------------------------------------------------------


def principal_components(x: Tensor, count: int = 2) -> tuple[Floats, Floats]:
    """Returns the `[N, count]` features along their principal components, in order of variance, and the fraction of the
    variance of each. Signs are such that the entry of largest magnitude is positive; `x` is dense or sparse CSR."""
    if not 1 <= count < x.size(0):
        raise ValueError(f"count must be 1 to {x.size(0) - 1}, one less than there are rows of x, got {count}")
    gram = _gram(x)
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)
    start = np.cos(np.arange(gram.shape[0]))  # any fixed start that is not orthogonal to the components
    values, vectors = scipy.sparse.linalg.eigsh(gram, k=count, v0=start)
    order = np.argsort(-values)
    values, vectors = values[order], vectors[:, order]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
    return vectors * np.sign(largest) * np.sqrt(values), values / np.trace(gram)


def _gram(x: Tensor) -> Floats:
    if x.layout == torch.strided:
        dense = x.detach().double().cpu().numpy()
        return np.asarray(dense @ dense.T)
    parts = (x.values().double(), x.col_indices(), x.crow_indices())
    rows = scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(x.size(0), x.size(1)))
    return np.asarray((rows @ rows.T).toarray())


def similarities(values: Floats, graph: Graph) -> Floats:
    """Returns the similarities `exp(−|a − b| / σ)` of the two ends of every edge in every column of `values`; `σ` is
    the standard deviation over all nodes."""
    source, target = graph.edge_index.cpu().numpy()
    return _similarities(values, source, target)


def random_similarities(values: Floats, graph: Graph, seed: int = 0) -> Floats:
    """Returns the similarities of every edge with one of its ends exchanged for that of a random other edge: what
    `similarities` would be if links had nothing to do with `values`."""
    source, target = graph.edge_index.cpu().numpy()
    return _similarities(values, np.random.default_rng(seed).permutation(source), target)


def _similarities(values: Floats, source: Integers, target: Integers) -> Floats:
    return np.asarray(np.exp(-np.abs(values[source] - values[target]) / values.std(axis=0)))


class User(NamedTuple):
    """A user and its neighbors."""

    node: int
    neighbors: Integers
    similarity: Floats  # `[len(neighbors), 2]`, to the user in the two dimensions
    correlation: float  # rank correlation of the two columns


def list_users(graph: Graph, similarity: Floats, min_neighbors: int = MIN_NEIGHBORS) -> list[User]:
    """Returns all nodes with enough neighbors whose similarities, `[E, 2]`, are not constant in either dimension."""
    from scipy.stats import rankdata

    source, target = graph.edge_index.cpu().numpy()
    order = np.argsort(target, kind="stable")
    starts = np.searchsorted(target[order], np.arange(graph.num_nodes + 1))
    users = []
    for node in range(graph.num_nodes):
        edges = order[starts[node] : starts[node + 1]]
        if edges.size < min_neighbors:
            continue
        first, second = (rankdata(column) for column in similarity[edges].T)
        if first.std() > 0 and second.std() > 0:
            correlation = float(np.corrcoef(first, second)[0, 1])
            users.append(User(node, source[edges], similarity[edges], correlation))
    return users


def median_user(users: list[User], neighbors: int = NEIGHBORS) -> User:
    """Returns the user with the median rank correlation, not the best one, among those with `neighbors` neighbors."""
    candidates = sorted((user for user in users if user.neighbors.size == neighbors), key=lambda u: u.correlation)
    if not candidates:
        raise ValueError(f"neighbors must be a number that some user has, got {neighbors}, which none has")
    return candidates[(len(candidates) - 1) // 2]


# --- spectral embedding -----------------------------------------------------------------------------------------------


class Embedding(NamedTuple):
    """The spectral embedding of a graph's largest connected component."""

    eigenvalues: Floats  # `[n]`, of `D − A`, ascending
    smoothness: Floats  # `[n]`, the sum over edges of `(f_i − f_j)²` of every dimension `f`
    # `[n, dimensions]`, for every node and the first dimensions after the constant one: the mean over its neighbors of
    # `n (f_i − f_j)²`, which is 2 for a random pair of nodes
    local: Floats


def spectral_embedding(graph: Graph, dimensions: int = DIMENSIONS) -> Embedding:
    """Computes the eigenvectors of `D − A` of an undirected graph and their smoothness."""
    from gfgn.data.diagnosis import connected_components

    component = connected_components(graph)
    nodes = np.flatnonzero(component == np.bincount(component).argmax())
    adjacency = dense_adjacency(graph)[np.ix_(nodes, nodes)]
    degree = adjacency.sum(axis=1)
    values, vectors = scipy.linalg.eigh(np.diag(degree) - adjacency, check_finite=False)
    source, target = np.nonzero(adjacency)
    weight = adjacency[source, target]
    smooth = np.zeros(values.size)
    step = max(1, 2**24 // max(1, source.size))
    for start in range(0, values.size, step):
        block = vectors[:, start : start + step]
        smooth[start : start + step] = weight @ (block[source] - block[target]) ** 2 / 2  # every edge occurs twice
    first = vectors[:, 1 : 1 + dimensions]
    squares = weight[:, None] * (first[source] - first[target]) ** 2 * values.size
    local = np.zeros_like(first)
    np.add.at(local, source, squares)
    return Embedding(np.clip(values, 0.0, None), smooth, local / degree[:, None])


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the similarities of a user of BlogCatalog, the smoothness of Cora's embedding, two figures and a page."""
    from gfgn.data import load
    from gfgn.paper.figures.motivation import embedding_figure, neighbors_figure
    from gfgn.report.style import save_svg

    progress("motivation: principal components of blogcatalog")
    blogs = load("blogcatalog", root)
    components, variance = principal_components(blogs.x)
    users = list_users(blogs.graph, similarities(components, blogs.graph))
    user = median_user(users)
    progress("motivation: spectral embedding of cora")
    embedding = spectral_embedding(load("cora", root).graph)
    strangers = list_users(blogs.graph, random_similarities(components, blogs.graph))
    measures = _measures(users, strangers, embedding)
    neighbors = zip(itertools.count(1), user.neighbors.tolist(), *user.similarity.T.tolist(), strict=False)
    dimensions = zip(itertools.count(), *(column.round(10).tolist() for column in embedding[:2]), strict=False)
    summary = [(f"motivation: {name}", value) for name, value in measures.items()]
    return [
        write_csv(out / "neighbors.csv", ["neighbor", "node", "similarity A", "similarity B"], neighbors, digits=4),
        write_csv(out / "embedding.csv", ["dimension", "eigenvalue", "smoothness"], dimensions, digits=8),
        write_csv(out / "summary.csv", ["measure", "value"], summary, digits=4),
        save_svg(neighbors_figure(user.similarity), out / "neighbors.svg"),
        save_svg(embedding_figure(*embedding, "Cora"), out / "embedding.svg"),
        write_text(out / "README.md", _page(blogs, variance, len(users), user, embedding, measures)),
    ]


def _measures(users: list[User], strangers: list[User], embedding: Embedding) -> dict[str, float]:
    """Returns the content of `summary.csv`; `strangers` are the users with random nodes as neighbors."""
    low, median, high = np.quantile([user.correlation for user in users], [0.1, 0.5, 0.9]).tolist()
    different, chance = (
        float(np.mean([(user.similarity.max(axis=1) > 2 * user.similarity.min(axis=1)).mean() for user in group]))
        for group in (users, strangers)
    )
    return {
        "rank correlation, 10%": low,
        "rank correlation, median": median,
        "rank correlation, 90%": high,
        "neighbors twice as similar in one dimension": different,
        "random nodes twice as similar in one dimension": chance,
        "smoothness minus eigenvalue": float(np.abs(embedding.smoothness - embedding.eigenvalues).max()),
    }


def _page(
    blogs: NodeDataset, variance: Floats, users: int, user: User, embedding: Embedding, measures: dict[str, float]
) -> str:
    from gfgn.data.diagnosis import smoothness

    rough = smoothness(blogs).double().cpu().numpy()
    rough_least, rough_low, rough_high = np.quantile(rough, [0, 0.05, 0.95])
    low, middle, high, different, chance, gap = measures.values()
    spread = np.median(embedding.local, axis=0)
    labels = zip(("A > B", "B > A"), contrasts(user.similarity), strict=True)
    rows = [(label, number, f"{a:.2f}", f"{b:.2f}") for label, (number, a, b) in labels]
    table = markdown_table(["largest difference", "neighbor", "similarity in A", "similarity in B"], rows)
    return f"""# Why each feature dimension has its own gate

Written by `gfgn reproduce motivation`.

## A user and its neighbors in two dimensions

BlogCatalog's features are reduced to two dimensions by principal component analysis ({100 * variance[0]:.1f}% and
{100 * variance[1]:.1f}% of the variance). The paper shows one user with {NEIGHBORS} neighbors;
it states neither which one nor how similarity is measured. Here similarity is `exp(−|a − b| / σ)` with `σ` the standard
deviation of the dimension. Of the users with {NEIGHBORS} neighbors, the figure shows the one whose similarities in A
and B have the median rank correlation ({user.correlation:.2f}): a typical user, not the best one (node {user.node}).

![Similarity of a user and its neighbors in two dimensions](neighbors.svg)

{table}

Over all {users:,} users with at least {MIN_NEIGHBORS} neighbors, the rank correlation between the similarities in A and
in B has a median of {middle:.2f}; it is between {low:.2f} and {high:.2f} for 80% of the users.
At a correlation of 0, the similarity in one dimension says nothing about the similarity in the other. On average,
{100 * different:.0f}% of a user's neighbors are more than twice as similar to it in one dimension as in the other.
So are {100 * chance:.0f}% of random nodes that take the neighbors' places: principal components are uncorrelated,
so that any two users differ between them, linked or not. The figure is no evidence about links.

The paper makes the same observation about the original features. Over the whole graph, the roughness `fᵀLf / fᵀf` of
these {rough.size:,} features, 0 for a smooth one and 1 for noise, is between {rough_low:.2f} and {rough_high:.2f}
for 90% of them and at least {rough_least:.2f}: the dimensions differ for single users, not for the graph as a whole.

## Smoothness of a spectral embedding

The embedding consists of the eigenvectors of `D − A` of the largest connected component of Cora
({embedding.eigenvalues.size:,} nodes). The paper proves that the sum over edges of `(f_i − f_j)²` is the eigenvalue.
Summed edge by edge, the two agree in every dimension, up to {gap:.0e}.

![Smoothness of the dimensions of a spectral embedding](embedding.svg)

At the median node, the squared distance to the neighbors in dimension {spread.size} of the embedding is
{spread[-1] / spread[0]:.0f} times that in the first dimension.

[neighbors.csv](neighbors.csv), [summary.csv](summary.csv) and [embedding.csv](embedding.csv) have the numbers.
"""


def contrasts(similarity: Floats) -> list[tuple[int, float, float]]:
    """Returns the neighbor that is most similar in the first dimension compared with the second, and the opposite: its
    number, counted from 1, and its two similarities."""
    gap = similarity[:, 0] - similarity[:, 1]
    return [(index + 1, *similarity[index].tolist()) for index in (int(gap.argmax()), int(gap.argmin()))]
