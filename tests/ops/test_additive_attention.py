"""`additive_attention` of every backend against its reference: values, gradients, replicas, dropout, compilation."""

import pytest
import torch
from nn.baselines.tiny import NODES, device_for, graph
from ops.backends import every_backend
from torch import Tensor

from gfgn import Graph, ops
from gfgn.ops import additive_attention, reference
from gfgn.ops.attention import additive_attention_op
from gfgn.ops.keys import keep, next_key

pytestmark = every_backend
HEADS, WIDTH, SLOPE = 3, 4, 0.2


@pytest.fixture(autouse=True)
def chosen(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", backend)


def inputs(backend: str, *, replicas: int = 0, seed: int = 0) -> list[Tensor]:
    """`z`, `source` and `target`; float32 for Triton, else float64."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(NODES, HEADS * WIDTH), (HEADS, WIDTH), (HEADS, WIDTH)]
    dtype = torch.float32 if backend == "triton" else torch.float64
    drawn = (torch.randn(*([replicas] if replicas else []), *shape, generator=generator) for shape in shapes)
    return [x.to(device_for(backend), dtype).requires_grad_() for x in drawn]


def expected(given: list[Tensor], g: Graph, kept: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
    """The reference in float64, and the leaves that it is computed from."""
    leaves = [x.detach().double().requires_grad_() for x in given]
    z, source, target = leaves
    weight = torch.stack([source, target], dim=2)
    return reference.additive_attention(z, weight, kept, g.by_target, SLOPE), leaves


def assert_near(ours: Tensor, truth: Tensor) -> None:
    low = ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), truth, rtol=1e-4 if low else 1e-7, atol=1e-5 if low else 1e-7)


def assert_gradients(out: Tensor, given: list[Tensor], truth: Tensor, leaves: list[Tensor]) -> None:
    assert_near(out, truth)
    ours, want = (torch.autograd.grad((y * y).sum(), xs) for y, xs in ((out, given), (truth, leaves)))
    for a, b in zip(ours, want, strict=True):
        assert_near(a, b)


@pytest.mark.parametrize("directed", [False, True])
def test_values_and_gradients(backend: str, directed: bool) -> None:
    """In the directed graph, node 0 has many targets and few sources; the last node is isolated in both."""
    g, given = graph(directed=directed, device=device_for(backend)), inputs(backend)
    assert_gradients(additive_attention(*given, g), given, *expected(given, g))
    with torch.no_grad():
        assert_near(additive_attention(*given, g), expected(given, g)[0])


@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_dropout_keeps_what_dropout_of_the_attention_keeps(backend: str, rate: float) -> None:
    g, given = graph(device=device_for(backend)), inputs(backend)
    key = torch.tensor(99, device=g.device)
    with ops.keyed(key):
        out = additive_attention(*given, g, SLOPE, rate, training=True)
    with ops.keyed(key):
        number = torch.arange(g.num_edges * HEADS, device=g.device).view(-1, HEADS)
        exact = torch.tensor(rate, dtype=torch.float64, device=g.device)
        kept = keep(number, next_key(g.device), exact) / (1 - exact)
    assert_gradients(out, given, *expected(given, g, kept))
    with ops.keyed(key):
        assert torch.equal(additive_attention(*given, g, SLOPE, rate), additive_attention(*given, g, SLOPE))


def test_a_replica_has_the_same_bits_alone_and_among_others(backend: str) -> None:
    """Also its gradients, with rates and keys of its own."""
    g, given = graph(device=device_for(backend)), inputs(backend, replicas=3)
    keys, rates = torch.tensor([5, 6, 7], device=g.device), torch.tensor([0.0, 0.5, 0.8], device=g.device).double()

    def attend(z: Tensor, source: Tensor, target: Tensor, key: Tensor, rate: Tensor) -> Tensor:
        with ops.keyed(key):
            return additive_attention(z, source, target, g, SLOPE, rate, training=True)

    def results(part: slice) -> list[Tensor]:
        own = [x[part].detach().requires_grad_() for x in given]
        out = torch.vmap(attend)(*own, keys[part], rates[part])
        return [out, *torch.autograd.grad((out * out).sum(), own)]

    together = results(slice(0, 3))
    for r in range(3):
        for alone, among in zip(results(slice(r, r + 1)), together, strict=True):
            if backend == "reference":
                torch.testing.assert_close(alone[0], among[r])
            else:
                assert torch.equal(alone[0], among[r])


def test_replicas_with_the_same_features(backend: str) -> None:
    g, given = graph(device=device_for(backend)), inputs(backend)
    _, source, target = inputs(backend, replicas=2, seed=1)
    out = torch.vmap(lambda s, t: additive_attention(given[0], s, t, g))(source, target)
    for r in range(2):
        assert_near(out[r], expected([given[0], source[r], target[r]], g)[0])


def test_second_derivatives(backend: str) -> None:
    g, given = graph(device=device_for(backend)), inputs(backend)
    truth, leaves = expected(given, g)
    found = []
    for out, xs in ((additive_attention(*given, g), given), (truth, leaves)):
        first = torch.autograd.grad((out**2).sum(), xs, create_graph=True)
        found.append(torch.autograd.grad(sum((x**2).sum() for x in first), xs))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


def test_under_torch_compile(backend: str) -> None:
    g, given = graph(device=device_for(backend)), inputs(backend)
    additive_attention(*given, g)  # what depends on the graph alone is computed here, not traced
    compiled = torch.compile(lambda *xs: additive_attention(*xs, g), backend="aot_eager", fullgraph=True)
    assert_gradients(compiled(*given), given, *expected(given, g))


def test_a_gradient_that_was_not_expected(backend: str) -> None:
    """The operator recomputes what its forward pass did not save."""
    if backend != "triton":
        pytest.skip("composed of other operators")
    g, given = graph(device=device_for(backend)), inputs(backend)
    none = torch.zeros(0, device=g.device)
    edges = list(g.by_target), [*g.by_source, g.transpose]
    weight = torch.stack(given[1:], dim=2)
    out = additive_attention_op(given[0], weight, none, none, *edges, SLOPE, False, backend)[0]
    assert_gradients(out, given, *expected(given, g))


def test_bad_arguments_are_named(backend: str) -> None:
    g, (z, source, target) = graph(device=device_for(backend)), inputs(backend)
    with pytest.raises(ValueError, match=r"shape \[heads, d\] with heads·d = 12, got \[3, 3\] and \[3, 4\]"):
        additive_attention(z, source[:, :3], target, g)
    with pytest.raises(ValueError, match="rate must be at least 0 and below 1, got 1"):
        additive_attention(z, source, target, g, rate=1, training=True)
