"""Models that PyG lacks, against loops over scalars written from their papers."""

import math

import pytest
import torch
from nn.baselines.tiny import (
    CLASSES,
    FEATURES,
    NODES,
    Row,
    add,
    assert_matches,
    dot,
    edges,
    features,
    graph,
    leaky,
    linear,
    mean,
    neighbors,
    randomize,
    relu,
    scale,
    sigmoid,
    softmax,
    tanh,
)
from torch import nn

from gfgn import Graph
from gfgn.nn.baselines.acm_gcn import ACMGCN, ACMLayer, random_walk
from gfgn.nn.baselines.gaan import GaAN, GaANLayer
from gfgn.nn.baselines.geniepath import Breadth, Depth, GeniePath
from gfgn.nn.baselines.gprgnn import GPRGNN
from gfgn.nn.baselines.graphsaint import GraphSAINT
from gfgn.nn.baselines.h2gcn import H2GCN, two_hop_graph
from gfgn.nn.baselines.vr_gcn import VRGCN

# --- gprgnn ---------------------------------------------------------------------------------------------------------


def test_gprgnn() -> None:
    model = randomize(GPRGNN(FEATURES, CLASSES, 0.0, hidden=4, steps=3)).eval()
    first, second = model.mlp.lins
    h = [linear(relu(linear(row, first.weight, first.bias)), second.weight, second.bias) for row in features().tolist()]
    adjacent = [[i, *others] for i, others in enumerate(neighbors(edges()))]
    gamma = model.gamma.tolist()
    expected = [scale(gamma[0], row) for row in h]
    for k in range(1, 4):
        propagated: list[Row] = []
        for i in range(NODES):
            terms = [scale(1 / math.sqrt(len(adjacent[i]) * len(adjacent[j])), h[j]) for j in adjacent[i]]
            propagated.append(add(*terms))
        h = propagated
        expected = [add(expected[i], scale(gamma[k], h[i])) for i in range(NODES)]
    assert_matches(model(features(), graph()), expected)


def test_initial_weights_are_personalized_pagerank() -> None:
    gamma = GPRGNN(FEATURES, CLASSES, steps=3, alpha=0.2).gamma
    torch.testing.assert_close(gamma.detach(), torch.tensor([0.2, 0.2 * 0.8, 0.2 * 0.64, 0.512]))
    assert gamma.sum().item() == pytest.approx(1)


# --- h2gcn ----------------------------------------------------------------------------------------------------------


def second_neighbors(adjacent: list[list[int]]) -> list[list[int]]:
    return [sorted({k for j in adjacent[i] for k in adjacent[j]} - set(adjacent[i]) - {i}) for i in range(NODES)]


def aggregate(rows: list[Row], adjacent: list[list[int]]) -> list[Row]:
    nothing = [0.0] * len(rows[0])
    return [
        add(
            nothing,
            *[scale(1 / math.sqrt(len(adjacent[i]) * len(adjacent[j])), rows[j]) for j in adjacent[i] if adjacent[j]],
        )
        for i in range(NODES)
    ]


@pytest.mark.parametrize("directed", [False, True])
def test_second_neighborhood(directed: bool) -> None:
    expected = second_neighbors(neighbors(edges(directed=directed)))
    hops = neighbors(two_hop_graph(graph(directed=directed)).edge_index)
    assert [sorted(row) for row in hops] == expected
    assert any(expected)


@pytest.mark.parametrize("rounds", [1, 2])
def test_h2gcn(rounds: int) -> None:
    model = randomize(H2GCN(FEATURES, CLASSES, 0.0, hidden=4, rounds=rounds)).eval()
    near = neighbors(edges())
    far = second_neighbors(near)
    r = [relu(linear(row, model.embed.weight, model.embed.bias)) for row in features().tolist()]
    rounds_of = [list(row) for row in r]
    for _ in range(rounds):
        r = [a + b for a, b in zip(aggregate(r, near), aggregate(r, far), strict=True)]
        rounds_of = [old + new for old, new in zip(rounds_of, r, strict=True)]
    assert_matches(model(features(), graph()), [linear(row, model.out.weight, model.out.bias) for row in rounds_of])


# --- acm-gcn --------------------------------------------------------------------------------------------------------


def acm_layer(rows: list[Row], conv: ACMLayer, adjacent: list[list[int]]) -> list[Row]:
    low, high, own = ([linear(row, conv.lin[name].weight) for row in rows] for name in ("low", "high", "own"))
    width = len(low[0])
    score, mix = conv.score.tolist(), conv.mix.tolist()
    out = []
    for i in range(NODES):
        channels = [
            relu(mean([low[j] for j in adjacent[i]], width)),
            relu(add(high[i], scale(-1, mean([high[j] for j in adjacent[i]], width)))),
            relu(own[i]),
        ]
        scores = sigmoid([dot(channel, w) for channel, w in zip(channels, score, strict=True)])
        alpha = softmax([sum(scores[a] * mix[a][b] for a in range(3)) / 3 for b in range(3)])
        out.append(add(*[scale(a, channel) for a, channel in zip(alpha, channels, strict=True)]))
    return out


