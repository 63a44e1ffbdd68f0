"""`geom-gcn`: neighborhoods in the graph and in a plane, sorted by direction."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn

from gfgn import ops
from gfgn.data.diagnosis import connected_components
from gfgn.graph import Graph, per_graph
from gfgn.nn.baselines.common import ConvNetwork, sum_of
from gfgn.nn.baselines.isomap import Points, isomap
from gfgn.nn.linear import Rate, ResettableModule, StackedLinear
from gfgn.nn.mlp import layer_sizes
from gfgn.nn.registry import DIRECTIONS, NEIGHBORS

BINS = 2 * DIRECTIONS  # in the graph and in the plane
VIRTUAL = BINS + 1  # virtual nodes: the bins and the node itself
GRID = 1e-6  # of the embedding's extent: points are rounded, so that neighbors do not depend on rounding errors
MAX_PAIRS = 100_000_000
MERGES = ("cat", "sum", "mean")
Integers: TypeAlias = npt.NDArray[np.int64]


class Geometry(NamedTuple):
    """The structural neighborhoods of a graph."""

    bins: Graph
    """`BINS · N` nodes: node `BINS i + b` takes from `BINS j + b` for every neighbor `j` of `i` in bin `b`, with
    `Â = VIRTUAL / √(deg(i) deg(j))`."""
    own: Tensor
    """`[N, 1]`: `VIRTUAL / deg(i)`, the weight of the node itself."""


class GeomGCNLayer(ResettableModule):
    """Aggregation at two levels: within each bin of the neighborhood, and over the bins.

    The neighbors of a node are those in the graph, `N_g`, and those within a distance `ρ` in the plane, `N_s`. Each of
    the two has four bins by the direction `τ(z_i, z_j)` from the node to the neighbor: upper or lower, left or right.
    Every bin is a virtual node, and so is the node itself:

        e_i^b = Σ_{j in bin b of i} h_j / √(deg(i) deg(j)),    h'_i = Merge_b(W_b e_i^b) + b

    `Merge` is `"cat"` (concatenation), `"mean"` or `"sum"`; the sum of `W_b e^b` is the product of one matrix with all
    `e^b` concatenated. `deg` counts the neighbors of both kinds and the node itself.

    A bin holds about a ninth of a neighborhood, so `W_b` has to be nine times as large as the matrix of a convolution
    over the whole neighborhood. With `rescale` the learned parameter is `W_b / 9`: the same layer, but its weights are
    initialized and penalized at the scale of other networks. Without it, the layer does not train at all with an L2
    penalty of 5e-4.
    """

    def __init__(self, in_channels: int, out_channels: int, merge: str, rescale: bool = True) -> None:
        super().__init__()
        if merge not in MERGES:
            raise ValueError(f"merge must be one of {', '.join(map(repr, MERGES))}, got {merge!r}")
        self.merge = merge
        self.rescale = rescale
        self.lin = StackedLinear(in_channels, {str(virtual): out_channels for virtual in range(VIRTUAL)})
        self.bias = nn.Parameter(torch.zeros(out_channels * (VIRTUAL if merge == "cat" else 1)))

    def forward(self, x: Tensor, geometry: Geometry, dropout: Rate = 0.0) -> Tensor:
        *parts, own = self.lin(x, dropout)
        width = own.size(1)
        by_bin = torch.stack(parts, dim=1).reshape(-1, width)  # one row per node and bin
        gathered = ops.propagate(by_bin, geometry.bins).reshape(own.size(0), BINS * width)
        virtual = (*gathered.chunk(BINS, dim=1), geometry.own.to(own.dtype) * own)
        out = torch.cat(virtual, dim=1) if self.merge == "cat" else sum_of(virtual)
        out = out / VIRTUAL if self.merge == "mean" else out
        return (out if self.rescale else out / VIRTUAL) + ops.expand_rows(self.bias, out.size(0))


class GeomGCN(ConvNetwork):
    """*Geom-GCN: Geometric Graph Convolutional Networks* (Pei et al., 2020): layers as in `GeomGCNLayer`, the last with
    the mean over virtual nodes.

    The plane is an Isomap embedding, computed once per `Graph`. `ρ` is the smallest distance at which nodes have on
    average as many neighbors in the plane as in the graph; nodes of different connected components are not neighbors.

    Args:
        hidden: Hidden units of a virtual node.
        merge: How hidden layers join virtual nodes: `"cat"`, `"sum"` or `"mean"`.
        neighbors: `"both"` for neighbors in the graph and in the plane; `"once"` for both, but without those of the
            graph that are also near in the plane, as in the authors' program; `"graph"` or `"plane"` for one kind.
        directions: 4, or 1 for bins that do not distinguish directions.
        rescale: Whether weights are learned at the scale of other networks, see `GeomGCNLayer`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: Rate = 0.5,
        *,
        hidden: int = 16,
        layers: int = 2,
        merge: str = "cat",
        neighbors: str = "both",
        directions: int = DIRECTIONS,
        rescale: bool = True,
        input_dropout: Rate | None = None,
    ) -> None:
        if neighbors not in NEIGHBORS:
            raise ValueError(f"neighbors must be one of {', '.join(map(repr, NEIGHBORS))}, got {neighbors!r}")
        if directions not in (1, DIRECTIONS):
            raise ValueError(f"directions must be 1 or {DIRECTIONS}, got {directions}")
        width = hidden * (VIRTUAL if merge == "cat" else 1)
        *sizes, last = layer_sizes(in_channels, width, layers, out_channels)
        convs = [GeomGCNLayer(size, hidden, merge, rescale) for size, _ in sizes]
        super().__init__([*convs, GeomGCNLayer(*last, "mean", rescale)], dropout, input_dropout)
        self.neighbors = neighbors
        self.directions = directions

    def prepare(self, graph: Graph) -> Geometry:
        return geometry(graph, self.neighbors, self.directions)


