"""Where the processor time of a study goes: 80 runs of the paper's grid on Texas as one batch, on one thread.

    python benchmarks/study_profile.py [--rounds 3]

Kernels are timed call by call, by the processor time of the thread. What an epoch of two runs takes outside of kernels
does not grow with the batch: Python and PyTorch's dispatch. What an epoch of 80 runs takes beyond it are PyTorch's own
functions, and Python that finds its data no longer in the cache. The levels alternate; the fastest round counts.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import common
import torch

from gfgn.data import load
from gfgn.ops.cpu.machine import Kernel
from gfgn.runs import PAPER_GRID
from gfgn.runs.grid import make_replica
from gfgn.train import keep_freed_memory, train_replicas
from gfgn.train.batch import Batch

RUNS, EPOCHS, FEW = 80, 100, 2
PARTS = {
    "products with the sparse features": ("sparse_linear",),
    "Adam": ("adam",),
    "copies of the best parameters": ("copy",),
    "sums over neighbors, gates": ("spmm", "pair", "neighbor", "halves", "sigmoid"),
    "other products, dropout, sums over nodes": ("product", "gradient", "sum", "dropout"),
}


@contextmanager
def timed(owner: Any, name: str, measure: Callable[..., Any]) -> Iterator[None]:
    """Replaces a method by `measure(method, *arguments)`."""
    method = getattr(owner, name)
    setattr(owner, name, lambda *args: measure(method, *args))
    try:
        yield
    finally:
        setattr(owner, name, method)


def profile(level: str, runs: int) -> Counter[str]:
    """Seconds of processor time: `"total"`, `"epochs"` and, of these, each part of `PARTS`."""
    seconds: Counter[str] = Counter()

    def bind(method: Any, kernel: Kernel, *args: Any) -> Callable[[], None]:
        call, name = method(kernel, *args), kernel.function.__name__
        part = next(part for part, names in PARTS.items() if name.startswith(names))

        def run() -> None:
            start = time.thread_time()
            call()
            seconds[part] += time.thread_time() - start

        return run

    def run_epochs(method: Any, *args: Any) -> None:
        with timed(Kernel, "bind", bind):
            start = time.thread_time()
            method(*args)
            seconds["epochs"] += time.thread_time() - start

    replicas = [make_replica(each, split=split, seed=0) for each in PAPER_GRID for split in range(10)][:runs]
    with timed(Batch, "run", run_epochs):
        start = time.thread_time()
        train_replicas(f"gfgn-{level}", load("texas"), replicas, EPOCHS, patience=EPOCHS, batch_size=runs)
        seconds["total"] = time.thread_time() - start
    return seconds


def shares(many: Counter[str], few: Counter[str]) -> dict[str, float]:
    """The share of each part of the time of `many` runs."""
    host = few["epochs"] - sum(few[part] for part in PARTS)
    found = {part: many[part] for part in PARTS}
    found["PyTorch's own functions"] = many["epochs"] - sum(found.values()) - host
    found["Python and dispatch"] = host
    found["initial parameters, results"] = many["total"] - many["epochs"]
    return {part: seconds / many["total"] for part, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    levels = ("graph", "neighbor", "pair")
    rounds: dict[tuple[str, int], list[Counter[str]]] = {(level, runs): [] for level in levels for runs in (RUNS, FEW)}
    with keep_freed_memory():
        for _ in range(args.rounds):
            for (level, runs), measured in rounds.items():
                measured.append(profile(level, runs))
    problems: list[dict[str, object]] = []
    for level in levels:
        many, few = (min(rounds[level, runs], key=lambda each: each["total"]) for runs in (RUNS, FEW))
        each = 1e3 * many["total"] / (RUNS * EPOCHS)
        problems.append({"level": level, "ms_per_epoch_of_a_run": each, "shares": shares(many, few)})
        print(
            f"{level}: {each:.3f} ms", *(f"{part} {share:.1%}" for part, share in shares(many, few).items()), sep=", "
        )
    common.write("study_profile", "cpu", problems, runs=RUNS, epochs=EPOCHS)


if __name__ == "__main__":
    main()
