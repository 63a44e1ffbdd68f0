"""Diagnosis of a dataset: homophily, degrees, connected components, and the smoothness of each feature dimension."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse
import torch
from scipy.sparse import csgraph
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.ops import propagate

BLOCK = 2**24  # number of values made dense at a time


def edge_homophily(graph: Graph, y: Tensor) -> float:
    """Fraction of the edges that join two nodes of the same class; NaN without edges.

    `y` is `[N]`, the class of each node, −1 if unknown; or `[N, L]`, bool, its labels. For these, an edge counts by the
    overlap of the label sets of its ends, `|A ∩ B| / |A ∪ B|`. Edges with an unknown end, or with two ends without
    labels, are left out.
    """
    return _agreement(graph, y)[1].mean().item()


def node_homophily(graph: Graph, y: Tensor) -> float:
    """Fraction of a node's neighbors that are of its class, averaged over nodes with neighbors; NaN without edges."""
    target, same = _agreement(graph, y)
    degree = torch.bincount(target, minlength=graph.num_nodes)
    total = torch.bincount(target, same, minlength=graph.num_nodes)
    return (total[degree > 0] / degree[degree > 0]).mean().item()


def adjusted_homophily(graph: Graph, y: Tensor) -> float:
    """Edge homophily corrected for class sizes: `(h − Σ_k p_k²) / (1 − Σ_k p_k²)` (Platonov et al., 2023).

    `p_k` is the fraction of edge ends at nodes of class `k`. The maximum is 1, and random edges have 0. NaN without
    edges, with a single class, and for multi-label data.
    """
    if y.dim() == 2:
        return math.nan
    source, target = _labelled_edges(graph, y)
    ends = torch.bincount(y[torch.cat([source, target])]).double()
    chance = (ends / ends.sum()).square().sum().item()
    return (edge_homophily(graph, y) - chance) / (1 - chance) if chance < 1 else math.nan


