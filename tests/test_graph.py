"""`Graph`: both orders, normalization, the position of every given edge, every constructor, every error."""

import copy
import dataclasses
import pickle
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import adjacency, random_edges
from torch_geometric.data import Batch, Data
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import remove_self_loops

from gfgn import Graph
from gfgn.graph import merge_edges, symmetrize
from gfgn.ops.csr import CSR, SEGMENT


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def dense(graph: Graph, rows: CSR, values: torch.Tensor) -> torch.Tensor:
    size = graph.num_nodes
    return torch.sparse_csr_tensor(rows.ptr, rows.idx.long(), values, (size, size)).to_dense()


@given(n=st.integers(1, 12), e=st.integers(0, 40), seed=st.integers(0, 10_000), weighted=st.booleans())
@settings(deadline=None, max_examples=40)
def test_both_orders_hold_the_same_matrix(n: int, e: int, seed: int, weighted: bool) -> None:
    edges = random_edges(n, e, generator(seed))
    weight = torch.rand(e, generator=generator(seed), dtype=torch.float64) if weighted else None
    graph = Graph.from_edge_index(edges, n, weight, dtype=torch.float64)
    A = adjacency([tuple(pair) for pair in edges.t().tolist()], None if weight is None else weight.tolist())
    degree = [sum(A.get(i, {}).values()) for i in range(n)]
    norm, row_norm = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.float64)
    for i, row in A.items():
        for j, a in row.items():
            norm[i, j] = a / (degree[i] * degree[j]) ** 0.5 if degree[i] > 0 and degree[j] > 0 else 0
            row_norm[i, j] = a / degree[i] if degree[i] > 0 else 0
    assert graph.num_edges == sum(len(row) for row in A.values())
    torch.testing.assert_close(graph.degree, torch.tensor(degree, dtype=torch.float64))
    torch.testing.assert_close(dense(graph, graph.by_target, graph.norm), norm)
    torch.testing.assert_close(dense(graph, graph.by_target, graph.row_norm), row_norm)
    torch.testing.assert_close(dense(graph, graph.by_source, graph.reverse_norm).t(), norm)
    torch.testing.assert_close(dense(graph, graph.by_source, graph.reverse_row_norm).t(), row_norm)
    assert torch.equal(graph.norm[graph.transpose], graph.reverse_norm)


@given(n=st.integers(1, 10), e=st.integers(0, 40), seed=st.integers(0, 10_000), merge=st.booleans())
@settings(deadline=None, max_examples=40)
def test_edge_position_of_every_given_edge(n: int, e: int, seed: int, merge: bool) -> None:
    edges = random_edges(n, e, generator(seed))
    graph = Graph.from_edge_index(edges, n, duplicates="merge" if merge else "keep")
    loop = edges[0] == edges[1]
    assert torch.equal(graph.edge_position < 0, loop)
    assert torch.equal(graph.edge_index[:, graph.edge_position[~loop]], edges[:, ~loop])
    if not merge:
        assert graph.num_edges == int((~loop).sum())
        assert graph.edge_position[~loop].unique().numel() == graph.num_edges


def test_normalization_equals_pygs_on_directed_edges() -> None:
    edges, _ = remove_self_loops(random_edges(30, 90, generator()).unique(dim=1))
    graph = Graph.from_edge_index(edges, 30)
    index, weight = gcn_norm(edges, num_nodes=30, add_self_loops=False, dtype=torch.float32)
    expected = torch.zeros(30, 30).index_put((index[1], index[0]), weight)
    torch.testing.assert_close(dense(graph, graph.by_target, graph.norm), expected)


def test_self_loops_can_be_added() -> None:
    edges = torch.tensor([[0, 0, 1, 2], [0, 1, 0, 2]])
    graph = Graph.from_edge_index(edges, 4, torch.tensor([5.0, 1.0, 1.0, 7.0]), self_loops="add")
    assert dense(graph, graph.by_target, graph.weight).diagonal().tolist() == [1, 1, 1, 1]
    assert graph.num_edges == 6
    assert graph.edge_position.tolist() == [-1, 2, 1, -1]  # given self-loops are replaced, not kept


