"""`StackedLinear`: each map is a linear map with its own initialization."""

import math

import pytest
import torch

from gfgn.nn import MODELS, GFGNConv
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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_another_dtype_names_x(dtype: torch.dtype) -> None:
    x, edges = torch.ones(3, 4, dtype=dtype), torch.tensor([[0, 1], [1, 2]])
    for level in ("graph", "neighbor", "pair"):
        with pytest.raises(TypeError, match=rf"x must have the dtype of the weights, torch.float32, got {dtype}"):
            GFGNConv(4, 2, level=level)(x, edges)
    for name in ("mlp", "gcn", "gat"):
        with pytest.raises(TypeError, match="x must have the dtype"):
            MODELS[name].build(4, 2)(x, edges)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        GFGNConv(4, 2)(torch.ones(3, 4), edges)
