"""The functions of the CUDA backend that walk a `CSR`: see `gfgn.ops.dispatch`."""
# ruff: noqa: F401

from gfgn.ops.cuda.attention import attend, edge_dot, softmax, softmax_backward
from gfgn.ops.cuda.gates import (
    gated_propagate,
    gated_propagate_backward,
    graph_gate,
    graph_gate_backward,
    pair_backward,
    pair_forward,
)
from gfgn.ops.cuda.gather import sparse_linear, spmm, spmm_pair, spmm_pair_backward