def test_rows_of_an_undirected_graph_are_shared() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph.from_edge_index(edges, 3)
    assert graph.by_source is graph.by_target
    assert graph.reverse_norm is graph.norm
    assert Graph.from_edge_index(edges[:, :3], 3).by_source is not graph.by_target
    weighted = Graph.from_edge_index(edges, 3, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert not torch.equal(weighted.reverse_norm, weighted.norm)  # the pattern is symmetric, the weights are not
    moved = graph.to("meta")
    assert moved.by_source is moved.by_target


def test_hubs_are_split_into_segments() -> None:
    leaves = torch.arange(1, 2 * SEGMENT + 2)
    graph = Graph.from_edge_index(torch.stack([leaves, torch.zeros_like(leaves)]))
    rows = graph.by_target
    assert rows.hub_rows.tolist() == [0]
    assert rows.hub_ptr.tolist() == [0, 3]
    assert rows.seg_hub.tolist() == [0, 0, 0]
    assert graph.by_source.hub_rows.numel() == 0
    exactly = Graph.from_edge_index(torch.stack([leaves[:SEGMENT], torch.zeros_like(leaves[:SEGMENT])]))
    assert exactly.by_target.hub_rows.numel() == 0


@pytest.mark.parametrize("num_nodes", [0, 1, 5])
def test_no_edges(num_nodes: int) -> None:
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes)
    assert (graph.num_nodes, graph.num_edges) == (num_nodes, 0)
    assert graph.degree.tolist() == [0] * num_nodes


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lean_constructors_equal_from_edge_index(undirected: bool, weighted: bool) -> None:
    """Every attribute, dtypes included; the graph has a hub, repeated edges and self-loops."""
    n = SEGMENT + 40
    star = torch.stack([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.int64)])
    edges = torch.cat([star, random_edges(n, 300, generator()), torch.tensor([[3, 4, 4], [3, 5, 5]])], dim=1)
    weight = torch.rand(edges.size(1), generator=generator(1)) if weighted else None
    source, target = edges.int().numpy()
    matrix = merge_edges(source, target, None if weight is None else weight.numpy(), n)
    graph = Graph.from_csr(symmetrize(matrix) if undirected else matrix, undirected=undirected)
    if undirected:
        dense = torch.zeros(n, n).index_put((edges[1], edges[0]), torch.ones(1) if weight is None else weight, True)
        dense = torch.maximum(dense, dense.t()).fill_diagonal_(0)
        edges = dense.t().nonzero().t()
        weight = None if weight is None else dense[edges[1], edges[0]]
    expected = Graph.from_edge_index(edges, n, weight)
    for field in dataclasses.fields(Graph):
        if field.name != "given_order":
            for got, value in zip(
                leaves(getattr(graph, field.name)), leaves(getattr(expected, field.name)), strict=True
            ):
                torch.testing.assert_close(got, value, rtol=0, atol=0, msg=field.name)
    assert torch.equal(graph.edge_position, torch.arange(graph.num_edges))
    assert (graph.by_source is graph.by_target) == undirected
    if undirected and not weighted:
        batch = (torch.arange(n) >= n - 1).long()
        again = Graph.from_undirected(source, target, n, batch)
        assert torch.equal(again.norm, graph.norm)
        assert again.num_graphs == 2


def leaves(value: object) -> list[object]:
    """The tensors of a `CSR`, or the value itself."""
    return list(value) if isinstance(value, CSR) else [value]


def test_undirected_networkx_gives_both_directions() -> None:
    graph = Graph.from_networkx(nx.path_graph(["a", "b", "c"]))
    assert graph.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert graph.weight is None


@pytest.mark.parametrize(("weights", "got"), [([3e38, 3e38], "inf at node 1"), ([1e-40, 0.0], "1.0e-40 at node 1")])
def test_degrees_outside_the_range_of_their_type(weights: list[float], got: str) -> None:
    """They would silently give weights of 0, or infinite ones."""
    edges, weight = torch.tensor([[0, 2], [1, 1]]), torch.tensor(weights)
    message = f"edge_weight must add up to 0, or 1.2e-38 to 3.4e\\+38, at every node .* got {got}"
    for build in (
        lambda: Graph.from_edge_index(edges, 3, weight),
        lambda: Graph.bipartite(edges, (3, 2), weight),
        lambda: Graph.from_csr(merge_edges(*edges.numpy(), weight.numpy(), 3)),
        lambda: Graph.from_edge_index(edges, 3, weight.double()).to(torch.float32),
    ):
        with pytest.raises(ValueError, match=message):
            build()
    assert Graph.from_edge_index(edges, 3, weight.double()).norm.isfinite().all()


