"""Hashes instead of random numbers: which entries dropout keeps, and where the keys come from.

Whether entry `e` is kept is a hash of `(e, key)` and nothing else: no mask is stored, the backward pass recomputes the
same one, and a replica with its own key drops the same entries alone or among a thousand, on any device.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
GOLDEN = 0x9E3779B1


def mix(h: Tensor) -> Tensor:
    """A 32-bit hash of the low 32 bits of an integer."""
    h = h & MASK
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & MASK
    h = ((h ^ (h >> 15)) * 0x846CA68B) & MASK
    return h ^ (h >> 16)


def hash_entry(entry: Tensor, key: Tensor) -> Tensor:
    """32 random bits for entry number `entry`."""
    return mix(entry ^ key ^ ((entry >> 32) * GOLDEN))


def keep(entry: Tensor, key: Tensor, rate: Tensor) -> Tensor:
    """Whether dropout keeps entry number `entry`: compares a 32-bit hash of it and the key with the rate."""
    return hash_entry(entry, key) >= (rate * 2**32).floor().long()


class _Source(threading.local):
    """The key from which dropout derives its keys, if there is one, and how many it has derived."""

    key: Tensor | None = None
    count: int = 0


_source = _Source()


@contextmanager
def keyed(key: Tensor) -> Iterator[None]:
    """Inside, dropout derives the key of each call from `key` and the number of the call, not from PyTorch's generator.
    `key` is an integer tensor; under `vmap` every replica has its own."""
    before = _source.key, _source.count
    _source.key, _source.count = key, 0
    try:
        yield
    finally:
        _source.key, _source.count = before


def next_key(device: torch.device) -> Tensor:
    """A key for one call of dropout: derived inside `keyed`, else drawn from PyTorch's generator."""
    if _source.key is None:
        return torch.randint(0, 2**32, (), device=device)
    _source.count += 1
    return mix(_source.key + _source.count * GOLDEN)


def current_key() -> Tensor | None:
    """The key of the surrounding `keyed`, if there is one."""
    return _source.key


def is_keyed() -> bool:
    """Whether keys are derived, inside `keyed`."""
    return _source.key is not None


def rate_dtype(device: torch.device) -> torch.dtype:
    """The dtype of dropout rates: float64 where the device supports it."""
    return torch.float32 if device.type == "mps" else torch.float64
