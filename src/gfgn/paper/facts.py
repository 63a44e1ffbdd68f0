"""What follows from arithmetic, a derivation or the data files: functions that claims name, which return a number to
compare with a bound, what was found in words, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCNConv

from gfgn.data.named.catalog import DATASETS
from gfgn.graph import Graph
from gfgn.nn import GFGN, GFGNConv
from gfgn.ops import propagate
from gfgn.ops.seeded import seeded
from gfgn.paper.evidence import LEVELS, Evidence, Missing
from gfgn.paper.parameters import USUAL, count_all
from gfgn.paper.spectral import normalized_laplacian
from gfgn.paper.studies import load_study
from gfgn.train.statistics import average_ranks

NODES, WIDTH = 30, 5  # of the random graph that derivations are computed on
AGREE = 1e-6  # a smaller difference of two sides is a rounding error, whose size depends on the machine
ROUNDING = 0.05 + 1e-9  # largest rounding error of a figure published with one decimal


class Fact(NamedTuple):
    """A number, what was found, and further numbers."""

    value: float
    text: str
    values: Mapping[str, float] = {}


def _difference(one: Tensor, other: Tensor | float, remark: str = "") -> Fact:
    gap = float((one - other).abs().max())
    return Fact(gap, f"the two sides {'agree' if gap < AGREE else f'differ by up to {gap:.1f}'}{remark}")


def _problem() -> tuple[Tensor, Tensor]:
    """Features, and the edges of an undirected graph without isolated nodes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)
    ring = torch.stack([torch.arange(NODES), torch.arange(1, NODES + 1) % NODES])
    half = torch.cat([ring, torch.randint(NODES, (2, 60), generator=generator)], dim=1)
    edges = torch.unique(torch.cat([half, half.flip(0)], dim=1), dim=1)
    return x, edges[:, edges[0] != edges[1]]


def is_gcn(evidence: Evidence) -> Fact:
    """A graph-level layer with scores of 1 on a graph with self-loops, and PyG's GCN layer."""
    x, edges = _problem()
    graph = Graph.from_edge_index(edges, NODES, self_loops="add", dtype=x.dtype)
    with seeded(0), torch.no_grad():
        layer = GFGNConv(WIDTH, 4, level="graph", heads=1, lam=2.0, bias=False).double()
        gcn = GCNConv(WIDTH, 4, bias=False).double()
        layer.gate.zero_()  # σ(0) = ½, so that with λ = 2 every score is 1
        gcn.lin.weight.copy_(layer.lin.weight)
        return _difference(layer(x, graph), gcn(x, edges))


def zero_is_mlp(evidence: Evidence) -> Fact:
    """A GFGN with λ = 0 and an MLP with the same weights, at every level; and how far trained ones are apart."""
    (x, edges), sides, remark = _problem(), list[Tensor](), ""
    with seeded(0), torch.no_grad():
        for level in LEVELS:
            model = GFGN(WIDTH, 8, 2, 3, level=level.removeprefix("gfgn-"), heads=2, lam=0.0).double().eval()
            first, last = (dict(conv.named_parameters()) for conv in model.convs)
            hidden = functional.linear(x, first["lin.weight"], first["bias"]).relu()
            sides.append(model(x, edges) - functional.linear(hidden, last["lin.weight"], last["bias"]))
    try:
        cells = [(name, level) for name in load_study("lambda").datasets for level in LEVELS]
        mean = evidence.mean
        apart = max(abs(mean("lambda", n, level, 0.0) - mean("lambda", n, "mlp")) for n, level in cells)
        remark = f"; trained separately, accuracies differ by at most {apart:.1f} points"
    except Missing:
        pass
    return _difference(torch.stack(sides), 0.0, remark)


def is_denoising_step(evidence: Evidence, level: str) -> Fact:
    """A layer and one step of gradient descent on the paper's objective with the coefficients `c` of that level.

    At graph level, `c_k = s_k / 2ε` for dimension `k`. At neighbor level, `c_i` is arbitrary and the step
    `ε_ij = s_i / (c_i + c_j)` differs by neighbor. At pair level, the objective has `c_ij + c_ji`, which is
    symmetric, so that the nearest coefficients have the mean of the scores of both directions: `(s_ij + s_ji) / 2ε`.
    """
    x, edges = _problem()
    source, target = edges
    with seeded(0), torch.no_grad():
        layer = GFGNConv(WIDTH, WIDTH, level=level, heads=1, lam=1.6, bias=False).double()
        out, scores = layer(x, Graph.from_edge_index(edges, NODES, dtype=x.dtype), return_scores=True)
        z = layer.transform(x)
    if level == "pair":
        position = {tuple(edge): index for index, edge in enumerate(edges.t().tolist())}
        strength = (scores + scores[[position[v, u] for u, v in edges.t().tolist()]]) / 2
    else:
        strength = scores.expand(source.numel(), WIDTH) if level == "graph" else scores[target]
    # By autograd, the gradient of `Σ_j s_ij (f_i/√d_i − f_j/√d_j)² / 2` with respect to `f_i` at `f = z`, where
    # `s_ij = ε (c_ij + c_ji)`. The term `‖f − x‖²` of the objective has no gradient there.
    scale = torch.bincount(target, minlength=NODES).double().rsqrt()[:, None]
    moved = z.clone().requires_grad_()
    apart = (moved * scale)[target] - (z * scale)[source]  # of the two ends, only f_i moves
    (gradient,) = torch.autograd.grad((strength * apart.square()).sum() / 2, moved)
    return _difference(z - gradient, out)


