"""Training on samples beside training on the whole graph: accuracy and time at every level; exact layer-wise inference.

    python benchmarks/sampled.py [--dataset ogbn-arxiv-structure] [--epochs 100] [--sampled-epochs 8] [--seeds 1]

Both ways train the same networks in one process, one after the other, and keep the parameters of the epoch with the
best validation score. `difference` is the mean test accuracy on samples minus that on the whole graph, in points.
`layerwise_error` is the largest difference between the logits of `infer_layerwise` and those of the whole graph, of
the network that was trained on samples.
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


def layerwise_error(data: Dataset, run: Run) -> float:
    """The largest difference of the logits of a trained network, computed in both ways in float32."""
    entry = find_model(run.model)
    settings = entry.settings(run.model, OPTIONS, {"num_nodes": data.num_nodes})
    net = seeded_module(entry, data, settings, 0, 0.0, run.replica.lam, None)
    assert isinstance(net, GFGN)
    assert run.state is not None
    net.load_state_dict(run.state)
    net.eval()
    with torch.no_grad():
        return float((infer_layerwise(net, data.x, data.graph) - net(data.x, data.graph)).abs().max())


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
    runs = train_minibatch(model, data, sampled, config, device, keep_state=True)
    rows.append(row("samples", level, runs, time.perf_counter() - start))
    rows[-1] |= {
        "difference": rows[-1]["test"] - rows[0]["test"],
        "layerwise_error": layerwise_error(data, runs[0]),
    }
    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = common.parser(__doc__ or "", 1)
    parser.add_argument("--dataset", default="ogbn-arxiv-structure")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--sampled-epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    arguments = parser.parse_args()
    data, rows = load(arguments.dataset), []
    for level in arguments.levels:
        rows += compare(data, level, arguments)
    sampling = dict(SAMPLING)
    common.write("sampled", arguments.device, rows, dataset=data.name, **dict(OPTIONS), **sampling, dropout=DROPOUT)


if __name__ == "__main__":
    main()
