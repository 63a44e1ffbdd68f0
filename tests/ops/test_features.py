"""Rows of sparse features."""

import torch

from gfgn.ops.features import take_rows


def test_sparse_rows_are_dense_ones() -> None:
    x = torch.randn(150, 8).relu()
    sparse = x.to_sparse_csr()
    for nodes in (torch.tensor([5, 0, 5, 149]), torch.tensor([], dtype=torch.int64)):
        taken = take_rows(sparse, nodes)
        assert taken.layout == torch.sparse_csr
        assert torch.equal(taken.to_dense(), x[nodes])
        assert torch.equal(take_rows(x, nodes), x[nodes])
