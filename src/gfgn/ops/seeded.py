"""`seeded`: PyTorch's random functions with generators for one thread and one block."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from gfgn.ops.torch_internals import TorchDispatchMode, default_generator, schema_arguments

_exchange = threading.Lock()


class seeded(TorchDispatchMode):
    """Inside, random functions of this thread draw what they would after `torch.manual_seed(seed)`.

    PyTorch's global generators are neither read nor changed, so that blocks of several threads do not meet. Every
    operator that takes a generator gets one of the block's own, one per device; a generator that is given is used as it
    is. The few operators that take none (dropout on a GPU) run while the state of the global generator is exchanged for
    the block's, one at a time. `random` and `numpy.random` are not seeded.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        random = _with_generator(func)
        if random is None and torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        device = _device(args, kwargs)
        if device.type == "meta":
            return func(*args, **kwargs)
        if random is None:
            return self._exchanged(device, func, args, kwargs)
        given = dict(zip(schema_arguments(random), args, strict=False)) | kwargs
        if given.get("generator") is not None:
            return func(*args, **kwargs)
        return random(*args, **kwargs | {"generator": self._generator(device)})

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def _exchanged(self, device: torch.device, func: Any, args: Any, kwargs: Any) -> Any:
        own, shared = self._generator(device), default_generator(device)
        with _exchange:
            before = shared.get_state()
            shared.set_state(own.get_state())
            try:
                return func(*args, **kwargs)
            finally:
                own.set_state(shared.get_state())
                shared.set_state(before)


class seeded_dropout(TorchFunctionMode):
    """`seeded` for `gfgn.ops.dropout` alone: all else takes the time it takes without."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = seeded(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _DROPOUT:
            return func(*args, **kwargs)
        with self._random:
            return func(*args, **kwargs)


_DROPOUT = (functional.dropout, torch.randint)  # of `gfgn.ops.dropout`, and of the keys of `gfgn.ops.keys`


@cache
def _with_generator(overload: Any) -> Any:
    """The overload with the same arguments and a generator, if there is one."""
    packet, expected = overload.overloadpacket, schema_arguments(overload)
    expected.pop("generator", None)
    for each in (overload, *(getattr(packet, name) for name in packet.overloads())):
        arguments = schema_arguments(each)
        if arguments.pop("generator", None) is not None and arguments == expected:
            return each
    return None


def _device(args: Any, kwargs: Any) -> torch.device:
    """The device of a random operator: its own argument, or that of its tensors."""
    given = kwargs.get("device")
    if given is None:
        given = next((value.device for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), "cpu")
    device = torch.device(given)
    if device == torch.device("cuda"):
        return torch.device("cuda", torch.cuda.current_device())
    return device
