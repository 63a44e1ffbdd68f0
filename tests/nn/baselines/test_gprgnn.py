"""`gprgnn` against loops over scalars."""

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
    edges,
    features,
    graph,
    linear,
    neighbors,
    randomize,
    relu,
    scale,
)

from gfgn.nn.baselines.gprgnn import GPRGNN


def test_model_is_the_papers_equation() -> None:
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
