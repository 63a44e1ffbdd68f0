"""`gaan` against loops over scalars."""

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
    leaky,
    linear,
    mean,
    neighbors,
    randomize,
    scale,
    sigmoid,
    softmax,
)

from gfgn.nn.baselines.gaan import GaAN, GaANLayer

HEADS, KEY, VALUE, POOL = 2, 3, 2, 4


def part(row: Row, head: int) -> Row:
    width = len(row) // HEADS
    return row[head * width : (head + 1) * width]


def layer(rows: list[Row], conv: GaANLayer, adjacent: list[list[int]]) -> list[Row]:
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
def test_model_is_the_papers_equation(directed: bool) -> None:
    model = randomize(GaAN(FEATURES, CLASSES, 0.0, hidden=4, heads=HEADS, key=KEY, value=VALUE, pool=POOL)).eval()
    adjacent = neighbors(edges(directed=directed))
    first, second = model.convs
    hidden = [leaky(row, 0.1) for row in layer(features().tolist(), first, adjacent)]
    assert_matches(model(features(), graph(directed=directed)), layer(hidden, second, adjacent))
