"""Each operator, forward and backward, against plain and compiled PyTorch, PyG's `EdgeIndex`, and MKL or cuSPARSE.

python benchmarks/operators.py [pair_aggregate propagate] [--device cuda]

`gather_ms` is a roofline: the rows that an edge needs at the measured bandwidth of gathering the same rows, and the
bytes of the floor at the bandwidth of a copy. `floor_ms` counts every input and every result once.
"""

from __future__ import annotations

import itertools

import common
import graphs
import peers
import race
import torch
from race import COMPILED, EAGER, Contender, backprop
from torch import Tensor

from gfgn import Graph, ops

BOTH = (EAGER, COMPILED)


def features(count: int, n: int, d: int, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(n, d, device=device, dtype=dtype, requires_grad=True) for _ in range(count)]


def graph_problem(
    title: str,
    contenders: list[Contender],
    graph: Graph,
    x: Tensor,
    rounds: int,
    *,
    tensors: int,
    gathers: int,
    values: int = 1,
) -> dict[str, object]:
    """A problem that moves `tensors` node tensors and `gathers` rows per edge, with `values` weights per edge."""
    device, (n, d), size = x.device.type, x.shape, x.element_size()
    least = tensors * n * d * size + 2 * graph.num_edges * (4 + values * size)
    gathered = gathers * graph.num_edges * d * size / common.gather_bandwidth(graph.by_target.idx, x, device)
    facts = {
        "nodes": n,
        "edges": graph.num_edges,
        "D": d,
        "dtype": str(x.dtype).split(".")[1],
        "threads": torch.get_num_threads() if device == "cpu" else None,
        "gather_ms": 1e3 * (gathered + least / common.copy_bandwidth(device)),
    }
    result = race.problem(title, contenders, device, rounds, least, **facts)
    ours = result["rows"][0]["total_ms"]
    if ours is not None:
        print(
            f"  gathers at the bandwidth measured here: {facts['gather_ms']:.3f} ms; {ours / facts['gather_ms']:.2f}x"
        )
    return result


def pair_problem(title: str, graph: Graph, d: int, rounds: int, dtype: torch.dtype, forms: tuple[str, ...] = BOTH):
    a, b, z = leaves = features(3, graph.num_nodes, d, graph.device.type, dtype)
    # Plain PyTorch takes many seconds for millions of edges on a CPU.
    peer_forms = (COMPILED,) if graph.num_edges > 1_000_000 and not z.is_cuda else forms
    contenders = [
        *backprop("gfgn", lambda: ops.pair_aggregate(a, b, z, graph, 1.0), leaves, ours=True, forms=forms),
        *backprop("PyTorch", lambda: ops.pair_aggregate(a, b, z, graph, 1.0, "reference"), leaves, forms=peer_forms),
    ]
    # a, b, z in and the sum out; gradient, a, b, z in and three gradients out. An edge needs rows of b and z forward,
    # of a, z and the gradient backward.
    return graph_problem(title, contenders, graph, z, rounds, tensors=11, gathers=5, values=2)


def pair_aggregate(device: str, rounds: int) -> list[dict[str, object]]:
    blog, arxiv = ("BlogCatalog", graphs.blogcatalog()), ("ogbn-arxiv structure", graphs.arxiv())
    if device == "cuda":
        even = ("even degrees", graphs.even(169_343, arxiv[1][0].size(1)))
        cases = [(*case, dtype, 1) for case in ((blog, 64), (arxiv, 64), (even, 256), (arxiv, 256))
                 for dtype in (torch.float32, torch.bfloat16)]  # fmt: skip
    else:
        dtypes = (torch.float32, torch.float64, torch.bfloat16)
        cases = list(itertools.product((blog,), (64, 128), dtypes, (1, 2)))
        cases += itertools.product((arxiv,), (64, 128), dtypes[:1], (2,))
    problems = []
    for (title, (edge_index, n)), d, dtype, threads in cases:
        graph = Graph.from_edge_index(edge_index, n, duplicates="keep").to(device)
        forms = BOTH if device == "cuda" or (d, dtype) == (64, torch.float32) else (EAGER,)  # compiling takes long
        with common.threads(threads):
            problems.append(pair_problem(title, graph, d, rounds, dtype, forms))
    return problems


def propagate_problem(title: str, graph: Graph, d: int, rounds: int, dtype: torch.dtype, forms: tuple[str, ...] = BOTH):
    (x,) = leaves = features(1, graph.num_nodes, d, graph.device.type, dtype)
    contenders = backprop("gfgn", lambda: ops.propagate(x, graph), leaves, ours=True, forms=forms)
    for name, forward in peers.products(x, graph).items():
        contenders += backprop(name, forward, leaves)
    if not x.is_cuda and dtype != torch.bfloat16:
        contenders.append(Contender("SciPy", peers.scipy_product(x, graph)))
    contenders += backprop("PyTorch", lambda: ops.propagate(x, graph, "reference"), leaves, forms=forms)
    return graph_problem(title, contenders, graph, x, rounds, tensors=4, gathers=2)


def propagate(device: str, rounds: int) -> list[dict[str, object]]:
    """Widths from 16 to 512 on a graph of even degrees and on one with hubs, then other types."""
    if device == "cuda":
        structures = [("ogbn-arxiv structure", graphs.arxiv()), ("even degrees", graphs.even(169_343, 2_315_598))]
    else:
        structures = [
            ("skewed degrees", graphs.skewed(20_000, 400_000, 0.6)),
            ("even degrees", graphs.even(20_000, 400_000)),
        ]
    problems = []
    for title, (edge_index, n) in [("BlogCatalog", graphs.blogcatalog()), *structures]:
        graph = Graph.from_edge_index(edge_index, n).to(device)
        for d in (64,) if title == "BlogCatalog" else (16, 32, 64, 128, 256, 512):
            forms = BOTH if d == 64 else (EAGER,)  # compiling takes long and changes little
            problems.append(propagate_problem(title, graph, d, rounds, torch.float32, forms))
        if title != "BlogCatalog":
            for dtype in (torch.float64, torch.bfloat16):
                problems.append(propagate_problem(title, graph, 64, rounds, dtype, (EAGER,)))
    return problems


OPERATORS = {f.__name__: f for f in (pair_aggregate, propagate)}


def main() -> None:
    parser = common.parser(__doc__, 11, OPERATORS)
    args = parser.parse_args()
    bandwidth = common.copy_bandwidth(args.device)
    print(f"{common.device_name(args.device)}: copies at {bandwidth / 1e9:.0f} GB/s")
    for name in args.parts or OPERATORS:
        if problems := OPERATORS[name](args.device, args.rounds):
            common.write(name, args.device, problems, copy_bytes_per_second=bandwidth)


if __name__ == "__main__":
    main()
