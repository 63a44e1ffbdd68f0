"""Sparse patterns as the kernels read them: `CSR`, and `Adjacency`, what an operator needs to know about a graph.

Every kernel of this package walks one `CSR` object, row by row. A row with more than `SEGMENT` entries (a hub) is
split into segments of `SEGMENT` entries whose partial sums are added in order: a hub does not delay the launch, and
its sum does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gfgn.ops.cache import is_captured, stream
from gfgn.ops.torch_internals import has_dispatch_modes, is_wrapped

SEGMENT = 512  # entries in one segment of a long row; part of the definition of the summation order


class CSR(NamedTuple):
    """A sparse pattern in compressed sparse rows.

    Row `i` holds the column indices `idx[ptr[i]:ptr[i + 1]]`. Hub `h` is row `hub_rows[h]`; its segments are numbered
    `hub_ptr[h] … hub_ptr[h + 1] - 1`, and segment `s` of hub `h = seg_hub[s]` covers at most `SEGMENT` entries, the
    first of which is `ptr[hub_rows[h]] + (s - hub_ptr[h]) * SEGMENT`.
    """

    ptr: Tensor  # [rows + 1], int64
    idx: Tensor  # [entries], int32
    hub_rows: Tensor  # [hubs], int64: the rows with more than SEGMENT entries, ascending
    hub_ptr: Tensor  # [hubs + 1], int64
    seg_hub: Tensor  # [segments], int64

    @staticmethod
    def from_pointers(ptr: Tensor, idx: Tensor) -> CSR:
        """Builds the pattern from the start of every row and the column indices."""
        return build_patterns((ptr, idx))[0]

    def row_of_each_entry(self) -> Tensor:
        """`[entries]`, int64."""
        rows = torch.arange(self.ptr.numel() - 1, device=self.ptr.device)
        return torch.repeat_interleave(rows, self.ptr.diff(), output_size=self.idx.numel())

    def same_pattern(self, other: CSR) -> bool:
        """Whether both have the same entries in the same order."""
        return self is other or (torch.equal(self.ptr, other.ptr) and torch.equal(self.idx, other.idx))


def build_patterns(*patterns: tuple[Tensor, Tensor]) -> list[CSR]:
    """Builds several patterns, each from the start of every row and the column indices; waits once for a GPU."""
    hubs, segments = [], []
    for ptr, _ in patterns:
        length = ptr.diff()
        hubs.append((length > SEGMENT).cumsum(0))
        segments.append(torch.where(length > SEGMENT, (length + (SEGMENT - 1)) // SEGMENT, 0))
    counts = torch.stack([torch.stack([h[-1:].sum(), s.sum()]) for h, s in zip(hubs, segments, strict=True)]).tolist()
    built = []
    for (ptr, idx), (num_hubs, num_segments), hub, length in zip(patterns, counts, hubs, segments, strict=True):
        numbers = torch.arange(num_hubs, device=ptr.device)
        hub_rows = torch.searchsorted(hub, numbers + 1)  # hub h is the first row up to which there are h + 1 hubs
        length = length[hub_rows]
        seg_hub = torch.repeat_interleave(numbers, length, output_size=num_segments)
        built.append(CSR(ptr, idx.to(torch.int32), hub_rows, _cumulative(length), seg_hub))
    return built


def compress(row: Tensor, idx: Tensor, num_rows: int) -> CSR:
    """Builds the pattern from the rows and columns of entries that are already sorted by row."""
    return CSR.from_pointers(_cumulative(torch.bincount(row, minlength=num_rows)), idx)


def unpack(tensors: Sequence[Tensor]) -> tuple[CSR, Sequence[Tensor]]:
    """A `CSR` and what follows its fields in a list: how operators receive a pattern and the values of its entries."""
    return CSR(*tensors[:5]), tensors[5:]


def _cumulative(length: Tensor) -> Tensor:
    """`[0, l_0, l_0 + l_1, …]`."""
    ptr = length.new_zeros(length.numel() + 1)
    torch.cumsum(length, 0, out=ptr[1:])
    return ptr


class Adjacency(Protocol):
    """The attributes of a graph that operators read; `gfgn.Graph` describes them."""

    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def by_target(self) -> CSR: ...
    @property
    def by_source(self) -> CSR: ...
    @property
    def norm(self) -> Tensor: ...
    @property
    def row_norm(self) -> Tensor: ...
    @property
    def reverse_norm(self) -> Tensor: ...
    @property
    def reverse_row_norm(self) -> Tensor: ...
    @property
    def transpose(self) -> Tensor: ...
    @property
    def edge_position(self) -> Tensor: ...
    @property
    def targets(self) -> Tensor: ...
    @property
    def row_lengths(self) -> Tensor: ...
    @property
    def device(self) -> torch.device: ...


G = TypeVar("G", bound=Adjacency)
P = ParamSpec("P")
T = TypeVar("T")


def per_graph(function: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
    """Caches the result of `function` for each graph (and its further, hashable arguments) while the graph is alive.

    The function runs without gradients and outside inference mode, so that its result can be used in training too.
    """
    cache: WeakKeyDictionary[G, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def cached(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        results = cache.get(graph)
        if results is None:
            results = cache.setdefault(graph, {})
        key = (args, tuple(sorted(kwargs.items())), stream(graph.norm))
        try:
            return results[key]
        except KeyError:
            with torch.inference_mode(False), torch.no_grad():
                value = function(graph, *args, **kwargs)
        # What a CUDA graph computes has no values before it runs, and what a dispatch mode computes may have none.
        if not is_captured(graph.norm) and not has_dispatch_modes():
            results[key] = value
        return value

    # torch.compile would guard the cache against other graphs, which come and go; it calls the function instead.
    cached._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable, without its import
    return cached


def traced_per_graph(function: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
    """`per_graph` for a function that is cheap and can be traced: `torch.compile` makes it part of its graph, and
    gradients of edge weights flow through it."""
    cached = per_graph(function)

    @wraps(function)
    def call(graph: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        traced = torch.compiler.is_compiling() or graph.norm.requires_grad or is_wrapped(graph.norm)
        return (function if traced else cached)(graph, *args, **kwargs)

    return call
