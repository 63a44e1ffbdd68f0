"""An epoch on the whole graph and one on samples of it: time and peak memory of the device, at every level.

    python benchmarks/epoch.py [--device cuda] [--nodes 2450000] [--edges 124000000] [--rounds 3]

The graph is random, of about the size of ogbn-products: `--edges` counts both directions. Networks have three layers of
128 hidden units in 8 heads. A step on the whole graph is an epoch; its time is the median over the rounds. On samples,
features and edges stay in main memory, an epoch has all training nodes (`--train` of all) in batches of 1,024 with 10
neighbors per node and layer, and `--batches` of its batches are timed, of which the epoch's time is a multiple.
"""

from __future__ import annotations

import time
from typing import Any

import common
import torch
from torch.nn.functional import cross_entropy

from gfgn import GFGN, Graph
from gfgn.sampling import NeighborSampler

LEVELS, LAYERS, HIDDEN, HEADS, CLASSES, BATCH, FANOUT = ("graph", "neighbor", "pair"), 3, 128, 8, 47, 1024, 10


def make_graph(nodes: int, edges: int) -> Graph:
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(nodes, (2, edges // 2), generator=generator)
    return Graph.from_edge_index(torch.cat([half, half.flip(0)], 1), nodes)


def step(net: GFGN, optimizer: torch.optim.Optimizer, x: Any, graph: Graph, y: Any, **hops: Any) -> None:
    optimizer.zero_grad()
    cross_entropy(net(x, graph, **hops)[: y.numel()], y).backward()
    optimizer.step()


def whole_epoch(level: str, graph: Graph, x: torch.Tensor, y: torch.Tensor, device: str, rounds: int) -> dict[str, Any]:
    graph, x, y = graph.to(device), x.to(device), y.to(device)
    with common.PeakMemory(device) as memory:
        net, optimizer = network(level, x.size(1), device)
        seconds = common.seconds(lambda: step(net, optimizer, x, graph, y), device, rounds)
    return {"epoch_seconds": seconds, "peak_mib": memory.mib}


def sampled_epoch(
    level: str, graph: Graph, x: torch.Tensor, y: torch.Tensor, device: str, batches: int, train: float
) -> dict[str, Any]:
    count = int(train * graph.num_nodes)
    nodes = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))[:count]
    sampler, edges = NeighborSampler.from_graph(graph, [FANOUT] * LAYERS), 0
    with common.PeakMemory(device) as memory:
        net, optimizer = network(level, x.size(1), device)
        for number, seeds in enumerate(nodes.split(BATCH)[: batches + 1]):
            if number == 1:  # the first one does not count
                common.synchronize(device)
                start, edges = time.perf_counter(), 0
            sample = sampler.sample(seeds, number)
            hops = {"num_sampled_nodes_per_hop": sample.nodes_per_hop}
            hops["num_sampled_edges_per_hop"] = sample.edges_per_hop
            inputs = x[torch.from_numpy(sample.node)].to(device)
            step(net, optimizer, inputs, sampler.graph(sample).to(device), y[seeds].to(device), **hops)
            edges += sample.edge.size
        common.synchronize(device)
    each, steps = (time.perf_counter() - start) / max(number, 1), -(-count // BATCH)
    facts = {"epoch_seconds": each * steps, "peak_mib": memory.mib, "steps": steps, "step_seconds": each}
    return facts | {"edges_per_step": edges / max(number, 1)}


def network(level: str, features: int, device: str) -> tuple[GFGN, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = GFGN(features, HIDDEN, LAYERS, CLASSES, level=level, heads=HEADS, momentum=0.1).to(device)
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def main() -> None:
    parser = common.parser(__doc__ or "", 3)
    parser.add_argument("--nodes", type=int, default=2_450_000)
    parser.add_argument("--edges", type=int, default=124_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--train", type=float, default=0.08)
    parser.add_argument("--batches", type=int, default=20)
    arguments = parser.parse_args()
    graph, device = make_graph(arguments.nodes, arguments.edges), arguments.device
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(arguments.nodes, arguments.features, generator=generator)
    y = torch.randint(CLASSES, (arguments.nodes,), generator=generator)
    rows: list[dict[str, object]] = []
    for level in LEVELS:
        for way, measured in (
            ("whole graph", whole_epoch(level, graph, x, y, device, arguments.rounds)),
            ("samples", sampled_epoch(level, graph, x, y, device, arguments.batches, arguments.train)),
        ):
            rows.append({"level": level, "way": way, **measured})
            print(rows[-1], flush=True)
    common.write("epoch", device, rows, nodes=graph.num_nodes, edges=graph.num_edges, layers=LAYERS, hidden=HIDDEN)


if __name__ == "__main__":
    main()
