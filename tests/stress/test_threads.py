"""Threads of one process that use the same files, kernels and stores at once: the same as one after the other."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.stores import row
from stress.cases import FACTOR, cases
from train.concurrent_calls import assert_results_of_calls_alone, make_calls

from gfgn import Graph
from gfgn.data import read
from gfgn.data.files import atomic_write
from gfgn.data.generators import dimensions
from gfgn.nn import GFGNConv
from gfgn.runs import Store, read_runs, write_runs

THREADS = 4


def at_once(job: Callable[[int], Any]) -> list[Any]:
    """The results of a job in several threads that start together."""
    barrier = threading.Barrier(THREADS)

    def wait_and_work(number: int) -> Any:
        barrier.wait()
        return job(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait_and_work, range(THREADS)))


def test_a_store_and_its_tables(tmp_path: Path) -> None:
    rows = [row(seed=number) for number in range(24)]

    def work(first: int) -> None:
        with Store(tmp_path / "runs.sqlite") as store:
            for number in range(first, 24, 2):  # every run is added by two threads
                store.add([rows[number]])
                store.to_csv(tmp_path / "runs.csv")
                write_runs(tmp_path / "runs.csv.gz", rows[: 1 + number])
                assert read_runs(tmp_path / "runs.csv.gz")

    at_once(lambda number: work(number % 2))
    with Store(tmp_path / "runs.sqlite") as store:
        assert store.rows() == rows
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 25
    assert len(list(tmp_path.iterdir())) == 3


def test_outputs(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def work(number: int) -> None:
        for _ in range(20):
            with atomic_write(path) as unfinished:
                unfinished.write_text(str(number) * 5000)
            text = path.read_text()
            assert text == text[0] * 5000

    at_once(work)
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]


def test_graphs_are_read_and_propagated(tmp_path: Path) -> None:
    for seed in cases(5):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        nodes = [f"{k},{'ab'[k % 2]},{draw.random()}" for k in range(40)]
        (folder / "nodes.csv").write_text("id,label,x\n" + "\n".join(nodes))
        edges = [f"{draw.randrange(40)},{draw.randrange(40)}" for _ in range(99)]
        (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges))
        conv = GFGNConv(1, 4, heads=2, level=draw.choice(("graph", "neighbor", "pair")))

        def work(_: int, folder: Path = folder, conv: GFGNConv = conv) -> list[torch.Tensor]:
            data = read(folder)
            x = data.x.to_dense().requires_grad_()
            out = conv(x, Graph.from_edge_index(data.graph.edge_index, num_nodes=data.num_nodes))
            return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])]

        alone = work(0)
        for tensors in at_once(work):
            assert all(torch.equal(a, b) for a, b in zip(alone, tensors, strict=True)), seed


@pytest.mark.parametrize("count", [1, 2])
def test_training(count: int) -> None:
    """The long form of `tests/train/test_threads.py`."""
    assert_results_of_calls_alone(make_calls(dimensions(100, seed=1), count), threads=THREADS, rounds=FACTOR)
