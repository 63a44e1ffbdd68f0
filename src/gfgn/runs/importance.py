"""Permutation importance: how much a score drops when the values of a feature are exchanged between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.streams import Stream
from gfgn.ops.features import sparse_csr


def permutation_importance(
    score: Callable[[Tensor], float], x: Tensor, groups: Sequence[Sequence[int]], repeats: int = 5, seed: int = 0
) -> Tensor:
    """`[G, repeats]`: the score of `x` minus its score with the columns of a group permuted among the rows.

    The columns of a group keep their values together: one-hot columns of one category are permuted as one. The
    permutations depend on `seed` and the repeat alone, so that groups are compared under the same permutations.

    Args:
        score: Score of a matrix of features; higher is better.
        x: `[N, F]`, dense or sparse CSR; unchanged.
        groups: The columns of each group.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be 1 or larger, got {repeats}")
    orders = [Stream(seed, repeat).permutation(x.size(0)) for repeat in range(repeats)]
    base = score(x)
    drops = [[base - score(permute_columns(x, columns, order)) for order in orders] for columns in groups]
    return torch.tensor(drops, dtype=torch.float64).view(len(groups), repeats)


def permute_columns(x: Tensor, columns: Sequence[int], order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor:
    """A copy of `x`, dense or sparse CSR, whose row `i` has the values of row `order[i]` in the given columns."""
    if x.layout == torch.strided:
        index, rows = torch.as_tensor(columns, device=x.device), torch.from_numpy(order).to(x.device)
        return x.index_copy(1, index, x.index_select(1, index).index_select(0, rows))
    parts = (part.cpu().numpy() for part in (x.values(), x.col_indices(), x.crow_indices()))
    shape = (x.size(0), x.size(1))
    entries = scipy.sparse.csr_array(tuple(parts), shape=shape).tocoo()
    moved = np.isin(entries.col, columns)
    target = np.empty_like(order)
    target[order] = np.arange(order.size)
    places = (np.where(moved, target[entries.row], entries.row), entries.col)
    matrix = scipy.sparse.coo_array((entries.data, places), shape=shape).tocsr()
    matrix.sort_indices()
    pointers, indices = (
        torch.from_numpy(part.astype(np.int64)).to(x.device) for part in (matrix.indptr, matrix.indices)
    )
    return sparse_csr(pointers, indices, torch.from_numpy(matrix.data).to(x.device), x.shape)
