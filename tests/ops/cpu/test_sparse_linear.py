"""Sparse matrices under dropout against a loop over their entries."""

import math

import pytest
import torch
from ops.cpu.problems import KEYS, RATE, assert_close, dense, ragged, random_problem
from torch import Tensor

from gfgn.ops.cpu import kernels
from gfgn.ops.csr import CSR, compress


def slow_hash(number: int, key: int) -> int:
    low = 0xFFFFFFFF
    h = (number & low) ^ key
    h ^= ((number >> 32) * 0x9E3779B1) & low
    h ^= h >> 16
    h = h * 0x7FEB352D & low
    h ^= h >> 15
    h = h * 0x846CA68B & low
    return h ^ h >> 16


def slow_linear(
    weight: Tensor, rows: CSR, values: Tensor, keys: Tensor, rate: Tensor, entry: list[int], columns: int
) -> Tensor:
    parts = []
    for r, (key, drop) in enumerate(zip(keys.tolist(), rate.tolist(), strict=True)):
        kept = [slow_hash(number, key) >= math.floor(drop * 2**32) for number in entry]
        dropped = values.double() * torch.tensor(kept, dtype=torch.float64) / (1 - drop)
        parts.append(dense(rows, dropped, weight.size(0)) @ weight[:, r * columns : (r + 1) * columns].double())
    return torch.cat(parts, 1)


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (1, torch.float64),
        (7, torch.float32),
        (16, torch.float64),
        (33, torch.float32),
        (64, torch.float64),
        (100, torch.float32),
    ],
)
def test_product_and_its_transpose(columns: int, dtype: torch.dtype) -> None:
    problem = random_problem(70, 1500, 1, dtype)
    weight = torch.randn(70, 4 * columns, generator=torch.Generator().manual_seed(columns)).to(dtype)
    numbers = list(range(1500))
    args = (problem.norm, KEYS, RATE)
    out = kernels.sparse_linear(weight, problem.rows, *args, None, columns)
    assert_close(out, slow_linear(weight, problem.rows, *args, numbers, columns), dtype)
    assert torch.equal(out, kernels.sparse_linear(weight, problem.rows, *args, torch.tensor(numbers), columns))

    args_t = (problem.norm_t, KEYS, RATE)
    back = kernels.sparse_linear(weight, problem.rows_t, *args_t, problem.entry, columns)
    assert_close(back, slow_linear(weight, problem.rows_t, *args_t, problem.entry.tolist(), columns), dtype)
    for r in range(4):  # ⟨M w, w⟩ = ⟨w, Mᵀ w⟩ holds only if both dropped the same entries
        part = slice(r * columns, (r + 1) * columns)
        left, right = ((x[:, part].double() * weight[:, part].double()).sum().item() for x in (out, back))
        assert left == pytest.approx(right, rel=1e-4, abs=1e-3)


def test_numbers_of_more_than_32_bits() -> None:
    row, idx = ragged(5, 600, 3, nodes=11)
    rows, values = compress(row, idx, 3), torch.rand(608, dtype=torch.float64)
    entry = torch.arange(608) * (2**33 + 12_345) + 2**40
    weight = torch.randn(11, 4 * 3, dtype=torch.float64)
    out = kernels.sparse_linear(weight, rows, values, KEYS, RATE, entry, 3)
    assert_close(out, slow_linear(weight, rows, values, KEYS, RATE, entry.tolist(), 3), torch.float64)


def test_fraction_of_dropped_entries() -> None:
    count = 200_000
    rows = compress(torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64), 1)
    rate = torch.tensor([0.5, 0.1, 0.9, 0.0], dtype=torch.float64)
    out = kernels.sparse_linear(torch.ones(1, 4, dtype=torch.float64), rows, torch.ones(count), KEYS, rate, None, 1)
    torch.testing.assert_close(out, torch.full_like(out, count), rtol=0.02, atol=0)
    assert out[0, 3].item() == count


def test_replicas_do_not_depend_on_each_other() -> None:
    problem = random_problem(50, 1200, 1, torch.float32)
    weight = torch.randn(50, 4 * 37)
    together = kernels.sparse_linear(weight, problem.rows, problem.norm, KEYS, RATE, None, 37)
    for r in range(4):
        alone = weight[:, r * 37 : (r + 1) * 37]
        out = kernels.sparse_linear(alone, problem.rows, problem.norm, KEYS[r : r + 1], RATE[r : r + 1], None, 37)
        assert torch.equal(out, together[:, r * 37 : (r + 1) * 37])


@pytest.mark.parametrize("columns", [7, 16, 37, 64, 100])  # those of 16 and 64 columns are not packed
def test_stacked_weights_give_the_same_bits(columns: int) -> None:
    row, idx = ragged(3, 0, 600, 1, nodes=50)
    rows, values = compress(row, idx, 4), torch.rand(row.numel())
    weight = torch.randn(4, 50, columns)
    together = kernels.sparse_linear(weight.transpose(0, 1).reshape(50, -1), rows, values, KEYS, RATE, None, columns)
    assert torch.equal(kernels.sparse_linear(weight, rows, values, KEYS, RATE, None, columns), together)
