"""The Numba kernels against plain float64 PyTorch, at odd shapes, on hubs, under NaN, threads and forks."""

import math
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from gfgn.ops.cpu import kernels
from gfgn.ops.csr import CSR, compress

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}
WIDTHS = [1, 3, 17, 64, 129, 300]


class Problem:
    """A pattern in both orders with weights, and node tensors; `target[e]` takes from `source[e]`."""

    def __init__(
        self,
        target: Tensor,
        source: Tensor,
        nodes: int,
        columns: int,
        dtype: torch.dtype,
        seed: int = 0,
        scale: float = 1.0,
    ) -> None:
        make = torch.Generator().manual_seed(seed)
        order = torch.argsort(target, stable=True)
        self.target, self.source = target[order], source[order]
        self.rows = compress(self.target, self.source, nodes)
        self.entry = torch.argsort(self.source, stable=True)
        self.rows_t = compress(self.source[self.entry], self.target[self.entry], nodes)
        self.norm, self.row_norm = (
            torch.rand(target.numel(), generator=make, dtype=torch.float64).to(dtype) for _ in range(2)
        )
        self.norm_t, self.row_norm_t = self.norm[self.entry], self.row_norm[self.entry]
        self.a, self.b, self.z, self.grad = (
            (torch.randn(nodes, columns, generator=make, dtype=torch.float64) * size).to(dtype)
            for size in (scale, scale, 1.0, 1.0)
        )
        self.lam = torch.rand(columns, generator=make, dtype=torch.float64).to(dtype)

    def forward(self, save: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        return kernels.pair_forward(self.a, self.b, self.z, self.lam, self.norm, self.row_norm, self.rows, save)

    def backward(self, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        args = (self.grad, self.a, self.b, self.z, p, q, self.lam, self.norm_t, self.row_norm_t, self.rows_t)
        return kernels.pair_backward(*args)

    def all(self) -> list[Tensor]:
        out, p, q = self.forward()
        return [out, p, q, *self.backward(p, q)]

    def expected(self) -> list[Tensor]:
        """Everything `all` returns, by index operations and autograd in float64."""
        a, b, z = (x.double().clone().requires_grad_() for x in (self.a, self.b, self.z))
        norm, row_norm, lam = (x.double() for x in (self.norm, self.row_norm, self.lam))
        s = torch.sigmoid(a[self.target] + b[self.source])
        t = norm[:, None] * z[self.source] - row_norm[:, None] * z[self.target]
        nothing = torch.zeros_like(z)
        out = z + lam * nothing.index_add(0, self.target, s * t)
        p = nothing.index_add(0, self.target, s * (1 - s) * t)
        q = nothing.index_add(0, self.target, s * row_norm[:, None])
        grads = torch.autograd.grad(out, (a, b, z), self.grad.double(), allow_unused=True)
        return [x.detach() for x in (out, p, q, *(g if g is not None else nothing for g in grads))]


def random_problem(
    nodes: int, entries: int, columns: int, dtype: torch.dtype = torch.float64, **options: float
) -> Problem:
    make = torch.Generator().manual_seed(nodes + entries)
    ends = torch.randint(max(nodes - 2, 1), (2, entries), generator=make)  # the last nodes are isolated
    return Problem(ends[0], ends[1], nodes, columns, dtype, **options)  # type: ignore[arg-type]


def ragged(*lengths: int, nodes: int) -> tuple[Tensor, Tensor]:
    """Rows of the given lengths, then empty ones."""
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return row, torch.arange(row.numel()) * 7 % nodes


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    scale = expected.abs().max().item() if expected.numel() else 1.0
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=TOLERANCE[dtype] * max(scale, 1e-3))


def check_all(problem: Problem) -> None:
    for actual, expected in zip(problem.all(), problem.expected(), strict=True):
        assert_close(actual, expected, problem.z.dtype)


def dense(rows: CSR, values: Tensor | None, columns: int) -> Tensor:
    count = rows.ptr.numel() - 1
    row = torch.repeat_interleave(torch.arange(count), rows.ptr.diff())
    values = torch.ones(row.numel(), dtype=torch.float64) if values is None else values.double()
    return torch.zeros(count, columns, dtype=torch.float64).index_put((row, rows.idx.long()), values, accumulate=True)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# --------------------------------------------------------------------------------------------------------- gated sums


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("columns", WIDTHS)
def test_pair_at_odd_widths(columns: int, dtype: torch.dtype) -> None:
    check_all(random_problem(53, 400, columns, dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pair_at_many_columns(dtype: torch.dtype) -> None:
    check_all(random_problem(9, 30, 4096, dtype))


@pytest.mark.parametrize(("nodes", "entries"), [(0, 0), (1, 0), (5, 0), (1, 1), (1, 700), (3, 5)])
def test_pair_on_tiny_graphs(nodes: int, entries: int) -> None:
    check_all(random_problem(nodes, entries, 5))


@pytest.mark.parametrize("columns", [3, 64])
def test_pair_on_rows_around_a_segment(columns: int) -> None:
    target, source = ragged(511, 0, 512, 513, 1, 1024, 1025, 1536, 0, nodes=40)
    check_all(Problem(target, source, 40, columns, torch.float64))
    check_all(Problem(source, target, 40, columns, torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pair_on_a_star(dtype: torch.dtype, two_threads: None) -> None:
    leaves, middle = torch.arange(1, 100_001), torch.zeros(100_000, dtype=torch.int64)
    check_all(Problem(torch.cat([leaves, middle]), torch.cat([middle, leaves]), 100_001, 5, dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [20.0, 60.0, 500.0, 1e4])
def test_pair_where_gates_are_far_out(scale: float, dtype: torch.dtype) -> None:
    problem = random_problem(40, 3000, 19, dtype, scale=scale)
    problem.b[:20] -= problem.a[:20]  # sums near 0 of large terms
    results = problem.all()
    assert all(x.isfinite().all() for x in results)
    for actual, expected in zip(results, problem.expected(), strict=True):
        assert_close(actual, expected, dtype)


def test_pair_at_the_ends_of_the_range() -> None:
    for dtype in (torch.float32, torch.float64):
        problem = random_problem(30, 200, 16, dtype)
        for a in (1e4, -1e4, 39.0, -39.0, 0.0):
            for b in (1e4, -1e4, 41.0, -41.0, 0.0):
                problem.a[:], problem.b[:] = a, b
                check_all(problem)


def test_a_far_column_leaves_the_others_bits_alone() -> None:
    """Which way a gate was computed must not show: a column's bits are its own."""
    problem = random_problem(60, 900, 20, torch.float32)
    before = problem.all()
    problem.a[3, 7] = 1e3
    problem.b[:, 18] = -1e3
    others = [k for k in range(20) if k not in (7, 18)]
    for x, y in zip(before, problem.all(), strict=True):
        assert torch.equal(x[:, others], y[:, others])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_column_does_not_know_its_place(dtype: torch.dtype) -> None:
    problem = random_problem(60, 5000, 37, dtype)
    whole = problem.all()
    for name in ("a", "b", "z", "grad"):
        setattr(problem, name, getattr(problem, name)[:, 30:33].contiguous())
    problem.lam = problem.lam[30:33]
    for x, y in zip(whole, problem.all(), strict=True):
        assert torch.equal(x[:, 30:33], y)


def test_without_saving() -> None:
    problem = random_problem(53, 2000, 21, torch.float32)
    out, p, q = problem.forward(save=False)
    assert p.numel() == q.numel() == 0
    assert_close(out, problem.expected()[0], torch.float32)


def test_pair_takes_strided_inputs() -> None:
    problem = random_problem(31, 200, 24)
    expected = problem.all()
    for name in ("a", "b", "z", "grad"):
        setattr(problem, name, getattr(problem, name).t().contiguous().t())
    for name in ("norm", "row_norm", "norm_t", "row_norm_t", "lam"):
        setattr(problem, name, torch.stack([getattr(problem, name)] * 2, 1)[:, 0])
    for x, y in zip(problem.all(), expected, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("name", ["a", "b", "z", "grad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_propagates(name: str, dtype: torch.dtype) -> None:
    problem = random_problem(40, 300, 18, dtype)
    getattr(problem, name)[int(problem.source[0]), 17] = math.nan
    for actual, expected in zip(problem.all(), problem.expected(), strict=True):
        # `p` of a node without neighbours may be NaN · 0 here and 0 there: no less NaN than expected is what counts.
        assert bool((actual.isnan() | ~expected.isnan()).all())
        assert bool(actual[:, :17].isfinite().all())


# --------------------------------------------------------------------------------------------------------- plain sums


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", WIDTHS)
def test_spmm(columns: int, dtype: torch.dtype) -> None:
    row, idx = ragged(3, 0, 512, 513, 1, 1025, 0, nodes=90)
    rows = compress(row, idx, 8)  # rectangular: 8 rows over 90
    make = torch.Generator().manual_seed(columns)
    x, y = (torch.randn(90, columns, generator=make).to(dtype) for _ in range(2))
    values = torch.rand(row.numel(), generator=make).to(dtype)
    weighted, plain = dense(rows, values, 90), dense(rows, None, 90)
    assert_close(kernels.spmm(x, rows, values), weighted @ x.double(), dtype)
    assert_close(kernels.spmm(x, rows, None), plain @ x.double(), dtype)
    inverse = torch.rand(8, generator=make)
    mean = inverse.double().unsqueeze(1) * plain
    for actual, matrix in zip(kernels.spmm_pair(x, rows, values, inverse), (weighted, mean), strict=True):
        assert_close(actual, matrix @ x.double(), dtype)
    inverse = torch.rand(90, generator=make)
    expected = weighted @ x.double() + plain @ (inverse.double().unsqueeze(1) * y.double())
    assert_close(kernels.spmm_pair_backward(x, y, rows, values, inverse), expected, dtype)


@pytest.mark.parametrize(("nodes", "count"), [(0, 0), (4, 0), (0, 4), (4, 3)])
def test_spmm_of_nothing(nodes: int, count: int) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    rows, x = compress(nothing, nothing, count), torch.ones(nodes, 6)
    outputs = [kernels.spmm(x, rows, None), kernels.spmm(x.t().contiguous().t(), rows, torch.ones(0))]
    outputs += kernels.spmm_pair(x, rows, torch.ones(0), torch.ones(count))
    outputs.append(kernels.spmm_pair_backward(x, x, rows, torch.ones(0), torch.ones(nodes)))
    for out in outputs:
        assert torch.equal(out, torch.zeros(count, 6))


# ------------------------------------------------------------------------------------------------------------- dropout


def slow_hash(number: int, key: int) -> int:
    low = 0xFFFFFFFF
    h = (number & low) ^ key
    h ^= ((number >> 32) * 0x9E3779B1) & low
    h ^= h >> 16
    h = h * 0x7FEB352D & low
    h ^= h >> 15
    h = h * 0x846CA68B & low
    return h ^ h >> 16


def slow_linear(
    weight: Tensor, rows: CSR, values: Tensor, keys: Tensor, rate: Tensor, entry: list[int], columns: int
) -> Tensor:
    parts = []
    for r, (key, drop) in enumerate(zip(keys.tolist(), rate.tolist(), strict=True)):
        kept = [slow_hash(number, key) >= math.floor(drop * 2**32) for number in entry]
        thinned = values.double() * torch.tensor(kept, dtype=torch.float64) / (1 - drop)
        parts.append(dense(rows, thinned, weight.size(0)) @ weight[:, r * columns : (r + 1) * columns].double())
    return torch.cat(parts, 1)


KEYS = torch.tensor([0, 1, 0xFFFFFFFF, 0x9E3779B1])
RATE = torch.tensor([0.0, 0.5, 0.25, 0.999], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("columns", [1, 7, 16, 33, 64, 100])
def test_sparse_linear_and_its_transpose(columns: int, dtype: torch.dtype) -> None:
    problem = random_problem(70, 1500, 1, dtype)
    make = torch.Generator().manual_seed(columns)
    weight = torch.randn(70, 4 * columns, generator=make).to(dtype)
    numbers = list(range(1500))
    args = (problem.norm, KEYS, RATE)
    out = kernels.sparse_linear(weight, problem.rows, *args, None, columns)
    assert_close(out, slow_linear(weight, problem.rows, *args, numbers, columns), dtype)
    assert torch.equal(out, kernels.sparse_linear(weight, problem.rows, *args, torch.tensor(numbers), columns))

    args_t = (problem.norm_t, KEYS, RATE)
    back = kernels.sparse_linear(weight, problem.rows_t, *args_t, problem.entry, columns)
    assert_close(back, slow_linear(weight, problem.rows_t, *args_t, problem.entry.tolist(), columns), dtype)
    for r in range(4):  # ⟨M w, w⟩ = ⟨w, Mᵀ w⟩ holds only if both dropped the same entries
        part = slice(r * columns, (r + 1) * columns)
        left, right = ((x[:, part].double() * weight[:, part].double()).sum().item() for x in (out, back))
        assert left == pytest.approx(right, rel=1e-4, abs=1e-3)


def test_sparse_linear_with_numbers_beyond_32_bits() -> None:
    row, idx = ragged(5, 600, 3, nodes=11)
    rows, values = compress(row, idx, 3), torch.rand(608, dtype=torch.float64)
    entry = torch.arange(608) * (2**33 + 12_345) + 2**40
    weight = torch.randn(11, 4 * 3, dtype=torch.float64)
    out = kernels.sparse_linear(weight, rows, values, KEYS, RATE, entry, 3)
    assert_close(out, slow_linear(weight, rows, values, KEYS, RATE, entry.tolist(), 3), torch.float64)


def test_sparse_linear_drops_at_its_rate() -> None:
    count = 200_000
    rows = compress(torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64), 1)
    rate = torch.tensor([0.5, 0.1, 0.9, 0.0], dtype=torch.float64)
    out = kernels.sparse_linear(torch.ones(1, 4, dtype=torch.float64), rows, torch.ones(count), KEYS, rate, None, 1)
    torch.testing.assert_close(out, torch.full_like(out, count), rtol=0.02, atol=0)
    assert out[0, 3].item() == count


def test_a_replica_does_not_know_its_neighbours() -> None:
    problem = random_problem(50, 1200, 1, torch.float32)
    weight = torch.randn(50, 4 * 37)
    together = kernels.sparse_linear(weight, problem.rows, problem.norm, KEYS, RATE, None, 37)
    for r in range(4):
        alone = weight[:, r * 37 : (r + 1) * 37]
        out = kernels.sparse_linear(alone, problem.rows, problem.norm, KEYS[r : r + 1], RATE[r : r + 1], None, 37)
        assert torch.equal(out, together[:, r * 37 : (r + 1) * 37])


# -------------------------------------------------------------------------------------------------- memory and threads


def everything(columns: int = 40) -> Callable[[], list[Tensor]]:
    """All operators on a graph with hubs, large enough for helpers to be called."""
    make = torch.Generator().manual_seed(1)
    target = torch.cat([torch.randint(3000, (40_000,), generator=make), torch.randint(4, (8000,), generator=make)])
    source = torch.cat([torch.randint(4, (8000,), generator=make), torch.randint(3000, (40_000,), generator=make)])
    problem = Problem(target, source, 3000, columns, torch.float32)

    def run() -> list[Tensor]:
        linear = kernels.sparse_linear(problem.z, problem.rows, problem.norm, KEYS, RATE, None, columns // 4)
        inverse = torch.linspace(0.1, 1, 3000)
        weighted, plain = kernels.spmm_pair(problem.z, problem.rows, problem.norm, inverse)
        merged = kernels.spmm_pair_backward(weighted, plain, problem.rows_t, problem.norm_t, inverse)
        return [*problem.all(), problem.forward(save=False)[0], linear, weighted, plain, merged]

    return run


def same(x: list[Tensor], y: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(x, y, strict=True))


def test_same_bits_whatever_the_threads(two_threads: None) -> None:
    run = everything()
    first = run()
    for threads in (2, 1, 4, 2):
        torch.set_num_threads(threads)
        for _ in range(3):
            assert same(run(), first)


def test_same_bits_whatever_is_packed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    run = everything(100)
    first = run()
    monkeypatch.setattr(kernels, "TABLE_BYTES", 1)
    assert same(run(), first)


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory full of NaN must show nowhere."""
    run = everything(37 * 4)
    first = run()
    fresh = kernels._fresh
    monkeypatch.setattr(kernels, "_fresh", lambda *shape, dtype: fresh(*shape, dtype=dtype).fill_(math.nan))
    assert same(run(), first)
    nothing = random_problem(6, 0, 3, torch.float32)
    assert all(x.isfinite().all() for x in nothing.all())


def test_calls_from_several_threads(two_threads: None) -> None:
    run = everything()
    first = run()
    right: list[bool] = []

    def call() -> None:
        right.extend(same(run(), first) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_calls_after_a_fork(two_threads: None) -> None:
    problem = random_problem(2000, 60_000, 32, torch.float32)
    first = problem.forward()[0]  # helpers are running now
    torch.set_num_threads(1)  # PyTorch's own threads do not outlive a fork
    child = os.fork()
    if child == 0:
        torch.get_num_threads = lambda: 2  # type: ignore[assignment]
        os._exit(0 if torch.equal(problem.forward()[0], first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_called_from_autograd(two_threads: None) -> None:
    problem = random_problem(2000, 60_000, 32, torch.float32)

    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a: Tensor, b: Tensor, z: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            out, ctx.p, ctx.q = problem.forward()
            return out

        @staticmethod
        def backward(ctx, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
            return problem.backward(ctx.p, ctx.q)

    leaves = [x.clone().requires_grad_() for x in (problem.a, problem.b, problem.z)]
    Pair.apply(*leaves).backward(problem.grad)
    for leaf, expected in zip(leaves, problem.expected()[3:], strict=True):
        assert leaf.grad is not None
        assert_close(leaf.grad, expected, torch.float32)


def test_a_long_compilation_is_announced_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_told", set())
    with kernels._announced(torch.float32):
        pass
    threading.Event().wait(1.2)
    assert capsys.readouterr().err == ""
    for _ in range(2):
        with kernels._announced(torch.float32):
            threading.Event().wait(1.3)
    assert capsys.readouterr().err.count("compiling the CPU kernels for float32") == 1


def test_helpers_hold_no_memory_back(two_threads: None) -> None:
    problem = random_problem(2000, 60_000, 32, torch.float32)
    problem.forward()
    assert kernels._helpers.jobs.qsize() <= 1
    assert np.all([t.daemon for t in threading.enumerate() if t.name == "gfgn-helper"])
