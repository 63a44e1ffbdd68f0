"""Checks the Triton kernels against float64 on a GPU, and times tile shapes: how `gather.plan` was chosen.

    PYTHONPATH=src python benchmarks/tune_triton.py check
    PYTHONPATH=src python benchmarks/tune_triton.py tune --arxiv edges.npz --out results.json
    PYTHONPATH=src python benchmarks/tune_triton.py final --arxiv edges.npz --out results.json

`tune` times the shapes below for the pair operator and the plain sum; `final` times every operator as `plan` sets
it, against eager PyTorch and against the time its bytes need at the copy bandwidth of the same run. The archive
holds `edges`, `[E, 2]`, of a graph to be symmetrised (ogbn-arxiv's for the numbers in the documentation).
"""

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
from torch import Tensor

from gfgn.ops.csr import CSR, compress
from gfgn.ops.cuda import gather, kernels

PLAN = gather.plan


class Graph(NamedTuple):
    """Both orders of one graph, with random values."""

    target: Tensor
    source: Tensor
    rows: CSR
    rows_t: CSR
    norm: Tensor
    row_norm: Tensor
    norm_t: Tensor
    row_norm_t: Tensor
    order: Tensor
    nodes: int


def build(target: Tensor, source: Tensor, nodes: int, scale: float = 1.0) -> Graph:
    order = torch.argsort(target, stable=True)
    target, source = target[order], source[order]
    order = torch.argsort(source, stable=True)
    norm, row_norm = (scale * (torch.rand(target.numel(), device="cuda") + 0.01) for _ in range(2))
    rows = compress(target, source, nodes)
    rows_t = compress(source[order], target[order], nodes)
    return Graph(target, source, rows, rows_t, norm, row_norm, norm[order], row_norm[order], order, nodes)


def even(nodes: int, entries: int) -> Graph:
    return build(torch.arange(entries, device="cuda") % nodes, torch.randint(nodes, (entries,), device="cuda"), nodes)


def symmetrised(path: Path) -> Graph:
    edges = torch.from_numpy(np.load(path)["edges"].astype(np.int64)).cuda()
    nodes = int(edges.max()) + 1
    both = torch.cat([edges, edges.flip(1)])
    both = torch.unique(both[both[:, 0] != both[:, 1]], dim=0)
    return build(both[:, 0].contiguous(), both[:, 1].contiguous(), nodes)


