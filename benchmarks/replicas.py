"""Independence of replicas: each model alone, in a batch of 7, and in a batch of 160 in another order.

    python benchmarks/replicas.py [--device cuda] [--dataset texas] [--models gfgn-pair,gat]

Trains with dropout, compares the validation losses of all epochs, and writes the largest relative deviation. Rounding
depends on the shape of a batch and training amplifies it; over these epochs the deviation must stay small.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import time

import common
import torch
import training

from gfgn.data import load
from gfgn.nn.registry import MODELS
from gfgn.train import Run, train_replicas

EPOCHS = 20
PROBES = (0, 3, 6)
TOLERANCE = 1e-3


def deviation(run: Run, other: Run) -> float:
    pairs = zip(run.history["val_loss"], other.history["val_loss"], strict=True)
    return max(abs(a - b) / abs(a) for a, b in pairs)


def measure(model: str, dataset: str, device: str) -> dict[str, object]:
    # A small learning rate: with a large one, some models amplify a difference in the last digit a thousandfold.
    data, replicas = load(dataset), [dataclasses.replace(replica, lr=0.005) for replica in training.replicas(160)]
    start = time.perf_counter()
    order = list(range(160))
    random.Random(0).shuffle(order)
    large = train_replicas(model, data, [replicas[k] for k in order], EPOCHS, EPOCHS, device, batch_size=160)
    small = train_replicas(model, data, replicas[:7], EPOCHS, EPOCHS, device, batch_size=7)
    worst = {"of 7": 0.0, "of 160": 0.0}
    for k in PROBES:
        [alone] = train_replicas(model, data, [replicas[k]], EPOCHS, EPOCHS, device)
        worst["of 7"] = max(worst["of 7"], deviation(alone, small[k]))
        worst["of 160"] = max(worst["of 160"], deviation(alone, large[order.index(k)]))
    verdict = "same" if max(worst.values()) < TOLERANCE else "DIFFERENT"
    seconds = time.perf_counter() - start
    print(f"{model:<14} {worst['of 7']:.1e} {worst['of 160']:.1e} {verdict} ({seconds:.1f} s)", flush=True)
    return {"model": model, "dataset": dataset, "epochs": EPOCHS, "deviation": worst, "verdict": verdict}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dataset", default="texas")
    parser.add_argument("--models", default=",".join(name for name, model in MODELS.items() if model.replicas))
    args = parser.parse_args()
    problems = [measure(model, args.dataset, args.device) for model in args.models.split(",")]
    common.write("replicas", args.device, problems, tolerance=TOLERANCE)


if __name__ == "__main__":
    main()
