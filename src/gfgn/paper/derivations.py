"""What the paper derives, computed: how far a layer is from GCN, an MLP, a denoising step or a spectral filter.

Every function returns the largest difference between the two sides on a small random graph, in double precision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gfgn.graph import Graph
from gfgn.nn import GFGN, GFGNConv
from gfgn.ops import propagate
from gfgn.ops.seeded import seeded
from gfgn.paper.spectral import normalized_laplacian

NODES, WIDTH = 30, 5


def gcn_difference() -> float:
    """A graph-level layer with scores of 1 on a graph with self-loops, and PyG's GCN layer."""
    from torch_geometric.nn import GCNConv

    x, edges = _problem()
    with seeded(0), torch.no_grad():
        layer: Any = GFGNConv(WIDTH, 4, level="graph", heads=1, lam=2.0, bias=False).double()
        gcn: Any = GCNConv(WIDTH, 4, bias=False).double()
        layer.gate.zero_()  # σ(0) = ½, so that with λ = 2 every score is 1
        gcn.lin.weight.copy_(layer.lin.weight)
        graph = Graph.from_edge_index(edges, NODES, self_loops="add", dtype=torch.float64)
        return float((layer(x, graph) - gcn(x, edges)).abs().max())


def mlp_difference(level: str) -> float:
    """A GFGN with λ = 0 and an MLP with the same weights."""
    x, edges = _problem()
    with seeded(0), torch.no_grad():
        model: Any = GFGN(WIDTH, 8, 2, 3, level=level, heads=2, lam=0.0).double().eval()
        first, last = model.convs
        hidden = (x @ first.lin.weight.t() + first.bias).relu()
        return float((model(x, edges) - (hidden @ last.lin.weight.t() + last.bias)).abs().max())


def step_difference(level: str) -> float:
    """A layer and one step of gradient descent on the paper's objective with the coefficients `c` of that level.

    At graph level, `c_k = s_k / 2ε` for dimension `k`. At neighbor level, `c_i` is arbitrary and the step
    `ε_ij = s_i / (c_i + c_j)` differs by neighbor. At pair level, the objective has `c_ij + c_ji`, which is
    symmetric, so that the nearest coefficients have the mean of the scores of both directions: `(s_ij + s_ji) / 2ε`.
    """
    x, edges = _problem()
    source, target = edges
    graph = Graph.from_edge_index(edges, NODES, dtype=torch.float64)
    with seeded(0), torch.no_grad():
        layer: Any = GFGNConv(WIDTH, WIDTH, level=level, heads=1, lam=1.6, bias=False).double()
        out, scores = layer(x, graph, return_scores=True)
        z = layer.transform(x)
    if level == "graph":
        strength = scores.expand(source.numel(), WIDTH)
    elif level == "neighbor":
        strength = scores[target]
    else:
        position = {edge: index for index, edge in enumerate(map(tuple, edges.t().tolist()))}
        reverse = torch.tensor([position[v, u] for u, v in edges.t().tolist()])
        strength = (scores + scores[reverse]) / 2
    return float((z - _gradient(z, edges, strength) - out).abs().max())


def filter_difference(layers: int = 4) -> float:
    """Graph-level aggregation, `layers` times without activation, and the filter `(1 − sλ)^K` in the spectrum."""
    x, edges = _problem()
    graph = Graph.from_edge_index(edges, NODES, dtype=torch.float64)
    with seeded(0), torch.no_grad():
        layer: Any = GFGNConv(WIDTH, WIDTH, level="graph", heads=1, lam=2.0, bias=False).double()
        _, s = layer(x, graph, return_scores=True)
        z = repeated = layer.transform(x)
        for _ in range(layers):
            repeated = (1 - s) * repeated + s * propagate(repeated, graph)
        values, vectors = torch.linalg.eigh(torch.from_numpy(normalized_laplacian(graph)))
        filtered = vectors @ ((1 - s * values[:, None]) ** layers * (vectors.t() @ z))
        return float((repeated - filtered).abs().max())


def _gradient(z: Tensor, edges: Tensor, strength: Tensor) -> Tensor:
    """The step of node `i`: by autograd, the gradient of `Σ_j s_ij (f_i/√d_i − f_j/√d_j)² / 2` with respect to `f_i` at
    `f = z`, where `s_ij = ε (c_ij + c_ji)`. The term `‖f − x‖²` of the objective has no gradient there."""
    source, target = edges
    scale = torch.bincount(target, minlength=NODES).double().rsqrt()[:, None]
    own = z.clone().requires_grad_()
    apart = (own * scale)[target] - (z * scale)[source]  # of the two ends, only f_i moves
    (gradient,) = torch.autograd.grad((strength * apart.square()).sum() / 2, own)
    return gradient


def _problem() -> tuple[Tensor, Tensor]:
    """Features, and the edges of an undirected graph without isolated nodes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)
    ring = torch.stack([torch.arange(NODES), torch.arange(1, NODES + 1) % NODES])
    half = torch.cat([ring, torch.randint(NODES, (2, 60), generator=generator)], dim=1)
    edges = torch.unique(torch.cat([half, half.flip(0)], dim=1), dim=1)
    return x, edges[:, edges[0] != edges[1]]
