"""Edges in every layout, and sorted both ways with little code of its own: the reference of `gfgn.ops.index`.

On a CPU SciPy's conversions sort, on a GPU `torch.sort`; all in int64.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.ops.csr import SEGMENT

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as given": lambda edges: edges,
    "int32": lambda edges: edges.int(),
    "transposed": lambda edges: edges.t().contiguous().t(),
    "every other column": lambda edges: torch.stack([edges, edges], dim=2).flatten(1)[:, ::2],
    "one row twice": lambda edges: edges[:1].expand(2, -1),
    "ascending": lambda edges: edges.unique(dim=1),
    "ascending, both directions": lambda edges: torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1),
    "by source": lambda edges: edges[:, torch.argsort(edges[0] * 1000 + edges[1])],
    "by target": lambda edges: edges[:, torch.argsort(edges[1] * 1000 + edges[0])],
    "both directions": lambda edges: torch.cat([edges, edges.flip(0)], dim=1),
    "loops": lambda edges: torch.cat([edges, edges[0].expand(2, -1)], dim=1),
}


def multigraph(n: int, e: int, seed: int = 0) -> Tensor:
    return torch.randint(n, (2, e), generator=torch.Generator().manual_seed(seed))


def index_edges(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> list[Tensor]:
    """See `gfgn.ops.index.index_edges`."""
    source, target = edges.long()
    kept = source != target
    if num_loops:
        kept[-num_loops:] = True
    index = torch.nonzero(kept).view(-1)
    source, target = source[index], target[index]
    order = stable_order(source, target, num_nodes)
    source, target = source[order], target[order]
    first = torch.ones_like(source, dtype=torch.bool)
    if merge:
        first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    edge_position = torch.full_like(edges[0], -1, dtype=torch.int64)
    edge_position[index[order]] = torch.cumsum(first, 0) - 1
    source, target = source[first], target[first]
    transpose = stable_order(target, source, num_nodes)
    by_target = compressed_rows(target, source, num_nodes)
    by_source = compressed_rows(source[transpose], target[transpose], num_nodes)
    return [*by_target, *by_source, transpose, edge_position]


def stable_order(minor: Tensor, major: Tensor, num_nodes: int) -> Tensor:
    """The stable order of the entries by `major`, then `minor`."""
    if minor.device.type != "cpu":
        return torch.sort(major * num_nodes + minor, stable=True).indices
    matrix = scipy.sparse.coo_array(
        (np.arange(minor.numel()), (minor.numpy(), major.numpy())), shape=(num_nodes, num_nodes)
    )
    matrix.has_canonical_format = True  # do not merge repeated entries
    return torch.from_numpy(matrix.tocsr().tocsc().data.astype(np.int64, copy=False))


def compressed_rows(row: Tensor, idx: Tensor, num_rows: int) -> list[Tensor]:
    """The five tensors of `gfgn.ops.csr.CSR`."""
    length = torch.bincount(row, minlength=num_rows)
    hub_rows = torch.nonzero(length > SEGMENT).view(-1)
    segments = (length[hub_rows] + (SEGMENT - 1)) // SEGMENT
    seg_hub = torch.repeat_interleave(torch.arange(hub_rows.numel(), device=row.device), segments)
    return [cumulative(length), idx.to(torch.int32), hub_rows, cumulative(segments), seg_hub]


def cumulative(length: Tensor) -> Tensor:
    return torch.cat([length.new_zeros(1), length.cumsum(0)])
