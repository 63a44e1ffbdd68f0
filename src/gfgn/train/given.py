"""`Given`: what custom modules are called with: copies, so that no module changes the data of other runs."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gfgn.graph import Graph
from gfgn.ops.csr import CSR
from gfgn.train.task import Part


class Given:
    """The arguments of `forward` for every part: the same tensors at each call, and for all runs of a training call.

    A module that changes them in place would change what other runs see. It cannot reach the dataset, and `check` finds
    the change, however it was made, before a score is reported.
    """

    def __init__(self) -> None:
        self._copies: dict[Any, tuple[Part, tuple[Any, ...]]] = {}
        self._lock = threading.Lock()

    def of(self, part: Part, names: tuple[str, ...]) -> tuple[Any, ...]:
        """The arguments for a part; `names` are those after `x`."""
        key = id(part.x), id(part.graph), names  # training, validation and test often share both
        with self._lock:
            if key not in self._copies:
                self._copies[key] = part, copy.deepcopy(_arguments(part, names))
            return self._copies[key][1]

    def check(self, kind: str) -> None:
        """Raises an error if a module of the class `kind` has changed an argument."""
        for (*_, names), (part, given) in list(self._copies.items()):
            for name, value, right in zip(("x", *names), given, _arguments(part, names), strict=False):
                for (field, tensor), (_, expected) in zip(_tensors(name, value), _tensors(name, right), strict=True):
                    if not torch.equal(tensor, expected):
                        raise ValueError(
                            f"forward of {kind} must not change its arguments, got {field} changed in place: "
                            f"change a copy, such as {field}.clone(), and call functions without inplace=True"
                        )


def _arguments(part: Part, names: tuple[str, ...]) -> tuple[Any, ...]:
    if names == ("graph",):
        return part.x, part.graph
    weight = part.graph.weight if "edge_weight" in names else None
    return (part.x, part.graph.edge_index) if weight is None else (part.x, part.graph.edge_index, weight)


def _tensors(name: str, value: Tensor | Graph) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an argument, by name."""
    if isinstance(value, Tensor):
        yield name, value
        return
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        for each in held if isinstance(held, CSR) else (held,):
            if isinstance(each, Tensor):
                yield f"{name}.{field.name}", each
