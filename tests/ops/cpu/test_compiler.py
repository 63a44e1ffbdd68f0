"""The compiler of kernels: what it supports has Python's meaning, and what it does not is said."""

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfgn.ops.cpu.compiler import inlined
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.types import LANES
from gfgn.ops.cpu.vectors import load_masked, read, store_masked, write

Integers = namedtuple("Integers", "out a b")
Numbers = namedtuple("Numbers", "x out n scale flag")
Pair = namedtuple("Pair", "first second")


@kernel
def integer_kernel(op: Any, _: Any) -> None:
    a, b = op.a, op.b
    write(a + b, op.out, 0)
    write(a - b, op.out, 1)
    write(a * b, op.out, 2)
    write(a // b if b != 0 else 0, op.out, 3)
    write(a % b if b != 0 else 0, op.out, 4)
    write(a & b, op.out, 5)
    write(a | b, op.out, 6)
    write(a ^ ~b, op.out, 7)
    write(a >> 3, op.out, 8)
    write(-a << 2, op.out, 9)
    write(min(a, b, 5), op.out, 10)
    write(max(a, b), op.out, 11)
    write(a < b <= 7, op.out, 12)
    write((a > 0 and not b < 3) or a == -1, op.out, 13)
    write(np.uint32(a), op.out, 14)


def integer_results(a: int, b: int) -> list[int]:
    divided = [a // b if b != 0 else 0, a % b if b != 0 else 0]
    bits = [a & b, a | b, a ^ ~b, a >> 3, -a << 2]
    tests = [a < b <= 7, (a > 0 and b >= 3) or a == -1]
    return [a + b, a - b, a * b, *divided, *bits, min(a, b, 5), max(a, b), *map(int, tests), a % 2**32]


small = st.integers(-20, 20) | st.integers(-(2**30), 2**30)


@given(small, small)
def test_operations_on_integers_are_pythons(a: int, b: int) -> None:
    out = torch.zeros(15, dtype=torch.int64)
    integer_kernel(Integers(out, a, b), None)
    assert out.tolist() == integer_results(a, b)


@inlined
def first_above(op: Any, limit: float) -> Any:
    """The index of the first number above a limit, or −1: returns from inside a loop."""
    for k in range(op.n):
        if read(op.x, k) > limit:
            return k
    return -1


@inlined
def statistics(op: Any) -> Any:
    total, largest, k = 0.0, read(op.x, 0), 0
    while True:
        if k >= op.n:
            break
        x = read(op.x, k)
        k += 1
        if x < 0:
            continue
        total += x
        largest = max(largest, x)
    return Pair(total, largest)


@kernel
def number_kernel(op: Any, _: Any) -> None:
    found = statistics(op)
    write(found.first, op.out, 0)
    write(found.second, op.out, 1)
    write(first_above(op, op.scale), op.out, 2)
    write(math.sqrt(read(op.x, 0)) if op.flag else op.scale, op.out, 3)
    for k in range(4, op.n + 4, 3):
        write(k / 2, op.out, k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_is_pythons(dtype: torch.dtype, flag: bool) -> None:
    x = torch.tensor([2.0, -1.0, 0.5, 8.0, 3.0], dtype=dtype)
    out = torch.zeros(9, dtype=dtype)
    number_kernel(Numbers(x, out, 5, 4.5, flag), None)
    expected = [13.5, 8.0, 3.0, math.sqrt(2.0) if flag else 4.5, 2.0, 0.0, 0.0, 3.5, 0.0]
    assert torch.equal(out, torch.tensor(expected, dtype=dtype))
    number_kernel(Numbers(x, out, 5, 10.0, flag), None)
    assert out[2] == -1


@kernel
def copy_kernel(op: Any, _: Any) -> None:
    for k in range(0, op.n, LANES):
        store_masked(load_masked(op.x, k, op.n - k), op.out, k, op.n - k)


def copied(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.zeros(x.numel(), dtype=dtype)
    copy_kernel(Numbers(x, out, x.numel(), 0.0, True), None)
    return out


def test_bfloat16_is_converted_as_pytorch_does() -> None:
    """Every bfloat16, and float32 around them: halfway between two, infinities, subnormal numbers, NaN."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)[: 2**16 - 5]
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    near = (every.float().view(torch.int32)[:, None] | low).flatten().view(torch.float32)
    for x, dtype in ((every, torch.float32), (near, torch.bfloat16)):
        torch.testing.assert_close(copied(x, dtype), x.to(dtype), rtol=0, atol=0, equal_nan=True)
