"""`Stream`: random numbers that are the same on every machine and with every NumPy release.

NumPy fixes the raw bits of a bit generator and of `SeedSequence` forever, but may change how `Generator` uses them.
Splits and generated graphs are part of published results, so everything here uses the raw bits of PCG64 alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri


class Stream:
    """A stream of random numbers, determined by a key of non-negative integers."""

    def __init__(self, *key: int) -> None:
        if not key or any(part < 0 for part in key):
            raise ValueError(f"seed must be made of non-negative integers, got {key}")
        self._bits = np.random.PCG64(np.random.SeedSequence(key))

    def raw(self, size: int) -> NDArray[np.uint64]:
        """`size` random 64-bit integers."""
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Uniform in [0, 1), in steps of 2⁻⁵³."""
        return (self.raw(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def integers(self, high: int, size: int) -> NDArray[np.int64]:
        """Uniform integers from 0 to `high` − 1."""
        return (self.uniform(size) * high).astype(np.int64)

    def normal(self, size: int) -> NDArray[np.float64]:
        """Standard normal, by inverting the distribution function."""
        half_step = 2.0**-54  # excludes 0, whose quantile is infinite
        return np.asarray(ndtri(self.uniform(size) + half_step), dtype=np.float64)

    def permutation(self, size: int) -> NDArray[np.int64]:
        """A random permutation of 0 … `size` − 1."""
        return np.argsort(self.raw(size), kind="stable").astype(np.int64)
