"""`attend` and `edge_dot` against plain indexing: values, gradients, replicas, chunks of heads, threads."""

import pytest
import torch
from nn.baselines.tiny import NODES, device_for, graph
from ops.backends import BACKENDS
from torch import Tensor, nn

from gfgn import Graph
from gfgn.ops import attend, edge_dot, reference

every_backend = pytest.mark.parametrize("backend", BACKENDS)
in_float64 = pytest.mark.parametrize("backend", ["numba", "reference"])


@pytest.fixture
def chosen(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", backend)


def values(rows: int, width: int, seed: int = 0, backend: str = "reference") -> Tensor:
    drawn = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn.to(device_for(backend), torch.float32 if backend == "triton" else torch.float64)


def plain_attend(alpha: Tensor, z: Tensor, g: Graph) -> Tensor:
    source, target = g.edge_index
    message = z[source].unflatten(1, (alpha.size(1), -1)) * alpha.unsqueeze(2)
    return torch.zeros_like(z).index_add(0, target, message.flatten(1))


def plain_dot(q: Tensor, k: Tensor, heads: int, g: Graph) -> Tensor:
    source, target = g.edge_index
    return (q[target] * k[source]).unflatten(1, (heads, -1)).sum(2)


@every_backend
@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (3, 4), (8, 5)])
def test_values_and_gradients(backend: str, directed: bool, heads: int, width: int) -> None:
    g = graph(directed=directed, device=device_for(backend))
    alpha = values(g.num_edges, heads, 0, backend)
    z, q = values(NODES, heads * width, 1, backend), values(NODES, heads * width, 2, backend)
    for inputs in (alpha, z, q):
        inputs.requires_grad_()
    pick, on_edges = values(NODES, heads * width, 3, backend), values(g.num_edges, heads, 4, backend)
    for ours, plain, weight, inputs in (
        (attend(alpha, z, g), plain_attend(alpha, z, g), pick, (alpha, z)),
        (edge_dot(q, z, heads, g), plain_dot(q, z, heads, g), on_edges, (q, z)),
    ):
        torch.testing.assert_close(ours, plain)
        gradients = torch.autograd.grad((ours * weight).sum(), inputs)
        expected = torch.autograd.grad((plain * weight).sum(), inputs)
        for a, b in zip(gradients, expected, strict=True):
            torch.testing.assert_close(a, b)


@in_float64
@pytest.mark.usefixtures("chosen")
def test_second_derivatives() -> None:
    g = graph(directed=True)
    alpha, z = values(g.num_edges, 2).requires_grad_(), values(NODES, 4, 1).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda a, x: attend(a, x, g), (alpha, z), fast_mode=True)
    q = values(NODES, 4, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda a, b: edge_dot(a, b, 2, g), (q, z), fast_mode=True)


@every_backend
@pytest.mark.usefixtures("chosen")
def test_replicas_are_more_heads(backend: str) -> None:
    g = graph(directed=True, device=device_for(backend))
    alpha = torch.stack([values(g.num_edges, 3, seed, backend) for seed in range(4)]).requires_grad_()
    z = torch.stack([values(NODES, 6, seed, backend) for seed in range(4)]).requires_grad_()
    shared = values(NODES, 6, 9, backend).requires_grad_()
    together = torch.vmap(lambda a, x: attend(a, x, g) + attend(a, shared, g))(alpha, z)
    dots = torch.vmap(lambda x: edge_dot(x, shared, 3, g))(z)
    alone = torch.stack([plain_attend(a, x, g) + plain_attend(a, shared, g) for a, x in zip(alpha, z, strict=True)])
    alone_dots = torch.stack([plain_dot(x, shared, 3, g) for x in z])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(dots, alone_dots)
    gradients = torch.autograd.grad(together.square().sum() + dots.square().sum(), (alpha, z, shared))
    expected = torch.autograd.grad(alone.square().sum() + alone_dots.square().sum(), (alpha, z, shared))
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_results_do_not_depend_on_chunks_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", "reference")
    g = graph()
    alpha, z, q = values(g.num_edges, 8), values(NODES, 16, 1), values(NODES, 16, 2)
    expected = attend(alpha, z, g), edge_dot(q, z, 8, g)
    monkeypatch.setattr(reference, "CHUNK_BYTES", 3 * g.num_edges * 2 * 8)  # three heads at a time
    assert len(reference.head_chunks(g.num_edges, 8, z)) == 3
    torch.testing.assert_close((attend(alpha, z, g), edge_dot(q, z, 8, g)), expected)


def test_bits_do_not_depend_on_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    g = Graph.from_edge_index(torch.randint(0, 900, (2, 20_000), generator=generator), 1000)
    alpha, z = torch.randn(g.num_edges, 8, generator=generator), torch.randn(1000, 64, generator=generator)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append((attend(alpha, z, g), edge_dot(z, z + 1, 8, g)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    torch.testing.assert_close(results[0][0], plain_attend(alpha, z, g), rtol=1e-4, atol=1e-4)


def test_half_precision_and_no_edges() -> None:
    g = graph(dtype=torch.float32)
    alpha, z = values(g.num_edges, 2).bfloat16(), values(NODES, 6, 1).bfloat16()
    out = attend(alpha, z, g)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), plain_attend(alpha.float(), z.float(), g), rtol=0.02, atol=0.02)
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES)
    assert not attend(torch.zeros(0, 2), torch.randn(NODES, 6), none).any()
    assert edge_dot(torch.randn(NODES, 6), torch.randn(NODES, 6), 2, none).shape == (0, 2)


def test_under_torch_compile() -> None:
    g = graph(dtype=torch.float32)
    lin = nn.Linear(4, 6)
    x = torch.randn(NODES, 4)

    def layer(x: Tensor) -> Tensor:
        z = lin(x)
        return attend(edge_dot(z, z, 2, g), z, g)

    expected = layer(x)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager", fullgraph=True)(x), expected)


def test_bad_arguments_are_named() -> None:
    g = graph()
    with pytest.raises(
        ValueError, match=r"z must have a multiple of alpha's columns, got \[12, 5\] for alpha of \[\d+, 2\]"
    ):
        attend(values(g.num_edges, 2), values(NODES, 5), g)
    with pytest.raises(ValueError, match=r"q and k must have shape \[N, 2·d\], got \[12, 4\] and \[12, 6\]"):
        edge_dot(values(NODES, 4), values(NODES, 6), 2, g)
