"""Random numbers as a function of key and counter."""

import numpy as np
from scipy.stats import kstest

from gfgn.sampling.counter import key_of, uniform


def draws(key: np.uint64, count: int = 4000) -> np.ndarray:
    return np.array([uniform(key, k) for k in range(count)])


def test_draws_are_uniform_and_streams_are_independent() -> None:
    first, second = draws(key_of(1, 2, 3)), draws(key_of(1, 2, 4))
    for values in (first, second, np.array([uniform(key_of(7, k), 0) for k in range(4000)])):
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
