"""Compiles every Triton kernel for an H200 (sm_90) on a machine without a GPU, and prints one line of JSON for each.

The interpreter accepts much that the compiler does not, and knows nothing of shared memory. Here the kernels' own
functions are called on CPU tensors, with launches replaced by compilation: what is compiled is what would run.

Run as a script, in a process where `TRITON_INTERPRET` is not set: Triton reads it when it is imported.
"""

import json
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from gfgn.ops.csr import CSR, compress
from gfgn.ops.cuda import attention as triton_edges
from gfgn.ops.cuda import dense as triton_elementwise
from gfgn.ops.cuda import kernels as triton_kernels


class NoDevice:
    """What Triton asks its driver before it compiles."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_instead_of_launching() -> None:
    launch = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = launch(self, *args, grid=grid, warmup=True, **kwargs)
        chosen = {name: value for name, value in kwargs.items() if name.isupper()}
        print(json.dumps({"kernel": self.__name__, "shared": compiled.metadata.shared, **chosen}))
        return compiled

    JITFunction.run = run
    driver.set_active(NoDevice())


def pattern(hub: bool) -> CSR:
    """Ten rows of an entry each, or the first of them long enough to be a hub."""
    target = torch.cat([torch.zeros(600 if hub else 1, dtype=torch.int64), torch.arange(1, 10)])
    return compress(target, target, 10)


def run_kernels(rows: CSR, width: int, dtype: torch.dtype) -> None:
    def features(columns: int = width) -> Tensor:
        return torch.zeros(10, columns, dtype=dtype)

    entries = rows.idx.numel()
    norm, inverse, lam, entry = torch.ones(entries), torch.ones(10), torch.ones(width), torch.arange(entries)
    x = features()
    out = triton_kernels.pair_forward(x, x, x, lam, norm, norm, rows, save=True)
    triton_kernels.pair_forward(x, x, x, lam, norm, norm, rows, save=False)
    triton_kernels.pair_backward(x, x, x, x, *out[1:], lam, norm, norm, rows)
    triton_kernels.spmm(x, rows, norm)
    triton_kernels.spmm(x, rows, None)
    triton_kernels.spmm_pair(x, rows, norm, inverse)
    triton_kernels.spmm_pair_backward(x, x, rows, norm, inverse)
    for gate in (x, x[:1]):
        _, diff = triton_kernels.gated_propagate(x, gate, rows, norm, save=True)
        triton_kernels.gated_propagate_backward(x, gate, diff, rows, norm)
    keys, rate = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    for numbers in (None, entry):
        triton_kernels.sparse_linear(features(2 * width), rows, norm, keys, rate, numbers, width)
    for heads in (1, 8):
        alpha, z = torch.zeros(entries, heads, dtype=dtype), features(heads * width)
        triton_kernels.attend(alpha, z, rows, entry)
        triton_edges.edge_dot(z, z, rows, entry, width)
        triton_edges.softmax_backward(alpha, triton_edges.softmax(alpha, rows), rows)


def run_elementwise(width: int, heads: int) -> None:
    z, gate, lam = torch.zeros(10, heads * width), torch.zeros(heads, 2 * width, width), torch.ones(heads * width)
    triton_elementwise.gated_neighbor(z, z, z, gate, lam)
    triton_elementwise.gated_neighbor_backward(z, z, z, z, gate, lam)
    keys, rate = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    for shared in (False, True):
        triton_elementwise.dropout(z, keys, rate, shared)
    p, each = torch.zeros(3, 2, width), torch.zeros(2)
    triton_elementwise.adam(p, p, p, p, each, each, each, torch.ones(1), 0.9, 0.999, 1e-8)
    triton_elementwise.copy_where(p, p, each > 0)


if __name__ == "__main__":
    compile_instead_of_launching()
    run_kernels(pattern(hub=False), 8, torch.float32)
    for width in (40, 256):
        run_kernels(pattern(hub=True), width, torch.float32)
    run_kernels(pattern(hub=True), 64, torch.bfloat16)
    for width in (8, 32):
        run_elementwise(width, 8)
