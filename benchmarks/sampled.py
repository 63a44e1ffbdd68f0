"""Training on samples beside training on the whole graph: accuracy and time at every level; exact layer-wise inference.

    python benchmarks/sampled.py [accuracy] [inference] [--dataset ogbn-arxiv-structure] [--epochs 100]

`accuracy`: both ways train the same networks in one process, one after the other, and keep the parameters of the epoch
with the best validation score. `difference` is the mean test accuracy on samples minus that on the whole graph, in
points. `inference`: the largest difference between `infer_layerwise` and the whole graph, of networks that were trained
on samples for an epoch: of logits, relative to the largest one, and of probabilities.
"""

from __future__ import annotations

import argparse
import statistics
import time

import common
import torch

from gfgn import GFGN
from gfgn.data import Dataset, load
from gfgn.nn.registry import find_model
from gfgn.train import Replica, Run, infer_layerwise, train_minibatch, train_replicas
from gfgn.train.config import TrainConfig
from gfgn.train.program import seeded_module

LEVELS = ("graph", "neighbor", "pair")
OPTIONS = (("heads", 8), ("hidden", 64), ("layers", 2))
SAMPLING = (("batch_size", 1024), ("fanout", 10))
DROPOUT = 0.2


def inference(data: Dataset, level: str, device: str) -> dict[str, object]:
    replica = Replica(lr=0.005, weight_decay=0.0, dropout=DROPOUT, options=tuple(sorted(OPTIONS + SAMPLING)))
    [run] = train_minibatch(f"gfgn-{level}", data, [replica], TrainConfig(1, 1), device, keep_state=True)
    entry = find_model(run.model)
    settings = entry.settings(run.model, OPTIONS, {"num_nodes": data.num_nodes})
    net = seeded_module(entry, data, settings, 0, 0.0, run.replica.lam, None)
    assert isinstance(net, GFGN)
    assert run.state is not None
    net.load_state_dict(run.state)
    with torch.no_grad():
        whole, found = net.eval()(data.x, data.graph), infer_layerwise(net, data.x, data.graph)
    largest, error = float(whole.abs().max()), float((found - whole).abs().max())
    probability = float((found.softmax(1) - whole.softmax(1)).abs().max())
    return {
        "level": level,
        "largest_logit": largest,
        "logit_error": error,
        "relative_error": error / largest,
        "probability_error": probability,
    }


def row(way: str, level: str, runs: list[Run], seconds: float) -> dict[str, object]:
    test = [100 * run.test for run in runs]
    epochs = statistics.mean(run.epochs for run in runs)
    facts = {"level": level, "way": way, "test": statistics.mean(test), "tests": test}
    return facts | {"val": 100 * statistics.mean(run.val for run in runs), "epochs": epochs, "seconds": seconds}


def compare(data: Dataset, level: str, arguments: argparse.Namespace) -> list[dict[str, object]]:
    model, seeds, device = f"gfgn-{level}", range(arguments.seeds), arguments.device
    epochs, sampled_epochs, rows = arguments.epochs, arguments.sampled_epochs, []
    start = time.perf_counter()
    whole = [Replica(seed=seed, lr=0.05, weight_decay=0.0, dropout=DROPOUT, options=OPTIONS) for seed in seeds]
    runs = train_replicas(model, data, whole, epochs, epochs, device, gates=False)
    rows.append(row("whole graph", level, runs, time.perf_counter() - start))
    print(rows[-1], flush=True)
    start = time.perf_counter()
    options = tuple(sorted(OPTIONS + SAMPLING))
    sampled = [Replica(seed=seed, lr=0.005, weight_decay=0.0, dropout=DROPOUT, options=options) for seed in seeds]
    config = TrainConfig(sampled_epochs, sampled_epochs)
    runs = train_minibatch(model, data, sampled, config, device)
    rows.append(row("samples", level, runs, time.perf_counter() - start))
    rows[-1]["difference"] = rows[-1]["test"] - rows[0]["test"]
    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = common.parser(__doc__ or "", 1, ("accuracy", "inference"))
    parser.add_argument("--dataset", default="ogbn-arxiv-structure")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--sampled-epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    arguments = parser.parse_args()
    data, device, rows = load(arguments.dataset), arguments.device, []
    facts = {"dataset": data.name, **dict(OPTIONS), **dict(SAMPLING), "dropout": DROPOUT}
    if "inference" in arguments.parts or not arguments.parts:
        for level in arguments.levels:
            rows.append(inference(data, level, device))
            print(rows[-1], flush=True)
        common.write("layerwise", device, rows, **facts)
    if "accuracy" in arguments.parts or not arguments.parts:
        rows = [row for level in arguments.levels for row in compare(data, level, arguments)]
        common.write("sampled", device, rows, **facts)


if __name__ == "__main__":
    main()
