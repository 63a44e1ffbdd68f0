"""`as_graph` remembers the graph of an `edge_index`: only while it is unchanged, and without keeping anything alive."""

import gc
import os
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
from gfgn.graph import REMEMBERED, as_graph, count_runs
from gfgn.nn import GFGN, GFGNConv
from gfgn.ops.remember import Remembered

NODES = 9


def random_edges(seed: int = 0) -> Tensor:
    return torch.randint(NODES, (2, 30), generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> Remembered[Graph]:
    """Every test starts without remembered graphs."""
    fresh: Remembered[Graph] = Remembered(REMEMBERED)
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


def test_integer_weights_follow_the_default_dtype() -> None:
    edges, weight = random_edges(), torch.ones(30, dtype=torch.int64)
    assert as_graph(edges, NODES, weight).dtype == torch.float32
    try:
        torch.set_default_dtype(torch.float64)
        assert as_graph(edges, NODES, weight).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_layers_share_it_and_a_hit_runs_no_operation(remembered: Remembered[Graph]) -> None:
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
    "detached": lambda edges: edges.detach().copy_(edges.flip(0)),
    "row": lambda edges: edges[1].copy_(torch.arange(30) % NODES),
    "numpy's own memory": lambda edges: edges.set_(torch.from_numpy(edges.flip(0).numpy().copy())),
    "set_": lambda edges: edges.set_(random_edges(5)),
    "data": lambda edges: setattr(edges, "data", random_edges(5)),
    "fewer edges": lambda edges: edges.resize_(2, 7),
    "shape": lambda edges: setattr(edges, "data", edges.data[:, :11]),
    "shuffled": lambda edges: edges.index_copy_(1, torch.arange(30), edges[:, torch.randperm(30)].flip(0)),
    "without gradients": lambda edges: torch.no_grad()(edges.zero_)(),
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


def test_changes_of_the_base_of_a_view_are_noticed() -> None:
    base = torch.cat([random_edges(), random_edges(1)], dim=1)
    view = base[:, 10:40]
    first = as_graph(view, NODES)
    assert as_graph(view, NODES) is first
    base.flip(0).copy_(base)
    base[0, 20] = (base[0, 20] + 1) % NODES
    assert_up_to_date(view)


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


def test_nothing_is_kept_alive(remembered: Remembered[Graph]) -> None:
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


def test_a_tensor_in_a_cycle_is_forgotten_by_the_collector(remembered: Remembered[Graph]) -> None:
    cycle: list[object] = [random_edges()]
    cycle.append(cycle)
    as_graph(cycle[0], NODES)  # type: ignore[arg-type]
    del cycle
    gc.collect()
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


def test_a_tensor_that_only_cpp_holds_for_a_while() -> None:
    edges = random_edges()
    first = as_graph(edges, NODES)
    taken = torch.randn(NODES, 2, requires_grad=True)[edges]
    number = id(edges)
    del edges  # the backward pass of the indexing still has it
    gc.collect()
    (edges,) = taken.grad_fn._saved_indices  # type: ignore[union-attr]
    assert id(edges) != number or as_graph(edges, NODES) is first
    edges.flip(0)
    assert_up_to_date(edges)
    edges.fill_(3)
    assert_up_to_date(edges)


def test_bounded_and_the_longest_unused_goes_first(remembered: Remembered[Graph]) -> None:
    tensors = [random_edges(seed) for seed in range(REMEMBERED + 4)]
    first = as_graph(tensors[0], NODES)
    for edges in tensors:
        as_graph(edges, NODES)
        assert as_graph(tensors[0], NODES) is first
    assert len(remembered.entries) == REMEMBERED
    before = dict(remembered.entries)
    as_graph(tensors[1], NODES)
    assert remembered.entries.keys() != before.keys()


def test_what_is_not_remembered(remembered: Remembered[Graph]) -> None:
    edges, weight = random_edges(), torch.rand(30, requires_grad=True)
    as_graph(edges, NODES, weight).norm.sum().backward()
    assert weight.grad is not None
    with torch.inference_mode():
        as_graph(random_edges(), NODES)
    matrix = torch.eye(NODES).to_sparse_csr()  # it may share the memory of tensors that are changed
    as_graph(matrix, NODES)
    assert not remembered.entries


def test_remembered_in_inference_mode_and_used_in_training() -> None:
    edges, x, conv = random_edges(), torch.randn(NODES, 4, requires_grad=True), GFGNConv(4, 4)
    with torch.inference_mode():
        conv(x, edges)
    conv(x, edges).sum().backward()
    assert x.grad is not None


def test_inside_transforms(remembered: Remembered[Graph]) -> None:
    """An `edge_index` from outside is remembered, and its graph can be used outside later."""
    edges, conv = random_edges(), GFGNConv(4, 4)
    x = torch.randn(3, NODES, 4)
    conv.validate = False
    batched = torch.vmap(lambda one: conv(one, edges))(x)
    (held,) = [entry.value for entry in remembered.entries.values()]
    torch.testing.assert_close(batched, torch.stack([conv(one, edges) for one in x]))
    assert as_graph(edges, NODES, dtype=torch.float32) is held
    edges.copy_(edges.flip(0))
    torch.func.grad(lambda one: (one * as_graph(edges, NODES).norm.sum()).sum())(x[0])
    assert_up_to_date(edges)


def test_compiled_layers_notice_changes(remembered: Remembered[Graph]) -> None:
    torch._dynamo.reset()
    edges, x, conv = random_edges(), torch.randn(NODES, 4), GFGNConv(4, 4)
    compiled = torch.compile(conv, backend="eager")
    torch.testing.assert_close(compiled(x, edges), conv(x, edges.clone()))
    edges.add_(1).remainder_(NODES)
    torch.testing.assert_close(compiled(x, edges), conv(x, edges.clone()))


def test_many_threads(remembered: Remembered[Graph]) -> None:
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
    assert len(remembered.entries) <= REMEMBERED
    gc.collect()
    assert len(remembered.entries) == len(shared)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_fork_while_another_thread_holds_the_lock(remembered: Remembered[Graph]) -> None:
    edges = random_edges()
    first = as_graph(edges, NODES)
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with remembered.lock:
            taken.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if as_graph(edges, NODES) is first else 1)
    _, status = os.waitpid(child, 0)
    release.set()
    holder.join()
    assert os.waitstatus_to_exitcode(status) == 0


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


@pytest.mark.parametrize("seed", range(40))
def test_runs_of_nodes(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 14, (), generator=generator))
    source = torch.randint(n, (n,), generator=generator)
    target = (source + torch.randint(-2, 3, (n,), generator=generator)).clamp(0, n - 1)
    edges = torch.stack([source, target])
    assert count_runs(Graph.from_edge_index(edges, n)) == runs_by_search(edges.t().tolist(), n)
    assert count_runs(Graph.from_data(pyg_batch((4, 5, 3)))) == 3


def test_during_the_capture_of_a_cuda_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph holds addresses: what it uses stays, and what is computed by it has no values yet."""
    values: Remembered[Tensor] = Remembered(1)
    x, y = torch.ones(3), torch.zeros(3)
    before = values.get([x], "sum", x.sum)
    monkeypatch.setattr("gfgn.ops.remember.is_captured", lambda _: True)
    assert values.get([x], "sum", x.sum) is before
    assert values.get([y], "sum", y.sum) is not values.get([y], "sum", y.sum)
    monkeypatch.undo()
    values.get([y], "sum", y.sum)  # no place is left for that of x
    used = weakref.ref(before)
    del before
    assert used() is not None
    del x
    gc.collect()
    assert used() is None
