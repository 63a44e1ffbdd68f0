"""The plain sums over rows against dense float64 products."""

import pytest
import torch
from ops.cpu.problems import assert_close, dense, ragged

from gfgn.ops.cpu import kernels
from gfgn.ops.csr import compress


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (1, torch.float64),
        (3, torch.float32),
        (17, torch.bfloat16),
        (64, torch.float64),
        (129, torch.float32),
        (300, torch.float64),
    ],
)
def test_spmm(columns: int, dtype: torch.dtype) -> None:
    row, idx = ragged(3, 0, 512, 513, 1, 1025, 0, nodes=90)
    rows = compress(row, idx, 8)  # rectangular: 8 rows, 90 columns
    generator = torch.Generator().manual_seed(columns)
    x, y = (torch.randn(90, columns, generator=generator).to(dtype) for _ in range(2))
    values = torch.rand(row.numel(), generator=generator).to(dtype)
    weighted, plain = dense(rows, values, 90), dense(rows, None, 90)
    assert_close(kernels.spmm(x, rows, values), weighted @ x.double(), dtype)
    assert_close(kernels.spmm(x, rows, None), plain @ x.double(), dtype)
    inverse = torch.rand(8, generator=generator)
    mean = inverse.double().unsqueeze(1) * plain
    for actual, matrix in zip(kernels.spmm_pair(x, rows, values, inverse), (weighted, mean), strict=True):
        assert_close(actual, matrix @ x.double(), dtype)
    inverse = torch.rand(90, generator=generator)
    expected = weighted @ x.double() + plain @ (inverse.double().unsqueeze(1) * y.double())
    assert_close(kernels.spmm_pair_backward(x, y, rows, values, inverse), expected, dtype)


@pytest.mark.parametrize(("nodes", "count"), [(0, 0), (4, 0), (0, 4), (4, 3)])
def test_no_entries(nodes: int, count: int) -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    rows, x = compress(nothing, nothing, count), torch.ones(nodes, 6)
    outputs = [kernels.spmm(x, rows, None), kernels.spmm(x.t().contiguous().t(), rows, torch.ones(0))]
    outputs += kernels.spmm_pair(x, rows, torch.ones(0), torch.ones(count))
    outputs.append(kernels.spmm_pair_backward(x, x, rows, torch.ones(0), torch.ones(nodes)))
    for out in outputs:
        assert torch.equal(out, torch.zeros(count, 6))


def test_bits_do_not_depend_on_the_width_of_blocks() -> None:
    row, idx = ragged(3, 0, 513, 1, nodes=90)
    rows, values, inverse = compress(row, idx, 4), torch.rand(row.numel()), torch.rand(90)
    x, y = torch.randn(2, 90, 80)  # a wide block and a narrow rest; the first five columns alone are a narrow block
    few, many = (
        (
            kernels.spmm(x[:, :n], rows, values),
            *kernels.spmm_pair(x[:, :n], rows, values, inverse[:4]),
            kernels.spmm_pair_backward(x[:, :n], y[:, :n], rows, values, inverse),
        )
        for n in (5, 80)
    )
    for narrow, wide in zip(few, many, strict=True):
        assert torch.equal(narrow, wide[:, :5])