def _agreement(graph: Graph, y: Tensor) -> tuple[Tensor, Tensor]:
    """The targets of the edges that count, and the overlap of the labels of their two ends, from 0 to 1."""
    if y.dim() != 2:
        source, target = _labelled_edges(graph, y)
        return target, (y[source] == y[target]).double()
    if y.size(0) != graph.num_nodes or y.dtype != torch.bool:
        raise ValueError(f"y must be [{graph.num_nodes}, L] of bool, got {list(y.shape)} of {y.dtype}")
    edges = graph.edge_index
    both, either = edges.new_zeros(2, edges.size(1))
    width = max(1, BLOCK // max(1, y.size(1)))
    for low in range(0, edges.size(1), width):
        one, two = (y[ends] for ends in edges[:, low : low + width])
        both[low : low + width], either[low : low + width] = (one & two).sum(1), (one | two).sum(1)
    return edges[1, either > 0], both[either > 0].double() / either[either > 0]


def _labelled_edges(graph: Graph, y: Tensor) -> tuple[Tensor, Tensor]:
    if y.shape != (graph.num_nodes,):
        raise ValueError(f"y must be [{graph.num_nodes}], one label per node, got {list(y.shape)}")
    source, target = graph.edge_index
    known = (y[source] >= 0) & (y[target] >= 0)
    return source[known], target[known]


@dataclass(frozen=True)
class DegreeProfile:
    """The distribution of the number of neighbors: of nodes with an edge to a node, its in-degree."""

    mean: float
    quantiles: tuple[float, float, float, float, float]  # minimum, lower quartile, median, upper quartile, maximum
    isolated: int  # number of nodes without neighbors
    sources: int  # number of these that have outgoing edges
    directed: bool  # whether any edge lacks its opposite
    bins: list[tuple[int, int, int]]  # low, high, number of nodes of such degrees, for 0, 1, 2–3, 4–7, …


def degree_profile(graph: Graph) -> DegreeProfile:
    """The distribution of the number of neighbors; edge weights are ignored."""
    if graph.num_nodes == 0:
        raise ValueError("graph must have nodes, got none")
    degree = graph.row_lengths.cpu()
    low, lower, median, upper, high = np.quantile(degree.double().numpy(), (0, 0.25, 0.5, 0.75, 1)).tolist()
    bits = torch.frexp(degree.double()).exponent.clamp(min=0)  # 0 for 0, 1 for 1, 2 for 2 and 3, …
    counts = torch.bincount(bits).tolist()
    bins = [(2 ** (k - 1) if k else 0, 2**k - 1, int(count)) for k, count in enumerate(counts)]
    isolated, has_edges = degree == 0, graph.by_source.ptr.diff().cpu() > 0
    return DegreeProfile(
        mean=degree.double().mean().item(),
        quantiles=(low, lower, median, upper, high),
        isolated=int(isolated.sum()),
        sources=int((isolated & has_edges).sum()),
        directed=not graph.by_source.same_pattern(graph.by_target),
        bins=bins,
    )


def smoothness(dataset: NodeDataset) -> Tensor:
    """`[F]`: the Rayleigh quotient `fᵀLf / fᵀf` of each centered feature dimension, with `L = I − Â`.

    0 is smooth, 1 is the value of noise, 2 the maximum. Dimensions are centered because a constant is smooth, carries
    no information and would dominate the rest. A constant dimension has 0.
    """
    quotients = []
    for x in _column_blocks(dataset.x):
        f = x - x.mean(0)
        energy = (f * f).sum(0)
        rough = (f * (f - propagate(f, dataset.graph))).sum(0)
        quotients.append(torch.where(energy > 0, rough / energy.clamp(min=torch.finfo(f.dtype).tiny), 0))
    return torch.cat(quotients)


def _column_blocks(x: Tensor) -> Iterator[Tensor]:
    """Dense blocks of columns, so that a wide sparse matrix is never dense as a whole."""
    width = max(1, BLOCK // max(1, x.size(0)))
    if x.layout == torch.strided:
        yield from x.split(width, dim=1)
        return
    parts = (x.values(), x.col_indices(), x.crow_indices())
    columns = scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(x.size(0), x.size(1))).tocsc()
    for start in range(0, x.size(1), width):
        yield torch.from_numpy(columns[:, start : start + width].toarray(order="C")).to(x.device)


class Description:
    """Sizes, homophily, degrees and smoothness of a dataset.

    Attributes:
        num_edges: Pairs of nodes that are joined in at least one direction.
        nonzero: Fraction of the feature values.
        classes: Number of nodes of each class, or with each label.
        unlabelled: Number of nodes without a label.
        constant: Number of constant dimensions, whose smoothness is 0 by definition.
    """

    def __init__(self, dataset: NodeDataset) -> None:
        graph, x, y = dataset.graph, dataset.x, dataset.y
        source, target = graph.edge_index
        pairs = torch.minimum(source, target) * graph.num_nodes + torch.maximum(source, target)
        values = x.values() if x.layout == torch.sparse_csr else x
        counts = y.sum(0) if dataset.multilabel else torch.bincount(y[y >= 0], minlength=dataset.num_classes)
        self.name, self.description, self.metric = dataset.name, dataset.description, dataset.metric
        self.num_nodes, self.num_features, self.num_graphs = dataset.num_nodes, dataset.num_features, graph.num_graphs
        self.num_edges = pairs.unique().numel()
        self.nonzero = int(values.count_nonzero()) / max(1, x.size(0) * x.size(1))
        self.classes: list[int] = counts.tolist()
        self.unlabelled = 0 if dataset.multilabel else int((y < 0).sum())
        self.splits = len(dataset.splits)
        self.edge_homophily, self.node_homophily = edge_homophily(graph, y), node_homophily(graph, y)
        self.adjusted_homophily = adjusted_homophily(graph, y)
        self.degrees = degree_profile(graph)
        self.smoothness = smoothness(dataset)
        self.constant = int((self.smoothness == 0).sum())

    def smoothness_histogram(self, bins: int) -> tuple[Tensor, Tensor]:
        """Number of dimensions per bin, and the `bins + 1` bin edges from 0 to the maximum, at least 1.2."""
        values = self.smoothness.detach().cpu().double().clamp(min=0)  # rounding can go below 0
        top = max(1.2, values.max().item() if values.numel() else 0.0)
        counts, edges = torch.histogram(values, bins=bins, range=(0.0, top))
        return counts.long(), edges


def describe(dataset: NodeDataset) -> Description:
    """Sizes, homophily, degrees and smoothness of a dataset."""
    return Description(dataset)


def undirected_adjacency(graph: Graph) -> scipy.sparse.csr_array:
    """The unweighted adjacency with both directions of every edge, as a SciPy CSR array."""
    source, target = graph.edge_index.cpu().numpy()
    both = np.concatenate([source, target]), np.concatenate([target, source])
    matrix = scipy.sparse.csr_array((np.ones(both[0].size), both), shape=(graph.num_nodes, graph.num_nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def connected_components(graph: Graph) -> npt.NDArray[np.int64]:
    """`[N]`: the index of each node's connected component, edges taken as undirected."""
    _, component = csgraph.connected_components(undirected_adjacency(graph), directed=False)
    return np.asarray(component, dtype=np.int64)
