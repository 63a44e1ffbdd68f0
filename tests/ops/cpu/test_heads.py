"""Products with one matrix per head and sums over rows on the CPU: against plain loops, and whose bits they have."""

import math

import pytest
import torch
from torch import Tensor

from gfgn.ops.cpu import heads
from gfgn.train.settings import num_threads

SIZES = [(1, 1, 1, 1), (5, 3, 2, 7), (129, 2, 64, 7), (70, 1, 300, 40), (200, 3, 130, 33), (600, 2, 8, 16)]
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def assert_close(got: Tensor, expected: Tensor) -> None:
    tolerance = 1e-12 if got.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance * 30)


@both_types
@pytest.mark.parametrize(("rows", "count", "depth", "width"), SIZES)
def test_products(rows: int, count: int, depth: int, width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, count * depth, dtype=dtype), torch.randn(count, depth, width, dtype=dtype)
    grad = torch.randn(rows, count * width, dtype=dtype)
    by_head = x.double().view(rows, count, depth).transpose(0, 1)
    expected = (by_head @ weight.double()).transpose(0, 1).reshape(rows, -1)
    out = torch.full((rows, count * width), math.nan, dtype=dtype)
    heads.head_matmul(x, weight, out, add=False)
    assert_close(out, expected)
    heads.head_matmul(x, weight.transpose(1, 2).contiguous().transpose(1, 2), out, add=True)
    assert_close(out, 2 * expected)
    of_weight = by_head.transpose(1, 2) @ grad.double().view(rows, count, width).transpose(0, 1)
    assert_close(heads.head_weight_gradient(x, grad, count), of_weight)
    assert_close(heads.row_sums(grad), grad.double().sum(0))


def test_one_value_as_a_chain_of_products() -> None:
    """A value is `Σ_k x_k w_k`, added in the order of `k` with one rounding per term."""
    torch.manual_seed(1)
    x, weight = torch.randn(1, 20), torch.randn(1, 20, 1)
    out = torch.empty(1, 1)
    heads.head_matmul(x, weight, out, add=False)
    total = 0.0
    for left, right in zip(x[0].tolist(), weight.flatten().tolist(), strict=True):
        total = float(torch.tensor(total + left * right))  # exact in float64, rounded once to float32
    assert out.item() == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("size", [0, 3])
def test_nothing_to_add(size: int) -> None:
    x, out = torch.randn(size, 0), torch.ones(size, 4)
    heads.head_matmul(x, torch.randn(2, 0, 2), out, add=True)
    assert torch.equal(out, torch.ones(size, 4))
    heads.head_matmul(x, torch.randn(2, 0, 2), out, add=False)
    assert torch.equal(out, torch.zeros(size, 4))
    assert torch.equal(heads.head_weight_gradient(torch.randn(0, 4), torch.randn(0, 6), 2), torch.zeros(2, 2, 3))
    assert torch.equal(heads.row_sums(torch.randn(0, 3)), torch.zeros(3))


@both_types
@pytest.mark.parametrize(("depth", "width"), [(8, 8), (64, 5), (200, 40), (3, 17)])
def test_bits_do_not_depend_on_other_heads_or_threads(depth: int, width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    rows, count = 300, 19
    x, weight = torch.randn(rows, count * depth, dtype=dtype), torch.randn(count, depth, width, dtype=dtype)
    grad = torch.randn(rows, count * width, dtype=dtype)

    def results(first: int, last: int) -> list[Tensor]:
        number = last - first
        part, of_part = x[:, first * depth : last * depth], grad[:, first * width : last * width].contiguous()
        out = torch.empty(rows, number * width, dtype=dtype)
        heads.head_matmul(part.contiguous(), weight[first:last], out, add=False)
        of_weight = heads.head_weight_gradient(part.contiguous(), of_part, number)
        sums = heads.row_sums(of_part)
        return [out.view(rows, number, width), of_weight.transpose(0, 1), sums.view(1, number, width)]

    with num_threads(1):
        together = results(0, count)
    for threads in (1, 3):
        with num_threads(threads):
            for first, last in ((0, 1), (18, 19), (3, 6), (0, 19)):
                for part, whole in zip(results(first, last), together, strict=True):
                    assert torch.equal(part, whole[:, first:last])


def test_what_is_not_finite_stays_in_its_head() -> None:
    x, weight = torch.ones(10, 6), torch.ones(3, 2, 5)
    x[4, 2], weight[0, 0, 1] = math.nan, math.inf
    out = torch.empty(10, 15)
    heads.head_matmul(x, weight, out, add=False)
    finite = out.isfinite().view(10, 3, 5)
    assert finite[:, 2].all()
    assert not finite[4, 1].any()
    assert finite[:4, 1].all()
    assert (~finite[:, 0]).nonzero()[:, 1].unique().tolist() == [1]
    of_weight = heads.head_weight_gradient(x, torch.ones(10, 15), 3)
    assert of_weight.isfinite().view(3, -1).all(1).tolist() == [True, False, True]
