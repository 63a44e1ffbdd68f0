"""`acm-gcn` against loops over scalars."""

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
    linear,
    mean,
    neighbors,
    randomize,
    relu,
    scale,
    sigmoid,
    softmax,
)

from gfgn import Graph
from gfgn.nn.baselines.acm_gcn import ACMGCN, ACMLayer, random_walk


def layer(rows: list[Row], conv: ACMLayer, adjacent: list[list[int]]) -> list[Row]:
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


def test_model_is_the_papers_equation() -> None:
    model = randomize(ACMGCN(FEATURES, CLASSES, 0.0, hidden=4)).eval()
    adjacent = [[i, *others] for i, others in enumerate(neighbors(edges()))]
    rows = features().tolist()
    for conv in model.convs:
        rows = layer(rows, conv, adjacent)
    assert_matches(model(features(), graph()), rows)


def test_random_walk_is_the_weighted_mean() -> None:
    weight = torch.rand(edges().size(1), dtype=torch.float64) + 0.1
    g = Graph.from_edge_index(edges(), NODES, weight)
    x = torch.randn(NODES, 3, dtype=torch.float64)
    adjacency = torch.zeros(NODES, NODES, dtype=torch.float64).index_put((g.edge_index[1], g.edge_index[0]), g.weight)
    expected = adjacency @ x / adjacency.sum(1, keepdim=True).clamp(min=1e-12)
    torch.testing.assert_close(random_walk(x, g), expected)
