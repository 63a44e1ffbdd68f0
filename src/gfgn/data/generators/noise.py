"""Noise for robustness studies: random edges added or removed, and noise on features.

All random numbers come from `Stream`, so that a seed gives the same graph on every machine and with every release. An
edge here is a pair of nodes: both directions are added and removed together.
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

ADDED, REMOVED, FEATURES = 101, 102, 103  # keys of independent streams, also independent of those of the generators


def add_random_edges(graph: Graph, ratio: float, seed: int = 0) -> Graph:
    """Adds random edges between nodes that are not joined, drawn uniformly.

    With the same seed, a larger ratio adds a superset of the edges of a smaller one, up to half of the free pairs.

    Args:
        graph: An undirected graph without self-loops or duplicate edges. If it is weighted, new edges have weight 1.
        ratio: Number of new edges relative to the number of edges.
    """
    if not 0 <= ratio < math.inf:
        raise ValueError(f"ratio must be 0 or larger and finite, got {ratio}")
    edge_index = graph.edge_index
    _, code = _pairs(graph, edge_index)
    count, free = round(ratio * code.size), graph.num_nodes * (graph.num_nodes - 1) // 2 - code.size
    if count > free:
        raise ValueError(f"ratio must be small enough, got {ratio}: {count} new edges, where {free} pairs are free")
    # The code of the free pair of rank r is r plus the number of taken pairs before it.
    rank = _draw_distinct(free, count, Stream(seed, ADDED))
    taken = np.sort(code)
    low, high = _ends(rank + np.searchsorted(taken - np.arange(taken.size), rank, side="right"))
    new = torch.from_numpy(np.stack([np.concatenate([low, high]), np.concatenate([high, low])])).to(graph.device)
    weight = None if graph.weight is None else torch.cat([graph.weight, graph.weight.new_ones(new.size(1))])
    return Graph.from_edge_index(torch.cat([edge_index, new], dim=1), graph.num_nodes, weight, dtype=graph.dtype)


def remove_random_edges(graph: Graph, ratio: float, seed: int = 0) -> Graph:
    """Removes a fraction, `ratio`, of the edges of an undirected graph without self-loops or duplicate edges.

    With the same seed, a larger ratio removes a superset of the edges of a smaller one.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be 0 to 1, got {ratio}")
    edge_index = graph.edge_index
    index, code = _pairs(graph, edge_index)
    order = Stream(seed, REMOVED).permutation(code.size)
    kept = np.ones(code.size, dtype=bool)
    kept[order[: round(ratio * code.size)]] = False
    stays = torch.from_numpy(kept[index]).to(graph.device)
    weight = None if graph.weight is None else graph.weight[stays]
    return Graph.from_edge_index(edge_index[:, stays], graph.num_nodes, weight, dtype=graph.dtype)


def add_feature_noise(x: Tensor, std: float, seed: int = 0) -> Tensor:
    """Adds independent normal noise of standard deviation `std` to dense features."""
    if x.layout != torch.strided or not x.is_floating_point():
        got = f"layout {x.layout} of {x.dtype}; noise would fill a sparse matrix, see x.to_dense()"
        raise ValueError(f"x must be dense and floating point, got {got}")
    if not 0 <= std < math.inf:
        raise ValueError(f"std must be 0 or larger and finite, got {std}")
    noise = Stream(seed, FEATURES).normal(x.numel()).reshape(x.shape)
    return x + torch.from_numpy(std * noise).to(x)


def _pairs(graph: Graph, edge_index: Tensor) -> tuple[Integers, Integers]:
    """The index of every edge's pair, and the codes of the pairs in ascending order, see `_ends`."""
    if graph.batch is not None:
        raise ValueError(f"graph must be a single graph, got a batch of {graph.num_graphs}")
    source, target = edge_index.cpu().numpy()
    low, high = np.minimum(source, target), np.maximum(source, target)
    code, index, times = np.unique(high * (high - 1) // 2 + low, return_inverse=True, return_counts=True)
    forward = np.bincount(index[source < target], minlength=code.size)
    odd = int(((times != 2) | (forward != 1)).sum()) + int((low == high).sum())
    if odd:
        got = f"{odd} pairs of nodes that are not joined exactly once in each direction, or with themselves"
        raise ValueError(f"graph must be undirected without duplicate edges and self-loops, got {got}")
    return index, code


def _ends(code: Integers) -> tuple[Integers, Integers]:
    """The nodes `low < high` of the pairs with code `high (high − 1) / 2 + low`."""
    high = ((1 + np.sqrt(1 + 8 * code.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > code  # the square root may be rounded to the next or the previous node
    high += high * (high + 1) // 2 <= code
    return code - high * (high - 1) // 2, high


def _draw_distinct(high: int, count: int, stream: Stream) -> Integers:
    """`count` distinct integers from 0 to `high` − 1; all sets are equally likely."""
    if 2 * count > high:
        chosen = np.ones(high, dtype=bool)
        chosen[_draw_distinct(high, high - count, stream)] = False
        return np.flatnonzero(chosen)
    drawn = np.empty(0, dtype=np.int64)
    while drawn.size < count:
        both = np.concatenate([drawn, stream.integers(high, count)])
        drawn = both[np.sort(np.unique(both, return_index=True)[1])]  # in the order of the draw
    return drawn[:count]
