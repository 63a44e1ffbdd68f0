"""The paper's two reasons for treating feature dimensions differently, measured on real graphs.

1. Social dimensions: how similar a user of BlogCatalog is to its neighbours depends on the feature dimension. Features
   are reduced to two dimensions by principal component analysis.
2. Spectral embedding: the smoothness of a dimension of the embedding over the graph is its eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.graph import Graph
from gfgn.paper.outputs import markdown_table, write_csv, write_text
from gfgn.paper.spectral import dense_adjacency

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBOURS = 18
"""Number of neighbours of the user in the paper's figure."""
FEWEST = 5
"""Neighbours that a user must have for a rank correlation over them."""
EMBEDDED = 64
"""Dimensions of the spectral embedding, the first after the constant one, that are looked at node by node."""


# --- social dimensions ------------------------------------------------------------------------------------------------


def principal_components(x: Tensor, count: int = 2) -> tuple[Floats, Floats]:
    """`[N, count]`, the features along their principal components, largest variance first, and each component's share
    of the variance. The entry of largest size of each is positive.

    Args:
        x: `[N, F]`, dense or sparse CSR; a matrix of `N²` values is made.
        count: Number of components.
    """
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
    """`[E, count]`: how similar the two ends of every edge are in every dimension, `exp(−|a − b| / σ)` with `σ` the
    standard deviation of the dimension over all nodes: 1 for equal values, 0.37 for values that lie `σ` apart.

    Args:
        values: `[N, count]`.
        graph: The graph; its edges in the order of `graph.edge_index`.
    """
    source, target = graph.edge_index.cpu().numpy()
    return np.asarray(np.exp(-np.abs(values[source] - values[target]) / values.std(axis=0)))


@dataclass(frozen=True)
class User:
    """A user and its neighbours.

    Attributes:
        node: The user.
        neighbours: Its neighbours.
        similarity: `[len(neighbours), 2]`, how similar they are to it in the two dimensions.
        correlation: Rank correlation of the two columns.
    """

    node: int
    neighbours: Integers
    similarity: Floats
    correlation: float


def users(graph: Graph, similarity: Floats, fewest: int = FEWEST) -> list[User]:
    """Every node of at least `fewest` neighbours whose similarities differ in both dimensions.

    Args:
        graph: The graph.
        similarity: `[E, 2]`, see `similarities`.
        fewest: Number of neighbours.
    """
    from scipy.stats import rankdata

    source, target = graph.edge_index.cpu().numpy()
    order = np.argsort(target, kind="stable")
    starts = np.searchsorted(target[order], np.arange(graph.num_nodes + 1))
    found = []
    for node in range(graph.num_nodes):
        edges = order[starts[node] : starts[node + 1]]
        if edges.size < fewest:
            continue
        first, second = (rankdata(column) for column in similarity[edges].T)
        if first.std() > 0 and second.std() > 0:
            correlation = float(np.corrcoef(first, second)[0, 1])
            found.append(User(node, source[edges], similarity[edges], correlation))
    return found


