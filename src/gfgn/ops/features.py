"""Rows of node features, dense or sparse CSR: selection and normalization."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

SPARSE = 0.2  # fraction of nonzero values up to which features are stored as a sparse tensor
FEW_FEATURES = 32  # below this number of features they stay dense


def sparse_csr(pointers: Tensor, columns: Tensor, values: Tensor, size: torch.Size) -> Tensor:
    """A checked sparse CSR tensor, without PyTorch's warning that these are in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(pointers, columns, values, size=size, check_invariants=True)


def is_smaller_sparse(x: Tensor) -> bool:
    """Whether dense `[N, F]` features are mostly zero: a sparse tensor is smaller, and its products are faster."""
    return x.size(1) >= FEW_FEATURES and bool(x.count_nonzero() <= SPARSE * x.numel())


def sparse_if_smaller(x: Tensor) -> Tensor:
    """`[N, F]` features as a sparse tensor if they are mostly zero, else as they are."""
    if x.layout != torch.strided or not is_smaller_sparse(x):
        return x
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # PyTorch warns that CSR tensors are in beta
        return x.to_sparse_csr()


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """`x[rows]` for dense and sparse CSR `x`; `rows` holds row numbers."""
    if x.layout != torch.sparse_csr:
        return x.index_select(0, rows)
    ptr = x.crow_indices()
    start = ptr[:-1].index_select(0, rows)
    length = ptr.diff().index_select(0, rows)
    new = torch.zeros(rows.numel() + 1, dtype=ptr.dtype, device=ptr.device)
    torch.cumsum(length, 0, out=new[1:])
    entries = torch.arange(int(new[-1]), device=ptr.device)
    index = entries + torch.repeat_interleave(start - new[:-1], length)
    return torch.sparse_csr_tensor(
        new, x.col_indices()[index], x.values()[index], size=(rows.numel(), x.size(1)), check_invariants=False
    )


def row_normalize(x: Tensor) -> Tensor:
    """`x`, dense or sparse CSR, with every row divided by the sum of its absolute values; a row of zeros stays."""
    if x.layout == torch.strided:
        total = x.abs().sum(1, keepdim=True)
        return x / torch.where(total > 0, total, 1)
    row = torch.repeat_interleave(torch.arange(x.size(0), device=x.device), x.crow_indices().diff())
    total = x.values().new_zeros(x.size(0)).index_add(0, row, x.values().abs())
    values = x.values() / torch.where(total > 0, total, 1)[row]
    return sparse_csr(x.crow_indices(), x.col_indices(), values, x.shape)
