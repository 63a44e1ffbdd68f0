"""`Given`: what custom modules are called with: copies, so that no module changes the data of other runs."""

from __future__ import annotations

import copy
import dataclasses
import threading

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
        self._copies: dict[tuple[int, int, tuple[str, ...]], tuple[Part, tuple[Tensor | Graph, ...]]] = {}
        self._lock = threading.Lock()

    def of(self, part: Part, names: tuple[str, ...]) -> tuple[Tensor | Graph, ...]:
        """The arguments for a part; `names` are those after `x`."""
        key = id(part.x), id(part.graph), names  # training, validation and test often share both
        with self._lock:
            if key not in self._copies:
                self._copies[key] = part, copy.deepcopy(_arguments(part, names))
            return self._copies[key][1]

    def check(self, kind: str) -> None:
        """Raises an error if a module of the class `kind` has changed an argument."""
        for (*_, names), (part, given) in list(self._copies.items()):
            expected = _tensors(names, _arguments(part, names))
            for name, tensor in _tensors(names, given).items():
                if not torch.equal(tensor, expected[name]):
                    raise ValueError(
                        f"forward of {kind} must not change its arguments, got {name} changed in place: "
                        f"change a copy, such as {name}.clone(), and call functions without inplace=True"
                    )


def _arguments(part: Part, names: tuple[str, ...]) -> tuple[Tensor | Graph, ...]:
    if names == ("graph",):
        return part.x, part.graph
    weight = part.graph.weight if "edge_weight" in names else None
    return (part.x, part.graph.edge_index) if weight is None else (part.x, part.graph.edge_index, weight)


def _tensors(names: tuple[str, ...], arguments: tuple[Tensor | Graph, ...]) -> dict[str, Tensor]:
    """The tensors of the arguments by name, `graph.degree` for one."""
    held: dict[str, object] = dict(zip(("x", *names), arguments, strict=False))
    if isinstance(graph := held.get("graph"), Graph):
        held |= {f"graph.{field.name}": getattr(graph, field.name) for field in dataclasses.fields(graph)}
    held |= {f"{name}.{k}": each for name, rows in held.items() if isinstance(rows, CSR) for k, each in enumerate(rows)}
    return {name: value for name, value in held.items() if isinstance(value, Tensor)}
