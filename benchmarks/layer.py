"""A whole layer, forward and backward: the three GFGN levels and attention, against PyG's convolutions of that width.

    python benchmarks/layer.py [layer attention plus step] [--device cuda] [--large]

`layer` is the three levels against every form of GCN and against `GATConv` and `ResGatedGraphConv`; `attention` is
gfgn's `gat` layer against `GATConv`; `plus` is the layer of GFGN+ against GFGN's of the same level;
`step` is one training step of a two-layer network on Cora in an ordinary loop.
`--large` adds a layer at the size of ogbn-products, where an `[E, D]` tensor alone takes 64 GB.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import common
import graphs
import peers
import race
import torch
from race import CAPTURED, COMPILED, EAGER, FORMS, Contender, backprop
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GCN

from gfgn import GFGN, GFGNConv, Graph
from gfgn.data import NodeDataset, load
from gfgn.graph import with_self_loops
from gfgn.nn import GFGNPlusConv
from gfgn.nn.baselines.gat import GATLayer

HEADS = 8
PARTS = ("layer", "attention", "plus", "step")
LEVELS = ("pair", "neighbor", "graph")
SMALL = 50_000
"""Nodes below which a GPU waits for the host: there, CUDA graphs are measured as well."""


def forms_on(device: str, nodes: int) -> tuple[str, ...]:
    return FORMS if device == "cuda" and nodes < SMALL else (EAGER, COMPILED)


def floor_bytes(nodes: int, edges: int, width: int, size: int) -> int:
    """Least bytes of a layer: features in, result out; gradient and features in, gradient out; the edges twice."""
    return 5 * nodes * width * size + 2 * edges * (4 + size)


def autocast(forward: Callable[[], Tensor], device: str, dtype: torch.dtype) -> Callable[[], Tensor]:
    if dtype == torch.float32:
        return forward

    def cast() -> Tensor:
        with torch.autocast(device, dtype):
            return forward()

    return cast


def with_backend(forward: Callable[[], Tensor], backend: str) -> Callable[[], Tensor]:
    def run() -> Tensor:
        os.environ["GFGN_BACKEND"] = backend
        try:
            return forward()
        finally:
            del os.environ["GFGN_BACKEND"]

    return run


def gcn_contenders(x: Tensor, graph: Graph, width: int, forms: tuple[str, ...], dtype: torch.dtype) -> list[Contender]:
    found = []
    for name, peer in peers.gcn(x, with_self_loops(graph), width, dtype).items():
        chosen = [form for form in forms if peer.indexed or COMPILED not in form]
        forward = autocast(peer.forward, x.device.type, dtype)
        found += backprop(name, forward, [x, peer.module], forms=chosen)
    return found


def layers(
    title: str,
    edge_index: Tensor,
    n: int,
    d: int,
    device: str,
    rounds: int,
    dtype: torch.dtype = torch.float32,
    forms: tuple[str, ...] = (),
) -> dict[str, object]:
    """The three levels against their peers; in bfloat16, everything runs under autocast."""
    torch.manual_seed(0)
    forms = forms or forms_on(device, n)
    graph = Graph.from_edge_index(edge_index.to(device), n, duplicates="keep")
    x = torch.randn(n, d, device=device, dtype=dtype, requires_grad=True)
    contenders = []
    for level in LEVELS:
        layer = GFGNConv(d, d // HEADS, level, HEADS).to(device)
        forward = autocast(lambda layer=layer: layer(x, graph), device, dtype)
        contenders += backprop(f"GFGN-{level}", forward, [x, layer], ours=True, forms=forms)
    layer = GFGNConv(d, d // HEADS, "pair", HEADS).to(device)
    plain = autocast(with_backend(lambda: layer(x, graph), "reference"), device, dtype)
    contenders += backprop("GFGN-pair in plain PyTorch", plain, [x, layer])
    contenders += gcn_contenders(x, graph, d, forms, dtype)
    if dtype == torch.float32:
        others = {
            "PyG GATConv": peers.gat(x, with_self_loops(graph), d, HEADS),
            "PyG ResGatedGraphConv": peers.gated(x, graph, d),
        }
        for name, peer in others.items():
            contenders += backprop(name, peer.forward, [x, peer.module], forms=[f for f in forms if CAPTURED not in f])
    least = floor_bytes(n, graph.num_edges, d, x.element_size())
    facts = {"nodes": n, "edges": graph.num_edges, "D": d, "heads": HEADS, "dtype": str(dtype).split(".")[1]}
    return race.problem(title, contenders, device, rounds, least, **facts)


def attention(
    title: str, edge_index: Tensor, n: int, d: int, device: str, rounds: int, forms: tuple[str, ...] = ()
) -> dict[str, object]:
    torch.manual_seed(0)
    forms = forms or forms_on(device, n)
    looped = with_self_loops(Graph.from_edge_index(edge_index.to(device), n, duplicates="keep"))
    x = torch.randn(n, d, device=device, requires_grad=True)
    layer, peer = GATLayer(d, d // HEADS, HEADS, concat=True).to(device), peers.gat(x, looped, d, HEADS)
    contenders = backprop("gfgn gat", lambda: layer(x, looped), [x, layer], ours=True, forms=forms)
    contenders += backprop("PyG GATConv", peer.forward, [x, peer.module], forms=forms)
    least = floor_bytes(n, looped.num_edges, d, 4)
    facts = {"nodes": n, "edges": looped.num_edges, "D": d, "heads": HEADS, "dtype": "float32"}
    return race.problem(title, contenders, device, rounds, least, **facts)


def plus(
    level: str,
    title: str,
    edge_index: Tensor,
    n: int,
    d: int,
    device: str,
    rounds: int,
    forms: tuple[str, ...] = (),
) -> dict[str, object]:
    """GFGN+ with its defaults, and with two hops where the level has them, against GFGN of the level."""
    torch.manual_seed(0)
    forms = forms or forms_on(device, n)
    graph = Graph.from_edge_index(edge_index.to(device), n, duplicates="keep")
    x = torch.randn(n, d, device=device, requires_grad=True)
    layer = GFGNConv(d, d // HEADS, level, HEADS).to(device)
    contenders = backprop(f"GFGN-{level}", lambda: layer(x, graph), [x, layer], forms=forms)
    for hops in (1,) if level == "pair" else (1, 2):
        own = GFGNPlusConv(d, d // HEADS, level, HEADS, hops=hops).to(device)
        name = f"GFGN+ {level}" if hops == 1 else f"GFGN+ {level}, {hops} hops"
        contenders += backprop(name, lambda own=own: own(x, graph), [x, own], ours=True, forms=forms)
    facts = {"nodes": n, "edges": graph.num_edges, "D": d, "heads": HEADS, "dtype": "float32", "level": level}
    return race.problem(title, contenders, device, rounds, floor_bytes(n, graph.num_edges, d, 4), **facts)


def products(device: str) -> dict[str, object]:
    """One layer, full batch, at the size of ogbn-products."""
    n, e, d = 2_449_029, 123_718_280, 128
    graph = Graph.from_edge_index(graphs.even(n, e, device)[0], n, duplicates="keep")
    x = torch.randn(n, d, device=device)
    layer = GFGNConv(d, d // HEADS, "pair", HEADS).to(device)
    contenders = backprop("GFGN-pair", lambda: layer(x, graph), [layer], ours=True)
    plain = with_backend(lambda: layer(x, graph), "reference")
    contenders += backprop("GFGN-pair in plain PyTorch", plain, [layer])
    looped = with_self_loops(graph)
    edges, weight, (matrix, transpose) = looped.edge_index, looped.norm, peers.csr(looped)
    conv = peers.GCNConv(d, d, normalize=False).to(device)
    contenders += backprop("PyG GCNConv", lambda: conv(x, edges, weight), [conv], forms=(EAGER, COMPILED))
    product = lambda: peers.SpMM.apply(conv.lin(x), matrix, transpose) + conv.bias  # noqa: E731
    contenders += backprop(peers.library(x), product, [conv])
    gated = peers.gated(x, graph, d)
    contenders += backprop("PyG ResGatedGraphConv", gated.forward, [gated.module], forms=(EAGER, COMPILED))
    facts = {"nodes": n, "edges": graph.num_edges, "D": d, "heads": HEADS, "dtype": "float32"}
    least = floor_bytes(n, graph.num_edges, d, 4)
    return race.problem("size of ogbn-products", contenders, device, 5, least, **facts)


def step(title: str, data: NodeDataset, device: str, rounds: int, forms: tuple[str, ...] = ()) -> dict[str, object]:
    """One training step: forward, loss, backward, Adam. PyG's GCN keeps its normalized edges (`cached`)."""
    torch.manual_seed(0)
    data = data.to(device)
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    edges, y, train = data.graph.edge_index, data.y, data.splits[0].train.nonzero().squeeze(1)

    def contenders(
        name: str, build: Callable[[], nn.Module], adjacency: Tensor | Graph, forms: tuple[str, ...], ours: bool = False
    ) -> list[Contender]:
        found = []
        for form in forms:
            model = build().to(device)
            adam = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, capturable=CAPTURED in form)
            forward = lambda model=model: cross_entropy(model(x, adjacency)[train], y[train])  # noqa: E731
            forward = race.compiled(forward) if COMPILED in form else forward

            def run(forward: Callable[[], Tensor] = forward, adam: torch.optim.Adam = adam) -> None:
                adam.zero_grad()
                forward().backward()
                adam.step()

            found.append(Contender(name, run, ours, form))
        return found

    forms = forms or forms_on(device, data.num_nodes)
    size = (data.num_features, 64, 2, data.num_classes)
    found = []
    for level in LEVELS:
        build = lambda level=level: GFGN(*size, level=level, heads=HEADS, dropout=0.5)  # noqa: E731
        found += contenders(f"GFGN-{level}", build, data.graph, forms, ours=True)
    found += contenders("PyG GCN", lambda: GCN(*size, dropout=0.5, cached=True), edges, forms)
    matrix, _ = peers.csr(with_self_loops(data.graph))
    # PyTorch does not compile products with sparse matrices.
    uncompiled = tuple(form for form in forms if COMPILED not in form)
    found += contenders("PyG GCN, CSR", lambda: GCN(*size, dropout=0.5, normalize=False), matrix, uncompiled)
    facts = {"nodes": data.num_nodes, "edges": data.graph.num_edges, "D": 64, "heads": HEADS, "dtype": "float32"}
    return race.problem(title, found, device, rounds, **facts)


