"""Functions for replicas: against PyTorch, derivatives, and bits that do not depend on a batch."""

import pytest
import torch

from gfgn import ops
from gfgn.ops.invariant import ACTIVATIONS, activate_op, expand_rows_op, sum_rows_op

every_activation = pytest.mark.parametrize("name", ACTIVATIONS)


@every_activation
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 3e-7), (torch.float64, 1e-15)])
def test_activations_of_all_sizes(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """Relative precision from tiny to large numbers, of both signs; NaN stays."""
    size = torch.logspace(-30, 1.5, 1001, dtype=torch.float64)
    x = torch.cat([-size, size.new_zeros(1), size]).to(dtype)
    got, exact = activate_op(x.view(1, -1), name)[0], x.double()
    # PyTorch's softplus is x above 20.
    expected = torch.logaddexp(exact, exact.new_zeros(1)) if name == "softplus" else ACTIVATIONS[name](exact)
    assert ((got.double() - expected).abs() <= tolerance * expected.abs() + 1e-37).all()
    assert activate_op(torch.full((1, 3), torch.nan, dtype=dtype), name).isnan().all()


@every_activation
def test_limits(name: str) -> None:
    x = torch.tensor([[-1e4, 1e4, -torch.inf, torch.inf]])
    got, expected = activate_op(x, name), ACTIVATIONS[name](x)
    if name in ("exp", "expm1"):  # never infinite, and exp never 0, so that no quotient of two is NaN
        torch.testing.assert_close(got[0, ::2], expected[0, ::2], atol=1e-37, rtol=0)
        assert ((got[0, 1::2] > 1e37) & got[0, 1::2].isfinite()).all()
    else:
        torch.testing.assert_close(got, expected, atol=1e-36, rtol=1e-6)


@every_activation
def test_derivatives_of_activations(name: str) -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: activate_op(x, name), x)
    assert torch.autograd.gradgradcheck(lambda x: activate_op(x, name), x)


def test_derivatives_of_rows() -> None:
    x, row = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (5, 1))
    for function, argument in ((sum_rows_op, x), (lambda row: expand_rows_op(row, 4) * 1, row)):
        assert torch.autograd.gradcheck(function, argument)
        assert torch.autograd.gradgradcheck(function, argument)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_standardize(rows: int) -> None:
    x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    out, mean, var = ops.standardize(x)
    torch.testing.assert_close(mean, x.mean(0, keepdim=True))
    torch.testing.assert_close(var, x.var(0, correction=0, keepdim=True))
    torch.testing.assert_close(out, (x - mean) / (var + 1e-5).sqrt())
    if rows > 1:  # of one row, all is 0
        assert torch.autograd.gradcheck(ops.standardize, x)
        assert torch.autograd.gradgradcheck(ops.standardize, x)


def test_without_a_batch_they_are_those_of_pytorch() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(ops.activate(x, "tanh"), x.tanh())
    assert torch.equal(ops.sum_rows(x), x.sum(0, keepdim=True))
    assert torch.equal(x + ops.expand_rows(x[0], 5), x + x[0])


@pytest.mark.parametrize(("rows", "width"), [(7, 5), (300, 33)])
def test_bits_do_not_depend_on_the_batch(rows: int, width: int) -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(21, rows, width), torch.randn(21, width)

    def network(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = x + ops.expand_rows(bias, rows)
        for name in ACTIVATIONS:
            y = ops.activate(y, name)
        out, mean, var = ops.standardize(y)
        return ops.sum_rows(y) + ops.sum_rows(out * x) + mean * var

    def results(first: int, last: int) -> list[torch.Tensor]:
        leaves = [value[first:last].clone().requires_grad_() for value in (x, bias)]
        out = torch.vmap(network)(*leaves)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    together = results(0, 21)
    for first, last in ((0, 1), (20, 21), (4, 6)):
        for part, whole in zip(results(first, last), together, strict=True):
            assert torch.equal(part, whole[first:last])
