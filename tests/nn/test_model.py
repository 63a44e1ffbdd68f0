"""`GFGN`: depth, scores, arguments as in PyG's `BasicGNN`, error messages."""

import copy

import pytest
import torch
from loops import random_edges
from torch import nn

from gfgn import GFGN, Graph

every_level = pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])


def inputs(n: int = 20, e: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=generator), random_edges(n, e, generator)


@every_level
@pytest.mark.parametrize("num_layers", [1, 2, 5])
def test_depth_scores_and_parameters(level: str, num_layers: int) -> None:
    model = GFGN(6, 8, num_layers, 3, level=level, heads=2, bias=False).eval()
    x, edges = inputs()
    logits, scores = model(x, edges, return_scores=True)
    assert logits.shape == (20, 3)
    rows = {"graph": 1, "neighbor": 20, "pair": 60}[level]
    assert [tuple(s.shape) for s in scores] == [(rows, 8)] * (num_layers - 1) + [(rows, 3)]
    torch.testing.assert_close(model(x, edges), logits)
    widths = [6] + [8] * (num_layers - 1)
    gate = 1 if level == "graph" else 2
    hidden = sum(width * 8 + gate * 8 * 8 // 2 for width in widths[:-1])
    assert model.num_parameters == hidden + widths[-1] * 3 + gate * 3 * 3


@every_level
def test_two_layers_written_out(level: str) -> None:
    model = GFGN(6, 8, 2, 3, level=level, heads=2, act="elu").eval()
    x, edges = inputs()
    graph = Graph.from_edge_index(edges, 20)
    expected = model.convs[1](nn.functional.elu(model.convs[0](x, graph)), graph)
    torch.testing.assert_close(model(x, graph), expected)
    torch.testing.assert_close(model(x, edges), expected)


def test_widths_with_several_heads() -> None:
    x, edges = inputs()
    assert [conv.heads for conv in GFGN(6, 8, 2, heads=4).convs] == [4, 4]
    assert GFGN(6, 8, 2, heads=4)(x, edges).shape == (20, 8)
    assert [conv.heads for conv in GFGN(6, 8, 2, 3, heads=4).convs] == [4, 1]
    joined = GFGN(6, 8, 3, 5, heads=2, jk="cat")
    assert [conv.out_channels * conv.heads for conv in joined.convs] == [8, 8, 8]
    assert joined.lin.in_features == 24
    logits, scores = joined(x, edges, return_scores=True)
    assert logits.shape == (20, 5)
    assert len(scores) == 3


def test_residual_adds_the_input_where_widths_agree() -> None:
    torch.manual_seed(0)
    plain = GFGN(6, 8, 3, 8, heads=2, level="graph").eval()
    torch.manual_seed(0)
    deep = GFGN(6, 8, 3, 8, heads=2, level="graph", residual=True).eval()
    x, edges = inputs()
    graph = Graph.from_edge_index(edges, 20)
    h1 = plain.convs[0](x, graph).relu()  # 6 → 8: no residual
    h2 = plain.convs[1](h1, graph).relu() + h1
    torch.testing.assert_close(deep(x, graph), plain.convs[2](h2, graph) + h2)


def test_normalization_keeps_a_deep_network_trainable() -> None:
    model = GFGN(6, 8, 24, 3, heads=2, level="neighbor", residual=True, norm=nn.LayerNorm(8), dropout=0.0)
    assert len({id(norm) for norm in model.norms}) == 23
    x, edges = inputs()
    model(x, edges).square().mean().backward()
    first = model.convs[0].lin.weight.grad
    assert torch.isfinite(first).all()
    assert first.abs().max() > 1e-6


def test_sparse_features_in_training_and_evaluation() -> None:
    x, edges = inputs()
    sparse = x.relu().to_sparse_csr()
    model = GFGN(6, 8, 2, 3, dropout=0.5)
    model(sparse, edges).sum().backward()
    assert torch.isfinite(model.convs[0].lin.weight.grad).all()
    model.eval()
    torch.testing.assert_close(model(sparse, edges), model(x.relu(), edges))


def test_batch_and_weights_reach_every_layer() -> None:
    x, _ = inputs(8)
    edges = torch.cat([random_edges(4, 10, torch.Generator().manual_seed(s)) + 4 * s for s in (0, 1)], dim=1)
    weight = torch.rand(20)
    batch = torch.tensor([0] * 4 + [1] * 4)
    model = GFGN(6, 8, 2, 3, level="graph").eval()
    whole = model(x, edges, weight, batch)
    alone = [model(x[:4], edges[:, :10], weight[:10]), model(x[4:], edges[:, 10:] - 4, weight[10:])]
    torch.testing.assert_close(whole, torch.cat(alone))


def test_reset_and_copy() -> None:
    x, edges = inputs()
    model = GFGN(6, 8, 2, 3, norm="LayerNorm", jk="lstm").eval()
    twin = copy.deepcopy(model)
    torch.testing.assert_close(twin(x, edges), model(x, edges))
    torch.manual_seed(3)
    model.reset_parameters()
    assert not torch.equal(twin(x, edges), model(x, edges))
    torch.manual_seed(3)
    twin.reset_parameters()
    torch.testing.assert_close(twin(x, edges), model(x, edges))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_layers": 0}, "num_layers must be a positive integer, got 0"),
        ({"hidden_channels": 30}, "heads must divide hidden_channels, got heads=8, hidden_channels=30"),
        ({"heads": 0}, "heads must be a positive integer, got 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"jk": "sum"}, "jk must be one of None, 'last', 'cat', 'max', 'lstm', got 'sum'"),
        ({"level": "node"}, "level must be one of"),
    ],
)
def test_bad_arguments_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GFGN(**({"in_channels": 6, "hidden_channels": 8, "num_layers": 2, "out_channels": 3} | options))
