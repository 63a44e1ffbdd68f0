"""Training on samples beside training on the whole graph: accuracy at every level; exact layer-wise inference.

    python benchmarks/sampled.py [accuracy] [inference] [--dataset ogbn-arxiv-structure] [--seeds 3] [--processes 1]

`accuracy`: both ways train the same networks. For each way, the learning rate is the one of the same list with the best
validation score at the first seed; every run keeps the epoch with the best validation score and ends `patience` epochs
after it. Test scores are read once, of the chosen learning rate and all seeds. `difference` is the mean test accuracy
on samples minus that on the whole graph, in points; `error` is its standard error over the seeds. With `--processes`,
runs on samples, whose work is mostly the CPU's, share the device.

`inference`: the largest difference between logits of `infer_layerwise` and of the whole graph, absolute and relative to
the largest logit, in float32 and float64, of networks that were trained on samples for an epoch.
"""

from __future__ import annotations

import argparse
import functools
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import common
import torch

from gfgn import GFGN, Graph
from gfgn.data import Dataset, load
from gfgn.nn.registry import find_model
from gfgn.train import Replica, Run, infer_layerwise, train_minibatch, train_replicas
from gfgn.train.config import TrainConfig
from gfgn.train.program import seeded_module

LEVELS = ("graph", "neighbor", "pair")
WHOLE, SAMPLES = "whole graph", "samples"
OPTIONS = (("heads", 8), ("hidden", 64), ("layers", 2))
SAMPLING = (("batch_size", 1024), ("fanout", 10))
DROPOUT = 0.2
RATES = (0.002, 0.005, 0.01, 0.02, 0.05)

dataset = functools.cache(load)  # once per process


# --- inference --------------------------------------------------------------------------------------------------------


def inference(data: Dataset, level: str, device: str) -> list[dict[str, object]]:
    replica = Replica(lr=0.005, weight_decay=0.0, dropout=DROPOUT, options=tuple(sorted(OPTIONS + SAMPLING)))
    [run] = train_minibatch(f"gfgn-{level}", data, [replica], TrainConfig(1, 1), device, keep_state=True)
    entry = find_model(run.model)
    settings = entry.settings(run.model, OPTIONS, {"num_nodes": data.num_nodes})
    net = seeded_module(entry, data, settings, 0, 0.0, run.replica.lam, None)
    assert isinstance(net, GFGN)
    assert run.state is not None
    net.load_state_dict(run.state)
    return [errors(net, data, level, dtype) for dtype in (torch.float32, torch.float64)]


@torch.no_grad()
def errors(net: GFGN, data: Dataset, level: str, dtype: torch.dtype) -> dict[str, object]:
    graph = Graph.from_edge_index(data.graph.edge_index, data.num_nodes, data.graph.weight, dtype=dtype)
    net, x = net.to(dtype).eval(), data.x.to(dtype)
    whole, found = net(x, graph), infer_layerwise(net, x, graph)
    largest, error = float(whole.abs().max()), float((found - whole).abs().max())
    facts = {"level": level, "dtype": str(dtype).removeprefix("torch."), "largest_logit": largest, "logit_error": error}
    probability = float((found.softmax(1) - whole.softmax(1)).abs().max())
    return facts | {"relative_error": error / largest, "probability_error": probability}


# --- accuracy ---------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """Runs that a process trains, one after the other or together."""

    way: str
    level: str
    runs: list[tuple[float, int]]  # learning rate and seed of each


def train(job: Job, arguments: argparse.Namespace) -> tuple[list[Run], float]:
    """The runs, and their time."""
    data, model, start = dataset(arguments.dataset), f"gfgn-{job.level}", time.perf_counter()
    options = OPTIONS if job.way == WHOLE else tuple(sorted(OPTIONS + SAMPLING))
    fixed: dict[str, Any] = {"weight_decay": 0.0, "dropout": DROPOUT, "options": options}
    replicas = [Replica(lr=lr, seed=seed, **fixed) for lr, seed in job.runs]
    limits, device = limits_of(job.way, arguments), arguments.device
    if job.way == WHOLE:
        runs = train_replicas(model, data, replicas, *limits, device, history=False, gates=False)
    else:
        runs = train_minibatch(model, data, replicas, TrainConfig(*limits), device, history=False)
    return runs, time.perf_counter() - start


def limits_of(way: str, arguments: argparse.Namespace) -> tuple[int, int]:
    """Most epochs, and patience."""
    if way == WHOLE:
        return arguments.epochs, arguments.patience
    return arguments.sampled_epochs, arguments.sampled_patience


def jobs_of(way: str, level: str, runs: list[tuple[float, int]]) -> list[Job]:
    """Runs on the whole graph train together, those on samples one by one."""
    return [Job(way, level, runs)] if way == WHOLE else [Job(way, level, [run]) for run in runs]