def is_spectral_filter(evidence: Evidence, layers: int = 4) -> Fact:
    """Graph-level aggregation, `layers` times without activation, and the filter `(1 − sλ)^K` in the spectrum."""
    x, edges = _problem()
    graph = Graph.from_edge_index(edges, NODES, dtype=x.dtype)
    with seeded(0), torch.no_grad():
        layer = GFGNConv(WIDTH, WIDTH, level="graph", heads=1, lam=2.0, bias=False).double()
        _, s = layer(x, graph, return_scores=True)
        z = repeated = layer.transform(x)
        for _ in range(layers):
            repeated = (1 - s) * repeated + s * propagate(repeated, graph)
        values, vectors = torch.linalg.eigh(torch.from_numpy(normalized_laplacian(graph)))
        return _difference(repeated, vectors @ ((1 - s * values[:, None]) ** layers * (vectors.t() @ z)))


def smoothness_is_eigenvalue(evidence: Evidence) -> Fact:
    """The largest difference over the dimensions of Cora's spectral embedding."""
    return _difference(torch.tensor(_number(evidence, "smoothness minus eigenvalue")), 0.0)


def dimensions_differ(evidence: Evidence) -> Fact:
    """By how much fewer neighbors than random nodes differ between two dimensions."""
    whose = ("neighbors", "random nodes")
    share, chance = (_number(evidence, f"{who} twice as similar in one dimension") for who in whose)
    text = f"{100 * share:.0f}% of neighbors are twice as similar in one dimension, {100 * chance:.0f}% of random nodes"
    return Fact(chance - share, text, {"neighbors": share, "random": chance})


def _number(evidence: Evidence, name: str) -> float:
    if f"motivation: {name}" not in evidence.numbers:
        raise Missing(f"motivation: {name}")
    return evidence.numbers[f"motivation: {name}"]


def gates_add(evidence: Evidence, deep: bool) -> Fact:
    """The parameters of the gates in % of those of a GCN, at most over the paper's usual or its deep networks."""
    percent = {f"{c.dataset} {c.level}": 100 * c.added for c in count_all() if (c.shape != USUAL) == deep}
    top = max(percent, key=percent.__getitem__)
    listed = "; " + ", ".join(f"{name} {value:.1f}" for name, value in percent.items()) if deep else ""
    return Fact(percent[top], f"at most +{percent[top]:.1f}% ({top}){listed}", percent)


def homophily_divides(evidence: Evidence, low: Sequence[str], high: Sequence[str]) -> Fact:
    """The largest homophily of one group of graphs minus the smallest of another."""
    first, second = ({name: evidence.graph(name, "node_homophily") for name in names} for names in (low, high))
    spans = (f"{min(group.values()):.2f} to {max(group.values()):.2f}" for group in (first, second))
    return Fact(max(first.values()) - min(second.values()), " against ".join(spans), first | second)


def homophily_excess(evidence: Evidence, names: Sequence[str]) -> Fact:
    """How much more homophily graphs have than the same classes at random, at most."""
    found = {name: [evidence.graph(name, f"{kind}_homophily") for kind in ("node", "permuted")] for name in names}
    excess = {name: (h - p) / (1 - p) for name, (h, p) in found.items()}
    text = ", ".join(f"{name} {h:.2f} ({p:.2f})" for name, (h, p) in found.items())
    return Fact(max(excess.values()), f"measured (permuted classes): {text}", excess)


def sizes_differ(evidence: Evidence, names: Sequence[str], columns: Sequence[str]) -> Fact:
    """How many of the sizes in the paper's table of datasets are not those of the graphs as loaded."""
    sizes = {(n, c): (int(evidence.graph(n, c)), getattr(DATASETS[n].paper, c)) for n in names for c in columns}
    wrong = {key: pair for key, pair in sizes.items() if pair[0] != pair[1]}
    words = [f"{name} {loaded:,} {c} (published {printed:,})" for (name, c), (loaded, printed) in wrong.items()]
    text = ", ".join(words) or f"all {len(sizes)} agree"
    return Fact(len(wrong), text, {"wrong": len(wrong), "of": len(sizes)})


def graphs_coincide(evidence: Evidence, names: Sequence[str]) -> Fact:
    """How many graphs have the features and classes of another."""
    nodes: dict[str, list[str]] = {}
    for name in names:
        evidence.graph(name, "nodes")
        nodes.setdefault(evidence.graphs[name]["nodes_sha256"], []).append(name)
    same = [" and ".join(group) for group in nodes.values() if len(group) > 1]
    text = f"{', '.join(same)} have the same features and classes, node by node" if same else "all differ"
    return Fact(len(same), text, {"distinct": len(nodes)})


def ranks_differ(evidence: Evidence) -> Fact:
    """How many of the published ranks do not follow from the published scores."""
    published = load_study("table1").published
    return _recomputed(average_ranks(published.scores, ties="min"), published.ranks, "")


def gains_differ(evidence: Evidence) -> Fact:
    """How many of the published gains over GCN do not follow from the published scores."""
    scores = load_study("table1").published.scores
    facts = {fact.dataset: fact.value for name in ("table1", "arxiv") for fact in load_study(name).published.facts}
    best = {name: max(scores[level][name] for level in LEVELS) for name in facts}
    return _recomputed({name: 100 * (best[name] / scores["gcn"][name] - 1) for name in facts}, facts, "%")


def _recomputed(values: Mapping[str, float], published: Mapping[str, float], unit: str) -> Fact:
    wrong = [name for name, value in published.items() if abs(values[name] - value) > ROUNDING]
    text = ", ".join(f"{name} {values[name]:.1f}{unit} (published {published[name]:.1f}{unit})" for name in wrong)
    return Fact(len(wrong), f"recomputed: {text}" if wrong else f"all {len(published)} agree", values)
