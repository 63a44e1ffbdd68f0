"""Growth of a layer's time and memory with nodes, edges, width, heads and skew, and of training with replicas.

    python benchmarks/growth.py [--device cuda] [axis ...]

One quantity changes at a time. An exponent is the slope of a least-squares line through the logarithms: 1 means that
twice the size takes twice the time, 0 that it does not matter. Skew is measured by the largest degree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import common
import graphs
import numpy as np
import peers
import race
import torch
from race import Contender, backprop
from torch import Tensor

from gfgn import GFGNConv, Graph
from gfgn.data.generators import contextual_sbm
from gfgn.graph import with_self_loops
from gfgn.train import Replica, train_replicas

LEVELS = ("pair", "neighbor", "graph")
FACTORS = (0.25, 0.5, 1, 2, 4)
EPOCHS = 10


def layers(edge_index: Tensor, n: int, d: int, heads: int, device: str, rounds: int, **where: object) -> dict[str, Any]:
    torch.manual_seed(0)
    graph = Graph.from_edge_index(edge_index.to(device), n, duplicates="keep")
    if where["axis"] == "skew":
        where["at"] = int(graph.row_lengths.max())
    x = torch.randn(n, d, device=device, requires_grad=True)
    contenders = []
    for level in LEVELS:
        layer = GFGNConv(d, d // heads, level, heads).to(device)
        contenders += backprop(f"GFGN-{level}", lambda layer=layer: layer(x, graph), [x, layer], ours=True)
    gcn = peers.gcn(x, with_self_loops(graph), d, torch.float32)
    for name in ("PyG GCNConv", "PyG EdgeIndex.matmul"):
        contenders += backprop(name, gcn[name].forward, [x, gcn[name].module])
    facts = {"nodes": n, "edges": graph.num_edges, "D": d, "heads": heads, "dtype": "float32"}
    return race.problem(f"growth in {where['axis']}", contenders, device, rounds, **where, **facts)


def replicas(device: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Training of `at` replicas as one program, from initialization to test scores."""
    data = contextual_sbm(1000, features=64).to(device)
    for count in (1, 4, 16, 64, 256) if device == "cuda" else (1, 4, 16, 64):
        runs = [Replica(split=k % 10, seed=k // 10) for k in range(count)]
        contenders = [
            Contender(
                f"GFGN-{level}",
                lambda level=level, runs=runs: train_replicas(f"gfgn-{level}", data, runs, EPOCHS, EPOCHS, device),
                ours=True,
            )
            for level in LEVELS
        ]
        facts = {"axis": "replicas", "at": count, "nodes": data.num_nodes, "edges": data.graph.num_edges}
        yield race.problem("growth in replicas", contenders, device, rounds, **facts, epochs=EPOCHS)


def measure(axis: str, device: str, rounds: int) -> Iterator[dict[str, Any]]:
    cuda = device == "cuda"
    n, e, d, heads = (100_000, 2_000_000, 128, 8) if cuda else (20_000, 400_000, 64, 8)
    graph = graphs.skewed(n, e, 0.3)
    if axis == "nodes":
        for at in (int(factor * n) for factor in FACTORS):
            yield layers(*graphs.skewed(at, e, 0.3), d, heads, device, rounds, axis=axis, at=at)
    elif axis == "edges":
        for at in (int(factor * e) for factor in FACTORS):
            yield layers(*graphs.skewed(n, at, 0.3), d, heads, device, rounds, axis=axis, at=at)
    elif axis == "width":
        for at in (16, 32, 64, 128, 256, *((512,) if cuda else ())):
            yield layers(*graph, at, heads, device, rounds, axis=axis, at=at)
    elif axis == "heads":
        for at in (1, 2, 4, 8, 16):
            yield layers(*graph, d, at, device, rounds, axis=axis, at=at)
    elif axis == "skew":
        for exponent in (0.0, 0.3, 0.6, 0.9):
            yield layers(*graphs.skewed(n, e, exponent), d, heads, device, rounds, axis=axis)
    else:
        yield from replicas(device, min(rounds, 3))


AXES = ("nodes", "edges", "width", "heads", "skew", "replicas")


def slope(points: list[tuple[float, float]]) -> float:
    """Exponent `p` of the power law `c · x^p` that is nearest in logarithms."""
    x, y = np.log(np.array(points, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def exponents(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By axis and contender, how time and memory grow."""
    found = []
    for axis in dict.fromkeys(problem["axis"] for problem in problems):
        chosen = [problem for problem in problems if problem["axis"] == axis]
        for contender in dict.fromkeys(row["contender"] for problem in chosen for row in problem["rows"]):
            rows = [(p["at"], row) for p in chosen for row in p["rows"] if row["contender"] == contender]
            entry: dict[str, Any] = {"axis": axis, "contender": contender}
            for field, name in (("total_ms", "time"), ("peak_mib", "memory")):
                points = [(at, row[field]) for at, row in rows if row[field]]
                entry[name] = slope(points) if len(points) > 1 else math.nan
            found.append(entry)
    return found


def main() -> None:
    parser = common.parser(__doc__, 5, AXES)
    args = parser.parse_args()
    problems: list[dict[str, Any]] = []
    for axis in args.parts or AXES:
        problems += measure(axis, args.device, args.rounds)
        found = exponents(problems)
        for entry in (entry for entry in found if entry["axis"] == axis):
            print(f"{axis:<9} {entry['contender']:<22} time^{entry['time']:.2f}  memory^{entry['memory']:.2f}")
        common.write("growth", args.device, problems, exponents=found)  # an interrupted run keeps what it has measured


if __name__ == "__main__":
    main()
