"""`h2gcn` against loops over scalars."""

import math

import pytest
from nn.baselines.tiny import (
    CLASSES,
    FEATURES,
    NODES,
    Row,
    add,
    assert_matches,
    edges,
    features,
    graph,
    linear,
    neighbors,
    randomize,
    relu,
    scale,
)

from gfgn.nn.baselines.h2gcn import H2GCN, two_hop_graph


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
def test_model_is_the_papers_equation(rounds: int) -> None:
    model = randomize(H2GCN(FEATURES, CLASSES, 0.0, hidden=4, rounds=rounds)).eval()
    near = neighbors(edges())
    far = second_neighbors(near)
    r = [relu(linear(row, model.embed.weight, model.embed.bias)) for row in features().tolist()]
    rounds_of = [list(row) for row in r]
    for _ in range(rounds):
        r = [a + b for a, b in zip(aggregate(r, near), aggregate(r, far), strict=True)]
        rounds_of = [old + new for old, new in zip(rounds_of, r, strict=True)]
    assert_matches(model(features(), graph()), [linear(row, model.out.weight, model.out.bias) for row in rounds_of])