def pair_inputs(graph: Graph, width: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    tensors = [torch.randn(graph.nodes, width, device="cuda", dtype=dtype) for _ in range(4)]
    return tensors, torch.rand(width, device="cuda")


class Operators:
    """Each operator as a call without arguments, on one graph and width."""

    def __init__(self, graph: Graph, width: int, dtype: torch.dtype) -> None:
        self.graph, self.width = graph, width
        (self.a, self.b, self.z, self.grad), self.lam = pair_inputs(graph, width, dtype)
        self.p, self.q = torch.randn_like(self.z), torch.rand_like(self.z)
        self.inverse = torch.ones(graph.nodes, device="cuda")
        self.keys = torch.randint(2**32, (1 if width % 64 else width // 64,), device="cuda")
        self.rate = torch.full((self.keys.numel(),), 0.5, dtype=torch.float64, device="cuda")

    def pair_forward(self) -> tuple[Tensor, ...]:
        g = self.graph
        return kernels.pair_forward(self.a, self.b, self.z, self.lam, g.norm, g.row_norm, g.rows, True)

    def pair_backward(self) -> tuple[Tensor, ...]:
        g = self.graph
        return kernels.pair_backward(
            self.grad, self.a, self.b, self.z, self.p, self.q, self.lam, g.norm_t, g.row_norm_t, g.rows_t
        )

    def spmm(self) -> tuple[Tensor, ...]:
        return (kernels.spmm(self.z, self.graph.rows, self.graph.norm),)

    def spmm_pair(self) -> tuple[Tensor, ...]:
        return kernels.spmm_pair(self.z, self.graph.rows, self.graph.norm, self.inverse)

    def spmm_pair_backward(self) -> tuple[Tensor, ...]:
        return (kernels.spmm_pair_backward(self.a, self.b, self.graph.rows_t, self.graph.norm_t, self.inverse),)

    def gated_propagate(self) -> tuple[Tensor, ...]:
        return kernels.gated_propagate(self.z, self.a, self.graph.rows, self.graph.norm, True)

    def gated_propagate_backward(self) -> tuple[Tensor, ...]:
        return kernels.gated_propagate_backward(self.grad, self.a, self.p, self.graph.rows_t, self.graph.norm_t)

    def sparse_linear(self) -> tuple[Tensor, ...]:
        width = self.width // self.keys.numel()
        return (kernels.sparse_linear(self.z, self.graph.rows, self.graph.norm, self.keys, self.rate, None, width),)

    NAMES = (
        "pair_forward", "pair_backward", "spmm", "spmm_pair", "spmm_pair_backward", "gated_propagate",
        "gated_propagate_backward", "sparse_linear",
    )  # fmt: skip

    def truth(self, name: str) -> tuple[Tensor, ...]:
        """The same in float64, with one row per entry."""
        g = self.graph
        a, b, z, grad, p, q = (x.double() for x in (self.a, self.b, self.z, self.grad, self.p, self.q))
        lam, norm, row_norm = self.lam.double(), g.norm.double()[:, None], g.row_norm.double()[:, None]

        def add(index: Tensor, entries: Tensor) -> Tensor:
            return torch.zeros_like(z).index_add_(0, index, entries)

        if name.startswith("pair"):
            s = torch.sigmoid(a[g.target] + b[g.source])
        if name == "pair_forward":
            t = norm * z[g.source] - row_norm * z[g.target]
            return z + lam * add(g.target, s * t), add(g.target, s * (1 - s) * t), add(g.target, s * row_norm)
        if name == "pair_backward":
            inner = s * (1 - s) * grad[g.target] * (norm * z[g.source] - row_norm * z[g.target])
            own = grad * (1 - lam * q)
            return lam * grad * p, lam * add(g.source, inner), own + lam * add(g.source, s * norm * grad[g.target])
        if name == "spmm":
            return (add(g.target, norm * z[g.source]),)
        if name == "spmm_pair":
            return add(g.target, norm * z[g.source]), add(g.target, z[g.source])
        if name == "spmm_pair_backward":
            return (add(g.source, norm * a[g.target] + b[g.target]),)
        if name == "gated_propagate":
            diff = add(g.target, norm * z[g.source]) - z
            return z + a * diff, diff
        if name == "gated_propagate_backward":
            return grad * (1 - a) + add(g.source, norm * (grad * a)[g.target]), grad * p
        word = 2**32 - 1
        h = torch.arange(g.target.numel(), device="cuda")[:, None] ^ self.keys
        h = h ^ h >> 16
        h = h * 0x7FEB352D & word
        h = h ^ h >> 15
        h = (h * 0x6CA68B + ((h * 0x84 & 0xFF) << 24)) & word  # in two parts, to stay inside 63 bits
        h = h ^ h >> 16
        keep = (h >= (self.rate * 2**32).floor().long()).double() / (1 - self.rate)
        keep = keep.repeat_interleave(self.width // self.keys.numel(), 1)
        return (add(g.target, keep * norm * z[g.source]),)


def check_one(name: str) -> dict[str, float]:
    """One operator at several widths, against float64; and the same bits twice."""
    hub = torch.arange(1, 100_001, device="cuda")
    star = build(torch.cat([hub, hub * 0]), torch.cat([hub * 0, hub]), 100_001, scale=1e-3)  # fits float16
    skew = (torch.rand(60_000, device="cuda") ** 4 * 3_000).long()
    skewed = build(skew, skew[torch.randperm(60_000, device="cuda")], 3_007)
    worst: dict[str, float] = {}
    for label, graph, widths in (("star", star, (3, 64)), ("skewed", skewed, (1, 3, 17, 64, 129, 640))):
        for width in widths:
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                ops = Operators(graph, width, dtype)
                got, again = getattr(ops, name)(), getattr(ops, name)()
                for x, y, truth in zip(got, again, ops.truth(name), strict=True):
                    assert torch.equal(x, y), (label, name, width, dtype, "not the same twice")
                    error = ((x.double() - truth).norm() / truth.norm()).item()
                    assert error < (2e-6 if dtype == torch.float32 else 4e-3), (label, name, width, dtype, error)
                    worst[str(dtype)[6:]] = max(worst.get(str(dtype)[6:], 0.0), error)
    return worst


def check() -> None:
    """All operators, a process each, since compiling takes longest."""
    with multiprocessing.get_context("spawn").Pool(len(Operators.NAMES)) as pool:
        for name, job in [(name, pool.apply_async(check_one, (name,))) for name in Operators.NAMES]:
            try:
                print(name, {dtype: f"{error:.1e}" for dtype, error in job.get().items()})
            except Exception as error:
                print(name, "FAILED", repr(error)[:600])


def milliseconds(call: Callable[[], Any], repeat: int = 15) -> float:
    """The median time on the device; launches queue up behind each other, so their overhead is hidden if shorter."""
    for _ in range(3):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeat)]
    torch.cuda._sleep(20_000_000)  # lets the host run ahead
    for begin, end in events:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def copy_bandwidth() -> float:
    """Bytes read and written a millisecond by a large copy."""
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() * 4 / milliseconds(lambda: target.copy_(source))


# lanes, unroll, block, warps
SHAPES = [
    (1, 8, 128), (1, 4, 128), (1, 2, 128), (1, 4, 256, 2), (2, 2, 64), (2, 4, 64), (2, 8, 64),
    (4, 4, 32), (4, 2, 32), (4, 1, 32),
]  # fmt: skip
SHAPES_LOW = [
    (1, 8, 256), (1, 4, 256), (1, 2, 256), (2, 4, 128), (2, 2, 128), (2, 1, 128), (4, 4, 64), (4, 2, 64), (4, 1, 64),
]  # fmt: skip
TUNED = ("pair_forward", "pair_backward", "spmm")


def use(shape: tuple[Any, ...] | None) -> None:
    gather.plan = PLAN if shape is None else lambda *_: gather.Tile(*shape)


def warm(job: tuple[tuple[Any, ...], str]) -> str | None:
    """Compiles one shape in a process of its own; the compiled kernels are found in Triton's cache later."""
    shape, name = job
    try:
        for graph in (
            even(40, 400),
            build(torch.arange(1200, device="cuda") // 600, torch.zeros(1200, device="cuda").long(), 40),
        ):
            use(shape)
            for op in TUNED:
                getattr(Operators(graph, 64, getattr(torch, name)), op)()
        torch.cuda.synchronize()
    except Exception as error:
        return f"{shape} {name}: {error!r}"[:300]
    return None


def cases(arxiv: Path | None) -> list[tuple[str, Graph, int]]:
    found = [("even 169k x 256", even(169_343, 2_315_598), 256)]
    if arxiv is not None:
        found.append(("arxiv x 256", symmetrised(arxiv), 256))
    found.append(("5k/343k x 64", even(5_196, 343_486), 64))
    found.append(("2.7k/10.5k x 10240", even(2_708, 10_556), 10_240))
    found.append(("5k/343k x 10240", even(5_196, 343_486), 10_240))
    found.append(("1M/10M x 128", even(1_000_000, 10_000_000), 128))
    return found


def tune(arxiv: Path | None, only: str | None) -> dict[str, Any]:
    pairs = ((torch.float32, SHAPES), (torch.bfloat16, SHAPES_LOW))
    jobs = [(shape, str(dtype)[6:]) for dtype, shapes in pairs for shape in shapes]
    with multiprocessing.get_context("spawn").Pool(14) as pool:
        failed = [message for message in pool.map(warm, jobs, chunksize=1) if message]
    print("\n".join(failed))
    results: dict[str, Any] = {"copy": copy_bandwidth() / 1e9}
    print(f"copy {results['copy']:.2f} TB/s")
    for label, graph, width in cases(arxiv):
        if only and only not in label:
            continue
        for dtype, shapes in pairs:
            ops = Operators(graph, width, dtype)
            large = width > 1000
            for name in TUNED:
                times = {}
                for shape in shapes:
                    use(shape)
                    try:
                        times[str(shape)] = milliseconds(getattr(ops, name), 5 if large else 11)
                    except Exception as error:
                        times[str(shape)] = float("nan")
                        print(shape, repr(error)[:200])
                results[f"{label} {str(dtype)[6:]} {name}"] = times
                best = sorted(times.items(), key=lambda item: item[1])
                print(
                    label,
                    str(dtype)[6:],
                    name,
                    " ".join(f"{s.replace(' ', '')}={t:.3f}" for s, t in best[:6]),
                    flush=True,
                )
            del ops
    use(None)
    return results


def eager(ops: Operators) -> float:
    """Forward and backward of the pair operator in plain PyTorch."""
    g = ops.graph
    leaves = [x.clone().requires_grad_() for x in (ops.a, ops.b, ops.z)]

    def step() -> None:
        a, b, z = leaves
        target, source = g.target, g.source
        s = torch.sigmoid(a.index_select(0, target) + b.index_select(0, source))
        t = g.norm[:, None] * z.index_select(0, source) - g.row_norm[:, None] * z.index_select(0, target)
        out = z + ops.lam * torch.zeros_like(z).index_add(0, target, (s * t).to(z.dtype))
        torch.autograd.grad(out, leaves, ops.grad)

    return milliseconds(step, 5)


def final(arxiv: Path | None) -> dict[str, Any]:
    bandwidth = copy_bandwidth()
    results: dict[str, Any] = {"copy": bandwidth / 1e9}
    print(f"copy {bandwidth / 1e9:.2f} TB/s")
    for label, graph, width in cases(arxiv):
        for dtype in (torch.float32, torch.bfloat16):
            ops = Operators(graph, width, dtype)
            times = {name: milliseconds(getattr(ops, name)) for name in Operators.NAMES}
            entries, item = graph.target.numel(), ops.z.element_size()
            row = width * item
            # Gathered rows; own rows read and results written: 5 in the forward, 8 in the backward; indices and values.
            bytes_moved = entries * (5 * row + 24) + graph.nodes * 13 * row
            times["pair"] = times["pair_forward"] + times["pair_backward"]
            times["bytes at copy bandwidth"] = bytes_moved / bandwidth
            if dtype == torch.float32 and entries * width < 2e9:
                times["eager pair"] = eager(ops)
                matrix = torch.sparse_csr_tensor(graph.rows.ptr.int(), graph.rows.idx, graph.norm)
                times["torch csr @ dense"] = milliseconds(lambda m=matrix, z=ops.z: m @ z)
            results[f"{label} {str(dtype)[6:]}"] = times
            print(label, str(dtype)[6:], " ".join(f"{k}={v:.3f}" for k, v in times.items()), flush=True)
            del ops
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("check", "tune", "final"))
    parser.add_argument("--arxiv", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "check":
        check()
        return
    results = tune(args.arxiv, args.only) if args.what == "tune" else final(args.arxiv)
    results["versions"] = [torch.__version__, triton.__version__, torch.cuda.get_device_name()]
    if args.out is not None:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
