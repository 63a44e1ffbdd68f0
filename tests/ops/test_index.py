"""The edges sorted both ways: the CPU kernel and the plain sorts give what SciPy gives, to the bit."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy_index import LAYOUTS, multigraph
from scipy_index import index_edges as by_scipy
from torch import Tensor

from gfgn import Graph
from gfgn import graph as graph_module
from gfgn.ops.cpu import index as kernels
from gfgn.ops.csr import SEGMENT
from gfgn.ops.index import index_edges
from gfgn.ops.index import sort_edges as by_sorting


def assert_identical(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> None:
    expected = by_scipy(edges, num_nodes, merge, num_loops)
    by_target, by_source, *rest = by_sorting(edges, num_nodes, merge, num_loops)
    for tensors in (index_edges(edges, num_nodes, merge, num_loops), [*by_target, *by_source, *rest]):
        for got, value in zip(tensors, expected, strict=True):
            assert got.dtype == value.dtype
            assert torch.equal(got, value)


@given(
    n=st.integers(1, 12),
    e=st.integers(0, 60),
    isolated=st.integers(0, 3),
    seed=st.integers(0, 10_000),
    layout=st.sampled_from(sorted(LAYOUTS)),
    merge=st.booleans(),
    add_loops=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_random_multigraphs(
    n: int, e: int, isolated: int, seed: int, layout: str, merge: bool, add_loops: bool
) -> None:
    edges = LAYOUTS[layout](multigraph(n, e, seed))
    n += isolated
    if add_loops:
        edges = torch.cat([edges, torch.arange(n, dtype=edges.dtype).expand(2, -1)], dim=1)
    assert_identical(edges, n, merge, n if add_loops else 0)


@pytest.mark.parametrize("n", [2, 3 * SEGMENT, 50_000])  # hubs; keys that need 64 bits
def test_large_graphs(n: int) -> None:
    star = torch.stack([torch.arange(n), torch.zeros(n, dtype=torch.int64)])
    assert_identical(torch.cat([multigraph(n, 5 * SEGMENT), star], dim=1), n, True, 0)


def test_no_nodes() -> None:
    assert_identical(torch.zeros(2, 0, dtype=torch.int64), 0, True, 0)


def balanced(n: int) -> Tensor:
    """Every node has as many sources as targets, but no edge has an opposite."""
    node = torch.arange(n)
    return torch.cat([torch.stack([node, (node + step) % n]) for step in (1, 2, 7)], dim=1)


GRAPHS: dict[str, Callable[[], Tensor]] = {
    "directed": lambda: multigraph(40, 900),
    "undirected": lambda: LAYOUTS["both directions"](multigraph(40, 900)),
    "balanced": lambda: balanced(60),
    "one row": lambda: torch.stack([torch.arange(900) % 40, torch.zeros(900, dtype=torch.int64)]),
    "only loops": lambda: torch.zeros(2, 300, dtype=torch.int64),
}


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("name", GRAPHS)
def test_any_number_of_threads(name: str, threads: int, merge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for _ in range(5):
        assert_identical(GRAPHS[name](), 60, merge, 0)


@pytest.mark.parametrize("threads", [1, 3])
def test_weights_are_added_in_the_order_given(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    edges, weight = multigraph(9, 400), torch.rand(400, generator=torch.Generator().manual_seed(1))
    graph = Graph.from_edge_index(edges, 9, weight)
    assert graph.weight is not None
    total: dict[tuple[int, int], Tensor] = {}
    for source, target, value in zip(*edges.tolist(), weight, strict=True):
        total[source, target] = total.get((source, target), torch.zeros(())) + value
    stored = zip(*graph.edge_index.tolist(), strict=True)
    assert torch.equal(graph.weight, torch.stack([total[source, target] for source, target in stored]))


@pytest.mark.parametrize("edge", [(0, 3), (3, 0), (-1, 0), (0, 2**32)])
def test_ids_out_of_range_write_no_memory(edge: tuple[int, int]) -> None:
    """`Graph` checks them first, but not under `torch.compile`."""
    with pytest.raises(ValueError, match="ids from 0 to 2"):
        index_edges(torch.tensor([edge]).t(), 3, True, 0)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalized_as_by_pytorch(
    dtype: torch.dtype, weighted: bool, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = multigraph(70, 400)
    if symmetric:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    edges = torch.cat([edges, torch.tensor([[1, 2], [71, 71]])], dim=1)  # node 70 is isolated, 71 has no outgoing edge
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float32) if weighted else None
    if weight is not None:
        weight[edges[1] == 5] = 0  # a degree of 0
    graph = Graph.from_edge_index(edges, 72, weight, dtype=dtype)
    monkeypatch.setattr(graph_module, "cpu_kernels", lambda module: None)
    expected = Graph.from_edge_index(edges, 72, weight, dtype=dtype)
    for name in ("degree", "norm", "row_norm", "reverse_norm", "reverse_row_norm", "weight"):
        if weighted or name != "weight":
            got, value = getattr(graph, name), getattr(expected, name)
            torch.testing.assert_close(got, value, rtol=0, atol=0, equal_nan=True, msg=name)
