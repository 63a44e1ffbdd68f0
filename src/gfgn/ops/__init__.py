"""The operators of GFGN: sums over neighbors, plain and gated, attention, linear maps and dropout.

Each has a plain PyTorch reference and fused kernels for the CPU (LLVM) and CUDA (Triton) that never hold an `[E, D]`
tensor. The backend is chosen by device; `backend=` or the environment variable `GFGN_BACKEND` overrides the choice
(`"reference"`, `"numba"`, `"triton"`), and `backends()` says which of them can run.
"""

from gfgn.ops.attention import additive_attention, attend, edge_dot
from gfgn.ops.dense import dropout, head_linear, linear
from gfgn.ops.dispatch import Backend, backends
from gfgn.ops.edges import edge_softmax, from_source, from_target, sum_by_target
from gfgn.ops.gates import (
    gated_graph,
    gated_neighbor,
    gated_neighborhood,
    gated_pair,
    gated_propagate,
    gated_two_hops,
    pair_aggregate,
    pair_scores,
)
from gfgn.ops.invariant import activate, expand_rows, standardize, sum_rows
from gfgn.ops.random import keyed, keyed_functions
from gfgn.ops.reference import compute_dtype
from gfgn.ops.sparse import sparse_linear
from gfgn.ops.sums import neighbor_max, neighbor_mean, neighbor_sum, propagate, propagate_and_mean

__all__ = [
    "NEIGHBOR_POOL",
    "Backend",
    "activate",
    "additive_attention",
    "attend",
    "backends",
    "compute_dtype",
    "dropout",
    "edge_dot",
    "edge_softmax",
    "expand_rows",
    "from_source",
    "from_target",
    "gated_graph",
    "gated_neighbor",
    "gated_neighborhood",
    "gated_pair",
    "gated_propagate",
    "gated_two_hops",
    "head_linear",
    "keyed",
    "keyed_functions",
    "linear",
    "neighbor_max",
    "neighbor_mean",
    "neighbor_sum",
    "pair_aggregate",
    "pair_scores",
    "propagate",
    "propagate_and_mean",
    "sparse_linear",
    "standardize",
    "sum_by_target",
    "sum_rows",
]

NEIGHBOR_POOL = {"mean": neighbor_mean, "max": neighbor_max, "sum": neighbor_sum}
