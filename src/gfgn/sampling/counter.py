"""Counter-based random numbers for samplers.

What is drawn for node `v` in step `t` is a hash of the seed, `t` and `v`. It does not depend on the order of the draws
or on the number of threads or worker processes, and there is no global state. Kernels have the same functions: there,
integers have 64 bits, and those of Python are masked to as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gfgn.ops.cpu.compiler import inlined

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK, SIGN = 2**64 - 1, 2**63
UNIT = 2.0**-53


def signed(key: int) -> int:
    """The 64 bits of a key as a signed integer, which kernels take."""
    return (key ^ SIGN) - SIGN


GOLDEN_BITS, FIRST_BITS, SECOND_BITS = map(signed, (GOLDEN, FIRST, SECOND))
BELOW_30, BELOW_27, BELOW_31, BELOW_11 = ((1 << (64 - shift)) - 1 for shift in (30, 27, 31, 11))


@inlined
def mix_bits(bits: int) -> Any:
    """64 well-mixed bits (the finalizer of SplitMix64); the masks make shifts of signed integers logical."""
    first = (bits ^ ((bits >> 30) & BELOW_30)) * FIRST_BITS
    second = (first ^ ((first >> 27) & BELOW_27)) * SECOND_BITS
    return second ^ ((second >> 31) & BELOW_31)


@inlined
def derived(key: int, number: int) -> Any:
    """The key of stream `number` under `key`."""
    return mix_bits(key ^ mix_bits((number + 1) * GOLDEN_BITS))


@inlined
def drawn(key: int, counter: int) -> Any:
    """Draw number `counter` of a key's stream, uniform in `[0, 1)`."""
    return ((mix_bits(key + counter * GOLDEN_BITS) >> 11) & BELOW_11) * UNIT


def mix(bits: Any) -> Any:
    """`mix_bits` of an unsigned integer, or of an array of uint64."""
    bits = ((bits ^ (bits >> _like(bits, 30))) * _like(bits, FIRST)) & _like(bits, MASK)
    bits = ((bits ^ (bits >> _like(bits, 27))) * _like(bits, SECOND)) & _like(bits, MASK)
    return bits ^ (bits >> _like(bits, 31))


def _like(bits: Any, number: int) -> Any:
    return np.uint64(number) if isinstance(bits, np.ndarray) else number


def uniform(key: Any, counter: NDArray[np.int64]) -> NDArray[np.float64]:
    """`drawn` for an array of counters; of one key, or of as many in an array of uint64."""
    keys = np.asarray(key, np.uint64).reshape(-1)
    bits = mix(keys + counter.astype(np.uint64) * np.uint64(GOLDEN))
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * UNIT)


def derive(key: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`derived` for an array of numbers."""
    inner = mix((numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN))
    return np.asarray(mix(np.uint64(key) ^ inner), np.uint64)


def key_of(seed: int, *numbers: int) -> int:
    """The key for a seed and further numbers, such as epoch and step."""
    key = seed % 2**64
    for number in numbers:
        key = mix(key ^ mix(((number + 1) * GOLDEN) & MASK))
    return key
