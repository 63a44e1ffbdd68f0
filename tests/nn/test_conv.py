"""`GFGNConv` against loops over scalars: special cases, scores, compilation, export, vmap, and error messages."""

import copy
import io
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import equation, random_edges, undirected
from torch_geometric.nn import GCNConv

from gfgn import GFGNConv, Graph

LEVELS = ["graph", "neighbor", "pair"]
every_level = pytest.mark.parametrize("level", LEVELS)
every_level_and_pool = pytest.mark.parametrize(
    ("level", "pool"), [("pair", "mean"), *product(["graph", "neighbor"], ["mean", "max", "sum"])]
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(level: str, heads: int = 3, lam: float = 1.3, **options: object) -> GFGNConv:
    torch.manual_seed(0)
    conv = GFGNConv(5, 4, level, heads, lam, **options).double()
    with torch.no_grad():
        conv.gate.normal_()
        if conv.bias is not None:
            conv.bias.normal_()
    return conv


def inputs(n: int = 12, e: int = 40, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random features and directed edges; the last two nodes are isolated."""
    x = torch.randn(n, 5, generator=generator(seed), dtype=torch.float64)
    return x, random_edges(n - 2, e, generator(seed))


@every_level_and_pool
@pytest.mark.parametrize("weighted", [False, True])
def test_layer_is_the_papers_equation(level: str, weighted: bool, pool: str) -> None:
    conv = make(level, pool=pool)
    x, edges = inputs()
    weight = torch.rand(edges.size(1), generator=generator(1), dtype=torch.float64) if weighted else None
    expected = equation(conv, x, edges, weight)
    out = conv(x, edges, weight)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


@every_level_and_pool
def test_several_graphs_in_a_batch(level: str, pool: str) -> None:
    conv = make(level, pool=pool)
    x, _ = inputs(11)
    edges = torch.cat([random_edges(4, 9, generator(3)), 4 + random_edges(5, 12, generator(4))], dim=1)
    batch = torch.tensor([0] * 4 + [1] * 5 + [3] * 2)  # graph 2 has no nodes, graph 3 no edges
    expected = equation(conv, x, edges, batch=batch)
    out, scores = conv(x, edges, batch=batch, batch_size=5, return_scores=True)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    alone = [conv(x[batch == k], edges[:, batch[edges[0]] == k] - int((batch < k).sum())) for k in (0, 1, 3)]
    torch.testing.assert_close(out, torch.cat(alone))
    if level == "graph":
        assert scores.shape == (5, 12)


@every_level
def test_lambda_zero_is_a_linear_layer(level: str) -> None:
    conv = make(level, lam=0.0)
    x, edges = inputs()
    torch.testing.assert_close(conv(x, edges), x @ conv.lin.weight.t() + conv.bias)


@every_level
def test_gate_of_one_with_self_loops_is_gcn(level: str) -> None:
    """A gate saturated at 1 leaves `Âz`; at pair level the weight of the node itself is `1 − Σ A_ij/d_i = 0`."""
    conv = make(level, heads=1, lam=1.0)
    edges = undirected(10, 15, generator())
    # Positive features and weights, so that one large gate weight saturates every sigmoid at exactly 1.
    x = torch.rand(10, 5, generator=generator(), dtype=torch.float64) + 0.1
    with torch.no_grad():
        conv.lin.weight.abs_()
        conv.gate.fill_(1e4)
    gcn = GCNConv(5, 4).double()
    gcn.lin.weight, gcn.bias = conv.lin.weight, conv.bias
    graph = Graph.from_edge_index(edges, 10, self_loops="add", dtype=torch.float64)
    torch.testing.assert_close(conv(x, graph), gcn(x, edges))


@every_level
@given(seed=st.integers(0, 10_000), n=st.integers(3, 15), e=st.integers(0, 50))
@settings(max_examples=8)
def test_permutation_equivariance(level: str, seed: int, n: int, e: int) -> None:
    conv = make(level)
    x, edges = inputs(n, e, seed)
    order = torch.randperm(n, generator=generator(seed))
    shuffle = torch.randperm(e, generator=generator(seed))
    out, scores = conv(x, edges, return_scores=True)
    moved, moved_scores = conv(x[order], order.argsort()[edges][:, shuffle], return_scores=True)
    torch.testing.assert_close(moved, out[order], rtol=1e-9, atol=1e-10)
    expected = scores if level == "graph" else scores[order if level == "neighbor" else shuffle]
    torch.testing.assert_close(moved_scores, expected, rtol=1e-9, atol=1e-10)


def test_pair_scores_follow_the_given_edges() -> None:
    conv = make("pair")
    x, edges = inputs()
    edges = torch.cat([edges, edges[:, :5], torch.tensor([[3, 11], [3, 11]])], dim=1)  # repetitions, self-loops
    for given_edges in (edges, Graph.from_edge_index(edges, 12, dtype=torch.float64)):
        _, scores = conv(x, given_edges, return_scores=True)
        assert scores.shape == (edges.size(1), 12)
        z = conv.transform(x).view(12, 3, 4)
        for k, (source, target) in enumerate(edges.t().tolist()):
            joined = torch.cat([z[target], z[source]], dim=1)
            expected = 1.3 * torch.sigmoid(torch.einsum("hr,hrc->hc", joined, conv.gate)).flatten()
            if source == target:
                expected = torch.zeros_like(expected)
            torch.testing.assert_close(scores[k], expected)


@every_level
def test_scores_reproduce_the_output(level: str) -> None:
    """The scores are the gates of the output."""
    conv = make(level, bias=False)
    x, _ = inputs()
    edges = undirected(12, 10, generator())
    out, s = conv(x, edges, return_scores=True)
    z, degree = conv.transform(x), torch.bincount(edges[1], minlength=12).double()
    norm = (degree[edges[0]] * degree[edges[1]]).rsqrt().unsqueeze(1)
    if level == "pair":
        kept = 1 - torch.zeros_like(z).index_add(0, edges[1], s / degree[edges[1]].unsqueeze(1))
        expected = kept * z + torch.zeros_like(z).index_add(0, edges[1], s * norm * z[edges[0]])
    else:
        expected = (1 - s) * z + s * torch.zeros_like(z).index_add(0, edges[1], norm * z[edges[0]])
    torch.testing.assert_close(out, expected)


@every_level
def test_gate_bias_is_added_inside_the_sigmoid(level: str) -> None:
    plain, biased = make(level), make(level, gate_bias=-2.0)
    assert plain.gate_bias is None
    assert biased.gate_bias is not None
    assert biased.gate_bias.tolist() == [-2.0] * 12
    assert "gate_bias=-2.0" in repr(biased)
    assert biased.num_parameters == plain.num_parameters + 12
    with torch.no_grad():
        biased.gate_bias.copy_(torch.linspace(-3, 3, 12))
    x, edges = inputs()
    (_, before), (out, after) = (conv(x, edges, return_scores=True) for conv in (plain, biased))
    kept = before[:, 0] > 0  # a given self-loop has no gate
    shift = torch.logit(after[kept] / 1.3) - torch.logit(before[kept] / 1.3)
    torch.testing.assert_close(shift, biased.gate_bias.expand_as(shift))
    torch.testing.assert_close(biased(x, edges), out)
    assert not torch.allclose(out, plain(x, edges))
    assert torch.autograd.gradcheck(
        lambda bias: torch.func.functional_call(biased, {"gate_bias": bias}, (x, edges)), biased.gate_bias
    )
    with torch.no_grad():
        biased.gate_bias.zero_()
        torch.testing.assert_close(biased(x, edges), plain(x, edges))
    biased.reset_parameters()
    assert biased.gate_bias.tolist() == [-2.0] * 12


@every_level
def test_sparse_features(level: str) -> None:
    conv = make(level)
    x, edges = inputs()
    x = x.relu()
    out, sparse = conv(x, edges), conv(x.to_sparse_csr(), edges)
    torch.testing.assert_close(sparse, out)
    (expected,) = torch.autograd.grad(out.square().sum(), conv.lin.weight)
    (got,) = torch.autograd.grad(sparse.square().sum(), conv.lin.weight)
    torch.testing.assert_close(got, expected)


@every_level
@pytest.mark.parametrize(("n", "e"), [(0, 0), (1, 0), (5, 0)])
def test_empty_graphs(level: str, n: int, e: int) -> None:
    conv = make(level)
    edges = torch.empty(2, e, dtype=torch.int64)
    out, scores = conv(torch.ones(n, 5, dtype=torch.float64), edges, return_scores=True)
    assert out.shape == (n, 12)
    assert torch.isfinite(out).all()
    assert scores.shape == {"graph": (1, 12), "neighbor": (n, 12), "pair": (0, 12)}[level]


@every_level
def test_averaged_heads(level: str) -> None:
    conv, whole = make(level, concat=False), make(level, bias=False)
    x, edges = inputs()
    out = conv(x, edges)
    assert out.shape == (12, 4)
    torch.testing.assert_close(out, whole(x, edges).view(12, 3, 4).mean(1) + conv.bias)
    assert "concat=False" in repr(conv)


@every_level
def test_lazy_input_size(level: str) -> None:
    x, edges = inputs()
    for features in (x.float(), x.float().to_sparse_csr()):
        conv = GFGNConv(-1, 4, level, heads=3)
        assert conv(features, edges).shape == (12, 12)
        assert conv.in_channels == 5
        assert conv.lin.weight.shape == (12, 5)


@every_level
def test_state_dict_deepcopy_and_reset(level: str) -> None:
    conv = make(level)
    x, edges = inputs()
    file = io.BytesIO()
    torch.save(conv.state_dict(), file)
    file.seek(0)
    other = GFGNConv(5, 4, level, 3, 1.3).double()
    other.load_state_dict(torch.load(file, weights_only=True))
    for twin in (other, copy.deepcopy(conv)):
        torch.testing.assert_close(twin(x, edges), conv(x, edges), rtol=0, atol=0)
    torch.manual_seed(7)
    conv.reset_parameters()
    first = conv.gate.clone()
    torch.manual_seed(7)
    other.reset_parameters()
    assert torch.equal(other.gate, first)
    assert torch.equal(other.lin.weight, conv.lin.weight)
    assert not conv.bias.any()
    bound = (6 / sum(conv.gate.shape[1:])) ** 0.5
    assert 0.5 * bound < conv.gate.abs().max() <= bound  # Glorot per head, not over all heads


@pytest.mark.parametrize(("level", "factor"), [("graph", 1), ("neighbor", 2), ("pair", 2)])
def test_number_of_parameters(level: str, factor: int) -> None:
    """Section 3.6: `D·D' + D²/K`; the gate that reads a concatenation has twice the second term."""
    D, K, D_in = 64, 8, 100
    conv = GFGNConv(D_in, D // K, level, heads=K, bias=False)
    assert conv.num_parameters == D * D_in + factor * D * D // K
    assert GFGNConv(D_in, D // K, level, heads=K).num_parameters == conv.num_parameters + D


@every_level
def test_export(level: str) -> None:
    conv = make(level).eval()
    x, edges = inputs()
    program = torch.export.export(conv, (x, edges)).module()
    other = inputs(seed=5)
    torch.testing.assert_close(program(*other), conv(*other))
    graph = Graph.from_edge_index(edges, 12, dtype=torch.float64)
    torch.testing.assert_close(torch.export.export(conv, (x, graph)).module()(x, graph), conv(x, graph))


@every_level
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtypes(level: str, dtype: torch.dtype) -> None:
    conv, (x, edges) = make(level), inputs()
    out = copy.deepcopy(conv).to(dtype)(x.to(dtype), edges)
    assert out.dtype == dtype
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(out.double(), conv(x, edges), rtol=tolerance, atol=tolerance)


@every_level
def test_autocast(level: str) -> None:
    conv, (x, edges) = make(level).float(), inputs()
    x = x.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = conv(x, edges)
        out.float().sum().backward()
    torch.testing.assert_close(out.float(), conv(x, edges), rtol=0.1, atol=0.1)
    assert conv.gate.grad is not None
    assert conv.gate.grad.dtype == torch.float32


@every_level
def test_vmap_over_stacked_layers(level: str) -> None:
    convs = [GFGNConv(5, 4, level, heads=3).double() for _ in range(3)]
    x, edges = inputs()
    graph = Graph.from_edge_index(edges, 12, dtype=torch.float64)
    parameters, buffers = torch.func.stack_module_state(convs)

    def run(parameters: dict, buffers: dict) -> torch.Tensor:
        return torch.func.functional_call(convs[0], (parameters, buffers), (x, graph))

    out = torch.vmap(run)(parameters, buffers)
    torch.testing.assert_close(out, torch.stack([conv(x, graph) for conv in convs]))
    out.square().sum().backward()
    for k, conv in enumerate(convs):
        (expected,) = torch.autograd.grad(conv(x, graph).square().sum(), conv.gate)
        torch.testing.assert_close(parameters["gate"].grad[k], expected)


X, EDGES = torch.ones(3, 5), torch.tensor([[0, 1, 2], [1, 2, 0]])
conv = GFGNConv(5, 4)


BAD_INPUT: dict[str, tuple[Callable[[], object], str]] = {
    "level": (lambda: GFGNConv(5, 4, "edge"), "level .*'graph', 'neighbor', 'pair'"),
    "pool": (lambda: GFGNConv(5, 4, "graph", pool="median"), "pool .*'median'"),
    "pair pool": (lambda: GFGNConv(5, 4, "pair", pool="max"), "pool .*'mean' at level='pair'.*'max'"),
    "channels": (lambda: GFGNConv(5, 0), "out_channels .*positive.* 0"),
    "in_channels": (lambda: GFGNConv(0, 4), "in_channels .*positive.* 0"),
    "in_channels triple": (lambda: GFGNConv((5, 4, 3), 4), r"pair .*\(5, 4, 3\)"),
    "in_channels pair": (lambda: GFGNConv((5, 0), 4), "in_channels .*positive.* 0"),
    "heads": (lambda: GFGNConv(5, 4, heads=2.0), "heads .*positive integer.* 2.0"),
    "lam": (lambda: GFGNConv(5, 4, lam=-1.0), "lam .*0 or larger.* -1.0"),
    "lam numpy": (lambda: GFGNConv(5, 4, lam=np.float32("nan")), "lam must be finite"),
    "lam tensor": (lambda: GFGNConv(5, 4, lam=torch.tensor([1, torch.nan])), r"lam .*tensor\(\[1., nan\]\)"),
    "lam infinite": (lambda: GFGNConv(5, 4, lam=torch.tensor(torch.inf)), "lam must be finite"),
    "gate_bias": (lambda: GFGNConv(5, 4, gate_bias=torch.inf), "gate_bias .*inf"),
    "x type": (lambda: conv(X.numpy(), EDGES), r"\(x_src, x_dst\).*ndarray"),
    "x pair": (lambda: conv((X, None), EDGES), r"\(x_src, x_dst\).*NoneType"),
    "x pair width": (lambda: conv((X, X[:, 1:]), EDGES), r"x_dst .*\[N, 5\].*\[3, 4\]"),
    "x width": (lambda: conv(torch.ones(3, 6), EDGES), r"\[N, 5\].*\[3, 6\]"),
    "x width of heads": (lambda: GFGNConv(4, 3)(GFGNConv(5, 4, heads=8)(X, EDGES), EDGES), "heads=8.*must be 32"),
    "x dims": (lambda: conv(torch.ones(5), EDGES), r"\[N, 5\].*\[5\]"),
    "x dtype": (lambda: conv(X.long(), EDGES), "floating-point.*torch.int64"),
    "x layout": (lambda: conv(X.to_sparse_coo(), EDGES), "dense or sparse CSR"),
    "x nan": (lambda: conv(X * torch.nan, EDGES), r"x .*finite.*nan .*\[0, 0\]"),
    "x inf": (lambda: conv((X * torch.inf).to_sparse_csr(), EDGES), r"inf .*\[0\]"),
    "size": (lambda: conv((X, X), EDGES, size=(3, 2)), r"size .*\(3, 3\).*\(3, 2\)"),
    "size of one set": (lambda: conv(X, EDGES, size=(2, 3)), r"size .*\(3, 3\).*\(2, 3\)"),
    "source range": (lambda: conv((X[:2], X), EDGES), "source id 2.*0 to 1"),
    "target range": (lambda: conv((X, X[:2]), EDGES), "target id 2.*0 to 1"),
    "edge type": (lambda: conv(X, [[0], [1]]), "got list"),
    "edge device": (lambda: conv(X, EDGES.to("meta")), "edge_index is on meta"),
    "edge dtype": (lambda: conv(X, EDGES.float()), "int64 or int32"),
    "edge range": (lambda: conv(X[:2], EDGES), "ids from 0 to 1"),
    "edge shape": (lambda: conv(X, EDGES.t()[:, :1]), r"\[2, E\]"),
    "graph size": (lambda: conv(X, Graph.from_edge_index(EDGES, 4)), "3 rows.*4"),
    "graph, weight": (lambda: conv(X, Graph.from_edge_index(EDGES, 3), torch.ones(3)), "edge_weight .*a Graph"),
    "graph of one set": (lambda: conv((X, X), Graph.from_edge_index(EDGES, 6)), "Graph.bipartite"),
    "bipartite sizes": (lambda: conv((X, X), Graph.bipartite(EDGES, (4, 3))), "num_nodes=7.*num_targets=3"),
    "bipartite graph": (lambda: conv(X, Graph.bipartite(EDGES, (3, 3))), r"\(x_src, x_dst\)"),
    "bipartite weight": (lambda: conv((X, X), Graph.bipartite(EDGES, (3, 3)), torch.ones(3)), "edge_weight .*a Graph"),
    "bipartite matrix": (lambda: conv((X, X[:2]), torch.ones(3, 2).to_sparse_csr()), r"\[2, 3\].*\[3, 2\]"),
    "matrix size": (lambda: conv(X, torch.eye(4).to_sparse_csr()), "3 rows.*4"),
    "matrix, weight": (lambda: conv(X, torch.eye(3).to_sparse_csr(), torch.ones(3)), "edge_weight .*a sparse matrix"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_named(case: str) -> None:
    call, message = BAD_INPUT[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_validation_can_be_turned_off_and_large_values_pass() -> None:
    assert GFGNConv(5, 4, validate=False)(X * torch.nan, EDGES).isnan().all()
    huge = torch.full((3, 5), 3e38)  # finite, though its sum is not
    GFGNConv(5, 4).requires_grad_(False)(huge, EDGES)


def test_features_are_checked_once_and_again_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, checks = GFGNConv(5, 4), []
    finite = torch.isfinite
    monkeypatch.setattr(torch, "isfinite", lambda values: (checks.append(1), finite(values))[1])
    for x in (torch.ones(3, 5, requires_grad=True), torch.ones(3, 5).to_sparse_csr()):
        checks.clear()
        for _ in range(3):
            conv(x, EDGES)
        assert len(checks) == 1
        with torch.no_grad():
            (x.values() if x.is_sparse_csr else x).mul_(torch.nan)
        with pytest.raises(ValueError, match="x must be finite, got nan"):
            conv(x, EDGES)
