"""The peers: PyG's convolutions in their fastest forms, and sparse products of MKL, cuSPARSE and SciPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv, GCNConv, ResGatedGraphConv

from gfgn import Graph

warnings.filterwarnings("ignore", "Sparse", UserWarning)  # PyTorch announces that sparse CSR tensors are in beta
Forward = Callable[[], Tensor]


@dataclass
class Peer:
    """A forward pass and the module that it trains; `indexed` if `torch.compile` can compile it.

    Sparse matrices and `EdgeIndex.matmul` cannot be compiled: the compiler falls back to running them eagerly.
    """

    forward: Forward
    module: nn.Module
    indexed: bool = True


class SpMM(torch.autograd.Function):
    """The product with a sparse matrix by MKL or cuSPARSE; its transpose is given, as it is for EdgeIndex."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transpose: Tensor) -> Tensor:
        ctx.transpose = transpose
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transpose @ grad, None, None


def csr(graph: Graph, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """`Â` and its transpose as sparse CSR tensors with the smallest index type."""
    size = (graph.num_nodes, graph.num_nodes)
    return tuple(
        torch.sparse_csr_tensor(rows.ptr.int(), rows.idx.int(), values.to(dtype), size, check_invariants=False)
        for rows, values in ((graph.by_target, graph.norm), (graph.by_source, graph.reverse_norm))
    )


def edge_index_of(graph: Graph) -> EdgeIndex:
    """The edges as a PyG `EdgeIndex` of rows (targets) and columns (sources) that knows both orders."""
    size = (graph.num_nodes, graph.num_nodes)
    index = EdgeIndex(graph.edge_index.flip(0).contiguous(), sparse_size=size, sort_order="row")
    return index.fill_cache_()


def products(x: Tensor, graph: Graph) -> dict[str, Forward]:
    """`Â x` by PyG and by the vendor's library."""
    index, weight = edge_index_of(graph), graph.norm.to(x.dtype)
    matrices = csr(graph, x.dtype)
    return {
        "PyG EdgeIndex.matmul": lambda: index.matmul(x, weight),
        library(x): lambda: SpMM.apply(x, *matrices),
    }


def library(x: Tensor) -> str:
    return "cuSPARSE" if x.is_cuda else "MKL"


def scipy_product(x: Tensor, graph: Graph) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Forward and backward products of SciPy, which has one thread and no autograd."""
    forward, backward = (
        scipy.sparse.csr_array((m.values().numpy(), m.col_indices().numpy(), m.crow_indices().numpy()), shape=m.shape)
        for m in csr(graph, x.dtype)
    )
    values, grad = (
        x.detach().numpy(),
        np.random.default_rng(0).standard_normal(x.shape).astype(x.detach().numpy().dtype),
    )
    return lambda: (forward @ values, backward @ grad)


def gcn(x: Tensor, looped: Graph, width: int, dtype: torch.dtype) -> dict[str, Peer]:
    """GCN on a graph with self-loops, normalized beforehand, so that a call only multiplies and sums.

    `GCNConv` takes an `edge_index`, an `EdgeIndex` in the order of targets, or a sparse matrix; the last two are its
    linear map and bias around PyG's and the vendor's sparse product, which `GCNConv` does not call with both orders.
    """
    edges, weight = looped.edge_index, looped.norm.to(dtype)
    size = (looped.num_nodes, looped.num_nodes)
    by_target = EdgeIndex(edges.contiguous(), sparse_size=size, sort_order="col").fill_cache_()
    index, matrices = edge_index_of(looped), csr(looped, dtype)

    def conv(call: Callable[[GCNConv], Tensor], indexed: bool = False) -> Peer:
        module = GCNConv(x.size(1), width, normalize=False).to(x.device)
        return Peer(lambda: call(module), module, indexed)

    return {
        "PyG GCNConv": conv(lambda module: module(x, edges, weight), indexed=True),
        "PyG GCNConv, EdgeIndex": conv(lambda module: module(x, by_target, weight)),
        "PyG GCNConv, CSR": conv(lambda module: module(x, matrices[0])),
        "PyG EdgeIndex.matmul": conv(lambda module: index.matmul(module.lin(x), weight) + module.bias),
        library(x): conv(lambda module: SpMM.apply(module.lin(x), *matrices) + module.bias),
    }


def gat(x: Tensor, looped: Graph, width: int, heads: int) -> Peer:
    """Self-loops are added beforehand: adding them takes time and breaks the compiled program in two."""
    module, edges = GATConv(x.size(1), width // heads, heads, add_self_loops=False).to(x.device), looped.edge_index
    return Peer(lambda: module(x, edges), module)


def gated(x: Tensor, graph: Graph, width: int) -> Peer:
    module, edges = ResGatedGraphConv(x.size(1), width).to(x.device), graph.edge_index
    return Peer(lambda: module(x, edges), module)
