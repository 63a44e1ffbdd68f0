"""Products of split matrices: as precise as float32, also where many replicas share their features."""

import pytest
import torch

from gfgn.ops import bf16_split
from gfgn.ops.sparse import shared_linear_op


def test_parts_sum_to_the_number() -> None:
    x = torch.randn(500) * torch.logspace(-20, 20, 500)
    high, middle, low = bf16_split.split(torch.cat([x, torch.tensor([0.0, -1.0, 3.0])]))
    assert high.dtype == middle.dtype == low.dtype == torch.bfloat16
    assert torch.equal(high.float() + (middle.float() + low.float()), torch.cat([x, torch.tensor([0.0, -1.0, 3.0])]))


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 1, 1), (40, 300, 30), (7, 0, 5), (0, 3, 2)])
def test_as_precise_as_float32(rows: int, inner: int, columns: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.rand(rows, inner), torch.randn(inner, columns)
    exact = x.double() @ weight.double()
    error = (bf16_split.product(bf16_split.left_parts(x), weight) - exact).norm()
    assert error <= 4e-7 * exact.norm()


def test_three_products_are_not_precise_enough() -> None:
    torch.manual_seed(0)
    x, weight = torch.rand(40, 300), torch.randn(300, 30)
    left = bf16_split.left_parts(x)
    left[:, :900] = 0  # without the three smallest products
    exact = x.double() @ weight.double()
    assert (bf16_split.product(left, weight) - exact).norm() > 4e-7 * exact.norm()


@pytest.mark.parametrize("columns", [8, 1024])
def test_shared_linear_of_a_split_matrix(columns: int) -> None:
    """For one model and for many: the values and the gradient of the plain product."""
    torch.manual_seed(0)
    x, weight = torch.rand(30, 20), torch.randn(20, columns, requires_grad=True)
    out = shared_linear_op(weight, x, bf16_split.left_parts(x))
    torch.testing.assert_close(out, x @ weight)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, weight, grad)[0], x.t() @ grad)
    weights = torch.randn(3, 20, columns)
    together = torch.vmap(lambda w: shared_linear_op(w, x, bf16_split.left_parts(x)))(weights)
    torch.testing.assert_close(together, x @ weights)
