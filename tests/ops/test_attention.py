"""`attend` and `edge_dot` against plain indexing, and which values dropout of attention keeps."""

import pytest
import torch
from nn.baselines.tiny import NODES, device_for, graph
from ops.backends import BACKENDS
from torch import Tensor

from gfgn import Graph, ops
from gfgn.ops import attend, edge_dot, reference
from gfgn.ops.keys import keep, next_key

every_backend = pytest.mark.parametrize("backend", BACKENDS)


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


def test_results_do_not_depend_on_chunks_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFGN_BACKEND", "reference")
    g = graph()
    alpha, z, q = values(g.num_edges, 8), values(NODES, 16, 1), values(NODES, 16, 2)
    expected = attend(alpha, z, g), edge_dot(q, z, 8, g)
    monkeypatch.setattr(reference, "CHUNK_BYTES", 3 * g.num_edges * 2 * 8)  # three heads at a time
    assert len(reference.head_chunks(g.num_edges, 8, z)) == 3
    torch.testing.assert_close((attend(alpha, z, g), edge_dot(q, z, 8, g)), expected)


def test_half_precision_and_no_edges() -> None:
    g = graph(dtype=torch.float32)
    alpha, z = values(g.num_edges, 2).bfloat16(), values(NODES, 6, 1).bfloat16()
    out = attend(alpha, z, g)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), plain_attend(alpha.float(), z.float(), g), rtol=0.02, atol=0.02)
    none = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), NODES)
    assert not attend(torch.zeros(0, 2), torch.randn(NODES, 6), none).any()
    assert edge_dot(torch.randn(NODES, 6), torch.randn(NODES, 6), 2, none).shape == (0, 2)


@every_backend
@pytest.mark.usefixtures("chosen")
def test_dropout_keeps_what_dropout_of_the_attention_keeps(backend: str) -> None:
    g = graph(device=device_for(backend))
    z = values(NODES, 12, 0, backend)
    source, target = values(3, 4, 1, backend), values(3, 4, 2, backend)
    key, rate = torch.tensor(99, device=g.device), torch.tensor(0.6, dtype=torch.float64, device=g.device)
    with ops.keyed(key):
        out = ops.additive_attention(z, source, target, g, 0.2, 0.6, training=True)
    with ops.keyed(key):
        number = torch.arange(3 * g.num_edges, device=g.device).view(-1, 3)
        kept = keep(number, next_key(g.device), rate) / (1 - rate)
    weight = torch.stack([source, target], dim=2).double()
    expected = reference.additive_attention(z.double(), weight, kept, g.by_target, 0.2)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    with ops.keyed(key):
        evaluated = ops.additive_attention(z, source, target, g, 0.2, 0.6)
    assert torch.equal(evaluated, ops.additive_attention(z, source, target, g))
