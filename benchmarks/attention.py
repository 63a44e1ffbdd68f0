"""Attention layers, forward and backward: gfgn's `gat` layer compared with PyG's `GATConv`.

    python benchmarks/attention.py [--device cuda]

On a GPU, the structure of ogbn-arxiv is measured as well.
"""

from __future__ import annotations

import argparse

import common
import graphs
import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from gfgn import Graph
from gfgn.graph import with_self_loops
from gfgn.nn.baselines.gat import GATLayer

HEADS = 8


def layers(title: str, edge_index: Tensor, n: int, d: int, device: str, rounds: int) -> dict[str, object]:
    torch.manual_seed(0)
    edge_index = edge_index.to(device)
    looped = with_self_loops(Graph.from_edge_index(edge_index, n, duplicates="keep"))
    x = torch.randn(n, d, device=device, requires_grad=True)
    ours = GATLayer(d, d // HEADS, HEADS, concat=True).to(device)
    # Self-loops are added beforehand for the peer too: adding them takes time and causes a graph break.
    peer = GATConv(d, d // HEADS, HEADS, add_self_loops=False).to(device)
    compiled = torch.compile(peer, dynamic=False, fullgraph=True)
    edges = looped.edge_index
    contenders: dict[str, common.Step] = {
        "gfgn": lambda: ours(x, looped),
        "PyG GATConv": lambda: peer(x, edges),
        "PyG GATConv, compiled": lambda: compiled(x, edges),
    }
    leaves = [x, *ours.parameters(), *peer.parameters()]
    return common.problem(
        title, contenders, leaves, device, rounds, nodes=n, edges=looped.num_edges, D=d, heads=HEADS, dtype="float32"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    problems = [layers("BlogCatalog", *graphs.blogcatalog(), 64, args.device, args.rounds)]
    if args.device == "cuda":
        problems.append(layers("ogbn-arxiv structure", *graphs.arxiv(), 256, args.device, args.rounds))
    common.write("attention", args.device, problems)


if __name__ == "__main__":
    main()
