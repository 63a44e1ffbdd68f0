"""Replicas in one Triton kernel: one that is not finite leaves the bits of those beside it as they are."""

import importlib.util
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

from ops.cuda.test_kernels import DEVICE, Graph, long_graph, random_graph

from gfgn.ops.cuda import additive, attention, dense, gates, gather, products

REPLICAS, BAD = 3, 1
Tensors = tuple[Tensor, ...]
Case = tuple[Callable[..., Any], Tensors, Tensors]  # a function, its arguments of the replicas, and all others


def replica(x: Tensor, index: int) -> Tensor:
    """What belongs to one replica: a block of columns of a matrix, else a block of the first dimension."""
    return x.chunk(REPLICAS, dim=1 if x.dim() == 2 else 0)[index]


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def gathers(graph: Graph) -> Iterator[tuple[str, Case]]:
    """The kernels that sum over neighbors: one column of every result depends on the same column of the arguments."""
    targets, sources = graph.shape
    inverse, x, grad = torch.rand(targets, device=DEVICE), normal(sources, 12), normal(targets, 12)
    yield "spmm", (lambda x: gather.spmm(x, graph.rows, graph.norm), (x,), ())
    yield "spmm_pair", (lambda x: gather.spmm_pair(x, graph.rows, graph.norm, inverse), (x,), ())
    backward = lambda g, h: gather.spmm_pair_backward(g, h, graph.rows_t, graph.norm_t, inverse)  # noqa: E731
    yield "spmm_pair_backward", (backward, (grad, normal(targets, 12)), ())
    a, b, z, lam = normal(targets, 12), normal(targets, 12), normal(targets, 12), torch.rand(12, device=DEVICE)
    pair = lambda a, b, z: gates.pair_forward(a, b, z, lam, graph.norm, graph.row_norm, graph.rows, True)  # noqa: E731
    yield "pair_forward", (pair, (a, b, z), ())
    saved = pair(a, b, z)[1:]
    norms = (graph.norm_t, graph.row_norm_t, graph.rows_t)
    yield "pair_backward", (lambda *xs: gates.pair_backward(*xs, lam, *norms), (grad, a, b, z, *saved), ())
    for rows in (1, targets):
        s = torch.rand(rows, 12, device=DEVICE)
        forward = lambda z, s: gates.gated_propagate(z, s, graph.rows, graph.norm, True)  # noqa: E731
        yield f"gated_propagate, {rows} gates", (forward, (z, s), ())
        back = lambda g, s, d: gates.gated_propagate_backward(g, s, d, graph.rows_t, graph.norm_t)  # noqa: E731
        yield f"gated_propagate_backward, {rows} gates", (back, (grad, s, normal(targets, 12)), ())


def attentions(graph: Graph) -> Iterator[tuple[str, Case]]:
    targets, sources = graph.shape
    entries, entry = graph.target.numel(), torch.arange(graph.target.numel(), device=DEVICE)
    alpha, x, q = normal(entries, 2 * REPLICAS), normal(sources, 10 * REPLICAS), normal(targets, 10 * REPLICAS)
    yield "attend", (lambda alpha, x: attention.attend(alpha, x, graph.rows, entry), (alpha, x), ())
    yield "edge_dot", (lambda q, k: attention.edge_dot(q, k, graph.rows, entry, 5), (q, x), ())
    yield "softmax", (lambda x: attention.softmax(x, graph.rows), (alpha,), ())
    yield "softmax_backward", (lambda g, a: attention.softmax_backward(g, a, graph.rows), (alpha, alpha.clone()), ())
    keys, rate = torch.arange(REPLICAS, device=DEVICE), torch.full((REPLICAS,), 0.4, device=DEVICE)
    z, scores, vectors = normal(targets, 10 * REPLICAS), normal(targets, 4 * REPLICAS), normal(2 * REPLICAS, 5, 2)
    masks = (keys, rate)
    forward = lambda z, s: additive.additive_forward(z, s, *masks, graph.rows, 0.2, True)  # noqa: E731
    yield "additive_forward", (forward, (z, scores), ())
    saved = (z, scores, *forward(z, scores), vectors)
    back = lambda *xs: additive.additive_backward(*xs, *masks, graph.rows_t, graph.order, 0.2)  # noqa: E731
    yield "additive_backward", (back, (normal(targets, 10 * REPLICAS), *saved), ())
    for width in (3, 40):  # narrower and wider than half a block
        weight = normal(sources, width * REPLICAS)
        linear = lambda w, d=width: gather.sparse_linear(w, graph.rows, graph.norm, keys, rate, None, d)  # noqa: E731
        yield f"sparse_linear, {width} columns", (linear, (weight,), ())


