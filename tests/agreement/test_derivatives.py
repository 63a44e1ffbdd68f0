"""First and second derivatives of layers and operators, by autograd and by `torch.func`, on graphs in which some nodes
have no edges."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, grad, gradcheck, gradgradcheck
from torch.autograd.functional import hessian, jacobian
from torch.testing import assert_close

from gfgn import GFGN, GFGNConv, Graph, ops
from gfgn.nn.plus import GFGNPlusConv

NODES, EDGES, WIDTH = 8, 9, 2
LEVELS = ("graph", "neighbor", "pair")

MODULES: dict[str, Callable[[], nn.Module]] = {
    **{f"GFGNConv, {level}": lambda level=level: GFGNConv(WIDTH, 2, level, heads=2, lam=1.3) for level in LEVELS},
    **{
        f"GFGNConv, {level}, scalar gate with a bias": lambda level=level: GFGNConv(
            WIDTH, 2, level, gate_form="scalar", gate_bias=-1.0
        )
        for level in LEVELS
    },
    **{
        f"GFGN, {level}": lambda level=level: GFGN(WIDTH, 4, 2, 2, level=level, heads=2, dropout=0.0, act="tanh")
        for level in LEVELS
    },
    "GFGNConv, neighbor, the largest neighbor": lambda: GFGNConv(WIDTH, 2, "neighbor", pool="max"),
    "GFGNPlusConv, graph": lambda: GFGNPlusConv(WIDTH, 2, "graph", hops=2),
    "GFGNPlusConv, neighbor, by row": lambda: GFGNPlusConv(WIDTH, 2, "neighbor", hops=2, normalization="row"),
    "GFGNPlusConv, pair": lambda: GFGNPlusConv(WIDTH, 2, "pair"),
    "GFGNPlusConv, neighbor, with self-loops": lambda: GFGNPlusConv(WIDTH, 2, "neighbor", self_loops=True),
    "GFGNPlusConv, pair, with self-loops, by row": lambda: GFGNPlusConv(
        WIDTH, 2, "pair", self_loops=True, normalization="row"
    ),
}
every_module = pytest.mark.parametrize("name", MODULES)

OPERATORS: dict[str, Callable[[Graph, Tensor], Tensor]] = {
    "propagate": lambda graph, x: ops.propagate(x, graph),
    "neighbor_mean": lambda graph, x: ops.neighbor_mean(x, graph),
    "neighbor_max": lambda graph, x: ops.neighbor_max(x, graph),
    "pair_aggregate": lambda graph, x: ops.pair_aggregate(x, x.flip(1), x.sin(), graph, 1.3),
}


@pytest.fixture(params=["fastest", "reference"], autouse=True)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variable, as it was given or for the reference."""
    if request.param == "reference":
        monkeypatch.setenv("GFGN_BACKEND", "reference")


