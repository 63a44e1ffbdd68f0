"""From nodes to edges and back, against loops; the cache of what belongs to a graph."""

import gc
import math

import pytest
import torch
from nn.baselines.tiny import NODES, device_for, graph, neighbors

from gfgn import Graph, ops
from gfgn.nn.baselines.common import per_graph, with_self_loops
from gfgn.ops.edges import edge_softmax, from_source, from_target, max_over_neighbors, sum_by_target


def values(rows: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_nodes_to_edges_and_back() -> None:
    g = graph(directed=True)
    source, target = g.edge_index
    x, on_edges = values(NODES, 4), values(g.num_edges, 4)
    assert torch.equal(from_source(x, g), x[source])
    assert torch.equal(from_target(x, g), x[target])
    expected = torch.zeros(NODES, 4, dtype=torch.float64).index_add(0, target, on_edges)
    torch.testing.assert_close(sum_by_target(on_edges, g), expected)


@pytest.mark.parametrize("backend", ["numba", "reference"])
def test_gradients_of_the_moves(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", backend)
    g = graph(directed=True)
    for move, rows in ((from_source, NODES), (from_target, NODES), (sum_by_target, g.num_edges)):
        for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
            assert check(lambda x, move=move: move(x, g), values(rows, 2).requires_grad_())


@pytest.mark.parametrize("backend", ["numba", "reference", "triton"])
def test_moves_of_replicas_and_under_torch_compile(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", backend)
    torch.compiler.reset()  # it compiles one function only so many times
    device = device_for(backend)
    g = graph(directed=True, device=device)
    for move, rows in ((from_source, NODES), (from_target, NODES), (sum_by_target, g.num_edges)):
        x = torch.stack([values(rows, 3, seed) for seed in range(2)]).to(device, torch.float32).requires_grad_()
        alone = torch.stack([move(one, g) for one in x])
        compiled = torch.compile(lambda one, move=move: move(one, g), backend="aot_eager", fullgraph=True)
        expected = torch.autograd.grad(alone.square().sum(), x)
        for out in (torch.vmap(lambda one, move=move: move(one, g))(x), torch.stack([compiled(one) for one in x])):
            torch.testing.assert_close(out, alone)
            torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x), expected)


def test_softmax_is_over_each_targets_edges() -> None:
    """Also where scores are so far apart that only the largest of a neighbourhood can be subtracted."""
    g = graph(directed=True)
    scores = values(g.num_edges, 2) + 600 * torch.arange(g.num_edges).remainder(3).unsqueeze(1) * torch.tensor([0, 1])
    alpha = edge_softmax(scores, g)
    targets = g.targets.tolist()
    for e, i in enumerate(targets):
        for head in range(2):
            own = [scores[k, head].item() for k in range(g.num_edges) if targets[k] == i]
            expected = math.exp(scores[e, head].item() - max(own)) / sum(math.exp(s - max(own)) for s in own)
            assert abs(alpha[e, head].item() - expected) < 1e-12
    assert torch.autograd.gradcheck(lambda s: edge_softmax(s, g), values(g.num_edges, 2).requires_grad_())


def test_softmax_in_the_kernel_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, both derivatives and replicas against the one that is made of smaller steps."""
    device = device_for("triton")
    g = graph(directed=True, device=device)
    scores, pick, again = (values(g.num_edges, 3, seed).to(device, torch.float32) for seed in range(3))

    def outcomes() -> list[torch.Tensor]:
        leaf, weight = scores.clone().requires_grad_(), pick.clone().requires_grad_()
        alpha = edge_softmax(leaf, g)
        (first,) = torch.autograd.grad((alpha * weight).sum(), leaf, create_graph=True)
        second = torch.autograd.grad((first * again).sum(), (leaf, weight))
        together = torch.stack([scores, pick, again]).requires_grad_()
        shares = torch.vmap(lambda s: edge_softmax(s, g))(together)
        return [alpha, first, *second, shares, *torch.autograd.grad((shares * pick).sum(), together)]

    monkeypatch.setenv("GFGN_BACKEND", "reference")
    expected = outcomes()
    monkeypatch.setenv("GFGN_BACKEND", "triton")
    for found, plain in zip(outcomes(), expected, strict=True):
        torch.testing.assert_close(found, plain)


def test_softmax_in_the_kernel_of_a_gpu_under_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", "triton")
    device = device_for("triton")
    g = graph(directed=True, device=device)
    pick = values(g.num_edges, 3, 1).to(device, torch.float32)
    found = []
    for layer in (edge_softmax, torch.compile(edge_softmax, backend="aot_eager", fullgraph=True)):
        scores = values(g.num_edges, 3).to(device, torch.float32).requires_grad_()
        alpha = layer(scores, g)
        (alpha * pick).sum().backward()
        found.append((alpha.detach(), scores.grad))
    torch.testing.assert_close(found[1], found[0])


def test_maximum_over_neighbors() -> None:
    g = graph(directed=True)
    x = values(NODES, 4).requires_grad_()
    pick = values(NODES, 4, 1)
    found, expected = max_over_neighbors(x, g), ops.neighbor_max(x, g)
    torch.testing.assert_close(found, expected)
    assert torch.equal(
        torch.autograd.grad((found * pick).sum(), x)[0], torch.autograd.grad((expected * pick).sum(), x)[0]
    )
    equal = torch.ones(NODES, 1, requires_grad=True)
    max_over_neighbors(equal, g).sum().backward()
    firsts = {min(others) for others in neighbors(g.edge_index) if others}
    assert set(equal.grad.view(-1).nonzero().view(-1).tolist()) == firsts


def test_results_are_kept_as_long_as_the_graph_lives() -> None:
    calls = []

    @per_graph
    def count(graph: Graph, hops: int = 1) -> int:
        calls.append(hops)
        return graph.num_edges

    first, second = graph(0), graph(1)
    for _ in range(3):
        assert count(first) == first.num_edges
        assert count(first, 2) == first.num_edges
        assert count(second) == second.num_edges
    assert calls == [1, 2, 1]
    with torch.inference_mode():
        looped = with_self_loops(first)
    assert with_self_loops(first) is looped
    assert not looped.norm.is_inference()
    del first
    gc.collect()
    first = graph(0)
    assert count(first) == first.num_edges
    assert calls == [1, 2, 1, 1]
