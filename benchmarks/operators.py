"""Speed and memory of each operator, forward and backward, compared with plain PyTorch, compiled PyTorch and PyG.

python benchmarks/operators.py [pair_aggregate propagate propagate_and_mean sparse_linear] [--device cuda]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import common
import graphs
import torch
from torch import Tensor
from torch_geometric.edge_index import EdgeIndex

from gfgn import Graph, ops

Peers = Callable[[Tensor, Graph], dict[str, common.Step]]


def features(count: int, n: int, d: int, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(n, d, device=device, dtype=dtype, requires_grad=True) for _ in range(count)]


def gathered_seconds(rows: int, edges: int, nodes: int, tensors: int, d: int, size: int, bandwidth: float) -> float:
    """Time to gather `rows` feature rows per edge and to read or write `tensors` node tensors at copy bandwidth."""
    return (rows * edges + tensors * nodes) * d * size / bandwidth


def pair_aggregate(device: str, rounds: int, bandwidth: float) -> list[dict[str, object]]:
    problems = []
    compiled = torch.compile(lambda a, b, z, graph: ops.pair_aggregate(a, b, z, graph, 1.0, "reference"))
    cases = [("BlogCatalog", graphs.blogcatalog(), 64), ("ogbn-arxiv structure", graphs.arxiv(), 64)]
    if device == "cuda":
        nodes, edges = 169_343, graphs.arxiv()[0].size(1)
        cases += [("even degrees", graphs.even(nodes, edges), 256), ("ogbn-arxiv structure", graphs.arxiv(), 256)]
    for title, (edge_index, n), d in cases:
        graph = Graph.from_edge_index(edge_index, n, duplicates="keep").to(device)
        for dtype in [torch.float32, *([torch.bfloat16] if device == "cuda" else [])]:
            a, b, z = leaves = features(3, n, d, device, dtype)
            contenders = {
                "gfgn": lambda a=a, b=b, z=z, graph=graph: ops.pair_aggregate(a, b, z, graph, 1.0),
                "PyTorch eager": lambda a=a, b=b, z=z, graph=graph: ops.pair_aggregate(
                    a, b, z, graph, 1.0, "reference"
                ),
                "torch.compile": lambda a=a, b=b, z=z, graph=graph: compiled(a, b, z, graph),
            }
            size = torch.finfo(dtype).bits // 8
            # Two rows per edge forward (b, z), three backward (a, z, gradient); a, z in and out, p, q out; then
            # b, z, p, q, gradient in and three gradients out.
            floor = gathered_seconds(5, graph.num_edges, n, 13, d, size, bandwidth)
            result = common.problem(
                title,
                contenders,
                leaves,
                device,
                rounds,
                operator="pair_aggregate",
                nodes=n,
                edges=graph.num_edges,
                D=d,
                dtype=str(dtype).split(".")[1],
                gathered_ms=round(1e3 * floor, 4),
            )
            problems.append(result)
    return problems


def on_real_graphs(name: str, device: str, rounds: int, peers: Peers) -> list[dict[str, object]]:
    """Measures the contenders returned by `peers` on two real structures."""
    problems = []
    for title, (edge_index, n) in (("BlogCatalog", graphs.blogcatalog()), ("ogbn-arxiv structure", graphs.arxiv())):
        graph = Graph.from_edge_index(edge_index, n).to(device)
        (x,) = leaves = features(1, n, 64, device)
        facts = {"operator": name, "nodes": n, "edges": graph.num_edges, "D": 64, "dtype": "float32"}
        problems.append(common.problem(title, peers(x, graph), leaves, device, rounds, **facts))
    return problems


def propagate(device: str, rounds: int, bandwidth: float) -> list[dict[str, object]]:
    def peers(x: Tensor, graph: Graph) -> dict[str, common.Step]:
        size = (graph.num_nodes, graph.num_nodes)
        index = EdgeIndex(graph.edge_index.flip(0).contiguous(), sparse_size=size, is_undirected=True, sort_order="row")
        weight = graph.norm.clone()
        return {
            "gfgn": lambda: ops.propagate(x, graph),
            "PyG EdgeIndex.matmul": lambda: index.matmul(x, weight),
            "PyTorch eager": lambda: ops.propagate(x, graph, "reference"),
        }

    return on_real_graphs("propagate", device, rounds, peers)


def propagate_and_mean(device: str, rounds: int, bandwidth: float) -> list[dict[str, object]]:
    def peers(x: Tensor, graph: Graph) -> dict[str, common.Step]:
        return {
            "gfgn": lambda: torch.cat(ops.propagate_and_mean(x, graph)),
            "gfgn, two passes": lambda: torch.cat([ops.propagate(x, graph), ops.neighbor_mean(x, graph)]),
            "PyTorch eager": lambda: torch.cat(ops.propagate_and_mean(x, graph, "reference")),
        }

    return on_real_graphs("propagate_and_mean", device, rounds, peers)


def sparse_linear(device: str, rounds: int, bandwidth: float) -> list[dict[str, object]]:
    problems = []
    for n, f, nonzeros, d in ((5196, 8189, 71, 64), (19_717, 500, 50, 64)):
        generator = torch.Generator().manual_seed(0)
        column = torch.randint(f, (n, nonzeros), generator=generator).sort(1).values.flatten()
        ptr = torch.arange(0, n * nonzeros + 1, nonzeros)
        x = torch.sparse_csr_tensor(ptr, column, torch.rand(n * nonzeros), (n, f)).to(device)
        dense = x.to_dense()
        torch.manual_seed(0)
        weight = torch.randn(f, d, device=device, requires_grad=True)

        def eager(x: Tensor = x, weight: Tensor = weight) -> Tensor:
            values = torch.nn.functional.dropout(x.values(), 0.5)
            dropped = torch.sparse_csr_tensor(
                x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False
            )
            return dropped @ weight

        contenders = {
            "gfgn": lambda x=x, weight=weight: ops.sparse_linear(x, weight, 0.5),
            "torch.sparse": eager,
            "dense": lambda dense=dense, weight=weight: torch.nn.functional.dropout(dense, 0.5) @ weight,
        }
        problems.append(
            common.problem(
                "random sparse features",
                contenders,
                [weight],
                device,
                rounds,
                operator="sparse_linear",
                rows=n,
                columns=f,
                nonzeros=n * nonzeros,
                D=d,
                dtype="float32",
            )
        )
    return problems


OPERATORS = {f.__name__: f for f in (pair_aggregate, propagate, propagate_and_mean, sparse_linear)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", metavar="operator", help=f"any of {', '.join(OPERATORS)}; default: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    bandwidth = common.copy_bandwidth(args.device)
    print(f"{common.device_name(args.device)}: copies at {bandwidth / 1e9:.0f} GB/s")
    unknown = set(args.operators) - set(OPERATORS)
    if unknown:
        parser.error(f"unknown operators {sorted(unknown)}; choose from {list(OPERATORS)}")
    for name in args.operators or OPERATORS:
        problems = OPERATORS[name](args.device, args.rounds, bandwidth)
        common.write(name, args.device, problems, copy_bytes_per_second=bandwidth)


if __name__ == "__main__":
    main()
