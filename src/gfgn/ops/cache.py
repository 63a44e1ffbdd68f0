"""`TensorCache`: a cache of results, keyed by tensor identity and version."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

from gfgn.ops.torch_internals import (
    WeakIdKeyDictionary,
    has_dispatch_modes,
    in_place_version,
    is_wrapped,
    outside_of_all_transforms,
)

T = TypeVar("T")
_all: WeakSet[TensorCache[Any]] = WeakSet()


class _Entry(NamedTuple, Generic[T]):
    tensors: tuple[weakref.ref[Tensor], ...]
    states: tuple[Hashable, ...]
    value: T


class TensorCache(Generic[T]):
    """The last `size` values that were computed from tensors.

    A tensor is known by its identity, and its content by PyTorch's count of in-place changes, its memory and its shape:
    nothing is read from a GPU. Changes that PyTorch does not count are not noticed: through `tensor.data`, through a
    NumPy array that shares the memory, and by another process.

    No tensor is kept alive: a value is forgotten with the first of its tensors. The value must not hold one of them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self.lock = threading.RLock()  # the garbage collector may call `_forget` while this thread holds it
        self.captured: WeakIdKeyDictionary = WeakIdKeyDictionary()  # what CUDA graphs use, while its tensors are alive
        _all.add(self)

    def get(self, tensors: Sequence[Tensor], arguments: Hashable, compute: Callable[[], T]) -> T:
        """The value of `compute()`, which depends on `tensors` and `arguments` only; see `can_be_remembered`.

        It is computed without gradients, and outside of inference mode and functorch transforms, so that it can be
        used wherever it is needed next.
        """
        key = *map(id, tensors), arguments, stream(tensors[0])
        states = tuple(map(state_of, tensors))
        with self.lock:
            entry = self.entries.get(key)
            if entry is not None and entry.states == states and _same(entry.tensors, tensors):
                self.entries.move_to_end(key)
                if is_captured(tensors[0]):  # by a CUDA graph, which keeps addresses but no memory
                    self.captured.setdefault(tensors[0], {})[key] = entry.value
                return entry.value
        with outside_of_all_transforms(), torch.inference_mode(False), torch.no_grad():
            value = compute()
        if is_captured(tensors[0]):  # has no values before the CUDA graph runs
            return value
        references = tuple(weakref.ref(tensor, lambda _: self._forget(key)) for tensor in tensors)
        with self.lock:
            # Filed under the states before the computation: a change by another thread meanwhile is noticed.
            replaced = [self.entries.pop(key, None)]
            self.entries[key] = _Entry(references, states, value)
            while len(self.entries) > self.size:
                replaced.append(self.entries.popitem(last=False)[1])
        del replaced  # freed outside of the lock
        return value

    def _forget(self, key: Hashable) -> None:
        with self.lock:
            entry = self.entries.pop(key, None)
        del entry


def can_be_remembered(*tensors: Tensor) -> bool:
    """Whether changes of all these tensors are noticed, and a value computed from them may be used again.

    Not so under `torch.compile`, `torch.export` and dispatch modes, for tensors inside functorch transforms, tensors
    with a gradient, inference tensors, other subclasses than PyG's, and while a CUDA graph is captured, which keeps
    addresses but no memory.
    """
    if torch.compiler.is_compiling() or has_dispatch_modes():
        return False
    return all(map(_is_observable, tensors))


def _is_observable(x: Tensor) -> bool:
    if type(x) not in (Tensor, nn.Parameter) and not hasattr(x, "as_tensor"):
        return False
    if x.layout != torch.strided or x.requires_grad or is_wrapped(x) or x.is_inference():
        return False
    return not is_captured(x)


def is_captured(x: Tensor) -> bool:
    """Whether what is done with `x` now becomes part of a CUDA graph."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def state_of(x: Tensor) -> Hashable:
    """Changes when the content of the tensor does."""
    return in_place_version(x), x.data_ptr(), x.shape, x.stride(), x.dtype, x.device


def stream(x: Tensor) -> int:
    """A value is computed once per CUDA stream: another stream would have to wait for it.

    0 under `torch.compile`, which cannot trace streams and runs on one.
    """
    return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda and not torch.compiler.is_compiling() else 0


def _same(references: tuple[weakref.ref[Tensor], ...], tensors: Sequence[Tensor]) -> bool:
    """Whether these are the very tensors; an id alone may belong to a new tensor."""
    return all(reference() is tensor for reference, tensor in zip(references, tensors, strict=True))


def _after_fork() -> None:
    """A thread of the parent process may have held a lock."""
    for remembered in _all:
        remembered.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
