"""The reference operators against loops over scalars; their first and second derivatives."""

import math

import pytest
import torch
from loops import adjacency, random_edges, sigmoid

from gfgn import Graph
from gfgn.ops import neighbor_max, reference


def make(n: int = 9, e: int = 30, seed: int = 0) -> tuple[list[tuple[int, int]], list[float], Graph]:
    generator = torch.Generator().manual_seed(seed)
    edges = random_edges(n - 1, e, generator)  # the last node is isolated
    weight = torch.rand(e, generator=generator, dtype=torch.float64)
    return (
        [tuple(pair) for pair in edges.t().tolist()],
        weight.tolist(),
        Graph.from_edge_index(edges, n, weight),
    )


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loops_over(edges: list, weights: list, x: list, n: int, message) -> torch.Tensor:
    """`Σ_j message(i, j, A_ij, d_i, d_j, column)` over the neighbors of every node."""
    A = adjacency(edges, weights)
    degree = [sum(A.get(i, {}).values()) for i in range(n)]
    out = [
        [sum(message(i, j, a, degree[i], degree[j], c) for j, a in A.get(i, {}).items()) for c in range(len(x[0]))]
        for i in range(n)
    ]
    return torch.tensor(out, dtype=torch.float64)


def test_sums_over_neighbors() -> None:
    edges, weights, graph = make()
    x = random(9, 3)
    rows, xs = graph.by_target, x.tolist()

    def normalized(i: int, j: int, a: float, d_i: float, d_j: float, c: int) -> float:
        return a / math.sqrt(d_i * d_j) * xs[j][c] if d_i > 0 and d_j > 0 else 0.0

    expected = loops_over(edges, weights, xs, 9, normalized)
    torch.testing.assert_close(reference.spmm(x, rows, graph.norm), expected, rtol=0, atol=1e-12)
    plain = loops_over(edges, weights, xs, 9, lambda i, j, a, d_i, d_j, c: xs[j][c])
    torch.testing.assert_close(reference.spmm(x, rows, None), plain, rtol=0, atol=1e-12)
    largest = [
        [max((xs[j][c] for j in adjacency(edges, weights).get(i, {})), default=0.0) for c in range(3)] for i in range(9)
    ]
    assert neighbor_max(x, graph).tolist() == largest


@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0])
def test_pair_aggregate(lam: float) -> None:
    edges, weights, graph = make()
    a, b, z = random(3, 9, 4)
    A, B, Z = a.tolist(), b.tolist(), z.tolist()

    def gated(i: int, j: int, w: float, d_i: float, d_j: float, c: int) -> float:
        s = lam * sigmoid(A[i][c] + B[j][c])
        norm = w / math.sqrt(d_i * d_j) if d_i > 0 and d_j > 0 else 0.0
        return s * (norm * Z[j][c] - w / d_i * Z[i][c])

    expected = z + loops_over(edges, weights, Z, 9, gated)
    out = reference.pair_aggregate(a, b, z, lam, graph.norm, graph.row_norm, graph.by_target)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    columns = reference.pair_aggregate(
        a, b, z, torch.full((4,), lam, dtype=torch.float64), graph.norm, graph.row_norm, graph.by_target
    )
    torch.testing.assert_close(columns, out)


def test_additive_attention() -> None:
    graph = make()[2]
    heads, width, slope = 2, 3, 0.2
    z, weight = random(9, heads * width), random(heads, width, 2)
    source, target = graph.by_target.idx.tolist(), graph.targets.tolist()
    kept = torch.rand(graph.num_edges, heads, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = torch.zeros(9, heads * width, dtype=torch.float64)
    for head in range(heads):
        columns = range(head * width, (head + 1) * width)
        a_s, a_t = ([weight[head, c, part].item() for c in range(width)] for part in (0, 1))
        of_source, of_target = (
            [sum(a[c - columns[0]] * row[c] for c in columns) for row in z.tolist()] for a in (a_s, a_t)
        )
        score = [of_source[j] + of_target[i] for j, i in zip(source, target, strict=True)]
        power = [math.exp(u if u > 0 else slope * u) for u in score]
        for i in range(9):
            total = sum(p for p, t in zip(power, target, strict=True) if t == i)
            for e, t in enumerate(target):
                if t == i:
                    expected[i, columns] += power[e] / total * kept[e, head] * z[source[e], columns]
    out = reference.additive_attention(z, weight, kept, graph.by_target, slope)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    whole = reference.additive_attention(z, weight, None, graph.by_target, slope)
    torch.testing.assert_close(whole, reference.additive_attention(z, weight, kept**0, graph.by_target, slope))
    assert not whole[8].any()  # without neighbors


def test_derivatives() -> None:
    _, _, graph = make(5, 12)
    x, a, b, z = (t.clone().requires_grad_() for t in random(4, 5, 2))
    lam = torch.tensor([0.7, 1.4], dtype=torch.float64, requires_grad=True)
    norm, row_norm = (t.clone().requires_grad_() for t in (graph.norm, graph.row_norm))
    rows, vectors = graph.by_target, random(1, 2, 2).requires_grad_()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x, norm: reference.spmm(x, rows, norm), (x, norm), fast_mode=True)
        assert check(
            lambda *args: reference.pair_aggregate(*args, rows), (a, b, z, lam, norm, row_norm), fast_mode=True
        )
        assert check(
            lambda z, vectors: reference.additive_attention(z, vectors, None, rows, 0.2), (z, vectors), fast_mode=True
        )


def test_half_precision_is_summed_in_float32() -> None:
    n = 4097  # adding ones in bfloat16 stops at 256
    leaves = torch.arange(1, n)
    graph = Graph.from_edge_index(torch.stack([leaves, torch.zeros_like(leaves)]), n)
    out = reference.spmm(torch.ones(n, 1, dtype=torch.bfloat16), graph.by_target, None)
    assert out.dtype == torch.bfloat16
    assert out[0].item() == 4096
