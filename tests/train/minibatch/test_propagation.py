"""The product of dense and sparse features with the normalized adjacency."""

import torch
from train.minibatch.blocks import blocks

from gfgn.train.minibatch.propagation import propagated


def test_propagated_sparse_features_equal_dense_ones() -> None:
    x, graph, _, _ = blocks()
    x = x.relu()
    product = propagated(x.to_sparse_csr(), graph)
    assert product.layout == torch.sparse_csr
    torch.testing.assert_close(product.to_dense(), propagated(x, graph))
