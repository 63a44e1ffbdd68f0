"""Kernels on several threads, after a fork, and from autograd; their memory."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from ops.operators import draw, make_graph, ragged, results
from torch import Tensor

from gfgn.ops.cpu import arrays, threads, walk


@pytest.fixture(params=["openmp", "pool"])
def two_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads of PyTorch's OpenMP, and of the pool that takes its place where there is none."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "openmp", None)
    elif threads.openmp is None:
        pytest.skip("this build of PyTorch has no OpenMP of GNU's interface")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


GRAPHS = [make_graph(1500, 20_000), ragged(4000, 3, nodes=1500)]


def run() -> list[Tensor]:
    """Operators of every kind, forward and backward, large enough for several threads."""
    found = []
    for name in ("propagate_and_mean", "gated_neighborhood", "gated_pair", "attend", "sparse_linear, dropout"):
        for graph in GRAPHS:
            found += results(name, None, graph, draw(name, graph, 2, 20), 1.0, torch.float32)
    return found


def same(x: list[Tensor], y: list[Tensor]) -> bool:
    return all(map(torch.equal, x, y))


def test_bits_do_not_depend_on_threads_or_tables(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run()
    for count in (1, 4, 2):
        torch.set_num_threads(count)
        assert same(run(), first)
    monkeypatch.setattr(walk, "TABLE_BYTES", 1)
    monkeypatch.setattr(walk, "SINGLE_THREAD_TABLE_BYTES", 1)
    assert same(run(), first)


def test_large_memory_is_aligned() -> None:
    large = arrays.empty(1025, 1024, dtype=torch.float32)
    assert large.shape == (1025, 1024)
    assert large.data_ptr() % 64 == 0


def test_calls_from_several_threads(two_threads: None) -> None:
    first, correct = run(), list[bool]()
    callers = [threading.Thread(target=lambda: correct.append(same(run(), first))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert correct == [True] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_calls_after_a_fork(two_threads: None) -> None:
    inputs = draw("pair_aggregate", GRAPHS[0], 1, 32)
    first = results("pair_aggregate", None, GRAPHS[0], inputs, 1.0, torch.float32)  # threads are running now
    torch.set_num_threads(1)  # PyTorch's own threads do not survive a fork
    child = os.fork()
    if child == 0:
        torch.get_num_threads = lambda: 2  # type: ignore[assignment]
        os._exit(0 if same(results("pair_aggregate", None, GRAPHS[0], inputs, 1.0, torch.float32), first) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch has another OpenMP there")
def test_openmp_of_pytorch_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without it everything works, but slower beside PyTorch's own operators."""
    assert threads.find_openmp() is not None
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert threads.find_openmp() is None


def test_waiting_threads_hold_no_memory(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "openmp", None)
    run()
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
    assert [subprocess.run([sys.executable, "-c", code], check=False).returncode] == [0]