@per_graph
def geometry(graph: Graph, neighbors: str = "both", directions: int = DIRECTIONS) -> Geometry:
    """The structural neighborhoods of a graph; arguments as for `GeomGCN`."""
    if graph.batch is not None:
        raise ValueError(
            f"graph must be a single one, got {graph.num_graphs} graphs: an embedding belongs to one graph"
        )
    return sort_neighbors(graph, embedding(graph), neighbors, directions)


@per_graph
def embedding(graph: Graph) -> Points:
    """`isomap` of a graph, computed once for all kinds of neighborhoods."""
    return isomap(graph)


def sort_neighbors(graph: Graph, points: Points, neighbors: str = "both", directions: int = DIRECTIONS) -> Geometry:
    """Sorts the neighbors in the graph and in the plane, where `points` are `[N, 2]`, into bins."""
    positions = on_grid(points)
    in_graph = graph.edge_index.cpu().numpy()
    in_plane = pairs_in_plane(positions, connected_components(graph), graph.num_edges)
    if neighbors == "once":
        in_both = np.isin(*(source * graph.num_nodes + target for source, target in (in_graph, in_plane)))
        in_graph = in_graph[:, ~in_both]
    elif neighbors == "graph":
        in_plane = in_plane[:, :0]
    elif neighbors == "plane":
        in_graph = in_graph[:, :0]
    source, target = np.concatenate([in_graph, in_plane], axis=1)
    kind = np.repeat([0, DIRECTIONS], [in_graph.shape[1], in_plane.shape[1]])
    bins = kind + (direction(positions, source, target) if directions == DIRECTIONS else 0)
    edges = torch.from_numpy(np.stack([BINS * source + bins, BINS * target + bins])).to(graph.device)
    degree = torch.from_numpy(1 + np.bincount(target, minlength=graph.num_nodes)).to(graph.device, graph.dtype)
    binned = Graph.from_edge_index(edges, BINS * graph.num_nodes, dtype=graph.dtype)
    root = (VIRTUAL / degree).sqrt()
    norm = root[binned.targets // BINS] * root[binned.by_target.idx.long() // BINS]
    binned = dataclasses.replace(binned, norm=norm, reverse_norm=norm[binned.transpose])
    return Geometry(binned, (VIRTUAL / degree).unsqueeze(1))


def on_grid(points: Points) -> Integers:
    """Rounds positions to integer multiples of `GRID`."""
    extent = float(np.abs(points).max(initial=0.0))
    return np.rint(points / (extent * GRID if extent > 0 else 1.0)).astype(np.int64)


def direction(positions: Integers, source: Integers, target: Integers) -> Integers:
    """From target to source: 0 lower left, 1 lower right, 2 upper left, 3 upper right; ties are upper or right."""
    right, upper = ((positions[source, axis] >= positions[target, axis]).astype(np.int64) for axis in (0, 1))
    return np.asarray(right + 2 * upper, dtype=np.int64)


def pairs_in_plane(positions: Integers, component: Integers, count: int) -> Integers:
    """`[2, E]`, in both directions: the pairs within each component up to the smallest distance at which there are
    `count` of them, or more if several are equally far."""
    size = len(positions)
    if min(size, count) == 0:
        return np.zeros((2, 0), dtype=np.int64)
    low, high = 0.0, 3 / GRID  # no two positions are further apart
    tree = cKDTree(np.column_stack([positions, component * (2 * high)]))
    for _ in range(64):
        middle = (low + high) / 2
        enough = tree.count_neighbors(tree, middle) - size >= count
        low, high = (low, middle) if enough else (middle, high)
    num_pairs = tree.count_neighbors(tree, high) - size
    if num_pairs > MAX_PAIRS:
        raise ValueError(
            f"graph must have fewer nodes at the same position: {num_pairs} pairs are within the smallest distance"
        )
    pairs = tree.query_pairs(high, output_type="ndarray").T.astype(np.int64)
    return np.concatenate([pairs, pairs[::-1]], axis=1)
