"""Rows of sparse features, and their product with an adjacency."""

import torch
from train.minibatch.blocks import blocks

from gfgn.ops.features import take_rows
from gfgn.train.minibatch.propagation import propagated


def test_sparse_rows_are_dense_ones() -> None:
    x, graph, _, _ = blocks()
    x = x.relu()
    sparse = x.to_sparse_csr()
    for nodes in (torch.tensor([5, 0, 5, 149]), torch.tensor([], dtype=torch.int64)):
        taken = take_rows(sparse, nodes)
        assert taken.layout == torch.sparse_csr
        assert torch.equal(taken.to_dense(), x[nodes])
        assert torch.equal(take_rows(x, nodes), x[nodes])
    product = propagated(sparse, graph)
    assert product.layout == torch.sparse_csr
    torch.testing.assert_close(product.to_dense(), propagated(x, graph))