def typical(candidates: list[User], neighbours: int = NEIGHBOURS) -> User:
    """Of the users with so many neighbours, the one whose rank correlation is the median: an example chosen by its
    being usual, not by how well it shows anything.

    Args:
        candidates: The users.
        neighbours: Number of neighbours.
    """
    fitting = sorted((user for user in candidates if user.neighbours.size == neighbours), key=lambda u: u.correlation)
    if not fitting:
        raise ValueError(f"neighbours must be a number that some user has, got {neighbours}, which none has")
    return fitting[(len(fitting) - 1) // 2]


# --- spectral embedding -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Embedding:
    """The spectral embedding of a graph's largest connected component.

    Attributes:
        eigenvalues: `[n]`, of `D − A`, ascending.
        smoothness: `[n]`, of every dimension `f`: the sum over edges of `(f_i − f_j)²`, worked out edge by edge.
        local: `[n, EMBEDDED]`, of every node and of the first dimensions after the constant one: the mean over its
            neighbours of `n (f_i − f_j)²`, which is 2 where neighbours are as different as any two nodes.
    """

    eigenvalues: Floats
    smoothness: Floats
    local: Floats


def spectral_embedding(graph: Graph, dimensions: int = EMBEDDED) -> Embedding:
    """The eigenvectors of `D − A` and their smoothness.

    Args:
        graph: The graph, undirected.
        dimensions: How many dimensions are looked at node by node; fewer where there are no more.
    """
    adjacency = _largest_component(dense_adjacency(graph))
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


def _largest_component(adjacency: Floats) -> Floats:
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(scipy.sparse.csr_array(adjacency), directed=False)
    inside = np.flatnonzero(label == np.bincount(label).argmax())
    return adjacency[np.ix_(inside, inside)]


# --- files ------------------------------------------------------------------------------------------------------------


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the similarities of a user of BlogCatalog to its neighbours, the smoothness of Cora's spectral embedding,
    two figures and a page; see `gfgn.paper.analyses` for the arguments."""
    from gfgn.data import load
    from gfgn.paper.figures.motivation import embedding_figure, neighbours_figure
    from gfgn.report.style import save

    progress("motivation: principal components of blogcatalog")
    blogs = load("blogcatalog", root)
    components, shares = principal_components(blogs.x)
    everyone = users(blogs.graph, similarities(components, blogs.graph))
    user = typical(everyone)
    progress("motivation: spectral embedding of cora")
    embedding = spectral_embedding(load("cora", root).graph)
    rows = [
        (place, int(node), float(a), float(b))
        for place, (node, (a, b)) in enumerate(zip(user.neighbours, user.similarity, strict=True), start=1)
    ]
    table = zip(range(embedding.eigenvalues.size), *_columns(embedding), strict=True)
    return [
        write_csv(out / "neighbours.csv", ["neighbour", "node", "similarity A", "similarity B"], rows, digits=4),
        write_csv(out / "embedding.csv", ["dimension", "eigenvalue", "smoothness"], table, digits=8),
        write_csv(out / "summary.csv", ["measure", "value"], _measures(everyone, embedding), digits=4),
        *save(neighbours_figure(user.similarity), out, "neighbours"),
        *save(embedding_figure(embedding.eigenvalues, embedding.smoothness, embedding.local, "Cora"), out, "embedding"),
        write_text(out / "README.md", _page(blogs, shares, everyone, user, embedding)),
    ]


def _measures(everyone: list[User], embedding: Embedding) -> list[tuple[str, float]]:
    """What `summary.csv` has: how similarities in the two dimensions go together, over all users, and how far the
    smoothness of any dimension of the embedding is from its eigenvalue."""
    correlations = np.array([user.correlation for user in everyone])
    quantiles = {"10%": 0.1, "median": 0.5, "90%": 0.9}
    found = [(f"motivation: rank correlation, {k}", float(np.quantile(correlations, q))) for k, q in quantiles.items()]
    apart = [float((user.similarity.max(axis=1) > 2 * user.similarity.min(axis=1)).mean()) for user in everyone]
    found.append(("motivation: neighbours twice as similar in one dimension", float(np.mean(apart))))
    error = np.abs(embedding.smoothness - embedding.eigenvalues).max()
    return [*found, ("motivation: smoothness less eigenvalue", float(error))]


def _columns(embedding: Embedding) -> tuple[list[float], list[float]]:
    return embedding.eigenvalues.round(10).tolist(), embedding.smoothness.round(10).tolist()


def _page(blogs: Dataset, shares: Floats, everyone: list[User], user: User, embedding: Embedding) -> str:
    from gfgn.data.diagnosis import smoothness

    rough = smoothness(blogs).double().cpu().numpy()
    rough_least, rough_low, rough_high = np.quantile(rough, [0, 0.05, 0.95])
    measures = {name.removeprefix("motivation: "): value for name, value in _measures(everyone, embedding)}
    low, middle, high = (measures[f"rank correlation, {name}"] for name in ("10%", "median", "90%"))
    apart = 100 * measures["neighbours twice as similar in one dimension"]
    only_a, only_b = contrasts(user.similarity)
    spread = np.median(embedding.local, axis=0)
    examples = [("most in A", *only_a), ("most in B", *only_b)]
    table = markdown_table(
        ["where the dimensions differ", "neighbour", "similarity in A", "similarity in B"],
        [(label, place, f"{a:.2f}", f"{b:.2f}") for label, place, a, b in examples],
    )
    return f"""# Why feature dimensions are treated differently

Written by `gfgn reproduce motivation`.

## A user and its neighbours in two dimensions

BlogCatalog's features, reduced to two dimensions by principal component analysis ({100 * shares[0]:.1f}% and
{100 * shares[1]:.1f}% of the variance). The paper shows one user with {NEIGHBOURS} neighbours and does not say which
one, nor how similarity is measured. Here it is `exp(−|a − b| / σ)` with `σ` the standard deviation of the dimension,
and of the users with {NEIGHBOURS} neighbours the one is shown whose similarities in A and B have the median rank
correlation ({user.correlation:.2f}): an ordinary user, not the best example (node {user.node}).

![Similarity of a user and its neighbours in two dimensions](neighbours.svg)

{table}

Over all {len(everyone):,} users with at least {FEWEST} neighbours, the rank correlation between the similarities to
neighbours in A and in B has a median of {middle:.2f}; it is between {low:.2f} and {high:.2f} for four users in five.
A correlation of 0 means that who is close in one dimension says nothing about who is close in the other. {apart:.0f}%
of a user's neighbours are, on average, more than twice as similar to it in one dimension as in the other.

The paper notes the same of the original features. Over the whole graph, the roughness `fᵀLf / fᵀf` of these
{rough.size:,} features, 0 for a smooth one and 1 for noise, is {rough_low:.2f} to {rough_high:.2f} for nine in ten and
at the least {rough_least:.2f}: what differs between dimensions differs user by user.

## Smoothness of a spectral embedding

The eigenvectors of `D − A` of the largest connected component of Cora ({embedding.eigenvalues.size:,} nodes).
The paper proves that the sum over edges of `(f_i − f_j)²` is the eigenvalue; summed edge by edge, it is so for every
dimension, up to {measures["smoothness less eigenvalue"]:.0e}.

![Smoothness of the dimensions of a spectral embedding](embedding.svg)

At the median node, neighbours are {spread[-1] / spread[0]:.0f} times as different in dimension {spread.size} of the
embedding as in the first one.

[neighbours.csv](neighbours.csv), [summary.csv](summary.csv) and [embedding.csv](embedding.csv) have the numbers.
"""


def contrasts(similarity: Floats) -> tuple[tuple[int, float, float], tuple[int, float, float]]:
    """The neighbours, counted from 1, that are much more similar in the first dimension than in the second and the
    other way round, with their similarities.

    Args:
        similarity: `[n, 2]`.
    """
    gap = similarity[:, 0] - similarity[:, 1]
    places = int(gap.argmax()), int(gap.argmin())
    first, second = ((place + 1, float(similarity[place, 0]), float(similarity[place, 1])) for place in places)
    return first, second
