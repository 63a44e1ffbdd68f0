"""`geom-gcn`: neighbourhoods in the graph and in a plane, sorted by direction."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn

from gfgn import ops
from gfgn.data.diagnosis import connected_components
from gfgn.graph import Graph
from gfgn.nn.baselines.common import Maps, per_graph, reset
from gfgn.nn.baselines.embedding import EMBEDDINGS, Points, embed
from gfgn.nn.entry import Parameter, baseline, layers

DIRECTIONS = 4
BINS = 2 * DIRECTIONS
"""Neighbourhood (graph or plane) and direction: the virtual nodes beside the node itself."""
VIRTUAL = BINS + 1
GRID = 1e-6
"""Places are rounded to this share of the embedding's extent, so that neighbours do not hang on rounding errors."""
MOST_PAIRS = 100_000_000
MERGES = ("cat", "sum", "mean")
NEIGHBORS = ("both", "once", "graph", "plane")


class Geometry(NamedTuple):
    """A graph's structural neighbourhoods."""

    bins: Graph
    """`BINS · N` nodes: node `BINS i + b` takes from `BINS j + b` for every neighbour `j` of `i` that falls into bin
    `b`, with `Â = VIRTUAL / √(deg(i) deg(j))`."""
    own: Tensor
    """`[N, 1]`: `VIRTUAL / deg(i)`, the weight of the node itself."""


class GeomGCNLayer(nn.Module):
    """Aggregation at two levels: within each bin of the neighbourhood, and over the bins.

    A node's neighbours are those in the graph, `N_g`, and those within a distance `ρ` in the plane, `N_s`. Either falls
    into four bins by the direction `τ(z_i, z_j)` from the node to the neighbour: upper or lower, left or right. Every
    bin is a virtual node, and the node itself is one more:

        e_i^b = Σ_{j in bin b of i} h_j / √(deg(i) deg(j)),    h'_i = Merge_b(W_b e_i^b) + b

    `Merge` is `"cat"` (side by side), `"mean"` or `"sum"`; the sum of `W_b e^b` is the product of one matrix with all
    `e^b` concatenated. `deg` counts the neighbours of both kinds and the node itself.

    A bin holds a ninth of a neighbourhood, so `W_b` has to be nine times as large as the matrix of a convolution that
    takes it whole. What is learned is `W_b / 9`: the same layer, whose weights begin, and are penalised, at the scale
    of the others'. Learned as it stands, it does not train at all with an L2 penalty of 5e-4.

    Args:
        in_channels: Input width.
        out_channels: Output width of a virtual node.
        merge: How virtual nodes are joined.
        rescale: Whether `W_b / 9` is learned, or `W_b` as it stands.
    """

    def __init__(self, in_channels: int, out_channels: int, merge: str, rescale: bool = True) -> None:
        super().__init__()
        if merge not in MERGES:
            raise ValueError(f"merge must be one of {', '.join(map(repr, MERGES))}, got {merge!r}")
        self.merge = merge
        self.rescale = rescale
        self.maps = Maps(in_channels, {str(virtual): out_channels for virtual in range(VIRTUAL)})
        self.bias = nn.Parameter(torch.zeros(out_channels * (VIRTUAL if merge == "cat" else 1)))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(self.maps)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, geometry: Geometry, dropout: float | Tensor = 0.0) -> Tensor:
        *parts, own = self.maps(x, dropout)
        width = own.size(1)
        by_bin = torch.stack(parts, dim=1).reshape(-1, width)  # a row a node and bin
        gathered = ops.propagate(by_bin, geometry.bins).reshape(own.size(0), BINS * width)
        out = torch.cat([gathered, geometry.own.to(own.dtype) * own], dim=1)
        if self.merge != "cat":
            virtual = out.unflatten(1, (VIRTUAL, width))
            out = virtual.mean(1) if self.merge == "mean" else virtual.sum(1)
        return (out if self.rescale else out / VIRTUAL) + self.bias


