"""The operators on every backend against the reference: values, gradients, PyTorch's machinery, determinism."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import random_edges
from ops.backends import CUDA, FUSED, device, fused_backend, is_interpreted
from torch import Tensor

from gfgn import GFGNConv, Graph, ops
from gfgn.ops import dense, dispatch, gates, sparse, sums
from gfgn.ops.csr import SEGMENT
from gfgn.ops.sums import inverse_count


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(n: int, e: int, d: int, seed: int = 0, weighted: bool = True) -> tuple[Graph, list[Tensor]]:
    """A random graph whose last node is isolated, and four random feature matrices."""
    edges = random_edges(max(n - 1, 1), e, generator(seed))
    weight = torch.rand(e, generator=generator(seed)) if weighted else None
    graph = Graph.from_edge_index(edges, n, weight)
    return graph, list(torch.randn(4, n, d, generator=generator(seed)))


def gate_of(w: Tensor, z: Tensor, inputs: int = 2) -> Tensor:
    """A `[heads, inputs · d, d]` gate from the first row of `w`: two heads if the width is even, else one."""
    heads = 2 if z.size(1) % 2 == 0 else 1
    d = z.size(1) // heads
    return (
        0.3
        * w[:1].sum(0).view(heads, 1, d)
        * torch.linspace(-1, 1, inputs * d, dtype=w.dtype, device=w.device).view(1, -1, 1)
    )


OPERATORS = {
    "propagate": lambda g, lam, backend, x, *_: ops.propagate(x, g, backend),
    "neighbor_sum": lambda g, lam, backend, x, *_: ops.neighbor_sum(x, g, backend),
    "neighbor_mean": lambda g, lam, backend, x, *_: ops.neighbor_mean(x, g, backend),
    "propagate_and_mean": lambda g, lam, backend, x, *_: torch.cat(ops.propagate_and_mean(x, g, backend)),
    "gated_propagate": lambda g, lam, backend, z, s, *_: ops.gated_propagate(z, lam * s, g, backend),
    "gated_propagate, one gate": lambda g, lam, backend, z, s, *_: ops.gated_propagate(z, lam * s[:1], g, backend),
    "gated_neighborhood": lambda g, lam, backend, z, w, *_: ops.gated_neighborhood(z, gate_of(w, z), g, lam, backend),
    "gated_graph": lambda g, lam, backend, z, w, *_: ops.gated_graph(z, gate_of(w, z, 1), g, lam, backend),
    "gated_pair": lambda g, lam, backend, z, w, *_: ops.gated_pair(z, gate_of(w, z), g, lam, backend),
    "pair_aggregate": lambda g, lam, backend, a, b, z, _: ops.pair_aggregate(a, b, z, g, lam, backend),
}
every_operator = pytest.mark.parametrize("operator", OPERATORS)


def check_backend(operator: str, backend: str, graph: Graph, inputs: list[Tensor], lam: float | Tensor) -> None:
    """Value and gradients of a backend against the float64 reference."""
    run = OPERATORS[operator]
    exact = [x.double().requires_grad_() for x in inputs]
    expected = run(graph.to(torch.float64), lam, "reference", *exact)
    weight = torch.randn(expected.shape, generator=generator(9))
    (expected * weight.double()).sum().backward()
    where = device(backend)
    got_inputs = [x.to(where).requires_grad_() for x in inputs]
    got = run(graph.to(where), lam.to(where) if isinstance(lam, Tensor) else lam, backend, *got_inputs)
    (got * weight.to(where)).sum().backward()
    assert_close(got, expected)
    for got_input, exact_input in zip(got_inputs, exact, strict=True):
        assert (got_input.grad is None) == (exact_input.grad is None)
        if exact_input.grad is not None:
            assert_close(got_input.grad, exact_input.grad)


def assert_close(got: Tensor, expected: Tensor) -> None:
    scale = max(1.0, float(expected.detach().abs().max()) if expected.numel() else 1.0)
    torch.testing.assert_close(got.detach().cpu().double(), expected.detach(), rtol=1e-5, atol=2e-6 * scale)


@fused_backend
@every_operator
@pytest.mark.parametrize(("n", "e", "d"), [(1, 0, 3), (2, 1, 1), (13, 60, 17), (9, 40, 130), (2, 3, 1030)])
def test_values_and_gradients(operator: str, backend: str, n: int, e: int, d: int) -> None:
    graph, inputs = make(n, e, d)
    check_backend(operator, backend, graph, inputs, 1.3)


@fused_backend
@every_operator
def test_no_nodes(operator: str, backend: str) -> None:
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 0)
    check_backend(operator, backend, graph, [torch.empty(0, 3) for _ in range(4)], 1.0)


@fused_backend
@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0, torch.linspace(0, 3, 6)])
def test_lambda(backend: str, lam: float | Tensor) -> None:
    graph, inputs = make(12, 50, 6)
    check_backend("pair_aggregate", backend, graph, inputs, lam)


@every_operator
@given(
    n=st.integers(1, 20),
    e=st.integers(0, 80),
    d=st.sampled_from((1, 4, 16, 33)),  # every width of a small head compiles its own kernels
    seed=st.integers(0, 9999),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=20)
def test_any_graph_on_the_cpu(operator: str, n: int, e: int, d: int, seed: int, weighted: bool) -> None:
    graph, inputs = make(n, e, d, seed, weighted)
    check_backend(operator, "numba", graph, inputs, 1.7)


SUMMED = ("gated_graph", "gated_neighborhood", "gated_pair")


@pytest.fixture(scope="module")
def star() -> Graph:
    """A hundred thousand leaves around a hub."""
    leaves = torch.arange(1, 100_001)
    center = torch.zeros_like(leaves)
    return Graph.from_edge_index(torch.cat([torch.stack([leaves, center]), torch.stack([center, leaves])], dim=1))


# Not those whose gate has a gradient that is a plain float32 sum over all nodes, with larger rounding errors.
@pytest.mark.parametrize("operator", [name for name in OPERATORS if name not in SUMMED])
def test_star(operator: str, star: Graph) -> None:
    inputs = list(torch.randn(4, star.num_nodes, 3, generator=generator(0)))
    for backend in ["numba", *(["triton"] if CUDA else [])]:
        check_backend(operator, backend, star, inputs, 1.0)


@fused_backend
def test_gates_far_from_zero(backend: str) -> None:
    """Where `exp(−a)` overflows: the kernels take another path and stay finite and exact."""
    graph, inputs = make(12, 50, 6)
    inputs[0] = inputs[0] * 1e3
    inputs[1] = -inputs[0] + inputs[1]
    check_backend("pair_aggregate", backend, graph, inputs, 1.0)


@fused_backend
@every_operator
def test_bfloat16(operator: str, backend: str) -> None:
    graph, inputs = make(10, 60, 24)
    where = device(backend)
    half = [x.to(where, torch.bfloat16).requires_grad_() for x in inputs]
    full = [x.detach().cpu().double().requires_grad_() for x in half]
    got = OPERATORS[operator](graph.to(where), 1.0, backend, *half)
    expected = OPERATORS[operator](graph.to(torch.float64), 1.0, "reference", *full)
    assert got.dtype == torch.bfloat16
    got.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(got.detach().cpu().double(), expected.detach(), rtol=0.02, atol=0.05)
    for h, f in zip(half, full, strict=True):
        if f.grad is not None:
            torch.testing.assert_close(h.grad.cpu().double(), f.grad, rtol=0.02, atol=0.1)


@every_operator
def test_float64_on_the_cpu(operator: str) -> None:
    graph, inputs = make(9, 30, 4)
    graph = graph.to(torch.float64)
    used = [x.double().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *x: OPERATORS[operator](graph, 1.4, "numba", *x), used)


def test_backward_twice() -> None:
    """Gradients overwrite saved tensors only if the backward pass cannot be repeated."""
    for backend in FUSED:
        graph, inputs = make(12, 50, 6)
        z, w = (x.to(device(backend)).requires_grad_() for x in inputs[:2])
        out = ops.gated_pair(z, gate_of(w, z), graph.to(device(backend)), 1.0, backend).square().sum()
        first = torch.autograd.grad(out, (z, w), retain_graph=True)
        second = torch.autograd.grad(out, (z, w))
        assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("where", ["cpu", *(["cuda"] if CUDA else [])])
def test_head_linear(where: str) -> None:
    backend = {"cpu": "numba", "cuda": "triton"}[where]
    n = 16_391
    x, weight = torch.randn(n, 6, device=where), torch.randn(3, 2, 5, device=where)
    results = []
    for name in (backend, "reference"):
        leaves = [t.clone().requires_grad_() for t in (x, weight)]
        out = ops.head_linear(*leaves, name)
        out.square().sum().backward()
        results.append([out, *(t.grad for t in leaves)])
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-2)


def test_derivatives_of_head_linear() -> None:
    leaves = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((5, 6), (3, 2, 5))]
    assert torch.autograd.gradcheck(ops.head_linear, leaves)
    assert torch.autograd.gradgradcheck(ops.head_linear, leaves, fast_mode=True)


@every_operator
def test_second_derivatives_in_float64(operator: str) -> None:
    graph, inputs = make(6, 14, 2)
    graph = graph.to(torch.float64)
    used = [x.double().requires_grad_() for x in inputs]
    assert torch.autograd.gradgradcheck(lambda *x: OPERATORS[operator](graph, 1.4, "numba", *x), used, fast_mode=True)


@fused_backend
@every_operator
def test_second_derivatives_on_every_backend(operator: str, backend: str) -> None:
    graph, inputs = make(7, 20, 4)
    results = []
    for name, dtype, where in ((backend, torch.float32, device(backend)), ("reference", torch.float64, "cpu")):
        used = [x.to(where, dtype).requires_grad_() for x in inputs]
        out = OPERATORS[operator](graph.to(where, dtype), 1.4, name, *used).square().sum()
        first = torch.autograd.grad(out, used, create_graph=True, allow_unused=True)
        total = sum(g.square().sum() for g in first if g is not None)
        second = torch.autograd.grad(total, used, allow_unused=True)
        results.append([None if g is None else g.cpu().double() for g in second])
    for got, expected in zip(*results, strict=True):
        assert (got is None) == (expected is None)
        if expected is not None:
            scale = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5 * scale)


@fused_backend
@every_operator
def test_vmap_equals_a_loop(operator: str, backend: str) -> None:
    graph, _ = make(11, 40, 4)
    graph = graph.to(device(backend))
    stacks = list(torch.randn(4, 3, 11, 4, generator=generator(2)).to(device(backend)))
    lam = torch.tensor([0.5, 1.0, 2.0], device=device(backend))
    stacks[1] = stacks[1][0]  # one input is shared by all replicas
    batched = [x.clone().requires_grad_() for x in stacks]
    looped = [x.clone().requires_grad_() for x in stacks]
    run = OPERATORS[operator]
    out = torch.vmap(lambda lam, a, b, z, x: run(graph, lam, backend, a, b, z, x), in_dims=(0, 0, None, 0, 0))(
        lam, *batched
    )
    expected = torch.stack(
        [run(graph, lam[r], backend, looped[0][r], looped[1], looped[2][r], looped[3][r]) for r in range(3)]
    )
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    for x, y in zip(batched, looped, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


@fused_backend
@every_operator
def test_same_bits_twice(operator: str, backend: str) -> None:
    graph, inputs = make(8, 30, 19) if is_interpreted(backend) else make(50, 2000, 19)
    graph = graph.to(device(backend))
    results = []
    for _ in range(2):
        used = [x.to(device(backend)).requires_grad_() for x in inputs]
        out = OPERATORS[operator](graph, 1.0, backend, *used)
        out.sum().backward()
        results.append([out.detach(), *(x.grad for x in used if x.grad is not None)])
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


@every_operator
def test_same_bits_with_one_and_two_threads(operator: str) -> None:
    graph, inputs = make(200, 9000, 19)
    leaves = torch.arange(1, 200).repeat(9)  # a hub of several segments
    assert leaves.numel() > 3 * SEGMENT
    star = Graph.from_edge_index(torch.stack([leaves, torch.zeros_like(leaves)]), 200, duplicates="keep")
    threads = torch.get_num_threads()
    for which in (graph, star):
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            used = [x.clone().requires_grad_() for x in inputs]
            out = OPERATORS[operator](which, 1.0, "numba", *used)
            out.sum().backward()
            results.append([out.detach(), *(x.grad for x in used if x.grad is not None)])
        torch.set_num_threads(threads)
        assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


@fused_backend
def test_operators_pass_opcheck(backend: str) -> None:
    """PyTorch's own check of schema, fake tensors and autograd registration."""
    graph, (a, b, z, x) = make(8, 20, 3)
    where = device(backend)
    graph = graph.to(where)
    a, b, z, x = (t.to(where).requires_grad_() for t in (a, b, z, x))
    rows, reverse = list(graph.by_target), list(graph.by_source)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    lam, inverse = torch.ones(3, device=where), torch.ones(8, device=where)
    gate = torch.randn(1, 6, 3, device=where, requires_grad=True)
    keys, rate = torch.tensor([7], device=where), torch.tensor([0.5], device=where, dtype=torch.float64)
    edges = ([*rows, graph.norm, graph.row_norm], [*reverse, graph.reverse_norm, graph.reverse_row_norm])
    weighted = ([*rows, graph.norm], [*reverse, graph.reverse_norm])
    for operator, args in (
        (sums.spmm_op, (x, *weighted, backend)),
        (sums.spmm_op, (x, rows, reverse, backend)),
        (sums.propagate_and_mean_op, (x, *weighted, inverse, backend)),
        (dense.head_linear_op, (x, torch.randn(3, 1, 2, device=where, requires_grad=True))),
        (gates.gated_pair_op, (z, gate, lam, *edges, True, backend)),
        (gates.pair_aggregate_op, (a, b, z, lam, *edges, True, backend)),
        (gates.gated_neighbor_op, (z, a, b, gate, lam, backend)),
        (gates.gated_two_hops_op, (z, a, b, a, b, lam, backend)),
        (dense.dropout_op, (x, keys, rate, backend)),
        (sparse.shared_linear_op, (torch.randn(x.size(1), 2, device=where, requires_grad=True), x.detach(), None)),
    ):
        result = torch.library.opcheck(operator.registered, args, test_utils=tests)
        assert set(result.values()) == {"SUCCESS"}


