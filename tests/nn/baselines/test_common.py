"""What several baselines share: the weighted mean over neighbors and several linear maps of one input."""

import math

import torch
from nn.baselines.tiny import NODES, edges
from torch import Tensor

from gfgn import Graph
from gfgn.nn.baselines.common import Maps, random_walk


def values(rows: int, width: int) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_random_walk_is_the_weighted_mean() -> None:
    weight = torch.rand(edges().size(1), generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    g = Graph.from_edge_index(edges(), NODES, weight)
    x, expected = values(NODES, 3), torch.zeros(NODES, 3, dtype=torch.float64)
    for e, (source, target) in enumerate(g.edge_index.t().tolist()):
        expected[target] += g.weight[e] / g.degree[target] * x[source]
    torch.testing.assert_close(random_walk(x, g), expected)


def test_maps_are_independent_linear_maps() -> None:
    maps = Maps(4, {"first": 3, "second": 2, "third": 5}, bias=["first", "third"]).double()
    with torch.no_grad():
        maps.bias.normal_()
    x = values(6, 4)
    for name, part in zip(("first", "second", "third"), maps(x), strict=True):
        weight, bias = maps[name]
        torch.testing.assert_close(part, x @ weight.t() + (0 if bias is None else bias))
        limit = math.sqrt(6 / (4 + weight.size(0)))  # Glorot's bound for each map alone
        assert 0.6 * limit < weight.abs().max() <= limit
    assert maps["second"].bias is None
    assert Maps(4, {"only": 2}).bias is None