def data(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and weights of a directed graph: two nodes are isolated, others have no incoming edge."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, NODES - 2, (2, EDGES), generator=generator)
    edges = edges[:, edges[1] != 0]
    x = torch.randn(NODES, WIDTH, generator=generator, dtype=torch.float64)
    weight = torch.rand(edges.size(1), generator=generator, dtype=torch.float64) + 0.3
    assert (torch.bincount(edges[1], minlength=NODES) == 0).sum() > 2
    return x.requires_grad_(), edges, weight.requires_grad_()


def make(name: str) -> tuple[Callable[..., Tensor], dict[str, Tensor]]:
    """A module as a function of its parameters by name and its inputs, and these parameters, none of which is 0."""
    torch.manual_seed(0)
    module = MODULES[name]().double()
    parameters = {key: (value + 0.3 * torch.randn_like(value)).detach() for key, value in module.named_parameters()}

    def call(parameters: dict[str, Tensor], *inputs: Any) -> Tensor:
        out: Tensor = torch.func.functional_call(module, parameters, inputs)
        return out

    return call, {key: value.requires_grad_() for key, value in parameters.items()}


@every_module
@pytest.mark.parametrize("seed", range(2))
def test_first_and_second_derivatives_of_modules(name: str, seed: int) -> None:
    (x, edges, weight), (module, parameters) = data(seed), make(name)

    def run(x: Tensor, weight: Tensor, *values: Tensor) -> Tensor:
        return module(dict(zip(parameters, values, strict=True)), x, edges, weight)

    inputs = (x, weight, *parameters.values())
    assert gradcheck(run, inputs, fast_mode=True)
    assert gradgradcheck(run, inputs, fast_mode=True)
    unweighted = Graph.from_edge_index(edges, NODES, dtype=torch.float64)
    assert gradgradcheck(lambda x: module(parameters, x, unweighted), x, fast_mode=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_the_values_of_a_sparse_matrix_are_weights_with_gradients(level: str, layout: torch.layout) -> None:
    (x, edges, weight), conv = data(), GFGNConv(WIDTH, 2, level).double()

    def on_matrix(weight: Tensor, size: tuple[int, int], x: Any) -> Tensor:
        matrix = torch.sparse_coo_tensor(edges.flip(0), weight, size)  # with repeated entries
        out: Tensor = conv(x, matrix if layout == torch.sparse_coo else matrix.to_sparse_csr())
        return out

    (expected,) = grad(conv(x, edges, weight).sin().sum(), weight)
    assert_close(grad(on_matrix(weight, (NODES, NODES), x).sin().sum(), weight)[0], expected)
    (expected,) = grad(conv((x, x[1:]), edges, weight).sin().sum(), weight)
    assert_close(grad(on_matrix(weight, (NODES - 1, NODES), (x, x[1:])).sin().sum(), weight)[0], expected)


@every_module
def test_second_derivatives_with_frozen_parameters_or_features(name: str) -> None:
    (x, edges, _), (module, parameters) = data(), make(name)
    graph, frozen = (
        Graph.from_edge_index(edges, NODES, dtype=torch.float64),
        {k: v.detach() for k, v in parameters.items()},
    )
    assert gradgradcheck(lambda x: module(frozen, x, graph), x, fast_mode=True)
    for key, value in parameters.items():
        assert gradgradcheck(
            lambda value, key=key: module(frozen | {key: value}, x.detach(), graph), value, fast_mode=True
        )


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("bipartite", [False, True])
def test_first_and_second_derivatives_of_operators(name: str, bipartite: bool) -> None:
    x, edges, weight = data()

    def run(x: Tensor, weight: Tensor) -> Tensor:
        if bipartite:
            return OPERATORS[name](Graph.bipartite(edges, (NODES, NODES), weight), torch.cat([x, x.square()]))
        return OPERATORS[name](Graph.from_edge_index(edges, NODES, weight), x)

    assert gradcheck(run, (x, weight), fast_mode=True)
    assert gradgradcheck(run, (x, weight), fast_mode=True)


@pytest.mark.parametrize("level", LEVELS)
def test_the_mixed_derivative_is_finite_without_incoming_edges(level: str) -> None:
    """Node 0 has none, and the weight of its edge depends on its degree."""
    conv, x = GFGNConv(2, 2, level).double(), data()[0][:3]
    edges, weight = torch.tensor([[0, 1], [1, 2]]), torch.ones(2, dtype=torch.float64, requires_grad=True)
    (first,) = grad(conv(x, edges, weight).square().sum(), weight, create_graph=True)
    (mixed,) = grad(first[0], x)
    assert mixed.isfinite().all()
    assert mixed.any()


@every_module
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_second_derivatives_in_half_precision(name: str, dtype: torch.dtype) -> None:
    (x, edges, _), (module, parameters) = data(), make(name)

    def twice(dtype: torch.dtype) -> Tensor:
        values = {key: value.detach().to(dtype) for key, value in parameters.items()}
        leaf = x.detach().to(dtype).requires_grad_()
        (first,) = grad(module(values, leaf, edges).float().square().sum(), leaf, create_graph=True)
        return grad(first.float().square().sum(), leaf)[0].double()

    expected = twice(torch.float64)
    assert_close(twice(dtype), expected, rtol=0.1, atol=0.1 * float(expected.abs().max()))


@every_module
def test_torch_func_agrees_with_autograd_for_features(name: str) -> None:
    (x, edges, _), (module, parameters) = data(), make(name)
    parameters = {key: value.detach() for key, value in parameters.items()}

    def layer(x: Tensor) -> Tensor:
        return module(parameters, x, edges)

    def loss(x: Tensor) -> Tensor:
        return layer(x).sin().sum()

    (expected,), x = grad(loss(x), x), x.detach()
    assert_close(torch.func.grad(loss)(x), expected)
    whole = jacobian(layer, x)
    assert_close(torch.func.jacrev(layer)(x), whole)
    assert_close(torch.func.jacfwd(layer)(x), whole)
    assert_close(torch.func.hessian(loss)(x), hessian(loss, x))
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, expected))).tangent
    assert_close(tangent, torch.einsum("ncmd,md->nc", whole, expected))

    several = torch.stack([x, 2 * x])
    each = torch.stack([expected, grad(loss(leaf := (2 * x).requires_grad_()), leaf)[0]])
    assert_close(torch.vmap(torch.func.grad(loss))(several), each)
    assert_close(torch.func.grad(lambda xs: torch.vmap(layer)(xs).sin().sum())(several), each)


