"""What custom models share with the rest of the process: settings of PyTorch, and global random generators."""

from __future__ import annotations

import inspect
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch.set_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.set_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.set_num_threads": (torch.get_num_threads, torch.set_num_threads),
    "torch.use_deterministic_algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
}
_exchange = threading.RLock()


@contextmanager
def unchanged_settings(name: str) -> Iterator[None]:
    """Restores settings of PyTorch after a call of `name`; it is an error if that has changed one."""
    before = {call: get() for call, (get, _) in SETTINGS.items()}
    changed = []
    try:
        yield
    finally:
        for call, (get, restore) in SETTINGS.items():
            if get() != before[call]:
                changed.append(call)
                restore(before[call])
    if changed:
        raise ValueError(
            f"{name} must not change settings that all models share, got a call of {changed[0]}: "
            "call it before training"
        )


class Streams:
    """The numbers of `random` and `numpy.random` after `seed`; the global ones have the same state before and after."""

    def __init__(self, seed: int) -> None:
        self._states = random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside, `random` and `numpy.random` draw these numbers; one block runs at a time."""
        with _exchange:
            before = _states()
            _set_states(self._states)
            try:
                yield
            finally:
                self._states = _states()
                _set_states(before)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002  # the old one is what such code draws from


def _set_states(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002


def global_state() -> str:
    """Changes when somebody draws from `random` or `numpy.random`."""
    return _text(_states())


def _text(states: tuple[Any, Any]) -> str:
    numpy_state = [each.tobytes() if isinstance(each, np.ndarray) else each for each in states[1]]
    return repr((states[0], numpy_state))


@contextmanager
def notice_seeding() -> Iterator[list[str]]:
    """Notes by which functions this thread seeds PyTorch's global generators, and restores these."""
    functions = torch.manual_seed, torch.seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all
    codes = {inspect.unwrap(function).__code__: f"torch.{function.__name__}" for function in functions}
    found: list[str] = []
    state, before = torch.get_rng_state(), sys.getprofile()
    of_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []

    def notice(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            found.append(codes[frame.f_code])

    sys.setprofile(notice)
    try:
        yield found
    finally:
        sys.setprofile(before)
        if found:
            torch.set_rng_state(state)
            if of_gpus:
                torch.cuda.set_rng_state_all(of_gpus)
