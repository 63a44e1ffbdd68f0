"""`GFGNConv` from one set of nodes to another, against loops over edges: values, gradients, scores, ways to call it."""

from itertools import product

import pytest
import torch
from loops import bipartite_layer

from gfgn import GFGNConv, Graph

LEVELS = ["graph", "neighbor", "pair"]
every_level = pytest.mark.parametrize("level", LEVELS)
every_level_and_pool = pytest.mark.parametrize(
    ("level", "pool"), [("pair", "mean"), *product(["graph", "neighbor"], ["mean", "max", "sum"])]
)
NUM_SRC, NUM_DST = 7, 5


def make(level: str, in_channels: int | tuple[int, int] = (3, 4), heads: int = 2, **options: object) -> GFGNConv:
    torch.manual_seed(0)
    conv = GFGNConv(in_channels, 2, level, heads, 1.3, **options).double()
    with torch.no_grad():
        conv.gate.normal_()
        if conv.bias is not None:
            conv.bias.normal_()
    return conv


def inputs(channels: tuple[int, int] = (3, 4)) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Features and weighted edges with repetitions and equal ids; the last source and the last target have no edge."""
    generator = torch.Generator().manual_seed(0)
    x = tuple(
        torch.randn(n, c, generator=generator, dtype=torch.float64)
        for n, c in zip((NUM_SRC, NUM_DST), channels, strict=True)
    )
    source = torch.randint(0, NUM_SRC - 1, (14,), generator=generator)
    target = torch.randint(0, NUM_DST - 1, (14,), generator=generator)
    edges = torch.stack([source, target])
    edges[:, 1] = edges[:, 0]
    edges[:, 2] = 3
    return x, edges, torch.rand(14, generator=generator, dtype=torch.float64) + 0.5


def loops(conv, x, edges, weight=None, batch=None, pool="mean") -> torch.Tensor:
    pair = (conv.lin, conv.lin) if conv.lin is not None else (conv.lin_src, conv.lin_dst)
    return bipartite_layer(
        *x,
        [tuple(edge) for edge in edges.t().tolist()],
        None if weight is None else weight.tolist(),
        [0] * x[1].size(0) if batch is None else batch.tolist(),
        *(lin.weight for lin in pair),
        conv.gate,
        conv.bias,
        conv.level,
        1.3,
        pool,
    )


@every_level_and_pool
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_are_those_of_the_equations(level: str, pool: str, weighted: bool) -> None:
    conv = make(level, pool=pool)
    x, edges, weight = inputs()
    x = tuple(part.requires_grad_() for part in x)
    weight = weight if weighted else None
    out, expected = conv(x, edges, weight, size=(NUM_SRC, NUM_DST)), loops(conv, x, edges, weight, pool=pool)
    assert out.shape == (NUM_DST, 4)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    wanted = [*x, conv.lin_src.weight, conv.lin_dst.weight, conv.gate, conv.bias]
    got, truth = (torch.autograd.grad(y.square().sum(), wanted) for y in (out, expected))
    torch.testing.assert_close(got, truth, rtol=1e-9, atol=1e-10)


@every_level
def test_gradient_of_the_weights(level: str) -> None:
    conv, (x, edges, weight) = make(level), inputs()
    assert torch.autograd.gradcheck(lambda w: conv(x, edges, w), weight.requires_grad_(), fast_mode=True)


@every_level
@pytest.mark.parametrize("concat", [True, False])
def test_one_number_of_channels_shares_the_linear_map(level: str, concat: bool) -> None:
    conv, (x, edges, _) = make(level, 4, concat=concat, bias=concat), inputs((4, 4))
    assert set(conv.state_dict()) == {"lin.weight", "gate", *(["bias"] if concat else [])}
    if concat:
        torch.testing.assert_close(conv(x, edges), loops(conv, x, edges), rtol=0, atol=1e-10)
    else:
        whole = make(level, 4, bias=False)
        torch.testing.assert_close(conv(x, edges), whole(x, edges).view(NUM_DST, 2, 2).mean(1))


@every_level
def test_several_graphs(level: str) -> None:
    conv, (x, edges, _) = make(level), inputs()
    batch = torch.tensor([0, 0, 1, 1, 3])
    out, scores = conv(x, edges, batch=batch, batch_size=4, return_scores=True)
    torch.testing.assert_close(out, loops(conv, x, edges, batch=batch), rtol=0, atol=1e-10)
    assert scores.shape == {"graph": (4, 4), "neighbor": (NUM_DST, 4), "pair": (14, 4)}[level]
    torch.testing.assert_close(conv(x, edges, batch=(torch.zeros(NUM_SRC).long(), batch)), out)


@every_level
@pytest.mark.parametrize("size", [(0, 0), (0, 3), (4, 0), (4, 3)])
def test_without_edges(level: str, size: tuple[int, int]) -> None:
    conv = make(level)
    x = torch.ones(size[0], 3, dtype=torch.float64), torch.ones(size[1], 4, dtype=torch.float64)
    out, scores = conv(x, torch.empty(2, 0, dtype=torch.int64), return_scores=True)
    torch.testing.assert_close(out, loops(conv, x, torch.empty(2, 0, dtype=torch.int64)))
    assert scores.shape == {"graph": (1, 4), "neighbor": (size[1], 4), "pair": (0, 4)}[level]


@every_level
def test_compile_export_and_vmap(level: str) -> None:
    torch._dynamo.reset()
    conv, (x, edges, _) = make(level).eval(), inputs()
    expected = conv(x, edges)
    graph = Graph.bipartite(edges, (NUM_SRC, NUM_DST), dtype=torch.float64)
    for given in (edges, graph):
        torch.testing.assert_close(torch.compile(conv, fullgraph=True, backend="aot_eager")(x, given), expected)
        torch.testing.assert_close(torch.export.export(conv, (x, given)).module()(x, given), expected)
    state = {name: value.detach().expand(2, *value.shape) for name, value in conv.state_dict().items()}
    out = torch.vmap(lambda state: torch.func.functional_call(conv, state, (x, graph)))(state)
    torch.testing.assert_close(out, expected.expand(2, -1, -1))
