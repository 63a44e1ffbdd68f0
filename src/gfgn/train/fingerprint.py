"""Hashes of what custom modules hold besides parameters and buffers, and of what all modules of a class share."""

from __future__ import annotations

import functools
import hashlib
import pickle
import random
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gfgn.ops.torch_internals import coo_entries, hooks_of

LIBRARIES = {"builtins", "gfgn", "numpy", "torch", "torch_geometric", "typing"}
NAMED = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator, Iterator)
PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None))
ITEMS = (tuple, list, deque, dict, set, frozenset, np.ndarray)
DATA = (*PLAIN, *ITEMS, *GENERATORS, np.random.BitGenerator, np.random.SeedSequence)

Fingerprints = dict[str, str]
UNKNOWN = ""  # the fingerprint of what cannot be taken apart


def held(module: nn.Module) -> Fingerprints:
    """By attribute: what a module and its submodules hold, but for hooks and the values of parameters and buffers."""
    modules = {id(child): name for name, child in module.named_modules()}
    state = {_memory(value) for value in (*module.parameters(), *module.buffers())} - {0}
    found = {}
    for name, child in module.named_modules():
        for key, value in vars(child).items():
            if key not in ("training", "_modules", "_parameters", "_buffers") and not key.endswith("_hooks"):
                found[f"{name}.{key}" if name else key] = _Hasher(modules, state).of(value)
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        found[f"the shape of {name}"] = str(tuple(value.shape))
    return found


def shared(module: nn.Module, factory: Callable[..., nn.Module]) -> Fingerprints:
    """By name: the data in the user's classes, in what their functions keep, and in the global variables that these
    name. All modules of a process share them."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    found = dict.fromkeys(base for child in module.modules() for base in type(child).__mro__)
    classes = [base for base in found if _package(base) not in LIBRARIES]
    packages, seen = {_package(each) for each in (*classes, factory)}, set[int]()
    values: dict[str, object] = {}

    def add(name: str, value: object) -> None:
        value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        if isinstance(value, type) and _package(value) in packages:
            values.update((f"{name}.{key}", each) for key, each in vars(value).items() if not key.startswith("__"))
        elif not isinstance(value, types.FunctionType):
            values[name] = value
        elif id(value) not in seen and _package(value) in packages:
            seen.add(id(value))
            values[f"{name}.defaults"] = [value.__defaults__, value.__kwdefaults__]
            for key, each in (vars(value) | _closure(value) | _global_variables(value)).items():
                add(f"{name}.{key}", each)

    for base in classes:
        for name, value in vars(base).items():
            if not name.startswith("__") or isinstance(value, types.FunctionType):
                add(f"{base.__qualname__}.{name}", value)
    add(getattr(factory, "__qualname__", "model"), factory)
    return {name: _Hasher({}, set(), data_only=True).of(value) for name, value in values.items()}


def difference(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """The names of what differs."""
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


def digest(value: Tensor) -> bytes:
    """A hash of the values of a tensor."""
    flat = value.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.blake2b(flat.numpy(), digest_size=16).digest()


class _Hasher(pickle.Pickler):
    """Hashes a value as `pickle` takes it apart; nothing is stored.

    `modules` have names by id, and tensors must not lie in the memory `state`. With `data_only`, other objects than
    data count by their class alone.
    """

    def __init__(self, modules: Mapping[int, str], state: set[int], data_only: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        # Protocol 5 takes an array apart into a buffer, which is no data.
        super().__init__(types.SimpleNamespace(write=self._hash.update), protocol=4)
        self.fast = True  # equal values count as equal, whether they are the same object or not
        self._modules, self._state, self._data_only = modules, state, data_only

    def of(self, value: object) -> str:
        try:
            self.dump(value)
        except Exception:  # whatever an object raises that cannot be taken apart
            return UNKNOWN
        return self._hash.hexdigest()

    def persistent_id(self, value: Any) -> object:
        """What stands for a value; `None` if `pickle` is to take it apart."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if id(value) in self._modules:
            return self._modules[id(value)]
        if isinstance(value, types.FunctionType):
            return value.__qualname__, value.__defaults__, value.__kwdefaults__, vars(value), _closure(value)
        if isinstance(value, types.GeneratorType):
            frame = value.gi_frame  # `None` at its end
            return "generator", frame and (frame.f_lasti, dict(frame.f_locals))
        if isinstance(value, NAMED) or (self._data_only and not isinstance(value, DATA)):
            return repr(value) if isinstance(value, NAMED) else type(value).__qualname__
        return None

    def _tensor(self, value: Tensor) -> object:
        parts: tuple[Tensor, ...] = (value,)
        if value.layout == torch.sparse_coo:
            parts = coo_entries(value)
        elif value.layout == torch.sparse_csr:
            parts = value.crow_indices(), value.col_indices(), value.values()
        if self._state & set(map(_memory, parts)):
            raise ValueError("a parameter or buffer, or a part of one, which a batch exchanges under its name only")
        return value.shape, [(str(part.dtype), digest(part)) for part in parts]


def _memory(value: Tensor) -> int:
    return value.untyped_storage().data_ptr() if value.layout == torch.strided else 0


def _closure(function: types.FunctionType) -> dict[str, Any]:
    return {
        key: cell.cell_contents
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        if cell != types.CellType()  # a variable without a value yet
    }


def _global_variables(function: types.FunctionType) -> dict[str, Any]:
    """Those that a function, or one inside it, names."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names |= set(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {name: function.__globals__[name] for name in sorted(names & function.__globals__.keys())}


def _package(value: Any) -> str:
    """The package of a class or function."""
    return str(getattr(value, "__module__", "builtins")).partition(".")[0]
