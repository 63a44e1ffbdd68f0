"""Noise for studies of robustness: random edges added or removed, and noise on features.

All of it is drawn from `Stream`, so that a seed gives the same graph on every machine and with every release.
An edge here is a pair of nodes: both directions come and go together.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.streams import Stream
from gfgn.graph import Graph

Integers = NDArray[np.int64]

ADDED, REMOVED, FEATURES = 101, 102, 103  # the streams of one seed, apart from each other and from those of generators


def add_random_edges(graph: Graph, ratio: float, seed: int = 0) -> Graph:
    """The graph with random edges added between nodes that had none.

    Every pair of nodes without an edge is as likely as every other. A larger ratio adds to what a smaller one with the
    same seed has added, as long as no more than half of the free pairs are taken.

    Args:
        graph: An undirected graph without self-loops or repeated edges. New edges of a weighted one weigh 1.
        ratio: Number of new edges as a share of those there are, 0 or larger; the paper goes up to 1.
        seed: Seed of the draw.
    """
    if not 0 <= ratio < math.inf:
        raise ValueError(f"ratio must be 0 or larger and finite, got {ratio}")
    _, code = _pairs(graph)
    count, free = round(ratio * code.size), graph.num_nodes * (graph.num_nodes - 1) // 2 - code.size
    if count > free:
        raise ValueError(
            f"ratio must leave room: {ratio} asks for {count} new edges, "
            f"but {graph.num_nodes} nodes with {code.size} edges have room for {free}"
        )
    # The pair of rank r among the free ones: as many of its predecessors are taken as have at most r free before them.
    rank = _distinct(free, count, Stream(seed, ADDED))
    taken = np.sort(code)
    low, high = _ends(rank + np.searchsorted(taken - np.arange(taken.size), rank, side="right"))
    new = torch.from_numpy(np.stack([np.concatenate([low, high]), np.concatenate([high, low])])).to(graph.device)
    weight = None if graph.weight is None else torch.cat([graph.weight, graph.weight.new_ones(new.size(1))])
    edge_index = torch.cat([graph.edge_index, new], dim=1)
    return Graph.from_edge_index(edge_index, graph.num_nodes, weight, dtype=graph.dtype)


def remove_random_edges(graph: Graph, ratio: float, seed: int = 0) -> Graph:
    """The graph with random edges removed.

    A larger ratio removes what a smaller one with the same seed has removed, and more.

    Args:
        graph: An undirected graph without self-loops or repeated edges.
        ratio: Share of the edges to remove, 0 to 1.
        seed: Seed of the draw.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be 0 to 1, got {ratio}")
    place, code = _pairs(graph)
    order = Stream(seed, REMOVED).permutation(code.size)
    kept = np.ones(code.size, dtype=bool)
    kept[order[: round(ratio * code.size)]] = False
    stays = torch.from_numpy(kept[place]).to(graph.device)
    weight = None if graph.weight is None else graph.weight[stays]
    return Graph.from_edge_index(graph.edge_index[:, stays], graph.num_nodes, weight, dtype=graph.dtype)


def add_feature_noise(x: Tensor, std: float, seed: int = 0) -> Tensor:
    """Features with independent normal noise added.

    Args:
        x: `[N, F]`, dense and floating point.
        std: Standard deviation of the noise, 0 or larger.
        seed: Seed of the draw.
    """
    if x.layout != torch.strided or not x.is_floating_point():
        raise ValueError(
            f"x must be dense and floating point, got layout {x.layout} of {x.dtype}; "
            "noise fills every zero of a sparse matrix, so ask for that with x.to_dense()"
        )
    if not 0 <= std < math.inf:
        raise ValueError(f"std must be 0 or larger and finite, got {std}")
    noise = Stream(seed, FEATURES).normal(x.numel()).reshape(x.shape)
    return x + torch.from_numpy(std * noise).to(x)


def _pairs(graph: Graph) -> tuple[Integers, Integers]:
    """For every stored edge its pair's place among the pairs, and the codes of the pairs, ascending."""
    if graph.batch is not None:
        raise ValueError(f"graph must be a single graph, got a batch of {graph.num_graphs}")
    source, target = graph.edge_index.cpu().numpy()
    low, high = np.minimum(source, target), np.maximum(source, target)
    code, place, times = np.unique(high * (high - 1) // 2 + low, return_inverse=True, return_counts=True)
    loops = int((low == high).sum())
    if loops:
        raise ValueError(f"graph must have no self-loops, got {loops}")
    forward = np.bincount(place[source < target], minlength=code.size)
    odd = int(((times != 2) | (forward != 1)).sum())
    if odd:
        raise ValueError(
            f"graph must be undirected without repeated edges, got {odd} pairs of nodes "
            "that are not joined exactly once in each direction"
        )
    return place, code


def _ends(code: Integers) -> tuple[Integers, Integers]:
    """The nodes `low < high` of the pairs with code `high (high − 1) / 2 + low`."""
    high = ((1 + np.sqrt(1 + 8 * code.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > code  # the root may round up to the next node, or down to the one before
    high += high * (high + 1) // 2 <= code
    return code - high * (high - 1) // 2, high


def _distinct(high: int, count: int, stream: Stream) -> Integers:
    """`count` different integers among 0 … `high` − 1, each set of them equally likely."""
    if 2 * count > high:
        chosen = np.ones(high, dtype=bool)
        chosen[_distinct(high, high - count, stream)] = False
        return np.flatnonzero(chosen)
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        both = np.concatenate([drawn, stream.integers(high, count)])
        drawn = both[np.sort(np.unique(both, return_index=True)[1])]  # in the order of their first draw
    return drawn[:count]
