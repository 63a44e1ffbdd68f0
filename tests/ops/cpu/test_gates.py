"""The gated sums against plain float64 PyTorch: odd shapes, hubs, gates far from 0, NaN."""

import copy
import math

import pytest
import torch
from ops.cpu.problems import Problem, assert_close, check_all, ragged, random_problem

from gfgn.ops.cpu.types import LANES

every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (1, torch.float64),
        (3, torch.float32),
        (17, torch.float64),
        (64, torch.float32),
        (129, torch.float64),
        (300, torch.float32),
        (17, torch.bfloat16),
        (64, torch.float16),
    ],
)
def test_odd_widths(columns: int, dtype: torch.dtype) -> None:
    check_all(random_problem(53, 400, columns, dtype))


def test_many_columns() -> None:
    check_all(random_problem(9, 30, 4096, torch.float32))


@pytest.mark.parametrize(("nodes", "entries"), [(0, 0), (1, 0), (5, 0), (1, 1), (1, 700), (3, 5)])
def test_tiny_graphs(nodes: int, entries: int) -> None:
    check_all(random_problem(nodes, entries, 5))


def test_rows_of_about_a_segment() -> None:
    target, source = ragged(511, 0, 512, 513, 1, 1024, 1025, 1536, 0, nodes=40)
    check_all(Problem(target, source, 40, 3, torch.float64))
    check_all(Problem(source, target, 40, 19, torch.float64))


@every_dtype
def test_star(dtype: torch.dtype, two_threads: None) -> None:
    leaves, center = torch.arange(1, 20_001), torch.zeros(20_000, dtype=torch.int64)
    check_all(Problem(torch.cat([leaves, center]), torch.cat([center, leaves]), 20_001, 5, dtype))


@every_dtype
@pytest.mark.parametrize("scale", [20.0, 60.0, 500.0, 1e4])
def test_gates_far_from_zero(scale: float, dtype: torch.dtype) -> None:
    problem = random_problem(40, 1000, 19, dtype, scale=scale)
    problem.b[:20] -= problem.a[:20]  # sums near 0 of large terms
    results = problem.all()
    assert all(x.isfinite().all() for x in results)
    for actual, expected in zip(results, problem.expected(), strict=True):
        assert_close(actual, expected, dtype)


@every_dtype
def test_ends_of_the_range(dtype: torch.dtype) -> None:
    """Every combination of values has a block of columns, which chooses its gate by itself."""
    a, b = torch.tensor([1e4, -1e4, 39.0, -39.0, 0.0]), torch.tensor([1e4, -1e4, 41.0, -41.0, 0.0])
    problem = random_problem(10, 40, 25 * LANES, dtype)
    problem.a[:] = a.repeat_interleave(5 * LANES)
    problem.b[:] = b.repeat_interleave(LANES).repeat(5)
    check_all(problem)


@every_dtype
def test_large_values_leave_the_bits_of_other_columns_alone(dtype: torch.dtype) -> None:
    """The safe and the fast gate have the same bits where both can be used."""
    problem = random_problem(60, 900, 20, dtype)
    before = problem.all()
    problem.a[3, 7] = 1e3
    problem.b[:, 18] = -1e3
    others = [k for k in range(20) if k not in (7, 18)]
    for x, y in zip(before, problem.all(), strict=True):
        assert torch.equal(x[:, others], y[:, others])


@every_dtype
def test_bits_of_a_column_do_not_depend_on_its_position(dtype: torch.dtype) -> None:
    problem = random_problem(60, 5000, 37, dtype)
    whole = problem.all()
    for name in ("a", "b", "z", "grad"):
        setattr(problem, name, getattr(problem, name)[:, 30:33].contiguous())
    problem.lam = problem.lam[30:33]
    for x, y in zip(whole, problem.all(), strict=True):
        assert torch.equal(x[:, 30:33], y)


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("columns", [5, 16, 40])
def test_bfloat16_has_the_bits_of_float32_rounded(columns: int, scale: float, two_threads: None) -> None:
    problem = random_problem(60, 5000, columns, torch.bfloat16, scale=scale)
    problem.z[0, 0], problem.grad[1, 1], problem.z[2, 2] = math.inf, -math.inf, math.nan
    wide = copy.copy(problem)
    for name in ("a", "b", "z", "grad", "lam", "norm", "row_norm", "norm_t", "row_norm_t"):
        setattr(wide, name, getattr(problem, name).float())
    out, p, q = problem.forward()
    expected = [*wide.forward(), *wide.backward(p.float(), q.float())]
    for x, y in zip((out, p, q, *problem.backward(p, q)), expected, strict=True):
        torch.testing.assert_close(x, y.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_without_saving() -> None:
    problem = random_problem(53, 2000, 21, torch.float32)
    out, p, q = problem.forward(save=False)
    assert p.numel() == q.numel() == 0
    assert_close(out, problem.expected()[0], torch.float32)


def test_strided_inputs() -> None:
    problem = random_problem(31, 200, 24)
    expected = problem.all()
    for name in ("a", "b", "z", "grad"):
        setattr(problem, name, getattr(problem, name).t().contiguous().t())
    for name in ("norm", "row_norm", "norm_t", "row_norm_t", "lam"):
        setattr(problem, name, torch.stack([getattr(problem, name)] * 2, 1)[:, 0])
    for x, y in zip(problem.all(), expected, strict=True):
        assert torch.equal(x, y)


@every_dtype
@pytest.mark.parametrize("name", ["a", "b", "z", "grad"])
def test_nan_propagates(name: str, dtype: torch.dtype) -> None:
    problem = random_problem(40, 300, 18, dtype)
    getattr(problem, name)[int(problem.source[0]), 17] = math.nan
    for actual, expected in zip(problem.all(), problem.expected(), strict=True):
        # `p` of a node without neighbors may be NaN · 0 here and 0 there, so more NaN than expected is allowed.
        assert bool((actual.isnan() | ~expected.isnan()).all())
        assert bool(actual[:, :17].isfinite().all())
