"""One gate for all dimensions, and a constant gate: against loops over scalars, alone and among replicas."""

import copy
import math

import pytest
import torch
from loops import adjacency, random_edges
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


def loop(conv: GFGNConv, x: Tensor, edges: Tensor, weight: Tensor, batch: list[int], pool: str = "mean") -> Tensor:
    """The layer as loops over scalars, with one gate `s` per graph, node or pair, or `λ/2`; differentiable."""
    n, width = x.size(0), conv.lin.weight.size(0)
    z = [[sum(x[i, f] * conv.lin.weight[c, f] for f in range(x.size(1))) for c in range(width)] for i in range(n)]
    A = adjacency([(int(j), int(i)) for j, i in edges.t()], weight.tolist())
    degree = [sum(A.get(i, {}).values()) for i in range(n)]

    def pooled(nodes: list[int]) -> list[Tensor]:
        columns = [torch.stack([z[i][c] for i in nodes]) if nodes else x.new_zeros(1) for c in range(width)]
        return [{"mean": v.mean(), "sum": v.sum(), "max": v.max()}[pool] for v in columns]

    def gate(*values: list[Tensor]) -> Tensor | float:
        if conv.gate_form == "constant":
            return conv.lam / 2
        vector = conv.gate.flatten()
        total = sum(value * vector[k] for k, value in enumerate([v for part in values for v in part]))
        total = total if conv.gate_bias is None else total + conv.gate_bias[0]
        return conv.lam / (1 + torch.exp(-total))

    rows = []
    for i in range(n):
        row = A.get(i, {})
        if conv.level == "graph":
            s = gate(pooled([v for v in range(n) if batch[v] == batch[i]]))
        elif conv.level == "neighbor":
            s = gate(z[i], pooled(list(row)))
        out = []
        for c in range(width):
            kept, taken = 1.0, 0.0
            for j, a in row.items():
                s = gate(z[i], z[j]) if conv.level == "pair" else s
                kept = kept - s * a / degree[i] if conv.level == "pair" else kept
                norm = a / math.sqrt(degree[i] * degree[j]) if degree[j] > 0 else 0.0
                taken = taken + s * norm * z[j][c]
            kept = kept if conv.level == "pair" else 1 - s
            out.append(kept * z[i][c] + taken + conv.bias[c])
        rows.append(torch.stack(out))
    return torch.stack(rows)


def gradients(conv: GFGNConv, out: Tensor, x: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((out * weight).sum(), [x, *conv.parameters()]))


@every_level
@every_form
@pytest.mark.parametrize("gate_bias", [None, -0.5])
def test_values_and_gradients_are_those_of_the_equation(level: str, form: str, gate_bias: float | None) -> None:
    if form == "constant" and gate_bias is not None:
        with pytest.raises(ValueError, match=r"gate_bias must be None for gate_form='constant', .* got -0.5"):
            make(level, form, gate_bias=gate_bias)
        return
    conv, (x, edges, weight) = make(level, form, gate_bias=gate_bias), inputs()
    batch = [0] * 10 + [1] * 2 if level == "graph" else [0] * 12
    x.requires_grad_()
    expected = loop(conv, x, edges, weight, batch)
    out = conv(x, edges, weight, batch=torch.tensor(batch))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(conv, out, x), gradients(conv, expected, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("level", ["graph", "neighbor"])
@pytest.mark.parametrize("pool", ["max", "sum"])
def test_a_scalar_gate_pools(level: str, pool: str) -> None:
    conv, (x, edges, weight) = make(level, "scalar", pool=pool), inputs()
    torch.testing.assert_close(conv(x, edges, weight), loop(conv, x, edges, weight, [0] * 12, pool))


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
