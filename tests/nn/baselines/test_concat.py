"""The variants of VR-GCN and GraphSAINT that concatenate own and neighbor values, against loops over scalars."""

import math

import pytest
from nn.baselines.tiny import (
    CLASSES,
    FEATURES,
    Row,
    add,
    assert_matches,
    features,
    graph,
    linear,
    mean,
    neighbors,
    randomize,
    relu,
)
from torch import nn

from gfgn.nn.baselines.graphsaint import GraphSAINT
from gfgn.nn.baselines.vr_gcn import VRGCN

HIDDEN = 4
both_ways = pytest.mark.parametrize("directed", [False, True])


def normalized(row: Row, norm: nn.LayerNorm) -> Row:
    middle = sum(row) / len(row)
    spread = math.sqrt(sum((value - middle) ** 2 for value in row) / len(row) + norm.eps)
    scale, shift = norm.weight.tolist(), norm.bias.tolist()
    return [(v - middle) / spread * a + b for v, a, b in zip(row, scale, shift, strict=True)]


@both_ways
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_vr_gcn(directed: bool, layers: int) -> None:
    net = randomize(VRGCN(FEATURES, CLASSES, hidden=HIDDEN, layers=layers, concat=True)).eval()
    g = graph(directed=directed)
    rows, adjacent = features().tolist(), neighbors(g.edge_index)
    for number, layer in enumerate(net.layers, 1):
        own, other = layer.lin["own"], layer.lin["neighbor"]
        means = [mean([rows[j] for j in sources], len(rows[0])) for sources in adjacent]
        rows = [
            add(linear(row, own.weight, own.bias), linear(m, other.weight)) for row, m in zip(rows, means, strict=True)
        ]
        if number < layers:
            rows = [relu(normalized(row, layer.norm)) for row in rows]
    assert net.layers[-1].norm is None
    assert_matches(net(features(), g), rows)


@both_ways
@pytest.mark.parametrize("layers", [1, 2])
def test_graphsaint(directed: bool, layers: int) -> None:
    net = randomize(GraphSAINT(FEATURES, CLASSES, hidden=HIDDEN, layers=layers, concat=True)).eval()
    g = graph(directed=directed)
    rows, adjacent = features().tolist(), neighbors(g.edge_index)
    *convs, head = net.convs
    assert len(convs) == layers
    for layer in convs:
        own, other = layer.lin["own"], layer.lin["neighbor"]
        means = [mean([rows[j] for j in sources], len(rows[0])) for sources in adjacent]
        rows = [
            normalized(relu(linear(row, own.weight, own.bias)), layer.norms[0])
            + normalized(relu(linear(m, other.weight, layer.bias)), layer.norms[1])
            for row, m in zip(rows, means, strict=True)
        ]
    rows = [normalized(relu(linear(row, head.lin.weight, head.lin.bias)), head.norm) for row in rows]
    rows = [[value / math.sqrt(sum(v * v for v in row)) for value in row] for row in rows]
    assert_matches(net(features(), g), [linear(row, head.classifier.weight, head.classifier.bias) for row in rows])


@pytest.mark.parametrize("model", [VRGCN, GraphSAINT])
def test_reset_parameters(model: type[nn.Module]) -> None:
    net = model(FEATURES, CLASSES, hidden=HIDDEN, concat=True)
    randomize(net)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.reset_parameters()
    assert all((value != before[name]).all() for name, value in net.state_dict().items())
