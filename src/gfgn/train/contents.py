"""`contents`: what a module holds besides parameters and buffers; `shared_contents`: what its classes and functions do.

Both are leaves by name, which say whether two modules differ, and what a step has changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gfgn.ops.torch_internals import coo_entries, hooks_of

Leaf = tuple[str, Any]  # the kind of a value, and what is compared
Contents = dict[str, Leaf]

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, slice, range)
ITEMS = (list, tuple, deque, set, frozenset)
NAMED = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
DRAWING = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
LIBRARIES = {"builtins", "gfgn", "numpy", "torch", "torch_geometric", "typing"}
NONE: Leaf = ("plain", "None")


def contents(module: nn.Module) -> Contents:
    """All that a module and its submodules hold, but for hooks, see `find_hooks`, and the values of parameters and
    buffers."""
    found = dict(_Reader(module).read("", module))
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        found[f"the shape of {name}"] = ("plain", str(tuple(value.shape)))
    return found


def shared_contents(module: nn.Module, factory: Callable[..., nn.Module]) -> Contents:
    """Plain values, tensors and random generators in the user's classes, in what their functions remember, and in the
    global variables that these name: all modules of a process share them."""
    classes = {base for child in module.modules() for base in type(child).__mro__}
    classes = {base for base in classes if _root(base) not in LIBRARIES}
    reader = _Reader(module, {_root(value) for value in (*classes, factory)} - LIBRARIES)
    found = dict(reader.read(getattr(factory, "__qualname__", "model"), factory))
    for base in sorted(classes, key=lambda base: base.__qualname__):
        for name, value in list(vars(base).items()):
            if not name.startswith("__") or isinstance(value, types.FunctionType):
                found |= dict(reader.read(f"{base.__qualname__}.{name}", value))
    return found


def difference(first: Contents, second: Contents) -> list[str]:
    """The names of the leaves that differ."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def find_hooks(module: nn.Module) -> list[str]:
    """The hooks of a module, its submodules and its parameters."""
    found = [
        f"{name or type(child).__name__}.{key.strip('_')}"
        for name, child in module.named_modules()
        for key, value in vars(child).items()
        if key.endswith("_hooks") and "state_dict" not in key and value
    ]
    return found + [f"a hook of {name}" for name, value in module.named_parameters() if hooks_of(value)]


def digest(*values: Tensor) -> str:
    """A hash of the values of tensors."""
    hashed = hashlib.blake2b(digest_size=16)
    for value in values:
        hashed.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return hashed.hexdigest()


class _Reader:
    """Reads a value into leaves; with `roots`, only functions of these packages, and of objects only plain values,
    containers, tensors and random generators."""

    def __init__(self, module: nn.Module, roots: set[str] | None = None) -> None:
        self._roots = roots
        self._registered = {id(child) for child in module.modules()}
        self._state = {_memory(value) for value in (*module.parameters(), *module.buffers())} - {0}
        self._seen: dict[int, tuple[str, Any]] = {}  # alive: an id stays its own

    def read(self, name: str, value: Any) -> Iterator[tuple[str, Leaf]]:
        if isinstance(value, PLAIN):
            yield name, ("plain", repr(value))
        elif id(value) in self._seen:
            yield name, ("same", self._seen[id(value)][0])
        else:
            self._seen[id(value)] = name, value
            kind, shown, parts = self._take_apart(value)
            if kind:
                yield name, (kind, shown)
            for key, each in parts.items():
                yield from self.read(f"{name}.{key}" if name and key else name or key, each)

    def _take_apart(self, value: Any) -> tuple[str, Any, Mapping[str, Any]]:
        """The kind of a value, what is compared, and the values that it holds."""
        match value:
            case Tensor():
                return *self._tensor(value), {}
            case np.ndarray() if value.dtype != object:
                return "array", (value.shape, str(value.dtype), hashlib.blake2b(value.tobytes()).digest()), {}
            case dict():
                return "items", len(value), {repr(key): each for key, each in value.items()}
            case set() | frozenset():
                return "items", sorted(map(repr, value)), {}
            case list() | tuple() | deque():
                return "items", len(value), {str(k): each for k, each in enumerate(value)}
            case types.FunctionType():
                return self._function(value)
            case types.MethodType():
                return "method", value.__name__, {"": value.__func__, "self": value.__self__}
            case functools.partial():
                return "partial", None, {"": value.func, "args": value.args, "keywords": value.keywords}
            case classmethod() | staticmethod():
                return "method", None, {"": value.__func__}
            case property():
                return "property", None, {"get": value.fget, "set": value.fset}
            case nn.Module() if self._roots is None:
                return "module", type(value).__qualname__, self._held(value)
            case types.GeneratorType() if value.gi_frame is not None:
                return "generator", value.gi_frame.f_lasti, dict(value.gi_frame.f_locals)
        if isinstance(value, NAMED):
            return "name", getattr(value, "__qualname__", repr(value)), {}
        return _object(value) if self._roots is None or isinstance(value, (*DRAWING, Iterator)) else ("", None, {})

    def _tensor(self, value: Tensor) -> Leaf:
        parts: tuple[Tensor, ...] = (value,)
        if value.layout == torch.sparse_coo:
            parts = coo_entries(value)
        elif value.layout == torch.sparse_csr:
            parts = (value.crow_indices(), value.col_indices(), value.values())
        elif value.layout != torch.strided:
            return "opaque", f"tensor of layout {value.layout}"
        if self._state & set(map(_memory, parts)):
            return "state", None
        return "tensor", (tuple(value.shape), str(value.dtype), digest(*parts))

    def _held(self, module: nn.Module) -> dict[str, Any]:
        skipped = {"training", "_modules"} | ({"_parameters", "_buffers"} if id(module) in self._registered else set())
        held = {key: each for key, each in vars(module).items() if key not in skipped and not key.endswith("_hooks")}
        return held | module._modules

    def _function(self, function: types.FunctionType) -> tuple[str, Any, dict[str, Any]]:
        """What a function remembers: closures and defaults; with `roots`, also the global variables that it names."""
        if self._roots is not None and _root(function) not in self._roots:
            return "", None, {}
        held = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__} | vars(function)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a variable without a value yet
                held[key] = cell.cell_contents
        if self._roots is not None:
            names = sorted(_names(function.__code__) & function.__globals__.keys())
            held |= {key: function.__globals__[key] for key in names}
        return "function", function.__qualname__, held


def _object(value: Any) -> tuple[str, Any, dict[str, Any]]:
    """Any other object, as `pickle` would take it apart."""
    try:
        reduced: Any = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return "name", reduced, {}
        args, state, items, pairs = (*reduced[1:5], None, None, None)[:4]
        state = state if isinstance(state, dict) else {"": state}
        parts = {"args": args, **state, "items": items and list(items), "pairs": pairs and list(pairs)}
    except Exception:  # whatever an object raises that cannot be taken apart
        return "opaque", type(value).__qualname__, {}
    return "object", type(value).__qualname__, {key: each for key, each in parts.items() if each is not None}


def _memory(value: Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided else 0


def _names(code: types.CodeType) -> set[str]:
    """The names of global variables, and of attributes, in a function and in those inside it."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _root(value: Any) -> str:
    """The package of a class or function."""
    while isinstance(value, functools.partial):
        value = value.func
    return str(getattr(value, "__module__", "builtins")).partition(".")[0]
