"""`Constants`: what a module computes from the features and edges alone is computed once.

A module that was not written for it gets plain tensors, and computes at every step what depends on them alone:
degrees, normalized weights, added self-loops. Inside this mode such a result is computed once and returned from then
on, the same tensor each time. So nothing is left that waits for a GPU, and `gfgn.ops.batched_functions` recognizes the
indices that it has seen before.
"""

# mypy: disable-error-code="no-any-return,attr-defined"

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Key = tuple[Any, ...]
NOT_IN_PLACE = frozenset({"__iter__", "__int__", "__index__", "__invert__"})
FACTORIES = frozenset({torch.arange, torch.ones, torch.zeros, torch.full, torch.eye})
PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))


class NotConstant(ValueError):
    """Raised where a module changes the features or the edges in place."""


class Constants(TorchFunctionMode):
    """Inside `of(…)`, what depends on the given tensors alone is computed once.

    Every result gets a number, and a call is known by its function and the numbers of its arguments. A result that the
    module changes in place has another number afterwards; later calls get a copy of what it was before.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[Key, int] = {}
        self._results: dict[int, Any] = {}  # by number; a tensor, a number, or a sequence of tensors
        self._changed: set[int] = set()  # numbers of results that are changed in place after their computation
        self._known: dict[int, tuple[Tensor, int]] = {}  # the constants of this call by id, with their numbers
        self._roots: set[int] = set()
        self._inputs: dict[int, Tensor] = {}  # by id, alive: an id stays its own

    @contextmanager
    def of(self, inputs: Sequence[Any]) -> Iterator[None]:
        """Runs the mode; the tensors among `inputs` are constant, and are the same objects in every call."""
        for value in inputs:
            if isinstance(value, Tensor):
                self._roots.add(self._remember(value, self._number(("input", id(value)))))
                self._inputs[id(value)] = value
        try:
            with self:
                yield
        finally:
            self._known = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__iter__ and id(args[0]) in self._known:
            return iter(self._constant(torch.unbind, (args[0],), {}))
        if func is Tensor.expand_as and id(args[0]) in self._known:
            func, args = Tensor.expand, (args[0], tuple(args[1].shape))
        if _is_in_place(func, kwargs):
            return self._in_place(func, args, kwargs)
        return self._constant(func, args, kwargs)

    def _constant(self, func: Any, args: Any, kwargs: Any) -> Any:
        key = self._key(func, args, kwargs)
        if key is None:
            return func(*args, **kwargs)
        number = self._number(key)
        if number not in self._results:
            result = func(*args, **kwargs)
            if not _is_kept(result):
                return result
            self._results[number] = result
        result = self._results[number]
        if number in self._changed:
            result = result.clone()
        self._remember(result, number)
        return result

    def _remember(self, result: Any, number: int) -> int:
        if isinstance(result, Tensor):
            self._known[id(result)] = (result, number)
        elif isinstance(result, list | tuple):
            for k, part in enumerate(result):
                if isinstance(part, Tensor):
                    self._known[id(part)] = (part, self._number(("part", number, k)))
        return number

    def _number(self, key: Key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def number_of(self, value: Any) -> int | None:
        """The number of a constant; `None` for all else."""
        known = self._known.get(id(value)) if isinstance(value, Tensor) else None
        return None if known is None else known[1]

    def _key(self, func: Any, args: Any, kwargs: Any) -> Key | None:
        """What a call is known by; `None` if it depends on something that is not constant."""
        try:
            frozen = tuple(self._frozen(value) for value in args)
            named = tuple((name, self._frozen(value)) for name, value in sorted(kwargs.items()))
        except NotConstant:
            return None
        tensors = any(isinstance(value, Tensor) for value in _leaves((*args, *kwargs.values())))
        return (func, frozen, named) if tensors or func in FACTORIES else None

    def _frozen(self, value: Any) -> Any:
        number = self.number_of(value)
        if number is not None:
            return ("constant", number)
        if isinstance(value, slice):
            return ("slice", *map(self._frozen, (value.start, value.stop, value.step)))
        if isinstance(value, list | tuple):
            return (type(value), *map(self._frozen, value))
        if isinstance(value, PLAIN):
            return (type(value), value)
        raise NotConstant

    def _in_place(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call that changes its first argument; if that is a constant, its former value is kept."""
        target: Any = args[0]
        number = self.number_of(target)
        if number is None:
            return func(*args, **kwargs)
        if number in self._roots or target._is_view():
            raise NotConstant(f"{func.__name__} changes the features or edges, which all runs share")
        if number in self._results and self._results[number] is target:
            self._results[number] = target.clone()
            self._changed.add(number)
        key = self._key(func, args, kwargs)
        result = func(*args, **kwargs)
        if key is None:
            del self._known[id(target)]
        else:
            self._remember(target, self._number(key))
        return result


def _is_in_place(func: Any, kwargs: Any) -> bool:
    name = getattr(func, "__name__", "")
    if name.endswith("__"):
        return name in ("__setitem__", "__set__") or (name[:3] == "__i" and name not in NOT_IN_PLACE)
    return name.endswith("_") or "out" in kwargs


def _is_kept(result: Any) -> bool:
    if isinstance(result, list | tuple):
        return all(isinstance(part, (Tensor, *PLAIN)) for part in result)
    return isinstance(result, (Tensor, *PLAIN))


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value