def dense_kernels() -> Iterator[tuple[str, Case]]:
    keys, rate = torch.arange(REPLICAS, device=DEVICE), torch.full((REPLICAS,), 0.4, device=DEVICE)
    yield "dropout", (lambda x: dense.dropout(x, keys, rate, shared=False), (normal(9, 4 * REPLICAS),), ())
    parameters = tuple(normal(2, 7 * REPLICAS).abs() for _ in range(4))
    factors = tuple(torch.rand(REPLICAS, device=DEVICE) for _ in range(3))
    yield "adam", (adam, (*parameters, *factors), ())
    chosen = torch.tensor([True, True, False], device=DEVICE)
    yield "copy_where", (lambda s, t: copied(s, t, chosen), (normal(2, 7 * REPLICAS), normal(2, 7 * REPLICAS)), ())
    for heads, width in ((1, 3), (2, 5), (1, 16), (1, 24)):
        shape, count = (9, REPLICAS * heads * width), REPLICAS * heads
        gate, lam = normal(count, 2 * width, width), torch.rand(count * width, device=DEVICE)
        tensors, y0 = tuple(normal(*shape) for _ in range(3)), normal(*shape)
        name = f"{heads} heads of {width}"
        yield f"gated_neighbor, {name}", (gates.gated_neighbor, (*tensors, gate), (lam,))
        yield (
            f"gated_neighbor_backward, {name}",
            (gates.gated_neighbor_backward, (normal(*shape), *tensors, gate), (lam,)),
        )
        five = tuple(normal(*shape) for _ in range(5))
        yield f"two_hops, {name}", (lambda *x: dense.two_hops(x[:-1], x[-1]), five, (lam,))
        yield f"two_hops_backward, {name}", (lambda *x: dense.two_hops_backward(x[:-1], x[-1]), (y0, *five), (lam,))
        x, y = normal(*shape), normal(*shape)
        yield (
            f"head_weight_gradient, {name}",
            (lambda x, y, k=count: products.head_weight_gradient(x, y, k), (x, y), ()),
        )
        yield f"halves, {name}", (products.halves, (x, gate), ())
        yield f"halves_backward, {name}", (products.halves_backward, (*tensors, x, gate), ())
        square = normal(count, width, width)
        yield f"graph_gate, {name}", (gates.graph_gate, (x, square), (lam,))
        saved = gates.graph_gate(x, square, lam)[1:]
        backward = lambda g, w, *saved, lam=lam: gates.graph_gate_backward(g, w, lam, *saved)  # noqa: E731
        yield f"graph_gate_backward, {name}", (backward, (y, square, *saved), ())
        yield f"head_matmul, {name}", (multiplied, (x, normal(count, width, width)), ())
        yield f"row_sums, {name}", (lambda x: products.row_sums(x).unsqueeze(0), (x,), ())


def multiplied(x: Tensor, weight: Tensor) -> Tensor:
    out = x.new_empty(x.size(0), weight.size(0) * weight.size(2))
    products.head_matmul(x, weight, out, add=False)
    return out


def adam(*given: Tensor) -> Tensors:
    p, grad, m, v = (x.view(2, REPLICAS, -1).clone() for x in given[:4])
    dense.adam(p, grad, m, v, *given[4:], torch.ones(1, device=DEVICE), 0.9, 0.999, 1e-8)
    return p.flatten(1), m.flatten(1), v.flatten(1)


def copied(source: Tensor, target: Tensor, chosen: Tensor) -> Tensor:
    out = target.view(2, REPLICAS, -1).clone()
    dense.copy_where(source.view(2, REPLICAS, -1), out, chosen)
    return out.flatten(1)


def outputs(case: Case, arguments: Tensors) -> Tensors:
    result = case[0](*(x.clone() for x in arguments), *case[2])
    return result if isinstance(result, tuple) else (result,)


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    "sums": lambda: gathers(random_graph()),
    "sums of long rows": lambda: itertools.islice(gathers(long_graph()), 2),
    "attention": lambda: attentions(random_graph()),
    "dense": dense_kernels,
}


@pytest.mark.parametrize("group", GROUPS)
def test_replicas_beside_one_that_is_not_finite(group: str) -> None:
    """Each argument in turn has such values in the replica in the middle."""
    torch.manual_seed(0)
    changed, reached = [], 0
    for name, case in GROUPS[group]():
        expected = outputs(case, case[1])
        for number, argument in enumerate(case[1]):
            bad = argument.clone()
            own = replica(bad, BAD)
            own.fill_(math.nan)
            own[: len(own) // 2] = math.inf
            got = outputs(case, (*case[1][:number], bad, *case[1][number + 1 :]))
            reached += any(not replica(each, BAD).isfinite().all() for each in got)
            for index in (0, 2):
                same = (torch.equal(replica(a, index), replica(b, index)) for a, b in zip(expected, got, strict=True))
                changed += [] if all(same) else [f"{name}, argument {number}, replica {index}"]
    assert changed == []
    assert reached
