"""Neighbor sampling: edges per second of gfgn, of SciPy's row slicing and of PyG's sampling without compiled packages.

    python benchmarks/sampler.py [--dataset ogbn-arxiv-structure] [--rounds 5]

All contenders take the same seeds, in turn, in one process; a figure is the median over the rounds. SciPy slices the
rows of a hop and draws with NumPy, one random key per edge. PyG's `k_hop_subgraph` is what PyG has without `pyg-lib`
and `torch-sparse`: it takes all neighbors, so its edges per second are of the edges that it returns. Then growth
with batch, fan-outs and threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import common
import numpy as np
import scipy.sparse
import torch
from torch_geometric.utils import k_hop_subgraph

from gfgn.data import load
from gfgn.graph import Graph
from gfgn.sampling import NeighborSampler

BATCH, FANOUTS = 1024, (10, 10)
Contender = Callable[[torch.Tensor, int], int]


def with_scipy(graph: Graph, fanouts: Sequence[int]) -> Contender:
    """Row slicing, then the `fanout` smallest of random keys in every row; returns the number of edges."""
    rows = graph.by_target
    size = (graph.num_nodes, graph.num_nodes)
    matrix = scipy.sparse.csr_array((np.ones(graph.num_edges, np.int8), rows.idx.numpy(), rows.ptr.numpy()), shape=size)

    def draw(frontier: np.ndarray, fanout: int, generator: np.random.Generator) -> np.ndarray:
        part = matrix[frontier]
        row = np.repeat(np.arange(frontier.size), np.diff(part.indptr))
        order = np.lexsort((generator.random(row.size), row))
        rank = np.arange(row.size) - part.indptr[row]
        return part.indices[order[rank < fanout]]

    return hop_by_hop(graph, fanouts, draw)


def hop_by_hop(graph: Graph, fanouts: Sequence[int], draw: Callable[..., np.ndarray]) -> Contender:
    """Draws the sources of every hop's new nodes; the sample is the number of edges."""

    def sample(seeds: torch.Tensor, step: int) -> int:
        generator, frontier, count = np.random.default_rng(step), seeds.numpy(), 0
        seen = np.zeros(graph.num_nodes, bool)
        seen[frontier] = True
        for fanout in fanouts:
            source = draw(frontier, fanout, generator)
            count += source.size
            new = np.unique(source)
            frontier = new[~seen[new]]
            seen[frontier] = True
        return count

    return sample


def with_pyg(graph: Graph, fanouts: Sequence[int]) -> Contender:
    edge_index = graph.edge_index

    def sample(seeds: torch.Tensor, step: int) -> int:
        return k_hop_subgraph(seeds, len(fanouts), edge_index, True, graph.num_nodes)[1].size(1)

    return sample


def with_gfgn(graph: Graph, fanouts: Sequence[int]) -> Contender:
    sampler = NeighborSampler.from_graph(graph, fanouts)

    def sample(seeds: torch.Tensor, step: int) -> int:
        return int(sampler.sample(seeds, step).edge.size)

    return sample


def measure(
    graph: Graph, contenders: dict[str, Contender], batch: int, rounds: int, facts: dict[str, object]
) -> list[dict[str, object]]:
    """One row per contender; they take turns."""
    generator = torch.Generator().manual_seed(0)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    edges: dict[str, list[int]] = {name: [] for name in contenders}
    for step in range(rounds + 1):
        seeds = torch.randperm(graph.num_nodes, generator=generator)[:batch]
        for name, sample in contenders.items():
            start = time.perf_counter()
            count = sample(seeds, step)
            if step > 0:
                times[name].append(time.perf_counter() - start)
                edges[name].append(count)
    rows: list[dict[str, object]] = []
    for name in contenders:
        rate = statistics.median(count / spent for count, spent in zip(edges[name], times[name], strict=True))
        row = {"contender": name, "batch": batch, **facts, "milliseconds": 1e3 * statistics.median(times[name])}
        rows.append(row | {"edges": statistics.median(edges[name]), "edges_per_second": rate})
        print(
            "  ".join(
                f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in rows[-1].items()
            ),
            flush=True,
        )
    return rows


def main() -> None:
    parser = common.parser(__doc__ or "", 5)
    parser.add_argument("--dataset", default="ogbn-arxiv-structure")
    arguments = parser.parse_args()
    graph, rounds = load(arguments.dataset).graph, arguments.rounds
    rows = []

    def compare(batch: int, fanouts: tuple[int, ...], threads: int, **peers: Contender) -> None:
        with common.threads(threads):
            facts = {"fanouts": list(fanouts), "threads": threads}
            rows.extend(measure(graph, {"gfgn": with_gfgn(graph, fanouts), **peers}, batch, rounds, facts))

    for fanouts in ((10,), FANOUTS, (15, 10, 5)):
        compare(BATCH, fanouts, 1, scipy=with_scipy(graph, fanouts), pyg_k_hop=with_pyg(graph, fanouts))
    for batch in (64, 256, 4096, 16384):
        compare(batch, FANOUTS, 1, scipy=with_scipy(graph, FANOUTS))
    for fanout in (2, 5, 25, 50):
        compare(BATCH, (fanout, fanout), 1, scipy=with_scipy(graph, (fanout, fanout)))
    for threads in (1, 2):
        compare(4096, FANOUTS, threads)
    common.write("sampler", "cpu", rows, dataset=arguments.dataset, rounds=rounds, num_edges=graph.num_edges)


if __name__ == "__main__":
    main()
