"""Building a graph, and a bare `edge_index` where a `Graph` goes, compared with one layer.

    python benchmarks/edge_index.py [--device cuda]

"edge_index" is the same tensor every time, so that its graph is remembered; "new edge_index" is another tensor every
time, so that its graph is built. The peers of building normalize as GCN does and sort by both ends: PyG's `gcn_norm`
with an `EdgeIndex` that knows both orders, and SciPy on a CPU.
"""

from __future__ import annotations

import common
import graphs
import numpy as np
import race
import scipy.sparse
import torch
from race import Contender, backprop
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gfgn import GFGNConv, Graph
from gfgn.nn.levels import LEVELS

WIDTH = 64
BUILDS = {"cpu": 11, "cuda": 51}
"""Rounds of building, which takes less than a layer; on a GPU so little that single ones differ by half of it."""


def build_pyg(edge_index: Tensor, n: int, weight: Tensor | None = None) -> tuple[EdgeIndex, Tensor]:
    edges, norm = gcn_norm(edge_index, weight, n, add_self_loops=False)
    index, order = EdgeIndex(edges, sparse_size=(n, n)).sort_by("row")
    return index.fill_cache_(), norm[order]


def build_scipy(edge_index: Tensor, n: int, weight: Tensor | None = None) -> tuple[scipy.sparse.csr_array, ...]:
    source, target = edge_index.numpy()
    values = np.ones(source.size, np.float32) if weight is None else weight.numpy()
    matrix = scipy.sparse.coo_array((values, (target, source)), shape=(n, n)).tocsr()
    scale = scipy.sparse.diags_array(1 / np.sqrt(np.maximum(matrix.sum(1), 1)))
    matrix = scipy.sparse.csr_array(scale @ matrix @ scale)
    return matrix, matrix.T.tocsr()


def building(title: str, edge_index: Tensor, n: int, device: str, rounds: int) -> list[dict[str, object]]:
    edge_index = edge_index.to(device)
    weight = torch.rand(edge_index.size(1), device=device)
    order = torch.argsort(edge_index[0] * n + edge_index[1])
    cases = {
        "int64": (edge_index, n),
        "int32": (edge_index.int(), n),
        "weighted": (edge_index, n, weight),
        "sorted by source": (edge_index[:, order], n),
        "directed": (edge_index[:, 1:].contiguous(), n),  # one edge has no opposite
        "directed, int32": (edge_index[:, 1:].int(), n),
        "directed, weighted": (edge_index[:, 1:].contiguous(), n, weight[1:].contiguous()),
    }
    problems = []
    for name, case in cases.items():
        builders = {"Graph": Graph.from_edge_index, "PyG EdgeIndex": build_pyg}
        builders |= {"SciPy": build_scipy} if device == "cpu" else {}
        contenders = [
            Contender(builder, lambda build=build, case=case: build(*case), builder == "Graph")
            for builder, build in builders.items()
        ]
        # The ends of every edge in; an index and two weights per edge in both orders out.
        least = edge_index.size(1) * (2 * case[0].element_size() + 2 * (4 + 8))
        facts = {"edge_index": name, "nodes": n, "edges": edge_index.size(1)}
        problems.append(race.problem(f"building, {title}", contenders, device, rounds, least, **facts))
    return problems


def layer(level: str, title: str, edge_index: Tensor, n: int, device: str, rounds: int) -> dict[str, object]:
    """One layer, forward and backward, and building alone; `GCNConv` normalizes again unless it is cached."""
    torch.manual_seed(0)
    edge_index = edge_index.to(device)
    graph = Graph.from_edge_index(edge_index, n)
    x = torch.randn(n, WIDTH, device=device, requires_grad=True)
    conv = GFGNConv(WIDTH, WIDTH, level).to(device)
    gcn, cached = (GCNConv(WIDTH, WIDTH, cached=cached).to(device) for cached in (False, True))
    contenders = [
        *backprop("Graph", lambda: conv(x, graph), [x, conv], ours=True),
        *backprop("edge_index", lambda: conv(x, edge_index), [x, conv], ours=True),
        *backprop("new edge_index", lambda: conv(x, edge_index.clone()), [x, conv], ours=True),
        Contender("building alone", lambda: Graph.from_edge_index(edge_index, n), ours=True),
        *backprop("PyG GCNConv", lambda: gcn(x, edge_index), [x, gcn]),
        *backprop("PyG GCNConv, cached", lambda: cached(x, edge_index), [x, cached]),
    ]
    facts = {"level": level, "nodes": n, "edges": graph.num_edges, "D": WIDTH, "dtype": "float32"}
    result = race.problem(f"layer, {title}", contenders, device, rounds, **facts)
    times = {row["contender"]: row["total_ms"] for row in result["rows"]}
    result["building_to_layer"] = times["building alone"] / times["Graph"]
    print(f"  building takes {result['building_to_layer']:.2f} of one layer", flush=True)
    return result


def main() -> None:
    parser = common.parser(__doc__, 11)
    args = parser.parse_args()
    small = "20,000 nodes", *graphs.skewed(20_000, 400_000, 0.3)
    large = "ogbn-arxiv structure", *graphs.arxiv()
    problems = [
        *building(*small, args.device, BUILDS[args.device]),
        *building(*large, args.device, BUILDS[args.device]),
        *(layer(level, *small, args.device, args.rounds) for level in LEVELS),
        layer("pair", *large, args.device, args.rounds),
    ]
    common.write("edge_index", args.device, problems)


if __name__ == "__main__":
    main()
