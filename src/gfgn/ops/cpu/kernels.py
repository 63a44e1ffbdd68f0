"""The CPU backend, see `gfgn.ops.dispatch`."""

from gfgn.ops.cpu.attention import attend, edge_dot
from gfgn.ops.cpu.gates import pair_backward, pair_forward
from gfgn.ops.cpu.sparse_linear import sparse_linear
from gfgn.ops.cpu.sums import spmm, spmm_pair, spmm_pair_backward

__all__ = [
    "attend",
    "edge_dot",
    "pair_backward",
    "pair_forward",
    "sparse_linear",
    "spmm",
    "spmm_pair",
    "spmm_pair_backward",
]
