"""Counter-based random numbers for compiled samplers.

What is drawn for node `v` in step `t` is a hash of the seed, `t` and `v`. It does not depend on the order of the draws
or on the number of threads or worker processes, and there is no global state.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gfgn.ops.cpu.numba_internals import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S30, S27, S31, S11 = (np.uint64(shift) for shift in (30, 27, 31, 11))
UNIT = 2.0**-53


compiled = functools.partial(kernel, error_model="python")
"""Decorates a function of a sampler; see `kernel`."""


@compiled
def mix(bits: Any) -> Any:
    """64 well-mixed bits (the finalizer of SplitMix64)."""
    bits = (bits ^ (bits >> S30)) * FIRST
    bits = (bits ^ (bits >> S27)) * SECOND
    return bits ^ (bits >> S31)


@compiled
def derive(key: Any, number: int) -> Any:
    """The key of stream `number` under `key`."""
    return mix(key ^ mix((np.uint64(number) + np.uint64(1)) * GOLDEN))


@compiled
def uniform(key: Any, counter: int) -> float:
    """Draw number `counter` of a key's stream, uniform in `[0, 1)`."""
    return float(mix(key + np.uint64(counter) * GOLDEN) >> S11) * UNIT


def key_of(seed: int, *numbers: int) -> np.uint64:
    """The key for a seed and further numbers, such as epoch and step."""
    key = np.uint64(seed % 2**64)
    for number in numbers:
        key = np.uint64(derive(key, number))
    return key
