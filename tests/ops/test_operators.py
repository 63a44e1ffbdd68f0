"""Every operator on every backend against the float64 reference: values, gradients, PyTorch's machinery, bits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import random_edges
from ops.backends import CUDA, FUSED, device, fused_backend, is_interpreted
from ops.operators import OPERATORS, Lam, draw, every_operator, generator, make_graph, ragged, results, using
from torch import Tensor

from gfgn import GFGNConv, Graph, ops
from gfgn.ops import gates
from gfgn.ops.cpu import arrays
from gfgn.ops.csr import SEGMENT
from gfgn.ops.sums import inverse_count


class Poisoned:
    """PyTorch, but fresh memory holds NaN."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(*size: Any, **options: Any) -> Tensor:
        return poisoned(torch.empty(*size, **options))

    @staticmethod
    def empty_like(*like: Any, **options: Any) -> Tensor:
        return poisoned(torch.empty_like(*like, **options))


def poisoned(x: Tensor) -> Tensor:
    return x.fill_(math.nan) if x.is_floating_point() else x


@pytest.fixture(autouse=True)
def _fresh_memory_holds_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that a kernel does not write is noticed."""
    empty = arrays.empty
    monkeypatch.setattr(arrays, "empty", lambda *shape, dtype: poisoned(empty(*shape, dtype=dtype)))
    for name in ("additive", "attention", "gates", "gather") if "triton" in FUSED else ():
        monkeypatch.setattr(f"gfgn.ops.cuda.{name}.torch", Poisoned())


def check(
    operator: str,
    backend: str,
    graph: Graph,
    inputs: list[Tensor],
    lam: Lam = 1.3,
    dtype: torch.dtype = torch.float32,
    rtol: float = 1e-5,
) -> None:
    """Value and gradients of a backend against the float64 reference on the same numbers."""
    inputs = [x.to(dtype) for x in inputs]
    expected = results(operator, "reference", graph.to(torch.float64), inputs, lam, torch.float64)
    got = results(operator, backend, graph.to(torch.float64) if dtype == torch.float64 else graph, inputs, lam, dtype)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == dtype
        scale = max(1.0, float(other.abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other, rtol=rtol, atol=0.2 * rtol * scale)


SIZES = {
    "no nodes": (0, 0, 1, 3),
    "one node": (1, 0, 1, 3),
    "one edge": (2, 1, 1, 1),
    "odd width": (13, 60, 1, 17),
    "two heads": (9, 40, 2, 65),
    "small heads": (9, 40, 8, 8),
    "wide": (2, 3, 1, 1030),
}


@fused_backend
@every_operator
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients(operator: str, backend: str, size: str) -> None:
    n, e, heads, width = SIZES[size]
    if is_interpreted(backend) and n in (1, 2):
        pytest.skip("slow in the interpreter")
    graph = make_graph(n, e)
    check(operator, backend, graph, draw(operator, graph, heads, width))


@fused_backend
@every_operator
def test_rows_of_about_a_segment(operator: str, backend: str) -> None:
    graph = ragged(SEGMENT - 1, 0, SEGMENT, SEGMENT + 1, 1, 2 * SEGMENT + 1)
    check(operator, backend, graph, draw(operator, graph, 2, 3), rtol=1e-4)


@every_operator
def test_star(operator: str) -> None:
    """Twenty thousand leaves around a hub."""
    leaves, center = torch.arange(1, 20_001), torch.zeros(20_000, dtype=torch.int64)
    graph = Graph.from_edge_index(torch.stack([torch.cat([leaves, center]), torch.cat([center, leaves])]))
    for backend in ["numba", *(["triton"] if CUDA else [])]:
        check(operator, backend, graph, draw(operator, graph, 1, 3), rtol=1e-4)


@every_operator
@given(
    n=st.integers(1, 20),
    e=st.integers(0, 80),
    size=st.sampled_from(((1, 1), (1, 4), (2, 8), (1, 33))),  # every width of a small head has kernels of its own
    seed=st.integers(0, 9999),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=12)
def test_any_graph_on_the_cpu(operator: str, n: int, e: int, size: tuple[int, int], seed: int, weighted: bool) -> None:
    graph = make_graph(n, e, seed, weighted)
    check(operator, "numba", graph, draw(operator, graph, *size, seed=seed), 1.7, rtol=1e-4)


@fused_backend
@every_operator
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_other_dtypes(operator: str, backend: str, dtype: torch.dtype) -> None:
    if dtype == torch.float64 and backend == "triton":
        pytest.skip("Triton's kernels have no float64")
    additive = operator.startswith("additive")
    if dtype.itemsize == 2 and additive and backend == "numba":
        pytest.skip("composed of other operators, each of which rounds")
    graph = make_graph(10, 60)
    tolerance = {torch.float64: 1e-12, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype] * (10 if additive else 1)
    check(operator, backend, graph, draw(operator, graph, 2, 12), 1.0, dtype, rtol=tolerance)


# --- gates ------------------------------------------------------------------------------------------------------------


@fused_backend
@pytest.mark.parametrize("lam", [0.0, 0.5, torch.linspace(0, 3, 6)], ids=str)
def test_lambda(backend: str, lam: Lam) -> None:
    graph = make_graph(12, 50)
    check("pair_aggregate", backend, graph, draw("pair_aggregate", graph, 1, 6), lam)


@fused_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [20.0, 60.0, 1e4])
def test_gates_far_from_zero(backend: str, scale: float, dtype: torch.dtype) -> None:
    """Where `exp(−a)` overflows: the kernels take another path and stay finite and exact."""
    graph = make_graph(40, 400)
    a, b, z = draw("pair_aggregate", graph, 1, 19)
    b[:20] -= a[:20]  # sums near 0 of large terms
    check(
        "pair_aggregate",
        backend,
        graph,
        [scale * a, scale * b, z],
        1.0,
        dtype,
        rtol=0.05 if dtype.itemsize == 2 else 1e-5,
    )


@fused_backend
def test_ends_of_the_range_of_a_gate(backend: str) -> None:
    """Every combination of values has a block of columns, which chooses its path by itself."""
    graph, values = make_graph(10, 40), torch.tensor([1e4, -1e4, 39.0, -41.0, 0.0])
    a, b, z = draw("pair_aggregate", graph, 1, 25 * 16)
    a[:], b[:] = values.repeat_interleave(5 * 16), values.neg().repeat_interleave(16).repeat(5)
    check("pair_aggregate", backend, graph, [a, b, z], 1.0)
    logits = [x * 3e3 for x in torch.tensor([[[1.0, -1, 1, -1]], [[-1.0, 1, 1, -1]]])]
    with using(backend):
        where = device(backend)
        features = [torch.full((1, 4), value, device=where) for value in (1.0, 2.0, 4.0)]
        assert ops.gated_two_hops(*features, *(x.to(where) for x in logits)).tolist() == [[2.0, 4.0, 3.0, 1.0]]


@fused_backend
@every_operator
def test_nan_reaches_what_depends_on_it(operator: str, backend: str) -> None:
    graph, where = make_graph(13, 45), device(backend)
    if "dropout" in operator or operator in ("neighbor_max", "edge_softmax"):
        pytest.skip("has a test of its own, or drops NaN")
    if backend == "triton" and operator in ("gated_neighbor", "gated_neighborhood"):
        pytest.skip("its products take NaN for 0, so that it stays in its head")
    inputs = draw(operator, graph, 1, 5)
    for x in inputs:
        x.view(-1)[3] = math.nan
        outs = []
        for name in ("reference", backend):
            with using(name):
                outs.append(OPERATORS[operator][1](graph.to(where), 1.0, *(x.to(where) for x in inputs)).cpu())
        torch.testing.assert_close(outs[1], outs[0], rtol=1e-4, atol=1e-5, equal_nan=True)
        x.view(-1)[3] = 0.5


# --- derivatives, transforms, compilation -----------------------------------------------------------------------------


@fused_backend
@every_operator
def test_second_derivatives(operator: str, backend: str) -> None:
    graph, found = make_graph(7, 20), []
    inputs = draw(operator, graph, 2, 2)
    for name, dtype in ((backend, torch.float32), ("reference", torch.float64)):
        where, leaves = device(name), [x.to(device(name), dtype).requires_grad_() for x in inputs]
        with using(name):
            out = OPERATORS[operator][1](graph.to(where, dtype), 1.4, *leaves).square().sum()
            first = torch.autograd.grad(out, leaves, create_graph=True)
            second = torch.autograd.grad(sum(x.square().sum() for x in first), leaves)
        found.append([x.cpu().double() for x in second])
    for got, expected in zip(*found, strict=True):
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5 * scale)


@every_operator
def test_derivatives_in_float64(operator: str) -> None:
    graph = make_graph(6, 14).to(torch.float64)
    leaves = [x.double().requires_grad_() for x in draw(operator, graph, 1, 2)]
    for backend in ("numba", "reference"):
        with using(backend):
            for test in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
                assert test(lambda *xs: OPERATORS[operator][1](graph, 1.4, *xs), leaves, fast_mode=True)


def test_backward_twice() -> None:
    """Gradients overwrite saved tensors only if the backward pass cannot be repeated."""
    graph = make_graph(12, 50)
    for backend in FUSED:
        leaves = [x.to(device(backend)).requires_grad_() for x in draw("gated_pair", graph, 2, 3)]
        out = ops.gated_pair(*leaves, graph.to(device(backend)), 1.0, backend).square().sum()
        first = torch.autograd.grad(out, leaves, retain_graph=True)
        assert all(map(torch.equal, first, torch.autograd.grad(out, leaves)))


@fused_backend
@every_operator
def test_replicas_equal_a_loop(operator: str, backend: str) -> None:
    """With a λ of each replica; all but the first input are shared in a second call."""
    where, run = device(backend), OPERATORS[operator][1]
    graph, lam = make_graph(11, 40).to(where), torch.tensor([0.5, 1.0, 2.0], device=where)
    stacks = [x.to(where).requires_grad_() for x in draw(operator, graph, 2, 2, copies=3)]
    for shared in (False, True):
        given = [x[0] if shared and k else x for k, x in enumerate(stacks)]
        dims = [None if shared and k else 0 for k in range(len(stacks))]
        with using(backend):
            out = torch.vmap(lambda lam, *xs: run(graph, lam, *xs), in_dims=(0, *dims))(lam, *given)
            loop = [
                run(graph, lam[r], *(x[r] if d == 0 else x for x, d in zip(given, dims, strict=True))) for r in range(3)
            ]
            grads = [torch.autograd.grad(x.square().sum(), stacks) for x in (out, torch.stack(loop))]
        torch.testing.assert_close(out, torch.stack(loop))
        torch.testing.assert_close(*grads)


@fused_backend
def test_nested_vmap_and_inputs_of_all_replicas(backend: str) -> None:
    """Inside one `vmap` an operator batches itself; inside several, PyTorch does."""
    where = device(backend)
    graph, z = make_graph(8, 20).to(where), torch.randn(2, 3, 8, 3, generator=generator(0)).to(where)
    both = torch.vmap(torch.vmap(lambda x: ops.propagate(x, graph, backend)))(z)
    torch.testing.assert_close(both[1, 2], ops.propagate(z[1, 2], graph, backend))
    scale = torch.arange(1.0, 4.0, device=where)
    out = torch.vmap(lambda s: s * ops.propagate(z[0, 0], graph, backend))(scale)
    torch.testing.assert_close(out, scale.view(-1, 1, 1) * ops.propagate(z[0, 0], graph, backend))


@fused_backend
@every_operator
def test_compiled(operator: str, backend: str) -> None:
    if operator.startswith("sparse"):
        pytest.skip("Dynamo does not create sparse matrices")
    torch.compiler.reset()  # Dynamo limits the compilations of one function
    where, run = device(backend), OPERATORS[operator][1]
    graph = make_graph(9, 30).to(where)
    leaves = [x.to(where).requires_grad_() for x in draw(operator, graph, 2, 4)]
    with using(backend):
        expected = run(graph, 1.2, *leaves)  # what depends on the graph alone is computed here, not traced
        out = torch.compile(lambda *xs: run(graph, 1.2, *xs), backend="aot_eager", fullgraph=True)(*leaves)
        grads = [torch.autograd.grad(x.square().sum(), leaves) for x in (out, expected)]
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(*grads)


# --- bits -------------------------------------------------------------------------------------------------------------


@fused_backend
@every_operator
def test_same_bits_twice_and_in_any_layout(operator: str, backend: str) -> None:
    graph = make_graph(8, 30) if is_interpreted(backend) else make_graph(50, 2000)
    inputs = draw(operator, graph, 1, 19)
    first = results(operator, backend, graph, inputs, 1.0, torch.float32)
    strided = [x.t().contiguous().t() if x.dim() == 2 else x for x in inputs]
    for again in (inputs, strided):
        assert all(map(torch.equal, first, results(operator, backend, graph, again, 1.0, torch.float32)))


@every_operator
def test_same_bits_with_any_number_of_threads(operator: str) -> None:
    threads = torch.get_num_threads()
    for graph in (make_graph(200, 9000), ragged(9 * 199, 3, nodes=200)):  # a hub of several segments
        inputs, found = draw(operator, graph, 1, 19), []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(results(operator, "numba", graph, inputs, 1.0, torch.float32))
        torch.set_num_threads(threads)
        for other in found[1:]:
            assert all(map(torch.equal, found[0], other))


@fused_backend
@every_operator
@pytest.mark.parametrize("size", [(1, 3), (2, 5), (1, 24)], ids=str)
def test_bits_of_a_replica_do_not_depend_on_the_others(operator: str, backend: str, size: tuple[int, int]) -> None:
    """Alone, among two others, and beside one whose values are not finite."""
    if is_interpreted(backend) and size[1] == 3:
        pytest.skip("slow in the interpreter")
    where, run = device(backend), OPERATORS[operator][1]
    graph = make_graph(9, 25).to(where)
    inputs = [x.to(where) for x in draw(operator, graph, *size, copies=3)]

    def together(inputs: list[Tensor], *replicas: int) -> list[Tensor]:
        leaves = [x[list(replicas)].requires_grad_() for x in inputs]
        with using(backend):
            out = torch.vmap(lambda *xs: run(graph, 1.3, *xs))(*leaves)
            return [out.detach(), *torch.autograd.grad((out * out.detach().sign()).sum(), leaves)]

    among = together(inputs, 0, 1, 2)
    for r in (0, 2):
        assert all(torch.equal(one[0], other[r]) for one, other in zip(together(inputs, r), among, strict=True))
    broken = [x.clone() for x in inputs]
    for x in broken:
        x[1] = math.nan
        x[1, : x.size(1) // 2] = math.inf
    for one, other in zip(together(broken, 0, 1, 2), among, strict=True):
        assert torch.equal(one[::2], other[::2])


# --- registration, arguments ------------------------------------------------------------------------------------------


@fused_backend
def test_operators_pass_opcheck(backend: str) -> None:
    """PyTorch's own check of schema, fake tensors and autograd registration, for every operator that a call reaches."""
    where, seen = device(backend), {}
    graph = make_graph(8, 20).to(where)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]

    class Noting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "gfgn":
                seen.setdefault(str(func), (func, args))
            return func(*args, **(kwargs or {}))

    with using(backend):
        for operator, (_, run) in OPERATORS.items():
            inputs = [x.to(where).requires_grad_() for x in draw(operator, graph, 1, 3)]
            with Noting():
                run(graph, 1.0, *inputs)
        for operator, args in seen.values():
            assert set(torch.library.opcheck(operator, args, test_utils=tests).values()) == {"SUCCESS"}
    assert len(seen) > 10


