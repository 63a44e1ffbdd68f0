"""Graphs built by the Triton kernels equal those of PyTorch, to the bit: on a GPU, else in Triton's interpreter."""

import importlib
import importlib.util
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy_index import LAYOUTS, multigraph
from scipy_index import index_edges as by_scipy
from torch import Tensor

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from gfgn import Graph
from gfgn import graph as graph_module
from gfgn.ops.csr import SEGMENT
from gfgn.ops.cuda import index
from gfgn.ops.index import index_edges

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
BLOCKS = [16, 512]  # several programs, and one


@pytest.fixture
def by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter builds the graphs of CPU tensors."""

    def kernels(module: str, device: object = None) -> Any:
        return importlib.import_module(f"gfgn.ops.cuda.{module}")

    if not CUDA:
        monkeypatch.setattr(graph_module, "cuda_kernels", kernels)
        monkeypatch.setattr(graph_module, "cpu_kernels", kernels)


def hubs() -> Tensor:
    """Rows of one segment, of one entry more and of three segments among 300 nodes; the edges are repeated."""
    length = torch.tensor([SEGMENT, SEGMENT + 1, 2 * SEGMENT + 3])
    target = torch.repeat_interleave(torch.tensor([0, 130, 299]), length)
    return torch.stack([torch.arange(target.numel()) % 13 + 20, target])


def by_kernels(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> list[Tensor]:
    by_target, by_source, transpose, edge_position, _ = index.index(edges, num_nodes, merge, num_loops, None)
    return [*by_target, *by_source, transpose, edge_position]


def assert_sorted(edges: Tensor, num_nodes: int, merge: bool, num_loops: int) -> None:
    expected = by_scipy(edges, num_nodes, merge, num_loops)
    for got, value in zip(by_kernels(edges.to(DEVICE), num_nodes, merge, num_loops), expected, strict=True):
        assert got.dtype == value.dtype
        assert torch.equal(got.cpu(), value)


@given(
    n=st.integers(1, 12),
    e=st.integers(0, 60),
    isolated=st.integers(0, 3),
    seed=st.integers(0, 10_000),
    layout=st.sampled_from(sorted(LAYOUTS)),
    merge=st.booleans(),
    add_loops=st.booleans(),
    block=st.sampled_from(BLOCKS),
)
@settings(deadline=None, max_examples=300 if CUDA else 40)
def test_random_multigraphs(
    n: int, e: int, isolated: int, seed: int, layout: str, merge: bool, add_loops: bool, block: int
) -> None:
    edges = LAYOUTS[layout](multigraph(n, e, seed))
    n += isolated
    if add_loops:
        edges = torch.cat([edges, torch.arange(n, dtype=edges.dtype).expand(2, -1)], dim=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "BLOCK", block)
        assert_sorted(edges, n, merge, n if add_loops else 0)


@pytest.mark.parametrize("block", [128, 512])
@pytest.mark.parametrize("flipped", [False, True])
def test_hubs_of_both_orders(flipped: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "BLOCK", block)
    edges = hubs().flip(0) if flipped else hubs()
    assert_sorted(edges, 300, False, 0)
    assert_sorted(torch.cat([edges, edges.flip(0)], dim=1), 300, False, 0)


@pytest.mark.parametrize("layout", ["as given", "ascending", "ascending, both directions"])
def test_more_nodes_than_edges_and_keys_of_64_bits(layout: str) -> None:
    n = 50_000
    assert_sorted(LAYOUTS[layout](multigraph(n, 100 if not CUDA else 1_000_000)), n, True, 0)


@pytest.mark.parametrize("edge", [(0, 3), (3, 0), (-1, 0), (0, 2**32)])
def test_ids_out_of_range_write_no_memory(edge: tuple[int, int]) -> None:
    edges = torch.tensor([edge], device=DEVICE).t()
    with pytest.raises(ValueError, match="ids from 0 to 2"):
        by_kernels(edges, 3, True, 0)
    with pytest.raises(ValueError, match="ids from 0 to 2"):
        index_edges(edges, 3, True, 0)
    with pytest.raises(ValueError, match="ids from 0 to -1"):
        by_kernels(edges, 0, True, 0)


def assert_same_graph(got: Graph, expected: Graph, rounding: float = 0.0) -> None:
    assert (got.by_source is got.by_target) == (expected.by_source is expected.by_target)
    assert (got.reverse_norm is got.norm) == (expected.reverse_norm is expected.norm)
    assert (got.num_nodes, got.num_graphs, got.dtype) == (expected.num_nodes, expected.num_graphs, expected.dtype)
    names = "degree", "norm", "row_norm", "reverse_norm", "reverse_row_norm", "transpose", "edge_position", "weight"
    pairs = [(name, getattr(got, name), getattr(expected, name)) for name in names]
    pairs += [(name, getattr(got.by_target, name), getattr(expected.by_target, name)) for name in ("ptr", "hub_ptr")]
    pairs += [("by_source", got.by_source.idx, expected.by_source.idx)]
    for name, one, other in pairs:
        if one is None or other is None:
            assert one is other, name
        else:
            assert one.dtype == other.dtype, name
            rtol = rounding if name in ("norm", "reverse_norm") else 0
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=rtol, atol=0, equal_nan=True, msg=name)


GRAPHS = {
    "directed": lambda: (multigraph(70, 400), 72),
    "undirected": lambda: (torch.cat([multigraph(70, 200), multigraph(70, 200).flip(0)], dim=1), 72),
    "no number of nodes": lambda: (multigraph(70, 400), None),
    "hubs": lambda: (torch.cat([multigraph(40, 100), hubs()], dim=1), 300),
    "ascending": lambda: (torch.tensor([[0, 0, 1, 2, 2, 3], [1, 3, 0, 0, 1, 2]]), 4),
    "mostly repeated": lambda: (multigraph(3, 200), 3),
    "only loops": lambda: (multigraph(9, 20)[:1].expand(2, -1), 9),
    "no edges": lambda: (multigraph(1, 0), 5),
    "no nodes": lambda: (multigraph(1, 0), None),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"self_loops": "add", "dtype": torch.float64},
    {"duplicates": "keep"},
    {"dtype": torch.bfloat16},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("weights", [None, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(
    name: str, weights: torch.dtype | None, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    edges, nodes = GRAPHS[name]()
    weight = None
    if weights is not None:
        weight = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(1), dtype=weights)
        weight[edges[1] == 5] = 0  # a degree of 0
    expected = Graph.from_edge_index(edges, nodes, weight, **options)
    request.getfixturevalue("by_triton")
    got = Graph.from_edge_index(edges.to(DEVICE), nodes, None if weight is None else weight.to(DEVICE), **options)
    # PyTorch's square root on a CPU is not always the nearest number, and its bfloat16 is not the kernels'.
    assert_same_graph(got, expected, {torch.float32: 4e-7, torch.float64: 1e-15}.get(got.dtype, 0))


@pytest.mark.skipif(not CUDA, reason="a CPU does not wait")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("undirected", [True, False])
def test_how_often_it_waits_for_the_gpu(undirected: bool, weighted: bool) -> None:
    edges = multigraph(20, 90).to(DEVICE)
    edges = torch.cat([edges, edges.flip(0)], dim=1) if undirected else edges
    weight = torch.ones(edges.size(1), device=DEVICE) if weighted else None
    torch.cuda.set_sync_debug_mode("warn")  # warns of itself the first time
    torch.cuda.set_sync_debug_mode("default")
    Graph.from_edge_index(edges, 20, weight)
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            Graph.from_edge_index(edges, 20, weight)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert len([wait for wait in waits if "synchronizing" in str(wait.message)]) == 1 + weighted


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
BAD_ARGUMENTS: dict[str, tuple[Tensor, int | None, Tensor | None, str]] = {
    "too large": (EDGES, 2, None, "source id 2 at edge 2.*0 to 1"),
    "negative": (EDGES - 1, None, None, "source id -1 at edge 0"),
    "weight sign": (EDGES, 3, torch.tensor([1.0, -1.0, 1.0]), "-1.0 at edge 1"),
    "weight inf": (EDGES, 3, torch.tensor([1.0, 1.0, torch.inf], dtype=torch.float64), "inf at edge 2"),
}


@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_errors_name_the_argument(case: str) -> None:
    edges, nodes, weight, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        Graph.from_edge_index(edges.to(DEVICE), nodes, None if weight is None else weight.to(DEVICE))


@pytest.mark.usefixtures("by_triton")
def test_another_dtype_and_gradients() -> None:
    edges = multigraph(30, 90).to(DEVICE)
    wide = Graph.from_edge_index(edges, 30, dtype=torch.float64)
    assert_same_graph(Graph.from_edge_index(edges, 30).to(torch.float64), wide.to("cpu"))
    weight = torch.rand(90, device=DEVICE, requires_grad=True)
    Graph.from_edge_index(edges, 30, weight).norm.sum().backward()
    assert weight.grad is not None