def measure_layers(device: str, rounds: int) -> list[dict[str, object]]:
    problems = [
        layers("100 nodes", *graphs.even(100, 400), 64, device, rounds),  # the time on the host
        layers("BlogCatalog", *graphs.blogcatalog(), 64, device, rounds),
        layers("20,000 nodes", *graphs.skewed(20_000, 400_000, 0.3), 64, device, rounds),
    ]
    if device == "cuda":
        edge_index, n = graphs.arxiv()
        even, _ = graphs.even(n, edge_index.size(1))
        problems += [
            layers("even degrees", even, n, 256, device, rounds),
            layers("ogbn-arxiv structure", edge_index, n, 256, device, rounds),
            layers("ogbn-arxiv structure", edge_index, n, 256, device, rounds, torch.bfloat16),
        ]
    return problems


def measure_attention(device: str, rounds: int) -> list[dict[str, object]]:
    problems = [attention("BlogCatalog", *graphs.blogcatalog(), 64, device, rounds)]
    if device == "cuda":
        problems.append(attention("ogbn-arxiv structure", *graphs.arxiv(), 256, device, rounds))
    return problems


def measure_plus(device: str, rounds: int) -> list[dict[str, object]]:
    found = {"BlogCatalog": (*graphs.blogcatalog(), 64), "20,000 nodes": (*graphs.skewed(20_000, 400_000, 0.3), 64)}
    if device == "cuda":
        found["ogbn-arxiv structure"] = (*graphs.arxiv(), 256)
    return [plus(level, title, *size, device, rounds) for title, size in found.items() for level in LEVELS]


def main() -> None:
    parser = common.parser(__doc__, 11, PARTS)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    parts = args.parts or PARTS
    if "layer" in parts:
        problems = measure_layers(args.device, args.rounds) + ([products(args.device)] if args.large else [])
        common.write("layer", args.device, problems)
    if "attention" in parts:
        common.write("attention", args.device, measure_attention(args.device, args.rounds))
    if "plus" in parts:
        common.write("plus", args.device, measure_plus(args.device, args.rounds))
    if "step" in parts:
        common.write("step", args.device, [step("training step on Cora", load("cora"), args.device, args.rounds)])


if __name__ == "__main__":
    main()
