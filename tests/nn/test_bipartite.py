"""`GFGNConv` from one set of nodes to another, against loops over edges: values, gradients, scores, ways to call it."""

import copy
from itertools import product

import pytest
import torch
from loops import bipartite_layer, undirected
from torch_geometric.edge_index import EdgeIndex

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
def test_on_an_undirected_graph_both_sets_may_be_the_same_nodes(level: str) -> None:
    """Every edge has its opposite, so that the degree of a source is that of a target."""
    conv, edges = make(level, 3), undirected(NUM_SRC, 6, torch.Generator().manual_seed(0))
    x = inputs()[0][0]
    torch.testing.assert_close(conv((x, x), edges), conv(x, edges))
    twin = make(level, (3, 3))
    twin.load_state_dict(
        {**conv.state_dict(), "lin_src.weight": conv.lin.weight, "lin_dst.weight": conv.lin.weight}, strict=False
    )
    torch.testing.assert_close(twin(x, edges), conv(x, edges))


@every_level
def test_several_graphs(level: str) -> None:
    conv, (x, edges, _) = make(level), inputs()
    batch = torch.tensor([0, 0, 1, 1, 3])
    out, scores = conv(x, edges, batch=batch, batch_size=4, return_scores=True)
    torch.testing.assert_close(out, loops(conv, x, edges, batch=batch), rtol=0, atol=1e-10)
    assert scores.shape == {"graph": (4, 4), "neighbor": (NUM_DST, 4), "pair": (14, 4)}[level]
    torch.testing.assert_close(conv(x, edges, batch=(torch.zeros(NUM_SRC).long(), batch)), out)


def test_pair_scores_follow_the_given_edges() -> None:
    conv, (x, edges, _) = make("pair"), inputs()
    _, scores = conv(x, edges, return_scores=True)
    z_src, z_dst = (x[0] @ conv.lin_src.weight.t()).view(-1, 2, 2), (x[1] @ conv.lin_dst.weight.t()).view(-1, 2, 2)
    joined = torch.cat([z_dst[edges[1]], z_src[edges[0]]], dim=2)
    torch.testing.assert_close(scores, 1.3 * torch.sigmoid(torch.einsum("ehr,hrc->ehc", joined, conv.gate)).flatten(1))


@every_level
@pytest.mark.parametrize("size", [(0, 0), (0, 3), (4, 0), (4, 3)])
def test_without_edges(level: str, size: tuple[int, int]) -> None:
    conv = make(level)
    x = torch.ones(size[0], 3, dtype=torch.float64), torch.ones(size[1], 4, dtype=torch.float64)
    out, scores = conv(x, torch.empty(2, 0, dtype=torch.int64), return_scores=True)
    torch.testing.assert_close(out, loops(conv, x, torch.empty(2, 0, dtype=torch.int64)))
    assert scores.shape == {"graph": (1, 4), "neighbor": (size[1], 4), "pair": (0, 4)}[level]


@every_level
def test_every_way_to_give_the_edges(level: str) -> None:
    conv, (x, edges, weight) = make(level), inputs()
    out = conv(x, edges, weight)
    matrix = torch.zeros(NUM_DST, NUM_SRC, dtype=torch.float64).index_put((edges[1], edges[0]), weight, accumulate=True)
    graph = Graph.bipartite(edges, (NUM_SRC, NUM_DST), weight.float())
    assert "num_targets=5" in repr(graph)
    for other in (matrix.to_sparse_csr(), matrix.to_sparse_csc(), matrix.to_sparse_coo()):
        torch.testing.assert_close(conv(x, other), out)
    torch.testing.assert_close(conv(x, graph), out, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(conv(list(x), EdgeIndex(edges, sparse_size=(NUM_SRC, NUM_DST)), weight), out)
    sparse = x[0].relu().to_sparse_csr(), x[1].relu().to_sparse_csr()
    torch.testing.assert_close(conv(sparse, edges), conv((x[0].relu(), x[1].relu()), edges))


@every_level
def test_lazy_channels(level: str) -> None:
    x, edges, _ = inputs()
    for in_channels in ((-1, -1), (3, -1), (-1, 4)):
        conv = copy.deepcopy(GFGNConv(in_channels, 2, level, heads=2)).double()
        assert conv(x, edges).shape == (NUM_DST, 4)
        assert conv.in_channels == (3, 4)
        assert conv.lin_src.weight.shape == (4, 3)
        assert repr(conv).startswith("GFGNConv((3, 4), 2")


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
