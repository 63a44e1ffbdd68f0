"""A PyG network of one's own in the engine, against its own plain training loop in the same process.

    python benchmarks/custom_model.py [--device cuda] [--datasets texas,cora]

The network is that of a PyG tutorial: two `GCNConv`, `F.dropout` and `log_softmax`. The loop is the usual one: Adam, an
evaluation after every epoch, early stopping. For each dataset: the largest difference of the validation losses of both
without dropout, from the same initial parameters; runs per second of a fixed number of epochs, in alternation, the
median of several rounds; and the test scores of the whole protocol, paired by split and seed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence

import common
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

from gfgn.data import NodeDataset, load
from gfgn.train import Replica, Run, difference, keep_freed_memory, summarize, train_replicas

LR, WEIGHT_DECAY = 0.01, 5e-4
MAX_EPOCHS, PATIENCE = 200, 50  # of the comparison of scores
TIMED = {"cpu": 50, "cuda": 100}  # epochs of the comparison of speed
ROUNDS = {"cpu": 3, "cuda": 5}
SCORED = {("cpu", "texas"): (10, 2), ("cpu", "cora"): (5, 1), ("cuda", "texas"): (10, 3), ("cuda", "cora"): (10, 3)}


class Net(nn.Module):
    """The network."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


def plain_loop(data: NodeDataset, edge_index: Tensor, replica: Replica, max_epochs: int, patience: int) -> Run:
    """Trains one run as a script would."""
    torch.manual_seed(replica.seed)
    model = Net(data.num_features, data.num_classes, dropout=replica.dropout).to(data.x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    train, val, test = data.splits[replica.split]
    start, best, history, epoch = time.perf_counter(), (-1.0, -math.inf, 0.0, 0), [], 0
    for epoch in range(max_epochs):
        model.train()
        optimizer.zero_grad()
        loss = F.nll_loss(model(data.x, edge_index)[train], data.y[train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(data.x, edge_index)
            hit = out.argmax(1) == data.y
            val_loss = F.nll_loss(out[val], data.y[val]).item()
        history.append(val_loss)
        score = hit[val].float().mean().item()
        if (score, -val_loss) > best[:2]:
            best = (score, -val_loss, hit[test].float().mean().item(), epoch)
        if epoch - best[3] >= patience:
            break
    seconds = time.perf_counter() - start
    return Run(replica, "loop", best[0], best[2], best[3], epoch + 1, {"val_loss": history}, seconds, 0)


def replicas(splits: int, seeds: int, dropout: float = 0.5) -> list[Replica]:
    return [Replica(split, seed, LR, WEIGHT_DECAY, dropout) for seed in range(seeds) for split in range(splits)]


def agreement(data: NodeDataset, edge_index: Tensor, device: str, epochs: int = 20) -> float:
    """The largest relative difference of the validation losses of all epochs, without dropout."""
    runs = train_replicas(Net, data, replicas(2, 2, 0.0), epochs, epochs, device)
    loops = [plain_loop(data, edge_index, run.replica, epochs, epochs) for run in runs]
    pairs = [zip(a.history["val_loss"], b.history["val_loss"], strict=True) for a, b in zip(runs, loops, strict=True)]
    return max(abs(a - b) / abs(b) for pair in pairs for a, b in pair)


def timed(function: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def speed(data: NodeDataset, edge_index: Tensor, device: str, count: int) -> dict[str, float]:
    """Runs per second of the loop and of the engine with `count` runs, each run with the same number of epochs."""
    epochs, cores = TIMED[device], torch.get_num_threads()
    many = replicas(10, -(-count // 10))[:count]

    def loop(threads: int) -> Callable[[], object]:
        def run() -> None:
            torch.set_num_threads(threads)
            plain_loop(data, edge_index, many[0], epochs, epochs)
            torch.set_num_threads(cores)

        return run

    contenders: dict[str, tuple[int, Callable[[], object]]] = {
        f"loop, {threads} threads": (1, loop(threads)) for threads in sorted({1, cores} if device == "cpu" else {cores})
    }
    contenders["engine"] = (count, lambda: train_replicas(Net, data, many, epochs, epochs, device, history=False))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS[device] + 1):  # the first round warms up
        for name, (runs, function) in contenders.items():
            seconds = timed(function, device) / runs
            if number:
                times[name].append(seconds)
    return {name: 1 / statistics.median(values) for name, values in times.items()}


def scores(data: NodeDataset, edge_index: Tensor, device: str) -> dict[str, object]:
    """Mean test scores of both with 95% intervals, and their difference, paired."""
    runs = train_replicas(Net, data, replicas(*SCORED[device, data.name]), MAX_EPOCHS, PATIENCE, device)
    loops = [plain_loop(data, edge_index, run.replica, MAX_EPOCHS, PATIENCE) for run in runs]
    gap = difference(runs, loops)
    return {name: summarize(each)._asdict() for name, each in (("engine", runs), ("loop", loops))} | {
        "difference": gap._asdict(),
        "epochs": {"engine": _mean(runs), "loop": _mean(loops)},
    }


def _mean(runs: Sequence[Run]) -> float:
    return statistics.fmean(run.epochs for run in runs)


def measure(name: str, device: str, count: int) -> dict[str, object]:
    data = load(name).to(device)
    edge_index = data.graph.edge_index
    deviation = agreement(data, edge_index, device)
    rates = speed(data, edge_index, device, count)
    loop = max(rate for contender, rate in rates.items() if contender != "engine")
    found = scores(data, edge_index, device)
    print(f"{name}: {count} runs, {TIMED[device]} epochs each; without dropout, losses differ by {deviation:.1e}")
    for contender, rate in rates.items():
        print(f"  {contender:<16} {rate:9.3f} runs/s  {rate / loop:7.2f}x")
    for contender in ("engine", "loop", "difference"):
        mean, low, high = (100 * found[contender][key] for key in ("mean", "low", "high"))  # type: ignore[index]
        print(f"  test accuracy, {contender:<11} {mean:6.2f} [{low:.2f}, {high:.2f}]", flush=True)
    facts = {"dataset": name, "runs": count, "epochs": TIMED[device], "deviation_without_dropout": deviation}
    return {**facts, "runs_per_second": rates, "ratio": rates["engine"] / loop, "scores": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--datasets", default="texas,cora")
    parser.add_argument("--runs", type=int, help="number of runs that the engine trains; 100, on a CPU 40")
    args = parser.parse_args()
    if args.device == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    count = args.runs or {"cpu": 40, "cuda": 100}[args.device]
    with keep_freed_memory():
        problems = [measure(name, args.device, count) for name in args.datasets.split(",")]
    common.write("custom_model", args.device, problems, max_epochs=MAX_EPOCHS, patience=PATIENCE)


if __name__ == "__main__":
    main()