def test_batch_of_pyg() -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    data = Batch.from_data_list([Data(edge_index=pair, num_nodes=2), Data(edge_index=pair, num_nodes=3)])
    graph = Graph.from_data(data)
    assert graph.num_graphs == 2
    assert "num_graphs=2" in repr(graph)
    assert graph.batch is not None
    assert graph.batch.tolist() == [0, 0, 1, 1, 1]


def test_to_changes_the_dtype() -> None:
    edges = random_edges(8, 30, generator())
    graph, wide = Graph.from_edge_index(edges, 8), Graph.from_edge_index(edges, 8, dtype=torch.float64)
    assert torch.equal(graph.to(torch.float64).norm, wide.norm)
    assert graph.to(torch.float32) is graph
    assert graph.to("cpu") is graph
    assert graph.dtype == torch.float32
    assert wide.to("meta").norm.device.type == "meta"
    assert "dtype=torch.float64" in repr(wide)


def test_copies_and_pickles() -> None:
    graph = Graph.from_edge_index(random_edges(8, 30, generator()), 8)
    for twin in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert torch.equal(twin.norm, graph.norm)
        assert torch.equal(twin.edge_position, graph.edge_position)


def test_gradient_reaches_the_weights() -> None:
    edges = torch.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 1, 2]])  # one repeated edge, one self-loop
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], requires_grad=True)
    Graph.from_edge_index(edges, 3, weight).norm.sum().backward()
    assert weight.grad is not None
    assert weight.grad[4] == 0
    assert torch.isfinite(weight.grad).all()


EDGES, build = torch.tensor([[0, 1, 2], [1, 2, 0]]), Graph.from_edge_index
BAD_ARGUMENTS: dict[str, tuple[Callable[[], object], str]] = {
    "shape": (lambda: build(EDGES.t()), r"\[2, E\].*\[3, 2\]"),
    "type": (lambda: build([[0], [1]]), "got list"),
    "dtype": (lambda: build(EDGES.float()), "int64 or int32.*torch.float32"),
    "too large": (lambda: build(EDGES, 2), "target id 2 at edge 1|source id 2 at edge 2"),
    "negative": (lambda: build(EDGES - 1, 3), "source id -1 at edge 0"),
    "num_nodes": (lambda: build(EDGES, -3), "num_nodes .*0"),
    "weight shape": (lambda: build(EDGES, 3, torch.ones(2)), r"\[3\].*\[2\]"),
    "weight sign": (lambda: build(EDGES, 3, torch.tensor([1.0, -1.0, 1.0])), "-1.0 at edge 1"),
    "weight nan": (lambda: build(EDGES, 3, torch.full((3,), torch.nan)), "got nan"),
    "weight inf": (lambda: build(EDGES, 3, torch.full((3,), torch.inf)), "got inf"),
    "weight device": (lambda: build(EDGES, 3, torch.ones(3, device="meta")), "edge_weight is on meta.*cpu"),
    "batch length": (lambda: build(EDGES, 3, batch=torch.zeros(2).long()), "batch must be"),
    "batch crossing": (lambda: build(EDGES, 3, batch=torch.tensor([0, 0, 1])), "edge 1 .*node 1 .*node 2 of graph 1"),
    "batch range": (lambda: build(EDGES, 3, batch=torch.full((3,), -1)), "graph numbers from 0"),
    "batch device": (lambda: build(EDGES, 3, batch=torch.zeros(3, device="meta").long()), "batch is on meta"),
    "batch_size alone": (lambda: build(EDGES, 3, batch_size=2), "needs batch"),
    "self_loops": (lambda: build(EDGES, 3, self_loops="maybe"), "self_loops .*'maybe'"),
    "duplicates": (lambda: build(EDGES, 3, duplicates="drop"), "duplicates .*'drop'"),
    "not square": (lambda: Graph.from_sparse(torch.ones(2, 3).to_sparse_csr()), r"\(2, 3\)"),
    "not sparse": (lambda: Graph.from_sparse(torch.ones(2, 2)), "torch.strided"),
    "scipy not square": (lambda: Graph.from_scipy(sp.csr_array(np.ones((2, 3)))), r"\(2, 3\)"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_errors_name_the_argument(case: str) -> None:
    call, message = BAD_ARGUMENTS[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()
