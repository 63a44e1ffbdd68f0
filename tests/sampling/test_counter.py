"""Random numbers as a function of key and counter."""

from collections import namedtuple
from typing import Any

import numpy as np
from scipy.stats import kstest

from gfgn.ops.cpu.compiler import as_pointers
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.vectors import write
from gfgn.sampling.counter import derive, derived, drawn, key_of, signed, uniform


def draws(key: int, count: int = 4000) -> np.ndarray:
    return uniform(key, np.arange(count))


def test_draws_are_uniform_and_streams_are_independent() -> None:
    first, second = draws(key_of(1, 2, 3)), draws(key_of(1, 2, 4))
    for values in (first, second, uniform(derive(key_of(7), np.arange(4000)), np.zeros(1, np.int64))):
        assert values.min() >= 0
        assert values.max() < 1
        assert kstest(values, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.06


def test_a_key_is_a_function_of_its_numbers() -> None:
    assert key_of(5, 1, 2) == key_of(5, 1, 2)
    keys = {int(key_of(seed, *rest)) for seed in range(4) for rest in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))}
    assert len(keys) == 24
    assert np.array_equal(draws(key_of(5, 1), 10), draws(key_of(5, 1), 10))


Draws = namedtuple("Draws", "out key")


@kernel
def draw(arguments: Any, _: Any) -> None:
    op = as_pointers(arguments)
    for stream in range(3):
        key = derived(op.key, stream)
        for k in range(100):
            write(drawn(key, k), op.out, 100 * stream + k)


def test_kernels_draw_the_same_numbers() -> None:
    for seed in range(5):
        key, out = key_of(seed, 3), np.empty(300)
        draw(Draws(out, signed(key)), None)
        expected = [uniform(stream, np.arange(100)) for stream in derive(key, np.arange(3))]
        assert np.array_equal(out, np.concatenate(expected))
        assert int(derive(key, np.array([7]))[0]) == key_of(key, 7)
