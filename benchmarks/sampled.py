"""Training on samples beside training on the whole graph: accuracy at every level; exact layer-wise inference.

    python benchmarks/sampled.py [accuracy] [inference] [--dataset ogbn-arxiv-structure] [--seeds 3]

`accuracy`: both ways train the same networks, while the learning rate falls to 0 by a cosine. For each way, its first
value is the one with the best validation score at the first seed, among three rates and, while the best is the smallest
or the largest of them, half or twice that rate. Every run keeps the epoch with the best validation score. Test scores
are read once, of the chosen learning rate and all seeds. `difference` is the mean test accuracy on samples minus that
on the whole graph, in points; `error` is its standard error over the seeds. Results are
written after every level.

`inference`: the largest difference between logits of `infer_layerwise` and of the whole graph, absolute and relative to
the largest logit, in float32 and float64, of networks that were trained on samples for an epoch.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from dataclasses import asdict
from typing import Any, NamedTuple

import common
import torch

from gfgn import GFGN, Graph
from gfgn.data import NodeDataset, load
from gfgn.nn.registry import find_model
from gfgn.train import Replica, Run, infer_layerwise, train_minibatch, train_replicas
from gfgn.train.config import TrainConfig
from gfgn.train.program import seeded_module

LEVELS = ("graph", "neighbor", "pair")
WHOLE, SAMPLES = "whole graph", "samples"
OPTIONS = (("heads", 8), ("hidden", 64), ("layers", 2))
SAMPLING = (("batch_size", 1024), ("fanout", 10))
DROPOUT = 0.2
RATES, SAMPLED_RATES = (0.01, 0.02, 0.05), (0.002, 0.005, 0.01)

dataset = functools.cache(load)  # once per process


# --- inference --------------------------------------------------------------------------------------------------------


def inference(data: NodeDataset, level: str, device: str) -> list[dict[str, object]]:
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
def errors(net: GFGN, data: NodeDataset, level: str, dtype: torch.dtype) -> dict[str, object]:
    graph = Graph.from_edge_index(data.graph.edge_index, data.num_nodes, data.graph.weight, dtype=dtype)
    net, x = net.to(dtype).eval(), data.x.to(dtype)
    whole, found = net(x, graph), infer_layerwise(net, x, graph)
    largest, error = float(whole.abs().max()), float((found - whole).abs().max())
    facts = {"level": level, "dtype": str(dtype).removeprefix("torch."), "largest_logit": largest, "logit_error": error}
    probability = float((found.softmax(1) - whole.softmax(1)).abs().max())
    return facts | {"relative_error": error / largest, "probability_error": probability}


# --- accuracy ---------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A run: how it trains, its level, learning rate and seed."""

    way: str
    level: str
    lr: float
    seed: int


def train(job: Job, arguments: argparse.Namespace) -> tuple[Run, float]:
    """The run, and its time."""
    data, model, start = dataset(arguments.dataset), f"gfgn-{job.level}", time.perf_counter()
    options = OPTIONS if job.way == WHOLE else tuple(sorted(OPTIONS + SAMPLING))
    replica = Replica(lr=job.lr, seed=job.seed, weight_decay=0.0, dropout=DROPOUT, options=options)
    config, device = config_of(job.way, arguments), arguments.device
    if job.way == WHOLE:
        [run] = train_replicas(model, data, [replica], **asdict(config), device=device, history=False, gates=False)
    else:
        [run] = train_minibatch(model, data, [replica], config, device, history=False)
    seconds = time.perf_counter() - start
    print(f"{job}: validation {100 * run.val:.2f}, {run.epochs} epochs in {seconds:.0f} s", flush=True)
    return run, seconds


def config_of(way: str, arguments: argparse.Namespace) -> TrainConfig:
    """How runs train: all epochs, while the learning rate falls to 0."""
    epochs = arguments.epochs if way == WHOLE else arguments.sampled_epochs
    return TrainConfig(epochs, patience=epochs, schedule="cosine")


def compare(level: str, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Both ways at a level: the learning rates at the first seed, then the other seeds at the chosen ones."""
    rates = {WHOLE: list(arguments.rates), SAMPLES: list(arguments.sampled_rates)}
    jobs = [Job(way, level, lr, 0) for way in rates for lr in rates[way]]
    found, chosen = [], dict.fromkeys(rates, 0.0)
    while jobs:
        found += [(job, train(job, arguments)) for job in jobs]
        chosen = {way: best_rate([run for job, (run, _) in found if job.way == way]) for way in rates}
        jobs = [Job(way, level, lr, 0) for way in rates for lr in rates_beyond(rates[way], chosen[way])]
        for job in jobs:
            rates[job.way].append(job.lr)
    others = [Job(way, level, chosen[way], seed) for way in rates for seed in range(1, arguments.seeds)]
    found += [(job, train(job, arguments)) for job in others]
    whole, samples = (row(way, level, chosen[way], [done for job, done in found if job.way == way]) for way in rates)
    samples |= difference(whole["tests"], samples["tests"])  # type: ignore[arg-type]
    return [whole, samples]


def best_rate(runs: list[Run]) -> float:
    """The learning rate with the best validation score; the smaller one of equals. A diverged run has none."""
    return max(runs, key=lambda run: (-math.inf if run.diverged else run.val, -run.replica.lr)).replica.lr


def rates_beyond(rates: list[float], best: float) -> list[float]:
    """Half of the smallest or twice the largest learning rate, if that is the best one; else nothing."""
    if len(rates) < 2:
        return []
    return [best / 2] * (best == min(rates)) + [best * 2] * (best == max(rates))


def row(way: str, level: str, rate: float, found: list[tuple[Run, float]]) -> dict[str, object]:
    runs = [run for run, _ in found]
    tuned = {run.replica.lr: 100 * run.val for run in runs if run.replica.seed == 0}
    chosen = [run for run in runs if run.replica.lr == rate]
    tests = [100 * run.test for run in chosen]
    return {
        "level": level,
        "way": way,
        "lr": rate,
        "test": statistics.mean(tests),
        "tests": tests,
        "val": 100 * statistics.mean(run.val for run in chosen),
        "val_by_lr": tuned,
        "epochs": statistics.mean(run.epoch + 1 for run in chosen),
        "runs": len(runs),
        "seconds": sum(seconds for _, seconds in found),
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
    parser.add_argument("--epochs", type=int, default=200, help="epochs on the whole graph")
    parser.add_argument("--sampled-epochs", type=int, default=25, help="epochs on samples")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates on the whole graph")
    parser.add_argument("--sampled-rates", type=float, nargs="+", default=SAMPLED_RATES, help="and on samples")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
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
        names = ("epochs", "sampled_epochs", "rates", "sampled_rates", "seeds")
        facts |= {name: getattr(arguments, name) for name in names}
        start, rows = time.perf_counter(), []
        for level in arguments.levels:
            rows += compare(level, arguments)
            print(*rows[-2:], sep="\n", flush=True)
            common.write("sampled", device, rows, **facts, seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