def test_acm_gcn() -> None:
    model = randomize(ACMGCN(FEATURES, CLASSES, 0.0, hidden=4)).eval()
    adjacent = [[i, *others] for i, others in enumerate(neighbors(edges()))]
    rows = features().tolist()
    for conv in model.convs:
        rows = acm_layer(rows, conv, adjacent)
    assert_matches(model(features(), graph()), rows)


def test_random_walk_is_the_weighted_mean() -> None:
    weight = torch.rand(edges().size(1), dtype=torch.float64) + 0.1
    g = Graph.from_edge_index(edges(), NODES, weight)
    x = torch.randn(NODES, 3, dtype=torch.float64)
    adjacency = torch.zeros(NODES, NODES, dtype=torch.float64).index_put((g.edge_index[1], g.edge_index[0]), g.weight)
    expected = adjacency @ x / adjacency.sum(1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(random_walk(x, g), expected)


# --- geniepath ------------------------------------------------------------------------------------------------------


def product(first: Row, second: Row) -> Row:
    return [a * b for a, b in zip(first, second, strict=True)]


def in_breadth(rows: list[Row], module: Breadth, adjacent: list[list[int]]) -> list[Row]:
    score = module.score[0].tolist()
    out = []
    for i in range(NODES):
        own = linear(rows[i], module.lin["own"].weight)
        alpha = softmax([dot(score, tanh(add(own, linear(rows[j], module.lin["other"].weight)))) for j in adjacent[i]])
        joined = add(*[scale(a, rows[j]) for a, j in zip(alpha, adjacent[i], strict=True)])
        out.append(tanh(linear(joined, module.lin["value"].weight)))
    return out


def in_depth(u: Row, memory: Row, module: Depth) -> tuple[Row, Row]:
    gates = [linear(u, module.lin[name].weight) for name in ("input", "forget", "output", "cell")]
    memory = add(product(sigmoid(gates[1]), memory), product(sigmoid(gates[0]), tanh(gates[3])))
    return product(sigmoid(gates[2]), tanh(memory)), memory


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_geniepath(lazy: bool, directed: bool) -> None:
    model = randomize(GeniePath(FEATURES, CLASSES, 0.0, hidden=4, layers=3, lazy=lazy)).eval()
    adjacent = [[i, *others] for i, others in enumerate(neighbors(edges(directed=directed)))]
    h = [linear(row, model.embed.weight) for row in features().tolist()]
    path, memory = h, [[0.0] * 4 for _ in range(NODES)]
    for breadth, depth in zip(model.breadth, model.depth, strict=True):
        h = in_breadth(h, breadth, adjacent)
        inputs = [a + b for a, b in zip(h, path, strict=True)] if lazy else h
        pairs = [in_depth(u, c, depth) for u, c in zip(inputs, memory, strict=True)]
        path, memory = [p for p, _ in pairs], [c for _, c in pairs]
        h = h if lazy else path
    expected = [linear(row, model.out.weight, model.out.bias) for row in path]
    assert_matches(model(features(), graph(directed=directed)), expected)


# --- gaan -----------------------------------------------------------------------------------------------------------


HEADS, KEY, VALUE, POOL = 2, 3, 2, 4


def part(row: Row, head: int) -> Row:
    width = len(row) // HEADS
    return row[head * width : (head + 1) * width]


def gaan_layer(rows: list[Row], conv: GaANLayer, adjacent: list[list[int]]) -> list[Row]:
    query, key, value, pool = (
        [linear(row, *conv.lin[name]) for row in rows] for name in ("query", "key", "value", "pool")
    )
    out = []
    for i in range(NODES):
        top = [max((pool[j][c] for j in adjacent[i]), default=0.0) for c in range(POOL)]
        gate = sigmoid(
            add(
                linear(rows[i], *conv.lin["gate_own"]),
                linear(top, conv.gate_max.weight),
                linear(mean([rows[j] for j in adjacent[i]], len(rows[i])), conv.lin["gate_mean"].weight),
            )
        )
        heads: Row = []
        for k in range(HEADS):
            alpha = softmax([dot(part(query[i], k), part(key[j], k)) for j in adjacent[i]])
            terms = [scale(a, leaky(part(value[j], k), 0.1)) for a, j in zip(alpha, adjacent[i], strict=True)]
            heads += scale(gate[k], add([0.0] * VALUE, *terms))
        own = linear(rows[i], *conv.lin["out_own"])
        out.append(add(own, linear(heads, conv.out_heads.weight)))
    return out


@pytest.mark.parametrize("directed", [False, True])
def test_gaan(directed: bool) -> None:
    model = randomize(GaAN(FEATURES, CLASSES, 0.0, hidden=4, heads=HEADS, key=KEY, value=VALUE, pool=POOL)).eval()
    adjacent = neighbors(edges(directed=directed))
    first, second = model.convs
    hidden = [leaky(row, 0.1) for row in gaan_layer(features().tolist(), first, adjacent)]
    assert_matches(model(features(), graph(directed=directed)), gaan_layer(hidden, second, adjacent))


# --- vr-gcn and graphsaint that concatenate own and neighbor values ---------------------------------------------------


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
