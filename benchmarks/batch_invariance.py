"""Whether a run has the same bits alone and among others, and what that costs: all models, four graphs, many batches.

    python benchmarks/batch_invariance.py [bits] [cost] [--device cuda] [--models gfgn-pair,gat] [--graphs texas]

For each model and graph, two runs are trained alone, and again among 2, 20 and 160 in another order; on a CPU, also on
two threads. Losses, scores, gates and parameters must agree bit for bit. The cost is the time of an epoch of
`REPLICAS` runs against the same with PyTorch's products and sums, whose bits depend on the batch; in alternation.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import common
import torch

from gfgn.data import Dataset, load
from gfgn.nn.registry import MODELS
from gfgn.ops import heads
from gfgn.train import Replica, Run, train_replicas
from gfgn.train.settings import num_threads

GRAPHS = ("texas", "cora", "blogcatalog", "minesweeper")
SIZES = (2, 20, 160)
EPOCHS = 3
REPLICAS = {"cpu": 8, "cuda": 100}
TIMED = ("mlp", "gfgn-graph", "gfgn-neighbor", "gfgn-pair", "gcn", "gat", "gcnii")
OURS, PYTORCH = "same bits", "PyTorch's products"
TIMED_EPOCHS = {"cpu": 5, "cuda": 20}


def replicas(count: int) -> list[Replica]:
    """`count` different runs, of which the first two are compared."""
    grid = itertools.cycle(itertools.product((0.02, 0.01, 0.05), (0.5, 0.0, 0.2), (1.0, 0.5)))
    return [
        Replica(split=k % 2, seed=k // 2, lr=lr, dropout=dropout, lam=lam)
        for k, (lr, dropout, lam) in zip(range(count), grid, strict=False)
    ]


def bits(run: Run) -> list[bytes]:
    """Everything of a run that must not depend on its company."""
    assert run.state is not None
    numbers = [run.val, run.test, *itertools.chain(*run.history.values()), *(run.gates or {}).values()]
    return [
        torch.tensor(numbers, dtype=torch.float64).numpy().tobytes(),
        *(x.numpy().tobytes() for x in run.state.values()),
    ]


def different(model: str, data: Dataset, device: str, sizes: Sequence[int]) -> list[str]:
    """In which company a run has other bits than alone."""

    def train(chosen: list[Replica], threads: int = 1) -> dict[Replica, list[bytes]]:
        with num_threads(threads):
            runs = train_replicas(model, data, chosen, EPOCHS, EPOCHS, device, keep_state=True, batch_size=len(chosen))
        return {run.replica: bits(run) for run in runs}

    watched = replicas(2)
    alone = {replica: train([replica])[replica] for replica in watched}
    companies = {"two threads": lambda: train(watched[:1], 2) | train(watched[1:], 2)} if device == "cpu" else {}
    for size in sizes:
        shuffled = replicas(size)
        random.Random(0).shuffle(shuffled)
        companies[f"among {size}"] = lambda shuffled=shuffled: train(shuffled)
    return [name for name, company in companies.items() if {r: company()[r] for r in watched} != alone]


@contextmanager
def products_of_pytorch() -> Iterator[None]:
    before, heads._products = heads._products, lambda x: None
    try:
        yield
    finally:
        heads._products = before


def cost(model: str, data: Dataset, device: str, rounds: int = 3) -> dict[str, float]:
    """Milliseconds of an epoch, from the difference of a long and a short training, which prepare the same."""
    chosen = [Replica(split=k % 10, seed=k) for k in range(REPLICAS[device])]
    epochs = TIMED_EPOCHS[device]

    def seconds(number: int) -> float:
        start = time.perf_counter()
        train_replicas(model, data, chosen, number, number, device, batch_size=len(chosen), gates=False, best="last")
        return time.perf_counter() - start

    times: dict[str, list[float]] = {OURS: [], PYTORCH: []}
    for k in range(rounds + 1):
        for name, values in times.items():
            with products_of_pytorch() if name == PYTORCH else nullcontext():
                elapsed = seconds(2 * epochs) - seconds(epochs)
            if k > 0:  # the first round compiles
                values.append(1e3 * elapsed / epochs)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=("bits", "cost"), help="bits, cost or both")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--models", default="", help="default: all for bits, some for cost")
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    args = parser.parse_args()
    sizes, datasets = [int(size) for size in args.sizes.split(",")], list(map(load, args.graphs.split(",")))
    if "bits" in args.parts:
        models = args.models.split(",") if args.models else [name for name, model in MODELS.items() if model.replicas]
        problems = []
        for data, model in itertools.product(datasets, models):
            wrong = different(model, data, args.device, sizes)
            print(f"{data.name:12} {model:14} {'DIFFERENT ' + ', '.join(wrong) if wrong else 'same bits'}", flush=True)
            problems.append({"dataset": data.name, "model": model, "different": wrong})
        common.write("batch_invariance", args.device, problems, epochs=EPOCHS, sizes=sizes)
        same = sum(not problem["different"] for problem in problems)
        print(f"{same} of {len(problems)} have the same bits in any company")
    if "cost" in args.parts:
        problems = []
        for data, model in itertools.product(datasets, args.models.split(",") if args.models else TIMED):
            ms = cost(model, data, args.device)
            print(f"{data.name:12} {model:14} {ms}, {ms[OURS] / ms[PYTORCH]:.2f}x", flush=True)
            problems.append({"dataset": data.name, "model": model, "ms": ms, "ratio": ms[OURS] / ms[PYTORCH]})
        common.write("batch_invariance_cost", args.device, problems, replicas=REPLICAS[args.device])


if __name__ == "__main__":
    main()
