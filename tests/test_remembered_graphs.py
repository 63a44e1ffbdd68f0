"""`as_graph` remembers the graph of an `edge_index`: only while it is unchanged, and without keeping anything alive."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import KarateClub
from torch_geometric.edge_index import EdgeIndex

from gfgn import Graph, graph
from gfgn.graph import MAX_CACHED_GRAPHS, as_graph, count_runs
from gfgn.nn import GFGN, GFGNConv
from gfgn.ops.cache import TensorCache

NODES = 9


def random_edges(seed: int = 0) -> Tensor:
    return torch.randint(NODES, (2, 30), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> TensorCache[Graph]:
    """Every test starts without remembered graphs."""
    fresh: TensorCache[Graph] = TensorCache(MAX_CACHED_GRAPHS)
    monkeypatch.setattr(graph, "_graphs", fresh)
    return fresh


def assert_up_to_date(edges: Tensor, weight: Tensor | None = None) -> None:
    expected = Graph.from_edge_index(edges.clone(), NODES, None if weight is None else weight.clone())
    got = as_graph(edges, NODES, weight)
    assert torch.equal(got.edge_index, expected.edge_index)
    assert torch.equal(got.norm, expected.norm)


def test_the_same_tensor_gives_the_same_graph() -> None:
    edges = random_edges()
    first = as_graph(edges, NODES)
    assert as_graph(edges, NODES) is first
    assert as_graph(edges.clone(), NODES) is not first
    assert as_graph(edges, NODES + 1) is not first
    assert as_graph(edges, NODES, dtype=torch.float64) is not first
    weight, batch = torch.rand(30), torch.zeros(NODES, dtype=torch.int64)
    weighted, batched = as_graph(edges, NODES, weight), as_graph(edges, NODES, None, batch)
    assert as_graph(edges, NODES, weight) is weighted
    assert as_graph(edges, NODES, None, batch) is batched
    assert as_graph(edges, NODES, None, batch, 2) is not batched
    assert as_graph(edges, NODES) is first


def test_layers_share_it_and_a_hit_runs_no_operation(remembered: TensorCache[Graph]) -> None:
    edges, x = random_edges(), torch.randn(NODES, 4)
    convs = [GFGNConv(4, 4, level) for level in ("pair", "neighbor")]
    for _ in range(3):
        for conv in convs:
            x = conv(x, edges).detach()
    assert len(remembered.entries) == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        as_graph(edges, NODES, dtype=torch.float32)
    assert not [event.key for event in profile.key_averages() if event.key.startswith("aten::")]


EDITS: dict[str, Callable[[Tensor], object]] = {
    "element": lambda edges: edges.__setitem__((0, 3), (edges[0, 3] + 1) % NODES),
    "in-place operator": lambda edges: edges.add_(1).remainder_(NODES),
    "view": lambda edges: edges[:, 4:].fill_(2),
    "numpy's own memory": lambda edges: edges.set_(torch.from_numpy(edges.flip(0).numpy().copy())),
    "data": lambda edges: setattr(edges, "data", random_edges(5)),
    "shape": lambda edges: setattr(edges, "data", edges.data[:, :11]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_in_place_changes_are_noticed(edit: str) -> None:
    edges = random_edges()
    conv, x = GFGNConv(4, 4), torch.randn(NODES, 4)
    before = conv(x, edges)
    EDITS[edit](edges)
    after = conv(x, edges)
    torch.testing.assert_close(after, conv(x, Graph.from_edge_index(edges.clone(), NODES)))
    assert not torch.equal(before, after)
    assert_up_to_date(edges)


def test_changes_of_weights_and_batches_are_noticed() -> None:
    edges, weight, batch = random_edges(), torch.rand(30), torch.zeros(NODES, dtype=torch.int64)
    as_graph(edges, NODES, weight)
    weight.mul_(torch.arange(30))
    assert_up_to_date(edges, weight)
    assert as_graph(edges, NODES, None, batch, 2).batch.tolist() == [0] * NODES  # type: ignore[union-attr]
    batch.add_(1)
    assert as_graph(edges, NODES, None, batch, 2).batch.tolist() == [1] * NODES  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"(source|target) id"):
        as_graph(edges.add_(NODES), NODES)


@pytest.mark.parametrize(
    "edit",
    [
        lambda edges: edges.__setitem__((0, 3), 1),
        lambda edges: edges.as_tensor().fill_(2),
        lambda edges: edges.fill_(2),
    ],
)
def test_changes_of_an_edge_index_of_pyg_are_noticed(edit: Callable[[EdgeIndex], object]) -> None:
    edges = EdgeIndex(random_edges(), sparse_size=(NODES, NODES))
    first = as_graph(edges, NODES)
    assert as_graph(edges, NODES) is first
    edit(edges)
    assert torch.equal(
        as_graph(edges, NODES).edge_index, Graph.from_edge_index(edges.as_tensor().clone(), NODES).edge_index
    )


def test_nothing_is_kept_alive(remembered: TensorCache[Graph]) -> None:
    edges, weight, batch = random_edges(), torch.rand(30), torch.zeros(NODES, dtype=torch.int64)
    graphs = [weakref.ref(as_graph(edges, NODES, *rest)) for rest in ((), (weight,), (None, batch))]
    tensors = [weakref.ref(x) for x in (weight, batch)]
    gc.disable()  # without cycles, nothing waits for the collector
    try:
        del weight, batch
        assert [x() for x in tensors] == [None, None]
        assert [x() is None for x in graphs] == [False, True, True]
        del edges
        assert graphs[0]() is None
    finally:
        gc.enable()
    assert not remembered.entries


def test_models_do_not_keep_the_graph_alive() -> None:
    edges, x = random_edges(), torch.randn(NODES, 4)
    for level in ("graph", "neighbor", "pair"):
        GFGN(4, 8, 2, 3, level=level, heads=2)(x, edges).sum().backward()
    known = weakref.ref(as_graph(edges, NODES, dtype=torch.float32))
    del edges
    gc.collect()
    assert known() is None


def test_a_new_tensor_with_the_id_of_an_old_one() -> None:
    seen: set[int] = set()
    reused = 0
    for seed in range(200):
        edges = random_edges(seed)
        reused += id(edges) in seen
        seen.add(id(edges))
        assert_up_to_date(edges)
        del edges
    assert reused


def test_compiled_layers_notice_changes(remembered: TensorCache[Graph]) -> None:
    torch._dynamo.reset()
    edges, x, conv = random_edges(), torch.randn(NODES, 4), GFGNConv(4, 4)
    compiled = torch.compile(conv, backend="eager")
    torch.testing.assert_close(compiled(x, edges), conv(x, edges.clone()))
    edges.add_(1).remainder_(NODES)
    torch.testing.assert_close(compiled(x, edges), conv(x, edges.clone()))


def test_many_threads(remembered: TensorCache[Graph]) -> None:
    """Shared tensors that stay, own tensors that change, and tensors that come and go."""
    shared = [random_edges(seed) for seed in range(4)]
    expected = [Graph.from_edge_index(edges, NODES).edge_index for edges in shared]
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        own = random_edges(100 + seed)
        try:
            for step in range(60):
                k = (seed + step) % len(shared)
                assert torch.equal(as_graph(shared[k], NODES).edge_index, expected[k])
                own.add_(1).remainder_(NODES)
                assert_up_to_date(own)
                assert_up_to_date(random_edges(1000 * seed + step))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(remembered.entries) <= MAX_CACHED_GRAPHS
    gc.collect()
    assert len(remembered.entries) == len(shared)


# --- a batch of graphs without `batch` ------------------------------------------------------------


def pyg_batch(sizes: tuple[int, ...] = (4, 5, 3)) -> Data:
    rings = [torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) for n in sizes]
    return Batch.from_data_list(
        [
            Data(x=torch.randn(n, 4), edge_index=torch.cat([ring, ring.flip(0)], 1))
            for n, ring in zip(sizes, rings, strict=True)
        ]
    )


def test_a_missing_batch_is_hinted_at_once() -> None:
    data = pyg_batch()
    for module in (GFGNConv(4, 4, "graph"), GFGN(4, 8, 2, 3, level="graph", heads=2)):
        edges = data.edge_index.clone()
        with pytest.warns(UserWarning, match=r"looks like a batch of graphs.*batch=data\.batch") as caught:
            module(data.x, edges)
        assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            module(data.x, edges)  # remembered: hinted at already


def test_nothing_is_hinted_at_where_it_does_not_matter() -> None:
    data = pyg_batch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GFGNConv(4, 4, "graph")(data.x, data.edge_index, batch=data.batch)
        GFGNConv(4, 4, "graph")(data.x, Graph.from_edge_index(data.edge_index, data.num_nodes))
        GFGNConv(4, 4, "pair")(data.x, data.edge_index)
        GFGNConv(4, 4, "graph")(torch.randn(34, 4), KarateClub()[0].edge_index)
        GFGNConv(4, 4, "graph")(torch.randn(5, 4), torch.zeros(2, 0, dtype=torch.int64))
    assert [str(warning.message) for warning in caught] == []


def runs_by_search(edges: list[tuple[int, int]], n: int) -> int:
    cuts = [0, *(k for k in range(1, n) if not any(min(u, v) < k <= max(u, v) for u, v in edges)), n]
    return sum(high - low > 1 for low, high in pairwise(cuts))


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_nodes(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 14, (), generator=generator))
    source = torch.randint(n, (n,), generator=generator)
    target = (source + torch.randint(-2, 3, (n,), generator=generator)).clamp(0, n - 1)
    edges = torch.stack([source, target])
    assert count_runs(Graph.from_edge_index(edges, n)) == runs_by_search(edges.t().tolist(), n)
    assert count_runs(Graph.from_data(pyg_batch((4, 5, 3)))) == 3