class GeomGCN(nn.Module):
    """The network of *Geom-GCN: Geometric Graph Convolutional Networks* (Pei et al., 2020): layers as in
    `GeomGCNLayer` with ReLU between them; the last takes the mean over virtual nodes.

    `ρ` is the smallest distance at which nodes have as many neighbours in the plane, on average, as in the graph; parts
    of the graph that no path joins are not neighbours in the plane either. The plane is worked out at the first use of
    a graph; with `cache` and `fingerprint` it is kept on disk.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units of a virtual node.
        layers: Number of layers.
        merge: How hidden layers join virtual nodes: `"cat"`, `"sum"` or `"mean"`.
        neighbors: Those in the graph and those in the plane, `"both"`; or without those of the graph that are near in
            the plane too, `"once"`, as the authors' program has them; or those of the `"graph"` or of the `"plane"`
            alone.
        directions: 4, or 1 for bins that do not tell directions apart.
        rescale: Whether weights are learned at the scale of other networks', see `GeomGCNLayer`.
        embedding: `"isomap"`, or `"poincare"`, which needs gensim.
        cache: Folder in which embeddings are kept, or `None`.
        fingerprint: What identifies the graph there; nothing is kept without it.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dropout: float | Tensor = 0.5,
        *,
        hidden: int = 16,
        layers: int = 2,
        merge: str = "cat",
        neighbors: str = "both",
        directions: int = DIRECTIONS,
        rescale: bool = True,
        embedding: str = "isomap",
        cache: Path | str | None = None,
        fingerprint: str | None = None,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be 1 or larger, got {layers}")
        if embedding not in EMBEDDINGS:
            raise ValueError(f"embedding must be one of {', '.join(map(repr, EMBEDDINGS))}, got {embedding!r}")
        if neighbors not in NEIGHBORS:
            raise ValueError(f"neighbors must be one of {', '.join(map(repr, NEIGHBORS))}, got {neighbors!r}")
        if directions not in (1, DIRECTIONS):
            raise ValueError(f"directions must be 1 or {DIRECTIONS}, got {directions}")
        self.neighbors = neighbors
        self.directions = directions
        self.dropout = dropout
        self.embedding = embedding
        self.cache = None if cache is None else Path(cache)
        self.fingerprint = fingerprint
        width = hidden * (VIRTUAL if merge == "cat" else 1)
        sizes = [in_channels, *[width] * (layers - 1)]
        self.convs = nn.ModuleList(GeomGCNLayer(size, hidden, merge, rescale) for size in sizes[:-1])
        self.convs.append(GeomGCNLayer(sizes[-1], out_channels, "mean", rescale))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        reset(*self.convs)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        which = (self.neighbors, self.directions)
        place = geometry(graph, self.embedding, self.cache, self.fingerprint, *which)
        for layer, conv in enumerate(self.convs):
            x = conv(x if layer == 0 else x.relu(), place, self.dropout)
        return x


@per_graph
def geometry(
    graph: Graph,
    embedding: str,
    cache: Path | None = None,
    fingerprint: str | None = None,
    neighbors: str = "both",
    directions: int = DIRECTIONS,
) -> Geometry:
    """The structural neighbourhoods of a graph; arguments as for `embed` and `neighborhoods`."""
    if graph.batch is not None:
        raise ValueError(
            f"graph must be a single one, got {graph.num_graphs} graphs: an embedding belongs to one graph"
        )
    return neighborhoods(graph, places_of(graph, embedding, cache, fingerprint), neighbors, directions)


@per_graph
def places_of(graph: Graph, embedding: str, cache: Path | None, fingerprint: str | None) -> Points:
    """`embed`, once for all that is made of it."""
    return embed(graph, embedding, cache, fingerprint)


def neighborhoods(graph: Graph, points: Points, neighbors: str = "both", directions: int = DIRECTIONS) -> Geometry:
    """Sorts the neighbours in the graph and in the plane into bins.

    Args:
        graph: The graph.
        points: Where its nodes lie.
        neighbors: Which neighbours, see `GeomGCN`.
        directions: Likewise.
    """
    places = on_grid(points)
    near = graph.edge_index.cpu().numpy()
    close = pairs_in_the_plane(places, connected_components(graph), graph.num_edges)
    if neighbors == "once":
        in_both = np.isin(*(source * graph.num_nodes + target for source, target in (near, close)))
        near = near[:, ~in_both]
    elif neighbors == "graph":
        close = close[:, :0]
    elif neighbors == "plane":
        near = near[:, :0]
    source, target = np.concatenate([near, close], axis=1)
    kind = np.repeat([0, DIRECTIONS], [near.shape[1], close.shape[1]])
    bins = kind + (direction(places, source, target) if directions == DIRECTIONS else 0)
    edges = torch.from_numpy(np.stack([BINS * source + bins, BINS * target + bins])).to(graph.device)
    degree = torch.from_numpy(1 + np.bincount(target, minlength=graph.num_nodes)).to(graph.device, graph.dtype)
    binned = Graph.from_edge_index(edges, BINS * graph.num_nodes, dtype=graph.dtype)
    root = (VIRTUAL / degree).sqrt()
    norm = root[binned.targets // BINS] * root[binned.by_target.idx.long() // BINS]
    binned = dataclasses.replace(binned, norm=norm, reverse_norm=norm[binned.transpose])
    return Geometry(binned, (VIRTUAL / degree).unsqueeze(1))


def on_grid(points: Points) -> npt.NDArray[np.int64]:
    """Places as whole numbers of `GRID`."""
    extent = float(np.abs(points).max(initial=0.0))
    return np.rint(points / (extent * GRID if extent > 0 else 1.0)).astype(np.int64)


def direction(
    places: npt.NDArray[np.int64], source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """From a target to its source: 0 and 1 are left and right, lower; 2 and 3 left and right, upper. A tie is right and
    upper."""
    right, upper = ((places[source, axis] >= places[target, axis]).astype(np.int64) for axis in (0, 1))
    found: npt.NDArray[np.int64] = right + 2 * upper
    return found


def pairs_in_the_plane(places: npt.NDArray[np.int64], part: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """`[2, E]`, both directions: the pairs of one part within the smallest distance at which there are `count` of them,
    or more where several are equally far."""
    size = len(places)
    if min(size, count) == 0:
        return np.zeros((2, 0), dtype=np.int64)
    low, high = 0.0, 3 / GRID  # no two places are further apart
    tree = cKDTree(np.column_stack([places, part * (2 * high)]))
    for _ in range(64):
        middle = (low + high) / 2
        enough = tree.count_neighbors(tree, middle) - size >= count
        low, high = (low, middle) if enough else (middle, high)
    found = tree.count_neighbors(tree, high) - size
    if found > MOST_PAIRS:
        raise ValueError(
            f"graph must have fewer nodes in the same place: {found} pairs are within the smallest distance"
        )
    pairs = tree.query_pairs(high, output_type="ndarray").T.astype(np.int64)
    return np.concatenate([pairs, pairs[::-1]], axis=1)


ENTRY = baseline(
    GeomGCN,
    "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020",
    {
        "hidden": Parameter(16, (16, 32, 48), "hidden units of a virtual node"),
        "layers": layers(),
        "merge": Parameter("cat", ("cat", "sum"), "how hidden layers join virtual nodes"),
        "neighbors": Parameter("both", NEIGHBORS, "of the graph, of the plane, or both"),
        "directions": Parameter(DIRECTIONS, (1, DIRECTIONS), "whether bins tell directions apart"),
        "rescale": Parameter(True, (True, False), "whether weights are learned at the scale of other networks'"),
    },
    inductive=False,
    accepts=("embedding", "cache", "fingerprint"),
)
