"""Whether a run has the same bits alone and among others: every registered model, four graphs, batches of many sizes.

    python benchmarks/batch_invariance.py --device cuda

For each model and graph a few replicas are trained alone, among 2, 20 and 160, and in reversed order; on the CPU with
one and with two threads. Losses, scores and final parameters must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import common
import torch

from gfgn.data import load
from gfgn.nn import MODELS
from gfgn.train import Replica, Run, train_replicas

GRAPHS = ("texas", "cora", "blogcatalog", "minesweeper")
SIZES = (2, 20, 160)
WATCHED = 2  # replicas that are compared
EPOCHS = 4
LARGE = 100_000  # edges from which a CPU trains fewer epochs


def replicas(count: int) -> list[Replica]:
    """`count` different runs, of which the first `WATCHED` are compared."""
    grid = itertools.cycle(itertools.product((0.02, 0.01, 0.05), (0.5, 0.0, 0.2), (1.0, 0.5)))
    return [
        Replica(split=k % 2, seed=k // 2, lr=lr, dropout=dropout, lam=lam)
        for k, (lr, dropout, lam) in zip(range(count), grid, strict=False)
    ]


def bits(run: Run) -> list[torch.Tensor]:
    """Everything of a run that must not depend on its company."""
    assert run.state is not None
    curves = [torch.tensor(values, dtype=torch.float64) for values in run.history.values()]
    gates = [torch.tensor(list(run.gates.values()), dtype=torch.float64)] if run.gates else []
    return [torch.tensor([run.val, run.test], dtype=torch.float64), *curves, *gates, *run.state.values()]


def difference(run: Run, other: Run) -> float | None:
    """The largest difference of two runs, `None` if all bits agree."""
    pairs = list(zip(bits(run), bits(other), strict=True))
    if all(x.numpy().tobytes() == y.numpy().tobytes() for x, y in pairs):
        return None
    return max(float((x.double() - y.double()).abs().max()) for x, y in pairs if x.numel())


def compare(model: str, data: Any, device: str, sizes: Sequence[int], epochs: int) -> dict[str, float | None]:
    """The largest difference from the runs alone, by company."""

    def train(chosen: list[Replica], threads: int = 1) -> dict[Replica, Run]:
        torch.set_num_threads(threads)
        runs = train_replicas(model, data, chosen, epochs, epochs, device, keep_state=True, batch_size=len(chosen))
        return dict(zip(chosen, runs, strict=True))

    watched = replicas(WATCHED)
    alone = {replica: train([replica])[replica] for replica in watched}

    def worst(runs: dict[Replica, Run]) -> float | None:
        found = [difference(runs[replica], run) for replica, run in alone.items()]
        return max((value for value in found if value is not None), default=None)

    results = {"again": worst({replica: train([replica])[replica] for replica in watched})}
    if device == "cpu":
        results["two threads"] = worst({replica: train([replica], 2)[replica] for replica in watched})
        results["two threads, 4"] = worst(train(replicas(4), 2))
    for size in sizes:
        results[f"among {size}"] = worst(train(replicas(size)))
    results[f"reversed {sizes[-1]}"] = worst(train(replicas(sizes[-1])[::-1]))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default=",".join(name for name, model in MODELS.items() if model.replicas))
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--write", action="store_true", help="write the results as JSON")
    arguments = parser.parse_args()
    sizes, rows = [int(size) for size in arguments.sizes.split(",")], []
    for graph in arguments.graphs.split(","):
        data = load(graph)
        for model in arguments.models.split(","):
            results = compare(model, data, arguments.device, sizes, arguments.epochs)
            wrong = {name: value for name, value in results.items() if value is not None}
            shown = ", ".join(f"{name}: {value:.1e}" for name, value in wrong.items())
            print(f"{graph:12} {model:14} {'DIFFERENT ' + shown if wrong else 'equal'}", flush=True)
            rows.append({"dataset": graph, "model": model, "different": wrong, "compared": list(results)})
    different = sum(bool(row["different"]) for row in rows)
    print(f"{len(rows) - different} of {len(rows)} cells are equal bit for bit")
    if arguments.write:
        common.write("batch_invariance", arguments.device, rows, epochs=arguments.epochs, sizes=sizes)


if __name__ == "__main__":
    main()