@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_layer_is_the_same_on_every_backend(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    conv = GFGNConv(6, 5, level, heads=3)
    graph, inputs = make(20, 80, 6)
    results = {}
    for backend in ["reference", *FUSED]:
        monkeypatch.setenv("GFGN_BACKEND", backend)
        where = device(backend)
        conv.zero_grad()
        out = conv.to(where)(inputs[0].to(where), graph.to(where))
        out.square().sum().backward()
        results[backend] = [out.detach().cpu(), *(p.grad.cpu().clone() for p in conv.parameters())]
    for backend in FUSED:
        for got, expected in zip(results[backend], results["reference"], strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@fused_backend
def test_nothing_is_saved_without_gradients(backend: str) -> None:
    """Without `save` nothing is kept, and an unexpected gradient is computed all the same."""
    where = device(backend)
    graph, inputs = make(8, 20, 4)
    graph = graph.to(where)
    a, b, z, s = (x.to(where).requires_grad_() for x in inputs)
    gate, lam = gate_of(s, z).detach().requires_grad_(), torch.ones(4, device=where)
    rows, reverse = list(graph.by_target), list(graph.by_source)
    edges = ([*rows, graph.norm, graph.row_norm], [*reverse, graph.reverse_norm, graph.reverse_row_norm])
    weighted = ([*rows, graph.norm], [*reverse, graph.reverse_norm])
    cases = [
        (
            gates.pair_aggregate_op,
            (a, b, z, lam, *edges),
            (a, b, z),
            ops.pair_aggregate(a, b, z, graph, 1.0, "reference"),
        ),
        (
            gates.gated_neighborhood_op,
            (z, gate, lam, inverse_count(graph), *weighted),
            (z, gate),
            ops.gated_neighborhood(z, gate, graph, 1.0, "reference"),
        ),
        (
            gates.gated_graph_op,
            (z, gate[:, :2], lam, *weighted),
            (z, gate),
            ops.gated_graph(z, gate[:, :2], graph, 1.0, "reference"),
        ),
        (gates.gated_pair_op, (z, gate, lam, *edges), (z, gate), ops.gated_pair(z, gate, graph, 1.0, "reference")),
    ]
    if backend == "triton":
        cases.append(
            (gates.gated_propagate_op, (z, s, *weighted), (z, s), ops.gated_propagate(z, s, graph, "reference"))
        )
    for operator, args, leaves, expected in cases:
        out, *saved = operator(*args, False, backend)
        assert all(t.numel() == 0 or t.size(0) == 1 for t in saved)
        torch.testing.assert_close(out, expected)
        weight = torch.randn_like(out)
        got = torch.autograd.grad((out * weight).sum(), leaves)
        for x, y in zip(got, torch.autograd.grad((expected * weight).sum(), leaves), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


# --- arguments --------------------------------------------------------------------------------------


def test_learned_weights_and_lambda_use_the_reference() -> None:
    edges = random_edges(6, 20, generator(0))
    weight = torch.rand(20, requires_grad=True)
    graph = Graph.from_edge_index(edges, 6, weight)
    ops.propagate(torch.randn(6, 2), graph).sum().backward()
    assert weight.grad is not None
    lam = torch.tensor(1.0, requires_grad=True)
    graph = Graph.from_edge_index(edges, 6)
    ops.pair_aggregate(*torch.randn(3, 6, 2), graph, lam).square().sum().backward()
    assert lam.grad is not None


GRAPH, _ = make(8, 20, 3)
BAD_ARGUMENTS = {
    "rows": (lambda: ops.propagate(torch.ones(7, 3), GRAPH), r"propagate: x must have shape \[8, D\], got \[7, 3\]"),
    "dims": (lambda: ops.neighbor_mean(torch.ones(8), GRAPH), r"x must have shape \[8, D\], got \[8\]"),
    "widths": (
        lambda: ops.pair_aggregate(torch.ones(8, 2), torch.ones(8, 3), torch.ones(8, 3), GRAPH),
        r"a must have shape \[8, 3\], got \[8, 2\]",
    ),
    "gate": (
        lambda: ops.gated_propagate(torch.ones(8, 3), torch.ones(2, 3), GRAPH),
        r"s must have shape \[8, 3\] or \[1, 3\], got \[2, 3\]",
    ),
    "shape of the gate": (
        lambda: ops.gated_pair(torch.ones(8, 3), torch.ones(1, 3, 3), GRAPH),
        r"gate must have shape \[heads, 2d, d\] with heads·d = 3, got \[1, 3, 3\]",
    ),
    "shape of the graph's gate": (
        lambda: ops.gated_graph(torch.ones(8, 3), torch.ones(1, 6, 3), GRAPH),
        r"gated_graph: gate must have shape \[heads, d, d\] with heads·d = 3, got \[1, 6, 3\]",
    ),
    "heads": (lambda: ops.head_linear(torch.ones(8, 3), torch.ones(2, 3, 3)), "must have heads·d columns"),
    "lam": (lambda: ops.pair_aggregate(*torch.ones(3, 8, 3), GRAPH, torch.ones(2)), r"shape \[3\], got \[2\]"),
    "device": (lambda: ops.propagate(torch.ones(8, 3, device="meta"), GRAPH), "x is on meta, but the graph is on cpu"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_named(case: str) -> None:
    build, message = BAD_ARGUMENTS[case]
    with pytest.raises(ValueError, match=message):
        build()


@fused_backend
def test_nested_vmap(backend: str) -> None:
    """Inside one `vmap` an operator batches itself; inside several, PyTorch does."""
    graph, (_, _, z, _) = make(8, 20, 3)
    where = device(backend)
    graph, z = graph.to(where), torch.stack([z.to(where) * k for k in range(1, 7)]).view(2, 3, *z.shape)
    both = torch.vmap(torch.vmap(lambda x: ops.propagate(x, graph, backend)))(z)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(both[i, j], ops.propagate(z[i, j], graph, backend))


@fused_backend
def test_inputs_shared_by_all_replicas_under_vmap(backend: str) -> None:
    graph, (_, _, z, _) = make(8, 20, 3)
    where = device(backend)
    graph, z, scale = graph.to(where), z.to(where), torch.arange(1.0, 4.0, device=where)
    out = torch.vmap(lambda s: s * ops.propagate(z, graph, backend))(scale)
    torch.testing.assert_close(out, scale.view(-1, 1, 1) * ops.propagate(z, graph, backend))


@fused_backend
def test_replicas_save_what_their_gradients_need(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `vmap`, too, the backward pass of the pair level does not repeat the forward pass."""
    where, calls, fused = device(backend), [], dispatch.kernels(backend)
    forward = fused.pair_forward
    monkeypatch.setattr(fused, "pair_forward", lambda *args: calls.append(args[-1]) or forward(*args))
    graph, (_, _, z, w) = make(8, 20, 3)
    graph, z, gate = graph.to(where), torch.stack([z, w]).to(where).requires_grad_(), gate_of(w, z).to(where)
    torch.vmap(lambda x: ops.gated_pair(x, gate, graph, 1.0, backend))(z).sum().backward()
    assert calls == [True]
    with torch.no_grad():
        torch.vmap(lambda x: ops.gated_pair(x, gate, graph, 1.0, backend))(z)
    assert calls == [True, False]


def test_gradients_of_small_heads_are_contiguous() -> None:
    """Compiled programs rely on the strides that the operator's fake promises; kernels pad small matrices."""
    grad, x, weight = torch.randn(5, 16), torch.randn(5, 16), torch.randn(2, 8, 8)
    assert all(result.is_contiguous() for result in dense.head_linear_gradient_op(grad, x, weight))
