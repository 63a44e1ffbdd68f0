"""What batch invariance costs: time of one epoch of all replicas, for the source tree that is imported.

    PYTHONPATH=src python benchmarks/invariance_cost.py --device cuda

Run it with two source trees in alternation; it prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from gfgn.data import load
from gfgn.train import Replica, train_replicas


def milliseconds(model: str, data: object, device: str, count: int, epochs: int, rounds: int) -> float:
    """Per epoch, from the difference of a long and a short training, so that preparation does not count."""
    replicas = [Replica(split=k % 10, seed=k, dropout=0.5) for k in range(count)]

    def seconds(number: int) -> float:
        start = time.perf_counter()
        train_replicas(model, data, replicas, number, number, device, batch_size=count, gates=False, best="last")
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(3)
    differences = [(seconds(2 * epochs) - seconds(epochs)) / epochs for _ in range(rounds)]
    return 1e3 * statistics.median(differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default="gfgn-graph,gfgn-neighbor,gfgn-pair,gcn,gat,gcnii,mlp")
    parser.add_argument("--graphs", default="texas,cora,blogcatalog,minesweeper")
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.device == "cpu":
        torch.set_num_threads(1)
    results = {}
    for graph in args.graphs.split(","):
        data = load(graph)
        for model in args.models.split(","):
            time_ = milliseconds(model, data, args.device, args.replicas, args.epochs, args.rounds)
            results[f"{graph} {model}"] = round(time_, 4)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
