"""Layers that PyG has too: the same outputs with the same weights."""

from collections.abc import Callable

import pytest
import torch
from nn.baselines.tiny import FEATURES, NODES, edges, features, graph, randomize
from torch import Tensor
from torch_geometric import nn as pyg

from gfgn import Graph
from gfgn.graph import with_self_loops
from gfgn.nn.baselines.appnp import APPNP
from gfgn.nn.baselines.arma import ARMALayer
from gfgn.nn.baselines.gat import GATLayer
from gfgn.nn.baselines.gatv2 import GATv2Layer
from gfgn.nn.baselines.gcn import GCN
from gfgn.nn.baselines.gcnii import GCNII
from gfgn.nn.baselines.ggnn import GatedGraphLayer
from gfgn.nn.baselines.graphsage import SAGELayer
from gfgn.nn.baselines.graphsaint import SaintLayer, mean_weighted
from gfgn.nn.baselines.linkx import LINKX
from gfgn.nn.baselines.resgated import ResGatedLayer, unscaled
from gfgn.nn.baselines.sgc import SGC

both_ways = pytest.mark.parametrize("directed", [False, True])


def stacked(weight: Tensor, stacks: int) -> Tensor:
    """`[K·out, in]` as PyG's `[K, in, out]`."""
    return weight.unflatten(0, (stacks, -1)).transpose(1, 2)


def load(layer: torch.nn.Module, **values: Tensor) -> torch.nn.Module:
    """Sets all parameters of a layer."""
    layer.double().load_state_dict({name.replace("__", "."): value.detach() for name, value in values.items()})
    return layer


@both_ways
def test_gcn(directed: bool) -> None:
    model = randomize(GCN(FEATURES, 3, 0.0, hidden=7))
    x, e = features(), edges(directed=directed)
    for ours, size in zip(model.convs, ((FEATURES, 7), (7, 3)), strict=True):
        x = load(pyg.GCNConv(*size), lin__weight=ours.lin.weight, bias=ours.lin.bias)(x, e)
        x = x.relu() if size[1] == 7 else x
    torch.testing.assert_close(model(features(), graph(directed=directed)), x)


@both_ways
def test_sgc(directed: bool) -> None:
    model = randomize(SGC(FEATURES, 3, 0.0, hops=3))
    peer = load(pyg.SGConv(FEATURES, 3, K=3), lin__weight=model.lin.weight, lin__bias=model.lin.bias)
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(model(features(), graph(directed=directed)), expected)


@both_ways
def test_appnp(directed: bool) -> None:
    model = randomize(APPNP(FEATURES, 3, 0.0, hidden=7, steps=6, alpha=0.2))
    first, second = model.mlp.lins
    predicted = second(first(features()).relu())
    expected = pyg.APPNP(K=6, alpha=0.2)(predicted, edges(directed=directed))
    torch.testing.assert_close(model(features(), graph(directed=directed)), expected)


@both_ways
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("act", [True, False])
def test_arma(directed: bool, depth: int, act: bool) -> None:
    layer = randomize(ARMALayer(FEATURES, 4, stacks=2, depth=depth, act=act))
    options = {} if act else {"act": None}
    peer = load(
        pyg.ARMAConv(FEATURES, 4, num_stacks=2, num_layers=depth, shared_weights=True, **options),
        init_weight=stacked(layer.init.weight, 2),
        root_weight=stacked(layer.root.weight, 2).unsqueeze(0),
        weight=torch.zeros(1, 2, 4, 4) if layer.weight is None else layer.weight.unsqueeze(0),
        bias=layer.root.bias.view(1, 2, 1, 4),
    )
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(layer(features(), graph(directed=directed)), expected)


