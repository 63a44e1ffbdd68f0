"""One gate for all dimensions, and a constant gate: against the gate per dimension, which loops over scalars test."""

import copy
from functools import partial

import pytest
import torch
from loops import random_edges
from torch import Tensor

from gfgn import GFGNConv

LEVELS = ["graph", "neighbor", "pair"]
FORMS = ["scalar", "constant"]
every_level = pytest.mark.parametrize("level", LEVELS)
every_form = pytest.mark.parametrize("form", FORMS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(level: str, form: str, lam: float = 1.3, **options: object) -> GFGNConv:
    torch.manual_seed(0)
    conv = GFGNConv(5, 4, level, 3, lam, gate_form=form, **options).double()
    with torch.no_grad():
        conv.bias.normal_()
    return conv


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Features, directed edges with weights, repetitions and self-loops; the last two of twelve nodes are isolated."""
    x = torch.randn(12, 5, generator=generator(), dtype=torch.float64)
    edges = random_edges(10, 40, generator())
    return x, edges, torch.rand(40, generator=generator(1), dtype=torch.float64) + 0.1


def by_dimension(conv: GFGNConv, *arguments: object, **options: object) -> Tensor:
    """The output of the same layer as one head with a gate per dimension: the columns of its gate are all the scalar
    one, or 0 for a constant gate. Differentiable with respect to the parameters of `conv`."""
    bias = None if conv.gate_bias is None else 0.0
    other = GFGNConv(5, 12, conv.level, 1, conv.lam, pool=conv.pool, gate_bias=bias).double()
    state = {"lin.weight": conv.lin.weight, "bias": conv.bias, "gate": torch.zeros_like(other.gate)}
    if conv.gate_form == "scalar":
        state["gate"] = conv.gate.expand_as(other.gate)
    if conv.gate_bias is not None:
        state["gate_bias"] = conv.gate_bias.expand(12)
    return torch.func.functional_call(other, state, arguments, options)


def gradients(conv: GFGNConv, out: Tensor, x: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((out * weight).sum(), [x, *conv.parameters()]))


OPTIONS: list[dict[str, object]] = [{}, {"gate_bias": -0.5}, {"pool": "max"}, {"pool": "sum"}]


@pytest.mark.parametrize(
    ("level", "options"), [(a, b) for a in LEVELS for b in OPTIONS if a != "pair" or "pool" not in b], ids=str
)
@every_form
def test_values_and_gradients_are_those_of_equal_gates(level: str, form: str, options: dict[str, object]) -> None:
    if form == "constant" and "gate_bias" in options:
        with pytest.raises(ValueError, match=r"gate_bias .*gate_form='constant'.* -0.5"):
            make(level, form, **options)
        return
    conv, (x, edges, weight) = make(level, form, **options), inputs()
    batch = torch.tensor([0] * 10 + [1] * 2) if level == "graph" else None
    x.requires_grad_()
    out, expected = (layer(x, edges, weight, batch=batch) for layer in (conv, partial(by_dimension, conv)))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients(conv, out, x), gradients(conv, expected, x), rtol=0, atol=1e-11)


@every_level
def test_scores_are_one_number_for_all_dimensions(level: str) -> None:
    conv, (x, edges, _) = make(level, "scalar"), inputs()
    edges = edges[:, edges[0] != edges[1]]
    out, s = conv(x, edges, return_scores=True)
    assert s.shape == ({"graph": 1, "neighbor": 12, "pair": edges.size(1)}[level], 12)
    assert (s == s[:, :1]).all()
    assert len(s[:, 0].unique()) > (0 if level == "graph" else 5)
    torch.testing.assert_close(conv(x, edges), out)
    constant = make(level, "constant")
    assert constant(x, edges, return_scores=True)[1].unique().tolist() == [0.65]


def test_constant_gates_differ_between_levels_at_isolated_nodes_only() -> None:
    x, edges, _ = inputs()
    graph, neighbor, pair = (make(level, "constant")(x, edges) for level in LEVELS)
    torch.testing.assert_close(graph, neighbor)
    reached = torch.zeros(12, dtype=torch.bool)
    reached[edges[1, edges[0] != edges[1]]] = True
    torch.testing.assert_close(pair[reached], graph[reached])
    assert not torch.isclose(pair[~reached], graph[~reached]).any()


@every_level
def test_parameters(level: str) -> None:
    inputs_of_gate = 1 if level == "graph" else 2
    counts = {form: make(level, form).num_parameters for form in ("dimension", *FORMS)}
    assert counts["constant"] == 5 * 12 + 12
    assert counts["scalar"] - counts["constant"] == inputs_of_gate * 12
    assert counts["dimension"] - counts["constant"] == inputs_of_gate * 12 * 4
    conv = make(level, "scalar")
    assert "gate_form='scalar'" in repr(conv)
    assert "gate_form" not in repr(make(level, "dimension"))
    other = make(level, "scalar")
    other.reset_parameters()
    assert not torch.equal(other.gate, conv.gate)
    other.load_state_dict(conv.state_dict())
    x, edges, _ = inputs()
    assert torch.equal(copy.deepcopy(other)(x, edges), conv(x, edges))
    with pytest.raises(ValueError, match="gate_form must be one of 'dimension', 'scalar', 'constant', got 'vector'"):
        GFGNConv(5, 4, level, gate_form="vector")


@every_level
@every_form
def test_explanations_see_the_same_layer(level: str, form: str) -> None:
    conv, (x, edges, _) = make(level, form), inputs()
    out = conv(x, edges)
    conv.register_message_forward_hook(lambda module, args, output: None)  # computes every message
    torch.testing.assert_close(conv(x, edges), out)
