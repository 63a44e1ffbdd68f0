"""Sections 3.1 to 3.5 of the paper: each aggregation is a gradient step on its denoising objective, and a linear
graph-level layer is a filter in the spectrum of the Laplacian."""

import torch
from loops import undirected

from gfgn import GFGNConv, Graph
from gfgn.ops import pair_aggregate, propagate

N = 14
EDGES = undirected(N, 12, torch.Generator().manual_seed(0))
GRAPH = Graph.from_edge_index(EDGES, N, dtype=torch.float64)
DEGREE = torch.bincount(EDGES[1], minlength=N).double()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def differences(f: torch.Tensor) -> torch.Tensor:
    """`(f_i/√d_i − f_j/√d_j)²` for every directed edge from `j` to `i`."""
    scaled = f / DEGREE.sqrt()
    return (scaled[EDGES[1]] - scaled[EDGES[0]]).square()


def laplacian() -> torch.Tensor:
    adjacency = torch.zeros(N, N, dtype=torch.float64).index_put(
        (EDGES[1], EDGES[0]), torch.ones(EDGES.size(1), dtype=torch.float64)
    )
    return torch.eye(N, dtype=torch.float64) - adjacency / (DEGREE[:, None] * DEGREE).sqrt()


def test_denoising_step_with_one_coefficient() -> None:
    """Section 3.1: `x − ε ∇(‖f − x‖² + c fᵀLf)` at `x` is `(1 − s) x + s Âx` with `s = 2εc`."""
    x, c, eps = random(N), 0.7, 0.3
    f = x.clone().requires_grad_()
    objective = (f - x).square().sum() + c / 2 * differences(f).sum()
    torch.testing.assert_close(c / 2 * differences(f).sum(), c * f @ laplacian() @ f)
    (gradient,) = torch.autograd.grad(objective, f)
    s = 2 * eps * c
    expected = (1 - s) * x + s * propagate(x[:, None], GRAPH)[:, 0]
    torch.testing.assert_close(x - eps * gradient, expected)


def test_graph_level_is_a_step_with_one_coefficient_per_dimension() -> None:
    """Section 3.2: with `c_k = s_k / 2ε` for dimension `k`, the step is the layer."""
    conv = GFGNConv(5, 5, "graph", heads=1, lam=1.6, bias=False).double()
    h, eps = random(N, 5), 0.25
    out, s = conv(h, GRAPH, return_scores=True)
    z = conv.transform(h).detach()
    for k in range(5):
        f = z[:, k].clone().requires_grad_()
        objective = (f - z[:, k]).square().sum() + s[0, k].detach() / (2 * eps) / 2 * differences(f).sum()
        (gradient,) = torch.autograd.grad(objective, f)
        torch.testing.assert_close(z[:, k] - eps * gradient, out[:, k])


def test_neighbor_level_is_a_step_with_one_coefficient_per_node() -> None:
    """Section 3.3: coefficients `c_i`, and a step `ε_j = s_i / (c_i + c_j)` for each neighbor."""
    conv = GFGNConv(5, 5, "neighbor", heads=1, lam=1.6, bias=False).double()
    h = random(N, 5)
    out, s = conv(h, GRAPH, return_scores=True)
    z, c = conv.transform(h).detach(), random(N).abs() + 0.1
    source, target = EDGES
    for k in range(5):
        f = z[:, k].clone().requires_grad_()
        # The terms of c_i and c_j that the pair {i, j} adds to the objective.
        terms = (c[target] + c[source]) / 2 * differences(f)
        step = s[target, k].detach() / (c[target] + c[source])
        expected = z[:, k].clone()
        for e in range(EDGES.size(1)):
            (gradient,) = torch.autograd.grad(terms[e], f, retain_graph=True)
            expected[target[e]] -= step[e] * gradient[target[e]]
        torch.testing.assert_close(expected, out[:, k])


def test_pair_level_is_a_step_with_one_coefficient_per_pair() -> None:
    """Section 3.4: coefficients `c_ij`, and `s_ij = ε (c_ij + c_ji)`, which is symmetric."""
    z, a, eps, lam = random(N, 4), random(N, 8)[:, 4:], 0.2, 1.4
    source, target = EDGES
    s = lam * torch.sigmoid(a[target] + a[source])
    index = {edge: e for e, edge in enumerate(map(tuple, EDGES.t().tolist()))}
    reverse = torch.tensor([index[v, u] for u, v in EDGES.t().tolist()])
    part = torch.rand(EDGES.size(1), 4, dtype=torch.float64)
    part = part / (part + part[reverse])  # an arbitrary split of s_ij/ε into c_ij and c_ji
    c = part * s / eps
    torch.testing.assert_close(eps * (c + c[reverse]), s)
    f = z.clone().requires_grad_()
    smooth = sum((c[:, k] / 2 * differences(f[:, k])).sum() for k in range(4))
    (gradient,) = torch.autograd.grad((f - z).square().sum() + smooth, f)
    torch.testing.assert_close(z - eps * gradient, pair_aggregate(a, a, z, GRAPH, lam))


def test_linear_graph_level_is_a_spectral_filter() -> None:
    """Section 3.5: `h' = U (1 − sΛ) Uᵀ h`, and `K` layers with the same gate give `(1 − sΛ)^K`."""
    conv = GFGNConv(3, 3, "graph", heads=1, lam=2.0, bias=False).double()
    h = random(N, 3)
    out, s = conv(h, GRAPH, return_scores=True)
    eigenvalues, U = torch.linalg.eigh(laplacian())
    z = conv.transform(h)
    filtered = torch.stack([U @ torch.diag(1 - s[0, k] * eigenvalues) @ U.t() @ z[:, k] for k in range(3)], dim=1)
    torch.testing.assert_close(out, filtered)
    several = z
    for _ in range(4):
        several = (1 - s) * several + s * propagate(several, GRAPH)
    power = torch.stack([U @ torch.diag((1 - s[0, k] * eigenvalues) ** 4) @ U.t() @ z[:, k] for k in range(3)], dim=1)
    torch.testing.assert_close(several, power)