@both_ways
def test_ggnn(directed: bool) -> None:
    layer = randomize(GatedGraphLayer(6, steps=3))
    peer = load(
        pyg.GatedGraphConv(6, num_layers=3),
        weight=layer.weight,
        rnn__weight_ih=layer.input.weight,
        rnn__weight_hh=layer.hidden.weight,
        rnn__bias_ih=layer.input.bias,
        rnn__bias_hh=layer.hidden.bias,
    )
    h = torch.randn(NODES, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(layer(h, graph(directed=directed)), peer(h, edges(directed=directed)))


@both_ways
@pytest.mark.parametrize(("kind", "edges_of"), [(SAGELayer, lambda g: g), (SaintLayer, mean_weighted)])
def test_graphsage_and_graphsaint(directed: bool, kind: type, edges_of: Callable[[Graph], Graph]) -> None:
    layer = randomize(kind(FEATURES, 4))
    peer = load(
        pyg.SAGEConv(FEATURES, 4),
        lin_l__weight=layer.lin["neighbor"].weight,
        lin_l__bias=layer.lin["own"].bias,
        lin_r__weight=layer.lin["own"].weight,
    )
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(layer(features(), edges_of(graph(directed=directed))), expected)


@both_ways
@pytest.mark.parametrize("concat", [True, False])
def test_gat(directed: bool, concat: bool) -> None:
    layer = randomize(GATLayer(FEATURES, 4, heads=3, concat=concat))
    peer = load(
        pyg.GATConv(FEATURES, 4, heads=3, concat=concat),
        lin__weight=layer.lin.weight,
        att_src=layer.source,
        att_dst=layer.target,
        bias=layer.bias,
    )
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(layer(features(), with_self_loops(graph(directed=directed))), expected)


@both_ways
@pytest.mark.parametrize("concat", [True, False])
def test_gatv2(directed: bool, concat: bool) -> None:
    layer = randomize(GATv2Layer(FEATURES, 4, heads=3, concat=concat))
    peer = load(
        pyg.GATv2Conv(FEATURES, 4, heads=3, concat=concat),
        lin_l__weight=layer.lin["source"].weight,
        lin_l__bias=layer.lin["source"].bias,
        lin_r__weight=layer.lin["target"].weight,
        lin_r__bias=layer.lin["target"].bias,
        att=layer.attention,
        bias=layer.bias,
    )
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(layer(features(), with_self_loops(graph(directed=directed))), expected)


@both_ways
def test_resgated(directed: bool) -> None:
    layer = randomize(ResGatedLayer(FEATURES, 4))
    values = {
        f"lin_{name}__{part}": getattr(layer.lin[name], part)
        for name in ("key", "query", "value")
        for part in ("weight", "bias")
    }
    skip = layer.lin["skip"]
    peer = load(pyg.ResGatedGraphConv(FEATURES, 4), lin_skip__weight=skip.weight, bias=skip.bias, **values)
    expected = peer(features(), edges(directed=directed))
    torch.testing.assert_close(layer(features(), unscaled(graph(directed=directed))), expected)


@pytest.mark.parametrize("hidden", [FEATURES, 7])
def test_gcnii(hidden: int) -> None:
    model = randomize(GCNII(FEATURES, 3, 0.0, hidden=hidden, layers=4, alpha=0.2, theta=0.7))
    h = initial = model.embed(features()).relu()
    for k, weight in enumerate(model.weight, start=1):
        peer = load(pyg.GCN2Conv(hidden, alpha=0.2, theta=0.7, layer=k), weight1=weight.t())
        h = peer(h, initial, edges()).relu()
    torch.testing.assert_close(model(features(), graph()), model.out(h))


def test_linkx() -> None:
    model = randomize(LINKX(FEATURES, 3, 0.0, num_nodes=NODES, hidden=7, layers=1))
    peer = load(
        pyg.LINKX(NODES, FEATURES, 7, 3, num_layers=1),
        edge_lin__weight=model.nodes,
        edge_lin__bias=model.nodes_bias,
        node_mlp__lins__0__weight=model.features.weight,
        node_mlp__lins__0__bias=model.features.bias,
        cat_lin1__weight=model.join_nodes.weight,
        cat_lin1__bias=model.join_nodes.bias,
        cat_lin2__weight=model.join_features.weight,
        cat_lin2__bias=torch.zeros(7),
        final_mlp__lins__0__weight=model.mlp.lins[0].weight,
        final_mlp__lins__0__bias=model.mlp.lins[0].bias,
    ).eval()
    torch.testing.assert_close(model(features(), graph()), peer(features(), edges()))
