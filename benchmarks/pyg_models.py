"""Which of PyG's convolutions and models train as batches of replicas, whether replicas are independent, and how fast.

    python benchmarks/pyg_models.py [--device cuda] [--only GCNConv,GAT]

One row per convolution, as a network of two layers, and per model of nodes. `batched` or `sequential` is what the
engine chose and why; `refused` is what it cannot call, and why. The difference is the largest between the losses of one
run alone and among 16, in float64. The speed is that of 16 runs in the engine, relative to a plain loop of one run
after another in the same process: the median of several rounds in alternation.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import statistics
import warnings
from collections.abc import Callable

import common
import torch
from pyg_networks import CONVOLUTIONS, MODELS, MODELS_NOT_CALLED, NOT_CALLED, factory
from torch import nn
from torch.nn import functional as F

from gfgn.data import NodeDataset, dimensions
from gfgn.train import Replica, keep_freed_memory, train_replicas

RUNS = 16
NODES = {"cpu": 300, "cuda": 3000}
CHECKED = 8  # epochs of the comparison of losses
TIMED = {"cpu": 20, "cuda": 40}  # epochs
LOOPED = 2  # runs of the plain loop


class Reasons(logging.Handler):
    """Keeps why a model trains one run at a time."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def replicas(count: int) -> list[Replica]:
    return [Replica(split=k % 2, seed=k, lr=0.01, weight_decay=5e-4, dropout=0.5) for k in range(count)]


def largest_difference(make: Callable[..., nn.Module], data: NodeDataset, device: str) -> float:
    """Of the losses of one run alone and among `RUNS`."""
    precise = dataclasses.replace(data, x=data.x.double(), graph=data.graph.to(torch.float64))
    chosen = replicas(RUNS)
    among = train_replicas(make, precise, chosen, max_epochs=CHECKED, device=device)[RUNS // 2]
    alone = train_replicas(make, precise, [chosen[RUNS // 2]], max_epochs=CHECKED, device=device)[0]
    return max(
        abs(a - b)
        for name in ("train_loss", "val_loss")
        for a, b in zip(among.history[name], alone.history[name], strict=True)
    )


def plain_loop(make: Callable[[], nn.Module], data: NodeDataset, replica: Replica, epochs: int) -> None:
    """Trains one run as a script would."""
    torch.manual_seed(replica.seed)
    model = make().to(data.x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    (train, val, _), edges = data.splits[replica.split], data.graph.edge_index
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(data.x, edges)[train], data.y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(data.x, edges)[val]
            F.cross_entropy(out, data.y[val]).item()
            (out.argmax(1) == data.y[val]).double().mean().item()


def built(make: Callable[..., nn.Module], data: NodeDataset) -> nn.Module:
    """The module with the sizes that the engine gives it."""
    from gfgn.nn.custom import custom_model

    model = custom_model(make)
    return model.build(
        data.num_features, data.num_classes, 0.5, 1.0, model.settings("", (), {"num_nodes": data.num_nodes})
    )


def speed(
    make: Callable[..., nn.Module], data: NodeDataset, device: str, rounds: int, runs: int, epochs: int
) -> tuple[float, float]:
    """Seconds of a run and epoch in the engine and in the loop."""
    moved, chosen = data.to(device), replicas(runs)

    def engine() -> None:
        train_replicas(make, data, chosen, max_epochs=epochs, device=device, history=False)

    def loop() -> None:
        for replica in chosen[:LOOPED]:
            plain_loop(lambda: built(make, data), moved, replica, epochs)

    pairs = [(common.elapsed(engine, device), common.elapsed(loop, device)) for _ in range(rounds + 1)]
    first, second = (statistics.median(times) for times in zip(*pairs[1:], strict=True))  # the first one compiles
    return first / (runs * epochs), second / (LOOPED * epochs)


def measure(name: str, data: NodeDataset, device: str, rounds: int, reasons: Reasons) -> dict[str, object]:
    make = factory(name)
    reasons.messages.clear()
    try:
        difference = largest_difference(make, data, device)
    except Exception as error:  # of the model itself
        return {"name": name, "trains": "refused", "reason": str(error).partition(". ")[0]}
    why = [
        message.partition("cannot be batched: ")[2] for message in reasons.messages if "cannot be batched" in message
    ]
    row: dict[str, object] = {
        "name": name,
        "trains": "sequential" if why else "batched",
        "reason": why[0] if why else "",
        "difference": difference,
    }
    if rounds:
        engine, loop = speed(make, data, device, rounds, RUNS, TIMED[device])
        row |= {"engine_ms": 1e3 * engine, "loop_ms": 1e3 * loop, "speedup": loop / engine}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=2, help="of timing; 0 for none")
    parser.add_argument("--only", help="names, separated by commas")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    reasons, logger = Reasons(), logging.getLogger("gfgn")
    logger.addHandler(reasons)
    logger.setLevel(logging.INFO)
    data = dimensions(NODES[args.device], degree=10, splits=2, seed=1)
    names = args.only.split(",") if args.only else [*CONVOLUTIONS, *MODELS]
    rows = []
    with keep_freed_memory():
        for name in names:
            rows.append(measure(name, data, args.device, args.rounds, reasons))
            print(*rows[-1].values(), sep="  ", flush=True)
    if args.only:
        return
    rows += [
        {"name": name, "trains": "refused", "reason": why} for name, why in (NOT_CALLED | MODELS_NOT_CALLED).items()
    ]
    common.write("pyg_models", args.device, rows, runs=RUNS, nodes=data.num_nodes, edges=data.graph.num_edges)


if __name__ == "__main__":
    main()
