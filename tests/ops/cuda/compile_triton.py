"""Compiles every Triton kernel for an H200 (sm_90) on a machine without a GPU, and prints one line of JSON for each.

The interpreter accepts much that the compiler does not, and does not limit shared memory. Here the functions that
launch kernels are called on CPU tensors, and compilation replaces every launch: what is compiled is what would run.

Run it as a script, in a process without `TRITON_INTERPRET`: Triton reads it when it is imported.
"""

import json
from typing import Any

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction, driver

from gfgn.ops.csr import CSR, compress
from gfgn.ops.cuda import dense, index, kernels, normalize, products


class NoDevice:
    """The part of Triton's driver that compilation needs."""

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
        constants = {name: value for name, value in kwargs.items() if name.isupper()}
        vectors = ".v4.b32" in compiled.asm["ptx"]  # 16 bytes per thread
        print(
            json.dumps({"kernel": self.__name__, "shared": compiled.metadata.shared, "vectors": vectors, **constants})
        )
        return compiled

    JITFunction.run = run
    CompiledKernel.__getitem__ = lambda self, grid: lambda *args, stream: None  # what was compiled before
    driver.set_active(NoDevice())


def pattern(hub: bool) -> CSR:
    """Ten rows with one entry each, except that the first may be a hub."""
    target = torch.cat([torch.zeros(600 if hub else 1, dtype=torch.int64), torch.arange(1, 10)])
    return compress(target, target, 10)


def compile_kernels(rows: CSR, width: int, dtype: torch.dtype, heads: int, shared_gate: bool) -> None:
    def features(columns: int = width) -> Tensor:
        return torch.zeros(10, columns, dtype=dtype)

    entries = rows.idx.numel()
    norm, inverse, lam, entry = torch.ones(entries), torch.ones(10), torch.ones(width), torch.arange(entries)
    x = features()
    out = kernels.pair_forward(x, x, x, lam, norm, norm, rows, save=True)
    kernels.pair_backward(x, x, x, x, *out[1:], lam, norm, norm, rows)
    kernels.spmm(x, rows, norm if shared_gate else None)
    kernels.spmm_pair(x, rows, norm, inverse)
    kernels.spmm_pair_backward(x, x, rows, norm, inverse)
    gate = x[:1] if shared_gate else x
    _, diff = kernels.gated_propagate(x, gate, rows, norm, save=True)
    kernels.gated_propagate_backward(x, gate, diff, rows, norm)
    keys, rate = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    kernels.sparse_linear(features(2 * width), rows, norm, keys, rate, entry if shared_gate else None, width)
    alpha, z = torch.zeros(entries, heads, dtype=dtype), features(heads * width)
    kernels.attend(alpha, z, rows, entry)
    kernels.edge_dot(z, z, rows, entry, width)
    kernels.softmax_backward(alpha, kernels.softmax(alpha, rows), rows)
    scores, vectors = torch.zeros(10, 2 * heads, dtype=dtype), torch.zeros(heads, width, 2, dtype=dtype)
    masks = (keys[:1], rate[:1]) if shared_gate else (keys[:0], rate[:0])
    attended, *sums = kernels.additive_forward(z, scores, *masks, rows, 0.2, save=True)
    kernels.additive_backward(z, z, scores, attended, *sums, vectors, *masks, rows, entry, 0.2)


def compile_dense(width: int, heads: int) -> None:
    z, gate, lam = torch.zeros(10, heads * width), torch.zeros(heads, 2 * width, width), torch.ones(heads * width)
    dense.gated_neighbor(z, z, z, gate, lam)
    dense.gated_neighbor_backward(z, z, z, z, gate, lam)
    dense.two_hops((z, z, z, z, z), lam)
    dense.two_hops_backward((z, z, z, z, z, z), lam)
    keys, rate = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.float64)
    dense.dropout(z, keys, rate, shared=width > 8)
    p, each = torch.zeros(3, 2, width), torch.zeros(2)
    dense.adam(p, p, p, p, each, each, each, torch.ones(1), 0.9, 0.999, 1e-8)
    dense.copy_where(p, p, each > 0)


def compile_products(width: int, dtype: torch.dtype, heads: int) -> None:
    z, gate = torch.zeros(10, heads * width, dtype=dtype), torch.zeros(heads, 2 * width, width, dtype=dtype)
    _, mean, sigma = kernels.graph_gate(z, gate[:, :width], torch.ones(heads * width))
    kernels.graph_gate_backward(z, gate[:, :width], torch.ones(heads * width), mean, sigma)
    a, b = products.halves(z, gate)
    products.halves_backward(a, b, z, z, gate)
    products.head_matmul(z, gate[:, :width], z, add=True)
    products.row_sums(products.head_weight_gradient(z, z, heads).view(heads, -1))


def compile_building(num_nodes: int, dtype: torch.dtype, weighted: bool) -> None:
    """The kernels that build a graph; none of them runs, so that nothing is counted."""
    edges, rows = torch.zeros(2, 10, dtype=torch.int64), pattern(hub=True)
    entries = rows.idx.numel()
    weight = torch.ones(entries, dtype=dtype) if weighted else None
    index.index(edges, num_nodes, weighted, 0, None if weight is None else weight[:10])
    index._transpose(rows.idx, rows.idx)
    index._with_hubs(rows.ptr, rows.idx, torch.zeros(2, dtype=torch.int64), 1, 2)
    normalize.normalize(rows, rows, torch.arange(entries), weight, dtype, symmetric=not weighted)


if __name__ == "__main__":
    compile_instead_of_launching()
    # The largest tiles, with hubs and in float32; and small ones, several entries per warp, in bfloat16.
    compile_kernels(pattern(hub=True), 256, torch.float32, heads=8, shared_gate=False)
    compile_kernels(pattern(hub=False), 40, torch.bfloat16, heads=1, shared_gate=True)
    compile_dense(32, heads=8)  # the widest heads that have a kernel
    compile_products(256, torch.float32, heads=1)
    compile_products(8, torch.bfloat16, heads=8)
    compile_products(64, torch.float32, heads=100)
    compile_building(10, torch.float32, weighted=False)
    compile_building(100_000, torch.float64, weighted=True)  # keys of 64 bits
