"""From nodes to edges and back, the softmax over a neighborhood, the neighbor maximum, and the cache per graph."""

import gc
import math

import torch
from nn.baselines.tiny import NODES, graph, neighbors

from gfgn import Graph, ops
from gfgn.graph import per_graph, with_self_loops
from gfgn.ops import edge_softmax, from_source, from_target, sum_by_target


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


def test_softmax_over_the_edges_of_each_target() -> None:
    """Also where scores are so far apart that the maximum of each neighborhood must be subtracted."""
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


def test_neighbor_max() -> None:
    """The gradient goes to the first of equal neighbors; NaN is propagated; nodes without neighbors get 0."""
    g = graph(directed=True)
    x, pick = values(NODES, 4).requires_grad_(), values(NODES, 4, 1)
    expected = torch.zeros(NODES, 4, dtype=torch.float64)
    expected_gradient = torch.zeros(NODES, 4, dtype=torch.float64)
    for i, others in enumerate(neighbors(g.edge_index)):
        for c in range(4 if others else 0):
            best = max(others, key=lambda j, c=c: x[j, c].item())
            expected[i, c] = x[best, c].item()
            expected_gradient[best, c] += pick[i, c]
    out = ops.neighbor_max(x, g)
    assert torch.equal(out, expected)
    torch.testing.assert_close(torch.autograd.grad((out * pick).sum(), x)[0], expected_gradient)
    assert torch.autograd.gradcheck(lambda x: ops.neighbor_max(x, g), x)
    together = torch.vmap(lambda x: ops.neighbor_max(x, g))(torch.stack([x, pick]))
    assert torch.equal(together, torch.stack([out, ops.neighbor_max(pick, g)]))
    equal = torch.ones(NODES, 1, requires_grad=True)
    ops.neighbor_max(equal, g).sum().backward()
    firsts = {min(others) for others in neighbors(g.edge_index) if others}
    assert set(equal.grad.view(-1).nonzero().view(-1).tolist()) == firsts
    bad = torch.where(torch.arange(NODES) == 1, torch.nan, 0.0).view(-1, 1)
    assert ops.neighbor_max(bad, g).isnan().view(-1).tolist() == [1 in others for others in neighbors(g.edge_index)]
    alone = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 2)
    assert ops.neighbor_max(torch.full((2, 3), torch.nan), alone).tolist() == [[0] * 3] * 2


def test_results_are_cached_while_the_graph_is_alive() -> None:
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
