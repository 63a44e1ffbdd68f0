"""Eighteen fixed training runs, two per level on Texas, Cora and BlogCatalog: whether a change keeps every bit.

    python benchmarks/fixed_runs.py            # records them in results/fixed_runs-cpu.json
    python benchmarks/fixed_runs.py --check    # compares with the recorded runs; exits with 1 if any bit differs

A run is recorded as its scores in hexadecimal, its best epoch, and a hash of its losses and scores in all epochs. Bits
depend on the processor and on the versions of the packages, which the file names.
"""

from __future__ import annotations

import argparse
import hashlib
import struct

import common
import torch

from gfgn.data import load
from gfgn.train import Replica, Run, train_replicas

EPOCHS = {"texas": 200, "cora": 60, "blogcatalog": 25}
REPLICAS = [
    Replica(split=0, seed=0, lr=0.05, weight_decay=5e-4, dropout=0.5, lam=1.0),
    Replica(split=1, seed=1, lr=0.01, weight_decay=5e-5, dropout=0.8, lam=0.5),
]


def record(run: Run) -> dict[str, object]:
    history = [value for name in ("train_loss", "val_loss", "val") for value in run.history[name]]
    digest = hashlib.sha256(struct.pack(f"<{len(history)}d", *history)).hexdigest()
    return {"val": run.val.hex(), "test": run.test.hex(), "epoch": run.epoch, "history": digest}


def measure(dataset: str, level: str) -> dict[str, object]:
    epochs = EPOCHS[dataset]
    runs = train_replicas(f"gfgn-{level}", load(dataset), REPLICAS, epochs, patience=100, batch_size=1)
    print(
        f"{dataset} gfgn-{level}: " + ", ".join(f"val {run.val:.4f}, test {run.test:.4f}" for run in runs), flush=True
    )
    return {"dataset": f"{dataset}, {level}", "epochs": epochs, "runs": [record(run) for run in runs]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the recorded runs")
    args = parser.parse_args()
    torch.set_num_threads(2)
    problems = [measure(dataset, level) for dataset in EPOCHS for level in ("graph", "neighbor", "pair")]
    if not args.check:
        common.write("fixed_runs", "cpu", problems)
        return
    recorded = common.read("fixed_runs", "cpu")
    different = [problem["dataset"] for problem in problems if problem != recorded.get(str(problem["dataset"]))]
    if different:
        raise SystemExit(f"different from the recorded runs: {'; '.join(map(str, different))}")
    print("all runs have the recorded bits")


if __name__ == "__main__":
    main()
