"""Rows of dense and sparse features, and their product with an adjacency."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn import ops
from gfgn.graph import Graph


def propagated(x: Tensor, graph: Graph) -> Tensor:
    """`Âx`, sparse where `x` is."""
    if x.layout != torch.sparse_csr:
        return ops.propagate(x, graph)
    ptr, idx = graph.by_target.ptr.cpu().numpy(), graph.by_target.idx.cpu().numpy()
    adjacency = scipy.sparse.csr_array((graph.norm.cpu().numpy(), idx, ptr), shape=(graph.num_nodes, graph.num_nodes))
    parts = (x.values(), x.col_indices(), x.crow_indices())
    features = scipy.sparse.csr_array(tuple(part.cpu().numpy() for part in parts), shape=(x.size(0), x.size(1)))
    product = (adjacency @ features).tocsr()
    product.sort_indices()
    return torch.sparse_csr_tensor(
        torch.from_numpy(product.indptr.astype(np.int64)),
        torch.from_numpy(product.indices.astype(np.int64)),
        torch.from_numpy(product.data).to(x.dtype),
        size=tuple(x.shape),
        device=x.device,
        check_invariants=False,
    )
