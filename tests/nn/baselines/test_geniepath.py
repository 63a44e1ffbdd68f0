"""`geniepath` against loops over scalars."""

import pytest
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
    neighbors,
    randomize,
    scale,
    sigmoid,
    softmax,
    tanh,
)

from gfgn.nn.baselines.geniepath import Breadth, Depth, GeniePath


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
def test_model_is_the_papers_equation(lazy: bool, directed: bool) -> None:
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