@contextmanager
def workers(arguments: argparse.Namespace) -> Iterator[Any]:
    """A function that trains a list of jobs."""
    if arguments.processes == 1:
        yield lambda jobs: [train(job, arguments) for job in jobs]
        return
    threads = max(1, (os.cpu_count() or 1) // arguments.processes)
    method = multiprocessing.get_context("spawn")  # a process that was forked could not use the GPU
    with ProcessPoolExecutor(arguments.processes, method, torch.set_num_threads, (threads,)) as pool:
        yield lambda jobs: list(pool.map(train, jobs, [arguments] * len(jobs)))


def compare(arguments: argparse.Namespace) -> list[dict[str, object]]:
    pairs = [(way, level) for level in arguments.levels for way in (WHOLE, SAMPLES)]
    found: dict[tuple[str, str], list[Run]] = {pair: [] for pair in pairs}
    spent: dict[tuple[str, str], float] = dict.fromkeys(pairs, 0.0)

    def add(jobs: list[Job]) -> None:
        for job, (runs, seconds) in zip(jobs, run(jobs), strict=True):
            found[job.way, job.level] += runs
            spent[job.way, job.level] += seconds

    with workers(arguments) as run:
        add([job for pair in pairs for job in jobs_of(*pair, [(lr, 0) for lr in arguments.rates])])
        rates = {pair: best_rate(found[pair]) for pair in pairs}
        others = range(1, arguments.seeds)
        add([job for pair in pairs for job in jobs_of(*pair, [(rates[pair], seed) for seed in others]) if job.runs])
    rows = [row(*pair, rates[pair], found[pair], spent[pair], arguments) for pair in pairs]
    for whole, samples in zip(rows[::2], rows[1::2], strict=True):
        samples |= difference(whole["tests"], samples["tests"])  # type: ignore[arg-type]
    return rows


def best_rate(runs: list[Run]) -> float:
    """The learning rate with the best validation score; the smaller one of equals. A diverged run has none."""
    return max(runs, key=lambda run: (-math.inf if run.diverged else run.val, -run.replica.lr)).replica.lr


def row(
    way: str, level: str, rate: float, runs: list[Run], seconds: float, arguments: argparse.Namespace
) -> dict[str, object]:
    tuned = {run.replica.lr: 100 * run.val for run in runs if run.replica.seed == 0}
    chosen = [run for run in runs if run.replica.lr == rate]
    tests, most = [100 * run.test for run in chosen], limits_of(way, arguments)[0]
    return {
        "level": level,
        "way": way,
        "lr": rate,
        "test": statistics.mean(tests),
        "tests": tests,
        "val": 100 * statistics.mean(run.val for run in chosen),
        "val_by_lr": tuned,
        "epochs": statistics.mean(run.epoch + 1 for run in chosen),
        "stopped_early": sum(run.epochs < most for run in chosen),
        "runs": len(runs),
        "seconds": seconds,
    }


def difference(whole: list[float], samples: list[float]) -> dict[str, object]:
    """The difference of the means and its standard error."""
    error = None
    if len(whole) > 1:
        error = math.sqrt((statistics.variance(whole) + statistics.variance(samples)) / len(whole))
    return {"difference": statistics.mean(samples) - statistics.mean(whole), "error": error}


def main() -> None:
    parser = common.parser(__doc__ or "", 1, ("accuracy", "inference"))
    parser.add_argument("--dataset", default="ogbn-arxiv-structure")
    parser.add_argument("--epochs", type=int, default=1000, help="most epochs on the whole graph")
    parser.add_argument("--patience", type=int, default=100)
    parser.add_argument("--sampled-epochs", type=int, default=30, help="most epochs on samples")
    parser.add_argument("--sampled-patience", type=int, default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates to choose from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    device, rows = arguments.device, []
    facts: dict[str, Any] = {
        "dataset": dataset(arguments.dataset).name,
        **dict(OPTIONS),
        **dict(SAMPLING),
        "dropout": DROPOUT,
    }
    if "inference" in arguments.parts or not arguments.parts:
        for level in arguments.levels:
            rows += inference(dataset(arguments.dataset), level, device)
            print(*rows[-2:], sep="\n", flush=True)
        common.write("layerwise", device, rows, **facts)
    if "accuracy" in arguments.parts or not arguments.parts:
        start = time.perf_counter()
        rows = compare(arguments)
        print(*rows, sep="\n", flush=True)
        names = ("epochs", "patience", "sampled_epochs", "sampled_patience", "rates", "seeds", "processes")
        facts |= {name: getattr(arguments, name) for name in names}
        common.write("sampled", device, rows, **facts, seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