@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_layer_is_the_same_on_every_backend(level: str) -> None:
    torch.manual_seed(0)
    conv, graph, x, found = GFGNConv(6, 5, level, heads=3), make_graph(20, 80), torch.randn(20, 6), []
    for backend in ["reference", *FUSED]:
        with using(backend):
            where = device(backend)
            conv.zero_grad()
            out = conv.to(where)(x.to(where), graph.to(where))
            out.square().sum().backward()
        found.append([out.detach().cpu(), *(p.grad.cpu().clone() for p in conv.parameters())])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-4)


@fused_backend
def test_nothing_is_saved_without_gradients(backend: str) -> None:
    """Without `save` nothing is kept, and an unexpected gradient is computed all the same."""
    where = device(backend)
    graph, lam = make_graph(8, 20).to(where), torch.ones(4, device=where)
    rows, reverse = list(graph.by_target), list(graph.by_source)
    edges = ([*rows, graph.norm, graph.row_norm], [*reverse, graph.reverse_norm, graph.reverse_row_norm])
    weighted = ([*rows, graph.norm], [*reverse, graph.reverse_norm])
    cases: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "pair_aggregate": (gates.pair_aggregate_op, (lam, *edges)),
        "gated_neighborhood": (gates.gated_neighborhood_op, (lam, inverse_count(graph), *weighted)),
        "gated_graph": (gates.gated_graph_op, (lam, *weighted)),
        "gated_pair": (gates.gated_pair_op, (lam, *edges)),
    }
    if backend == "triton":
        cases["gated_propagate"] = (gates.gated_propagate_op, weighted)
    for name, (operator, rest) in cases.items():
        leaves = [x.to(where).requires_grad_() for x in draw(name, graph, 2, 2)]
        out, *saved = operator(*leaves, *rest, False, backend)
        assert all(x.numel() == 0 or x.size(0) == 1 for x in saved)
        expected = OPERATORS[name][1](graph, 1.0, *leaves)
        torch.testing.assert_close(out, expected)
        grads = [torch.autograd.grad(x.square().sum(), leaves) for x in (out, expected)]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_learned_weights_and_lambda_use_the_reference() -> None:
    weight, lam = torch.rand(20, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    graph = Graph.from_edge_index(random_edges(6, 20, generator(0)), 6, weight)
    ops.propagate(torch.randn(6, 2), graph).sum().backward()
    ops.pair_aggregate(*torch.randn(3, 6, 2), make_graph(6, 20), lam).square().sum().backward()
    assert weight.grad is not None
    assert lam.grad is not None


GRAPH, X = make_graph(8, 20), torch.ones(8, 3)
BAD_ARGUMENTS: dict[str, tuple[Callable[[], object], str]] = {
    "rows": (lambda: ops.propagate(X[1:], GRAPH), r"x .*\[8, D\].*\[7, 3\]"),
    "dimensions": (lambda: ops.neighbor_mean(torch.ones(8), GRAPH), r"x .*\[8, D\].*\[8\]"),
    "widths": (lambda: ops.pair_aggregate(X[:, :2], X, X, GRAPH), r"a .*\[8, 3\].*\[8, 2\]"),
    "gate": (lambda: ops.gated_propagate(X, X[:2], GRAPH), r"s .*\[8, 3\] or \[1, 3\].*\[2, 3\]"),
    "gate of pairs": (lambda: ops.gated_pair(X, torch.ones(1, 3, 3), GRAPH), r"gate .*2d.*\[1, 3, 3\]"),
    "gate of a graph": (lambda: ops.gated_graph(X, torch.ones(1, 6, 3), GRAPH), r"gate .*\[1, 6, 3\]"),
    "gate of a neighbor": (lambda: ops.gated_neighbor(X, X, X, torch.ones(1, 3, 3)), r"gate .*2d"),
    "mean": (lambda: ops.gated_neighbor(X, X, X[:2], torch.ones(1, 6, 3)), r"mean .*\[8, 3\].*\[2, 3\]"),
    "second": (lambda: ops.gated_two_hops(X, X, X, X, X[:2]), r"second .*\[8, 3\].*\[2, 3\]"),
    "λ": (lambda: ops.gated_two_hops(X, X, X, X, X, -1), "lam .*got -1"),
    "λ of columns": (lambda: ops.pair_aggregate(X, X, X, GRAPH, torch.ones(2)), r"\[3\].*\[2\]"),
    "heads": (lambda: ops.head_linear(X, torch.ones(2, 3, 3)), "heads·d"),
    "device": (lambda: ops.propagate(X.to("meta"), GRAPH), "x is on meta.*cpu"),
    "z": (lambda: ops.attend(torch.ones(GRAPH.num_edges, 2), X, GRAPH), r"z .*\[8, 3\]"),
    "k": (lambda: ops.edge_dot(X[:, :2], X, 2, GRAPH), r"q and k .*\[8, 2\].*\[8, 3\]"),
    "source": (lambda: ops.additive_attention(X, X[:1, :2], X[:1], GRAPH), r"heads·d = 3.*\[1, 2\]"),
    "rate": (lambda: ops.additive_attention(X, X[:1], X[:1], GRAPH, rate=1, training=True), "rate .*got 1"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_named(case: str) -> None:
    call, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        call()
