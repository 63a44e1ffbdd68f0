"""A whole layer, forward and backward: the three GFGN levels compared with PyG's convolutions of the same width.

    python benchmarks/layer.py [--device cuda] [--large]

`--large` adds one GFGN-pair layer at the size of ogbn-products, where an `[E, D]` tensor alone takes 64 GB.
"""

from __future__ import annotations

import argparse
import os

import common
import graphs
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, ResGatedGraphConv, TransformerConv

from gfgn import GFGNConv, Graph

HEADS = 8


def with_backend(step: common.Step, backend: str) -> common.Step:
    def run() -> Tensor:
        os.environ["GFGN_BACKEND"] = backend
        try:
            return step()
        finally:
            del os.environ["GFGN_BACKEND"]

    return run


def layers(
    title: str, edge_index: Tensor, n: int, d: int, device: str, rounds: int, few: bool = False
) -> dict[str, object]:
    torch.manual_seed(0)
    edge_index = edge_index.to(device)
    graph = Graph.from_edge_index(edge_index, n, duplicates="keep")
    x = torch.randn(n, d, device=device, requires_grad=True)
    ours = {f"GFGN-{level}": GFGNConv(d, d // HEADS, level, HEADS) for level in ("pair", "neighbor", "graph")}
    peers: dict[str, nn.Module] = {
        "PyG GCNConv (cached)": GCNConv(d, d, cached=True),
        "PyG GATConv": GATConv(d, d // HEADS, HEADS),
        "PyG GATv2Conv": GATv2Conv(d, d // HEADS, HEADS),
        "PyG ResGatedGraphConv": ResGatedGraphConv(d, d),
        "PyG TransformerConv": TransformerConv(d, d // HEADS, HEADS),
    }
    contenders: dict[str, common.Step] = {}
    leaves = [x]
    for name, layer in (ours | peers).items():
        layer.to(device)
        leaves += layer.parameters()
        edges = graph if name in ours else edge_index
        contenders[name] = lambda layer=layer, edges=edges: layer(x, edges)
    contenders["GFGN-pair, eager"] = with_backend(contenders["GFGN-pair"], "reference")
    if few:
        contenders = {name: contenders[name] for name in ("GFGN-pair", "PyG GCNConv (cached)", "PyG ResGatedGraphConv")}
    return common.problem(
        title, contenders, leaves, device, rounds, nodes=n, edges=graph.num_edges, D=d, heads=HEADS, dtype="float32"
    )


def products(device: str) -> dict[str, object]:
    """One GFGN-pair layer, full batch, at the size of ogbn-products; and the eager layer, which runs out of memory."""
    n, e, d = 2_449_029, 123_718_280, 128
    edge_index, _ = graphs.even(n, e, device)
    graph = Graph.from_edge_index(edge_index, n, duplicates="keep")
    del edge_index
    x = torch.randn(n, d, device=device)
    layer = GFGNConv(d, d // HEADS, "pair", HEADS).to(device)
    step = lambda: layer(x, graph)  # noqa: E731
    contenders = {"GFGN-pair": step, "GFGN-pair, eager": with_backend(step, "reference")}
    return common.problem(
        "size of ogbn-products",
        contenders,
        list(layer.parameters()),
        device,
        5,
        nodes=n,
        edges=graph.num_edges,
        D=d,
        heads=HEADS,
        dtype="float32",
    )


def growth(device: str, rounds: int) -> list[dict[str, object]]:
    """Growth of time and memory with the number of edges, the width and the degree skew."""
    cuda = device == "cuda"
    n, e, d = (100_000, 2_000_000, 128) if cuda else (20_000, 400_000, 64)
    problems = []
    for factor in (0.25, 0.5, 1, 2, 4):
        edges = int(factor * e)
        problems.append(
            layers("growth in E", *graphs.skewed(n, edges, 0.3), d, device, rounds, few=True)
            | {"axis": "E", "at": edges}
        )
    for width in (16, 32, 64, 128, 256, *((512,) if cuda else ())):
        problems.append(
            layers("growth in D", *graphs.skewed(n, e, 0.3), width, device, rounds, few=True)
            | {"axis": "D", "at": width}
        )
    for exponent in (0.0, 0.3, 0.6, 0.9):
        problems.append(
            layers("growth in skew", *graphs.skewed(n, e, exponent), d, device, rounds, few=True)
            | {"axis": "skew", "at": exponent}
        )
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    problems = [layers("BlogCatalog", *graphs.blogcatalog(), 64, args.device, args.rounds)]
    if cuda:
        edge_index, n = graphs.arxiv()
        problems.append(layers("even degrees", *graphs.even(n, edge_index.size(1)), 256, args.device, args.rounds))
        problems.append(layers("ogbn-arxiv structure", edge_index, n, 256, args.device, args.rounds))
    if args.large:
        problems.append(products(args.device))
    common.write("layer", args.device, problems)
    common.write("growth", args.device, growth(args.device, max(args.rounds // 2, 3)))


if __name__ == "__main__":
    main()
