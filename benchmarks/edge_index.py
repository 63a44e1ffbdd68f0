"""A bare `edge_index` where a `Graph` goes: the layer with each of them, and what building the graph costs.

    python benchmarks/edge_index.py [--device cuda]

"edge_index" is the same tensor every time, so that its graph is remembered; "new edge_index" is another tensor every
time, so that its graph is built. "plain" is the builder of the tests, which sorts in int64 and normalizes in PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import common
import graphs
import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

import gfgn.graph
from gfgn import GFGNConv, Graph
from gfgn.nn.levels import LEVELS

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import scipy_index

WIDTH = 64
WARM_UP = 3
BUILDS = {"cpu": 11, "cuda": 51}
"""Rounds of building, which takes less than a layer; on a GPU so little that single ones differ by half of it."""


@contextmanager
def plain_builder() -> Iterator[None]:
    """Graphs are built as by the reference of the tests."""
    module = gfgn.graph
    before = module.index_edges, module.cpu_kernels, module.cuda_kernels
    module.index_edges, module.cpu_kernels = scipy_index.index_edges, lambda name: None
    module.cuda_kernels = lambda name, device: None
    try:
        yield
    finally:
        module.index_edges, module.cpu_kernels, module.cuda_kernels = before


def build_plainly(*args: Tensor | int) -> Graph:
    with plain_builder():
        return Graph.from_edge_index(*args)


def wall_ms(call: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def building(title: str, edge_index: Tensor, n: int, device: str, rounds: int) -> dict[str, object]:
    """Building alone, plain and as it is, in alternation."""
    edge_index = edge_index.to(device)
    weight = torch.rand(edge_index.size(1), device=device)
    order = torch.argsort(edge_index[0] * n + edge_index[1])
    cases = {
        "int64": (edge_index, n),
        "int32": (edge_index.int(), n),
        "weighted": (edge_index, n, weight),
        "transposed": (edge_index.t().contiguous().t(), n),
        "sorted by source": (edge_index[:, order], n),
        "directed": (edge_index[:, 1:].contiguous(), n),  # one edge has no opposite
        "directed, int32": (edge_index[:, 1:].int(), n),
        "directed, weighted": (edge_index[:, 1:].contiguous(), n, weight[1:].contiguous()),
    }
    print(f"building, {title}: nodes {n}, edges {edge_index.size(1)}")
    rows = []
    for name, case in cases.items():
        builders = {"plain": build_plainly, "Graph": Graph.from_edge_index}
        times: dict[str, list[float]] = {builder: [] for builder in builders}
        for k in range(rounds + WARM_UP):
            for builder, build in builders.items():
                elapsed = wall_ms(lambda build=build, case=case: build(*case), device)
                if k >= WARM_UP:
                    times[builder].append(elapsed)
        medians = {builder: statistics.median(values) for builder, values in times.items()}
        print(f"  {name:<18} plain {medians['plain']:9.2f} ms  Graph {medians['Graph']:9.2f} ms  "
              f"{medians['plain'] / medians['Graph']:6.1f}x", flush=True)  # fmt: skip
        rows += [
            {"contender": f"{builder}, {name}", "total_ms": ms, "rounds": rounds} for builder, ms in medians.items()
        ]
    return {"title": f"building, {title}", "nodes": n, "edges": edge_index.size(1), "rows": rows}


def layer(level: str, title: str, edge_index: Tensor, n: int, device: str, rounds: int) -> dict[str, object]:
    """One layer, forward and backward; PyG's `GCNConv` computes its normalization again unless it is cached."""
    torch.manual_seed(0)
    edge_index = edge_index.to(device)
    graph = Graph.from_edge_index(edge_index, n)
    x = torch.randn(n, WIDTH, device=device, requires_grad=True)
    conv = GFGNConv(WIDTH, WIDTH, level).to(device)
    gcn, cached = GCNConv(WIDTH, WIDTH).to(device), GCNConv(WIDTH, WIDTH, cached=True).to(device)
    contenders: dict[str, common.Step] = {
        "Graph": lambda: conv(x, graph),
        "edge_index": lambda: conv(x, edge_index),
        "new edge_index": lambda: conv(x, edge_index.clone()),
        "GCNConv, edge_index": lambda: gcn(x, edge_index),
        "GCNConv, cached": lambda: cached(x, edge_index),
    }
    leaves = [x, *conv.parameters(), *gcn.parameters(), *cached.parameters()]
    facts = {"level": level, "nodes": n, "edges": graph.num_edges, "D": WIDTH, "dtype": "float32"}
    return common.problem(f"layer, {title}", contenders, leaves, device, rounds, **facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    small = "20,000 nodes", *graphs.skewed(20_000, 400_000, 0.3)
    large = "ogbn-arxiv structure", *graphs.arxiv()
    problems = [
        building(*small, args.device, BUILDS[args.device]),
        building(*large, args.device, BUILDS[args.device]),
        *(layer(level, *small, args.device, args.rounds) for level in LEVELS),
        layer("pair", *large, args.device, max(args.rounds // 2, 3)),
    ]
    common.write("edge_index", args.device, problems)


if __name__ == "__main__":
    main()