@every_module
def test_torch_func_agrees_with_autograd_for_parameters_and_weights(name: str) -> None:
    (x, edges, weight), (module, parameters) = data(), make(name)

    def loss(parameters: dict[str, Tensor], weight: Tensor, x: Tensor) -> Tensor:
        return module(parameters, x, edges, weight).sin().sum()

    *of_parameters, of_weight = grad(loss(parameters, weight, x), [*parameters.values(), weight])
    given = {key: value.detach() for key, value in parameters.items()}, weight.detach(), x.detach()
    by_name, by_weight = torch.func.grad(loss, argnums=(0, 1))(*given)
    assert_close(list(by_name.values()), of_parameters)
    assert_close(by_weight, of_weight)
    forward = torch.func.jacfwd(loss, argnums=1)(*given)
    assert_close(forward, of_weight)

    several = torch.stack([x.detach(), 2 * x.detach()])  # as for gradients per sample
    per_sample = torch.vmap(torch.func.grad(loss), in_dims=(None, None, 0))(*given[:2], several)
    assert_close([value[0] for value in per_sample.values()], of_parameters)
    weights = torch.stack([weight.detach(), 2 * weight.detach()])
    assert_close(torch.vmap(loss, in_dims=(None, 0, None))(given[0], weights, given[2])[0], loss(parameters, weight, x))
    of_weights = torch.vmap(torch.func.grad(loss, argnums=1), in_dims=(None, 0, None))(given[0], weights, given[2])
    assert_close(of_weights[0], of_weight)


def test_what_torch_func_cannot_differentiate_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GFGN_BACKEND", raising=False)
    x, edges, _ = data()
    graph, x = Graph.from_edge_index(edges, NODES, dtype=torch.float64), x.detach()
    fused = [name for name, backend in ops.backends().items() if backend.available and name != "reference"]
    for backend in fused:
        with pytest.raises(RuntimeError, match=f"backend='{backend}' cannot run: (only the reference can|it has no)"):
            torch.func.grad(lambda x, backend=backend: ops.propagate(x, graph, backend).sum())(x)
    for transform in (torch.func.grad, torch.func.jacfwd):
        with pytest.raises(NotImplementedError, match=r"standardize has no derivative by torch\.func"):
            transform(lambda x: ops.standardize(x)[0].sum())(x)
