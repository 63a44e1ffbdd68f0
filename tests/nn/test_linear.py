"""`StackedLinear`: each map is a linear map with its own initialization."""

import math

import torch

from gfgn.nn.linear import StackedLinear


def test_each_map_is_a_linear_map() -> None:
    lin = StackedLinear(4, {"first": 3, "second": 2, "third": 5}, bias=["first", "third"]).double()
    with torch.no_grad():
        lin.bias.normal_()
    x = torch.randn(6, 4, dtype=torch.float64)
    for name, part in zip(("first", "second", "third"), lin(x), strict=True):
        weight, bias = lin[name]
        torch.testing.assert_close(part, x @ weight.t() + (0 if bias is None else bias))
        limit = math.sqrt(6 / (4 + weight.size(0)))  # Glorot per map
        assert 0.6 * limit < weight.abs().max() <= limit
    assert lin["second"].bias is None
    assert StackedLinear(4, {"only": 2}).bias is None
