"""Whether a run has the same bits alone and among others, and what that costs: all models, four graphs, many batches.

    python benchmarks/batch_invariance.py [bits] [cost] [--device cuda]

For each model and graph, two runs are trained alone, and again among 2, 20 and 160 in another order; on a CPU, also on
two threads. Losses, scores, gates and parameters must agree bit for bit. The cost is the time of an epoch of
`REPLICAS` runs against the same with PyTorch's products and sums, whose bits depend on the batch; in alternation.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import common
import torch

from gfgn.data import NodeDataset, load
from gfgn.nn.registry import MODELS
from gfgn.ops import heads
from gfgn.train import Replica, Run, TrainConfig, train_replicas
from gfgn.train.batch import Batch
from gfgn.train.progress import Progress
from gfgn.train.settings import num_threads
from gfgn.train.task import with_sparse_features
from gfgn.train.trainer import Trainer

GRAPHS = {
    "cpu": ("texas", "wisconsin", "cornell", "dimensions"),
    "cuda": ("texas", "cora", "blogcatalog", "minesweeper"),
}
SIZES = (2, 20, 160)
FEWER_SIZES, LARGE = (2, 20), 5_000  # on a CPU, for graphs with more edges
EPOCHS = 3
REPLICAS = {"cpu": 8, "cuda": 100}
TIMED = ("mlp", "gfgn-graph", "gfgn-neighbor", "gfgn-pair", "gcn", "gat", "gcnii")
OURS, PYTORCH = "same bits", "PyTorch's products"
MAX_EPOCHS = 1000
MAX_TIMED_EPOCHS, SAMPLE = {"cpu": 5, "cuda": 20}, 0.3
"""Epochs of a sample: as many as take about `SAMPLE` seconds, at least two."""


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


def different(model: str, data: NodeDataset, device: str, sizes: Sequence[int]) -> list[str]:
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


def make_batch(model: str, data: NodeDataset, device: str) -> Batch:
    """Runs in training, as `train_replicas` makes them."""
    chosen = [Replica(split=k % 10, seed=k) for k in range(REPLICAS[device])]
    config, count = TrainConfig(MAX_EPOCHS, best="last"), len(chosen)
    moved, progress = with_sparse_features(data.to(device)), Progress(count)
    trainer = Trainer(model, MODELS[model], moved, chosen, config, progress, False, False, False, count, None)
    return trainer._batch(trainer._group(list(range(count))), range(count))


def cost(model: str, data: NodeDataset, device: str, rounds: int) -> dict[str, float]:
    """Milliseconds of an epoch of all runs."""
    ways = {OURS: nullcontext, PYTORCH: products_of_pytorch}
    batches: dict[str, Batch] = {}
    times: dict[str, list[float]] = {name: [] for name in ways}
    epochs = 2
    for number, (name, way) in itertools.product(range(rounds + 1), ways.items()):
        with way():
            if number == 0:  # compiles, and on a GPU captures, an epoch
                batches[name] = make_batch(model, data, device)
                batches[name].run(2)
            times[name].append(1e3 * common.elapsed(lambda: batches[name].run(epochs), device) / epochs)  # noqa: B023
        if number == 0:
            epochs = max(2, min(MAX_TIMED_EPOCHS[device], int(1e3 * SAMPLE / times[name][0])))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    args = common.parser(__doc__ or "", 5, ("bits", "cost")).parse_args()
    datasets, parts = [load(name) for name in GRAPHS[args.device]], args.parts or ("bits", "cost")
    if "bits" in parts:
        models = [name for name, model in MODELS.items() if model.batchable]
        problems = []
        for data, model in itertools.product(datasets, models):
            chosen = FEWER_SIZES if args.device == "cpu" and data.graph.num_edges > LARGE else SIZES
            wrong = different(model, data, args.device, chosen)
            print(f"{data.name:12} {model:14} {'DIFFERENT ' + ', '.join(wrong) if wrong else 'same bits'}", flush=True)
            problems.append({"dataset": data.name, "model": model, "among": [1, *chosen], "different": wrong})
        common.write("batch_invariance", args.device, problems, epochs=EPOCHS)
        same = sum(not problem["different"] for problem in problems)
        print(f"{same} of {len(problems)} have the same bits in any company")
    if "cost" in parts:
        problems = []
        for data, model in itertools.product(datasets, TIMED):
            ms = cost(model, data, args.device, args.rounds)
            print(f"{data.name:12} {model:14} {ms}, {ms[OURS] / ms[PYTORCH]:.2f}x", flush=True)
            problems.append({"dataset": data.name, "model": model, "ms": ms, "ratio": ms[OURS] / ms[PYTORCH]})
        common.write("batch_invariance_cost", args.device, problems, replicas=REPLICAS[args.device])


if __name__ == "__main__":
    main()
