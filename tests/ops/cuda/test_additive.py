"""The kernels of additive attention against the reference in float64: values, gradients, dropout, replicas."""

import importlib.util
import os

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from ops.cuda.test_kernels import DEVICE, GRAPHS, Graph, assert_close, kept, long_graph, normal, random_graph
from ops.cuda.test_kernels import poisoned as poisoned  # an automatic fixture

from gfgn.ops import reference
from gfgn.ops.cuda import additive, kernels

SLOPE = 0.2
NONE = torch.zeros(0, device=DEVICE)


def exact(graph: Graph, z: Tensor, weight: Tensor, grad: Tensor, factor: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """The result and the gradients for `z` and `weight`, in float64."""
    leaves = [x.double().requires_grad_() for x in (z, weight)]
    out = reference.additive_attention(*leaves, factor, graph.rows, SLOPE)
    return out.detach(), list(torch.autograd.grad(out, leaves, grad.double()))


def run(
    graph: Graph, z: Tensor, weight: Tensor, grad: Tensor, keys: Tensor = NONE, rate: Tensor = NONE
) -> tuple[Tensor, list[Tensor]]:
    """The same by the kernels."""
    heads, width, _ = weight.shape
    scores = reference.head_linear(z.double(), weight.double()).to(z.dtype)
    out, *saved = kernels.additive_forward(z, scores, keys, rate, graph.rows, SLOPE, save=True)
    plain, *nothing = kernels.additive_forward(z, scores, keys, rate, graph.rows, SLOPE, save=False)
    assert torch.equal(plain, out)
    assert [x.numel() for x in nothing] == [0, 0, 0]
    grad_z, grad_scores = kernels.additive_backward(
        grad, z, scores, out, *saved, weight, keys, rate, graph.rows_t, graph.order, SLOPE
    )
    by_head = z.double().view(-1, heads, width), grad_scores.double().view(-1, heads, 2)
    return out, [grad_z, torch.einsum("nhd,nhk->hdk", *by_head).to(z.dtype)]


def inputs(graph: Graph, heads: int, width: int, size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    nodes = graph.shape[0]
    return normal(nodes, heads * width), normal(heads, width, 2) * size / width**0.5, normal(nodes, heads * width)


def assert_equals_reference(graph: Graph, heads: int, width: int, size: float = 1.0) -> None:
    given = inputs(graph, heads, width, size)
    out, grads = run(graph, *given)
    truth, expected = exact(graph, *given, None)
    assert_close(out, truth)
    for got, want in zip(grads, expected, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize(
    ("name", "heads", "width"),
    [
        *[("random", 1, 1), ("random", 1, 7), ("random", 3, 5), ("random", 8, 8), ("random", 40, 1)],
        *[("random", 4, 32), ("random", 2, 130), ("random", 1, 300)],
        *[(name, 3, 3) for name in GRAPHS if name != "random"],
    ],
)
def test_values_and_gradients(name: str, heads: int, width: int) -> None:
    assert_equals_reference(GRAPHS[name](), heads, width)


@pytest.mark.parametrize("shape", [(1, 2, 4, 8), (2, 2, 2, 8), (4, 1, 1, 8)])
def test_other_tile_shapes(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additive, "plan", lambda *_: additive.Tile(*shape))
    assert_equals_reference(random_graph(), 3, 6)


def test_scores_far_apart() -> None:
    """Without the largest score subtracted, the exponential would overflow; a segment must be scaled to another's."""
    for graph in (random_graph(), long_graph()):
        assert_equals_reference(graph, 2, 4, size=40.0)


def test_low_precision() -> None:
    graph = random_graph()
    given = tuple(x.bfloat16() for x in inputs(graph, 2, 8))
    out, grads = run(graph, *given)
    truth, expected = exact(graph, *given, None)
    assert {x.dtype for x in (out, *grads)} == {torch.bfloat16}
    assert_close(out, truth)
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("name", ["random", "long rows"])
def test_dropout_has_the_mask_of_values_on_edges(name: str) -> None:
    """Value `e heads + h` of a replica is kept by a hash of that number and the replica's key."""
    graph, heads, width = GRAPHS[name](), 2, 3
    keys, rates = [0, 2**32 - 1, 123456789], [0.0, 0.5, 0.8]
    entries = graph.target.numel()
    factor = [
        torch.tensor([kept(number, key, rate) / (1 - rate) for number in range(entries * heads)], dtype=torch.float64)
        for key, rate in zip(keys, rates, strict=True)
    ]
    together = torch.cat([one.view(entries, heads) for one in factor], 1).to(DEVICE)
    given = inputs(graph, 3 * heads, width)
    masks = torch.tensor(keys, device=DEVICE), torch.tensor(rates, device=DEVICE, dtype=torch.float64)
    out, grads = run(graph, *given, *masks)
    truth, expected = exact(graph, *given, together)
    assert_close(out, truth)
    for got, want in zip(grads, expected, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize(("heads", "width"), [(1, 5), (3, 4), (2, 16)])
def test_bits_of_a_replica_do_not_depend_on_the_others(heads: int, width: int) -> None:
    graph, count = random_graph(nodes=9, entries=25), 3
    z, weight, grad = inputs(graph, count * heads, width)
    keys = torch.arange(count, device=DEVICE) * 987654321
    rate = torch.linspace(0, 0.8, count, device=DEVICE, dtype=torch.float64)
    out, (grad_z, grad_weight) = run(graph, z, weight, grad, keys, rate)
    for r in range(count):
        columns, of_heads = slice(r * heads * width, (r + 1) * heads * width), slice(r * heads, (r + 1) * heads)
        own = (x[:, columns].contiguous() for x in (z, grad))
        alone = run(graph, next(own), weight[of_heads], next(own), keys[r : r + 1], rate[r : r + 1])
        assert torch.equal(alone[0], out[:, columns])
        assert torch.equal(alone[1][0], grad_z[:, columns])
        assert torch.equal(alone[1][1], grad_weight[of_heads])


def test_nan_reaches_neighbors_only() -> None:
    graph = random_graph()
    z, weight, _ = inputs(graph, 2, 3)
    z[5, 1], z[0, 4] = torch.nan, torch.nan  # row 0 has no entries of its own
    scores = reference.head_linear(z, weight)
    out = kernels.additive_forward(z, scores, NONE, NONE, graph.rows, SLOPE, save=False)[0]
    truth = reference.additive_attention(z.double(), weight.double(), None, graph.rows, SLOPE)
    torch.testing.assert_close(out.double(), truth, equal_nan=True, rtol=2e-5, atol=1e-4)
    assert out.isnan().any()
    assert out[0].isfinite().all()


def test_gradient_of_a_row_without_entries_is_zero() -> None:
    """Its own gradient, which is not used, may be anything."""
    graph = random_graph()
    z, weight, grad = inputs(graph, 2, 3)
    grad[0] = torch.inf
    scores = reference.head_linear(z, weight)
    out, *saved = kernels.additive_forward(z, scores, NONE, NONE, graph.rows, SLOPE, save=True)
    grad_scores = kernels.additive_backward(
        grad, z, scores, out, *saved, weight, NONE, NONE, graph.rows_t, graph.order, SLOPE
    )[1]
    assert grad_scores.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_hold_whole_heads(dtype: torch.dtype) -> None:
    rows = random_graph().rows
    for heads in (1, 3, 8, 100):
        for width in (1, 7, 32, 256, 1000):
            tile = additive.plan(heads, width, dtype, rows)
            assert tile.width >= width > tile.width // 2
            assert 32 <= tile.heads * tile.width <= max(256, tile.width)
