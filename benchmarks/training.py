"""Training many replicas at once, compared with a loop over PyG's 2-layer GCN: time per epoch and run, peak memory.

    python benchmarks/training.py [--device cuda] [--datasets texas,cora] [--models gfgn-graph,gfgn-pair]

Both train with dropout and Adam, have 64 hidden units, and validate after every epoch. Ours is a whole call of
`train_replicas`, from initialization to test scores, without early stopping; its time is divided by the numbers of
replicas and epochs. The loop is warm and contains only epochs; on a CPU it runs with one thread or all threads,
whichever is faster. Results of other datasets stay in the file.
"""

from __future__ import annotations

import statistics

import common
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GCN

from gfgn.data import NodeDataset, load
from gfgn.train import Replica, keep_freed_memory, train_replicas

LEVELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
REPLICAS, EPOCHS, FEWER_EPOCHS = 160, 400, 100
LARGE = 1_000
"""Number of nodes above which a CPU trains for fewer epochs."""


class Loop:
    """The peer: one run at a time, as in most published code."""

    def __init__(self, data: NodeDataset, device: str) -> None:
        data = data.to(device)
        self.x = data.x.to_dense() if data.x.layout != torch.strided else data.x
        self.edge_index, self.y, self.split = data.graph.edge_index, data.y, data.splits[0]
        self.model = GCN(data.num_features, 64, 2, data.num_classes, dropout=0.5, cached=True).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)
        self.device = device

    def epoch(self) -> tuple[float, float]:
        self.model.train()
        self.optimizer.zero_grad()
        train, val = self.split.train, self.split.val
        loss = cross_entropy(self.model(self.x, self.edge_index)[train], self.y[train])
        loss.backward()
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            out = self.model(self.x, self.edge_index)
            score = (out[val].argmax(1) == self.y[val]).float().mean()
            return float(score), float(cross_entropy(out[val], self.y[val]))

    def milliseconds(self, epochs: int) -> float:
        """Time of one epoch with one thread or all threads, whichever is faster."""
        threads = torch.get_num_threads()
        times = [self._milliseconds(epochs)]
        if self.device == "cpu" and threads > 1:
            torch.set_num_threads(1)
            times.append(self._milliseconds(epochs))
            torch.set_num_threads(threads)
        return min(times)

    def _milliseconds(self, epochs: int) -> float:
        return 1e3 * common.elapsed(lambda: [self.epoch() for _ in range(epochs)], self.device) / epochs


def replicas(count: int) -> list[Replica]:
    """Ten splits and the paper's grid: learning rates, dropout rates and λ differ within a batch."""
    return [
        Replica(split=k % 10, seed=k // 10, lr=(0.005, 0.05)[k % 2], dropout=(0.5, 0.8)[k // 2 % 2], lam=1 + k // 4 % 2)
        for k in range(count)
    ]


def ours(model: str, data: NodeDataset, device: str, count: int, epochs: int) -> float:
    with keep_freed_memory():  # as the commands do
        seconds = common.elapsed(lambda: train_replicas(model, data, replicas(count), epochs, epochs, device), device)
    return 1e3 * seconds / (count * epochs)


def measure(name: str, models: list[str], device: str, rounds: int) -> dict[str, object]:
    data = load(name).to(device)
    count, epochs = REPLICAS, FEWER_EPOCHS if device == "cpu" and data.num_nodes > LARGE else EPOCHS
    loop = Loop(data, device)
    loop.milliseconds(5 if device == "cpu" else 30)
    peers: list[float] = []
    times: dict[str, list[float]] = {model: [] for model in models}
    memory = {}
    with common.PeakMemory(device) as peak:
        loop.milliseconds(2)
    memory["loop"] = peak.mib
    for model in models:
        with common.PeakMemory(device) as peak:  # also warms up: kernels are compiled here
            ours(model, data, device, count, 3)
        memory[model] = peak.mib
    for _ in range(rounds):
        for model in models:
            peers.append(loop.milliseconds(20 if device == "cpu" else 50))
            times[model].append(ours(model, data, device, count, epochs))
    peer = statistics.median(peers)
    rows = [{"contender": "loop of PyG GCN", "epoch_ms": peer, "peak_mib": memory["loop"]}]
    print(f"{name}: loop of PyG GCN {peer:.3f} ms per epoch, {memory['loop']:.0f} MiB", flush=True)
    for model in models:
        mine = statistics.median(times[model])
        rows.append({"contender": model, "epoch_ms": mine, "ratio": peer / mine, "peak_mib": memory[model]})
        print(f"  {model:<14} {mine:.4f} ms  {peer / mine:6.1f}x  {memory[model]:.0f} MiB", flush=True)
    facts = {"dataset": name, "replicas": count, "epochs": epochs, "rounds": rounds}
    return facts | {"environment": common.environment(device), "rows": rows}


def main() -> None:
    parser = common.parser(__doc__ or "", 3)
    parser.add_argument("--datasets", default="")
    parser.add_argument("--models", default=",".join(LEVELS))
    args = parser.parse_args()
    small = ["texas", "cora"] if args.device == "cpu" else ["texas", "cora", "citeseer"]
    large = [] if args.device == "cpu" else ["blogcatalog", "flickr", "pubmed"]
    names = args.datasets.split(",") if args.datasets else small + large
    known = {problem["dataset"]: problem for problem in common.read("training", args.device)}
    for name in names:
        known[name] = measure(name, args.models.split(","), args.device, args.rounds)
        common.write("training", args.device, list(known.values()))


if __name__ == "__main__":
    main()
