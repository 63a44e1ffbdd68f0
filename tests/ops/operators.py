"""The table of all operators, and their results on a backend.

An operator is one entry of `OPERATORS`: the shapes of its inputs, and a call. All properties are tested for all.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from loops import random_edges
from ops.backends import device
from torch import Tensor

from gfgn import Graph, ops

Shapes = list[tuple[int, ...]]
Lam = float | Tensor


def of_nodes(count: int) -> Callable[..., Shapes]:
    return lambda n, e, h, w: [(n, h * w)] * count


def gated(parts: int, count: int = 1) -> Callable[..., Shapes]:
    """`count` matrices of the nodes and a gate that reads `parts` of them."""
    return lambda n, e, h, w: [*[(n, h * w)] * count, (h, parts * w, w)]


def additive(g: Graph, *given: Tensor, rate: float = 0.0) -> Tensor:
    with ops.keyed(torch.tensor(7, device=g.device)):
        return ops.additive_attention(*given, g, 0.2, rate, training=rate > 0)


def sparse_product(g: Graph, x: Tensor, rate: float = 0.0) -> Tensor:
    rows, values, size = g.by_target, g.norm.to(x.dtype), (g.num_nodes, g.num_nodes)
    matrix = torch.sparse_csr_tensor(rows.ptr, rows.idx.long(), values, size, check_invariants=False)
    return ops.sparse_linear(matrix, x, rate, torch.tensor(1234567, device=g.device))


OPERATORS: dict[str, tuple[Callable[..., Shapes], Callable[..., Tensor]]] = {
    "propagate": (of_nodes(1), lambda g, lam, x: ops.propagate(x, g)),
    "neighbor_sum": (of_nodes(1), lambda g, lam, x: ops.neighbor_sum(x, g)),
    "neighbor_mean": (of_nodes(1), lambda g, lam, x: ops.neighbor_mean(x, g)),
    "neighbor_max": (of_nodes(1), lambda g, lam, x: ops.neighbor_max(x, g)),
    "propagate_and_mean": (of_nodes(1), lambda g, lam, x: torch.cat(ops.propagate_and_mean(x, g))),
    "gated_propagate": (of_nodes(2), lambda g, lam, z, s: ops.gated_propagate(z, lam * s, g)),
    "gated_propagate, one gate": (
        lambda n, e, h, w: [(n, h * w), (1, h * w)],
        lambda g, lam, z, s: ops.gated_propagate(z, lam * s, g),
    ),
    "gated_neighborhood": (gated(2), lambda g, lam, z, gate: ops.gated_neighborhood(z, gate, g, lam)),
    "gated_neighbor": (gated(2, 3), lambda g, lam, *inputs: ops.gated_neighbor(*inputs, lam)),
    "gated_two_hops": (of_nodes(5), lambda g, lam, *inputs: ops.gated_two_hops(*inputs, lam)),
    "gated_graph": (gated(1), lambda g, lam, z, gate: ops.gated_graph(z, gate, g, lam)),
    "gated_pair": (gated(2), lambda g, lam, z, gate: ops.gated_pair(z, gate, g, lam)),
    "pair_aggregate": (of_nodes(3), lambda g, lam, a, b, z: ops.pair_aggregate(a, b, z, g, lam)),
    "from_source": (of_nodes(1), lambda g, lam, x: ops.from_source(x, g)),
    "from_target": (of_nodes(1), lambda g, lam, x: ops.from_target(x, g)),
    "sum_by_target": (lambda n, e, h, w: [(e, h * w)], lambda g, lam, values: ops.sum_by_target(values, g)),
    "edge_softmax": (lambda n, e, h, w: [(e, h)], lambda g, lam, scores: ops.edge_softmax(scores, g)),
    "attend": (lambda n, e, h, w: [(e, h), (n, h * w)], lambda g, lam, alpha, z: ops.attend(alpha, z, g)),
    "edge_dot": (of_nodes(2), lambda g, lam, q, k: ops.edge_dot(q, k, 2 - q.size(1) % 2, g)),
    "additive_attention": (lambda n, e, h, w: [(n, h * w), (h, w), (h, w)], lambda g, lam, *xs: additive(g, *xs)),
    "additive_attention, dropout": (
        lambda n, e, h, w: [(n, h * w), (h, w), (h, w)],
        lambda g, lam, *xs: additive(g, *xs, rate=0.5),
    ),
    "head_linear": (lambda n, e, h, w: [(n, h * w), (h, w, w + 1)], lambda g, lam, *xs: ops.head_linear(*xs)),
    "sparse_linear": (of_nodes(1), lambda g, lam, x: sparse_product(g, x)),
    "sparse_linear, dropout": (of_nodes(1), lambda g, lam, x: sparse_product(g, x, 0.4)),
    "dropout": (of_nodes(1), lambda g, lam, x: ops.dropout(x, 0.4, True, torch.tensor(99, device=x.device))),
}
every_operator = pytest.mark.parametrize("operator", OPERATORS)


@contextmanager
def using(backend: str | None) -> Iterator[None]:
    """Sets the backend of the process, not of a thread; `None` leaves the choice to the library."""
    with pytest.MonkeyPatch.context() as patch:
        if backend is not None:
            patch.setenv("GFGN_BACKEND", backend)
        yield


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_graph(n: int, e: int, seed: int = 0, weighted: bool = True) -> Graph:
    """Random edges; the last node is isolated."""
    edges = random_edges(max(n - 1, 1), e, generator(seed))
    return Graph.from_edge_index(edges, n, torch.rand(e, generator=generator(seed)) if weighted else None)


def ragged(*lengths: int, nodes: int = 40) -> Graph:
    """A node for every length, with so many incoming edges; repeated edges stay."""
    target = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    source = (torch.arange(target.numel()) * 7 + 11) % nodes
    return Graph.from_edge_index(torch.stack([source, target]), nodes, duplicates="keep")


def draw(
    operator: str, graph: Graph, heads: int = 1, width: int = 5, *, copies: int = 0, seed: int = 0
) -> list[Tensor]:
    """Inputs; those that do not belong to nodes or edges are smaller the longer the sums over them."""
    inputs = []
    for k, shape in enumerate(OPERATORS[operator][0](graph.num_nodes, graph.num_edges, heads, width)):
        x = torch.randn(*([copies] if copies else []), *shape, generator=generator(seed + k))
        inputs.append(x / (2 * width) ** 0.5 if len(shape) == 3 else x)
    return inputs


def results(
    operator: str, backend: str | None, graph: Graph, inputs: list[Tensor], lam: Lam, dtype: torch.dtype
) -> list[Tensor]:
    """The value and the gradients of all inputs, on the CPU; a gradient that there is none of is 0."""
    where = device(backend or "numba")
    graph, leaves = graph.to(where), [x.to(where, dtype).requires_grad_() for x in inputs]
    lam = lam.to(where, dtype) if isinstance(lam, Tensor) else lam
    with using(backend):
        out = OPERATORS[operator][1](graph, lam, *leaves)
        weight = torch.randn(out.shape, generator=generator(9)).to(where, dtype)
        found = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    grads = [torch.zeros_like(x) if grad is None else grad for x, grad in zip(leaves, found, strict=True)]
    return [x.detach().cpu() for x in (out, *grads)]
