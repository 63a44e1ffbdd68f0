"""Kernels on several threads, after a fork, and from autograd; their memory."""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ops.cpu.problems import KEYS, RATE, Problem, assert_close, random_problem
from torch import Tensor

from gfgn.ops.cpu import arrays, kernels, threads, walk


@pytest.fixture(params=["openmp", "pool"])
def two_threads_of_each_kind(
    request: pytest.FixtureRequest, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of PyTorch's OpenMP, and of the pool that takes its place where there is none."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "openmp", None)
    elif threads.openmp is None:
        pytest.skip("this build of PyTorch has no OpenMP of GNU's interface")


def everything(columns: int = 40) -> Callable[[], list[Tensor]]:
    """All operators on a graph with hubs, large enough for several threads."""
    generator = torch.Generator().manual_seed(1)
    many, hubs = ((high, size) for high, size in ((1500, (20_000,)), (4, (4000,))))
    target, source = (
        torch.cat([torch.randint(*kind, generator=generator) for kind in kinds])
        for kinds in ((many, hubs), (hubs, many))
    )
    problem = Problem(target, source, 1500, columns, torch.float32)

    def run() -> list[Tensor]:
        linear = kernels.sparse_linear(problem.z, problem.rows, problem.norm, KEYS, RATE, None, columns // 4)
        inverse = torch.linspace(0.1, 1, 1500)
        weighted, plain = kernels.spmm_pair(problem.z, problem.rows, problem.norm, inverse)
        merged = kernels.spmm_pair_backward(weighted, plain, problem.rows_t, problem.norm_t, inverse)
        return [*problem.all(), problem.forward(save=False)[0], linear, weighted, plain, merged]

    return run


def same(x: list[Tensor], y: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(x, y, strict=True))


def test_bits_do_not_depend_on_threads(two_threads_of_each_kind: None) -> None:
    run = everything()
    first = run()
    for count in (2, 1, 4, 2):
        torch.set_num_threads(count)
        assert same(run(), first)


def test_bits_do_not_depend_on_the_size_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    run = everything(100)
    first = run()
    monkeypatch.setattr(walk, "TABLE_BYTES", 1)
    monkeypatch.setattr(walk, "SINGLE_THREAD_TABLE_BYTES", 1)
    assert same(run(), first)


def test_every_element_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in uninitialized memory must not reach a result."""
    run = everything(37 * 4)
    first = run()
    empty = arrays.empty
    monkeypatch.setattr(arrays, "empty", lambda *shape, dtype: empty(*shape, dtype=dtype).fill_(math.nan))
    assert same(run(), first)
    nothing = random_problem(6, 0, 3, torch.float32)
    assert all(x.isfinite().all() for x in nothing.all())


def test_large_memory_is_aligned() -> None:
    large = arrays.empty(1025, 1024, dtype=torch.float32)
    assert large.shape == (1025, 1024)
    assert large.data_ptr() % 64 == 0


def test_calls_from_several_threads(two_threads_of_each_kind: None) -> None:
    run = everything()
    first = run()
    correct: list[bool] = []

    def call() -> None:
        correct.extend(same(run(), first) for _ in range(3))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert correct == [True] * 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_calls_after_a_fork(two_threads_of_each_kind: None) -> None:
    problem = random_problem(2000, 60_000, 32, torch.float32)
    first = problem.forward()[0]  # threads are running now
    torch.set_num_threads(1)  # PyTorch's own threads do not survive a fork
    child = os.fork()
    if child == 0:
        torch.get_num_threads = lambda: 2  # type: ignore[assignment]
        os._exit(0 if torch.equal(problem.forward()[0], first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_from_autograd(two_threads_of_each_kind: None) -> None:
    problem = random_problem(2000, 30_000, 16, torch.float32)

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


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has another OpenMP there")
def test_openmp_of_pytorch_is_found() -> None:
    """Without it everything works, but slower beside PyTorch's own operators."""
    assert threads.find_openmp() is not None


def test_no_openmp_is_found_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert threads.find_openmp() is None


def test_waiting_threads_hold_no_memory(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "openmp", None)
    problem = random_problem(2000, 60_000, 32, torch.float32)
    problem.forward()
    problem.forward()
    end = time.monotonic() + 10
    while threads.pool.jobs.qsize() and time.monotonic() < end:
        time.sleep(0.01)
    assert threads.pool.jobs.empty()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "gfgn-kernel")


def test_a_process_ends_right_after_its_kernels() -> None:
    """A thread of the pool may still be returning from a kernel then."""
    code = (
        "import torch; from gfgn import Graph; torch.set_num_threads(2)\n"
        "edges = torch.randint(1000, (2, 300_000))\n"
        "for _ in range(3): Graph.from_edge_index(edges, 1000)"
    )
    assert [subprocess.run([sys.executable, "-c", code], check=False).returncode for _ in range(3)] == [0, 0, 0]
