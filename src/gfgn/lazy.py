"""Functions, classes and public names that are imported when they are first used: importing PyTorch takes seconds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Lazy:
    """A function or class, by the names of its module and its own, that is imported when it is first called."""

    module: str
    name: str

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*positional, **named)


def lazy_names(
    package: str, names: Mapping[str, str], deprecated: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names are imported on first use.

    Args:
        package: Name of the package.
        names: The public names of each module, separated by spaces.
        deprecated: Former names of public names.
    """
    module_of = {name: module for module, listed in names.items() for name in listed.split()}

    def find(name: str) -> Any:
        if deprecated is not None and name in deprecated:
            warnings.warn(f"{package}.{name} is now {package}.{deprecated[name]}", DeprecationWarning, stacklevel=2)
            name = deprecated[name]
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return find
