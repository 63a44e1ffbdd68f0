"""PyTorch functions that modules call under `vmap`, where the library's own operators are faster or more general.

All replicas have the same graph: the index of a gather or a sum is not batched, its values are. PyTorch then repeats
the index for every replica. Here, replicas are further columns, as in all of the library's operators (`[N, R·D]`), and
sums run in its kernels. Messages that are only multiplied by a weight and summed are never computed: see `Gathered`.

Every function returns `NotImplemented` for arguments that PyTorch is to handle itself. All of this is for the CPU: on
other devices, comparing indices with those of earlier calls would wait for the device.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gfgn.ops.attention import attend_op
from gfgn.ops.csr import compress
from gfgn.ops.dense import linear
from gfgn.ops.dispatch import choose
from gfgn.ops.edges import to_edges_op, to_nodes_op
from gfgn.ops.keys import current_key
from gfgn.ops.sums import spmm_op
from gfgn.ops.torch_internals import (
    WeakIdKeyDictionary,
    add_batch_dim,
    batch_dim,
    in_place_version,
    is_batched,
    only_vmap_level,
    tree_map_only,
    unwrapped,
    without_function_modes,
)

MOST_REMEMBERED = 64  # patterns
SPARSE = 0.2  # fraction of values other than 0 below which features are multiplied in compressed rows


def call_batched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a function of PyTorch, or what replaces it here."""
    replacement = _REPLACED.get(func)
    if replacement is not None:
        named = {name: value for name, value in kwargs.items() if name != "input"}
        first = (kwargs["input"],) if "input" in kwargs else ()
        with without_function_modes():
            out = replacement(*first, *args, **named)
        if out is not NotImplemented:
            return out
    return func(*args, **kwargs)


def computed(values: Any) -> Any:
    """The same tensors, with values where these have not been computed; see `Gathered`."""
    with without_function_modes():
        return tree_map_only(Gathered, Gathered.compute, values)


# --- patterns of indices ----------------------------------------------------------------------------------------------


class _Patterns:
    """What the operators need to know about the indices of the last calls; equal indices are the same, wherever they
    are stored: a module may compute them in every call."""

    def __init__(self, build: Callable[..., Any]) -> None:
        self._build, self._lock = build, Lock()
        self._known: OrderedDict[tuple[int, ...], list[tuple[Sequence[Tensor], Any]]] = OrderedDict()

    def __call__(self, *indices: Tensor, size: int) -> Any:
        length = indices[0].numel()
        samples = [int(index[length * k // 4]) for index in indices for k in range(4)] if length else []
        place = (size, length, *samples)
        with self._lock:
            for known, result in self._known.get(place, ()):
                if all(map(torch.equal, known, indices)):
                    self._known.move_to_end(place)
                    return result
        copies = [index.clone() for index in indices]
        result = self._build(*copies, size)
        with self._lock:
            self._known.setdefault(place, []).append((copies, result))
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        return result


def _check_index(index: Tensor, size: int) -> None:
    low, high = index.aminmax()
    if low < 0 or high >= size:
        raise IndexError(f"index must be at least 0 and below {size}, got values from {int(low)} to {int(high)}")


def _build_ends(index: Tensor, size: int) -> list[Tensor]:
    """A `CSR` with one row per number below `size` that holds where the index has it, and the index."""
    _check_index(index, size)
    order = torch.argsort(index, stable=True)
    return [*compress(index[order], order, size), index]


def _build_edges(source: Tensor, target: Tensor, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """The edges by target and by source: a `CSR`, and for each of its entries the number of the edge."""
    _check_index(source, size)
    _check_index(target, size)
    by_target, by_source = torch.argsort(target, stable=True), torch.argsort(source, stable=True)
    return (
        [*compress(target[by_target], source[by_target], size), by_target],
        [*compress(source[by_source], target[by_source], size), by_source],
    )


_ends, _edges = _Patterns(_build_ends), _Patterns(_build_edges)


def _is_shared_index(index: Any) -> bool:
    """Whether this is an index of rows that is the same for all replicas."""
    return (
        isinstance(index, Tensor)
        and index.dim() == 1
        and index.dtype == torch.int64
        and index.device.type == "cpu"
        and not is_batched(index)
    )


def _has_rows(x: Any) -> bool:
    """Whether the operators take this tensor: numbers of each replica's own."""
    return is_batched(x) and x.is_floating_point() and x.dim() > 1 and x.numel() > 0 and only_vmap_level() is not None


def _flat(x: Tensor) -> Tensor:
    return x if x.dim() == 2 else x.reshape(x.size(0), -1)


def _backend(x: Tensor) -> str:
    return choose(x.device.type, x.dtype, None)


# --- gathers and sums -------------------------------------------------------------------------------------------------


class Gathered(Tensor):
    """`x[index]`, or its product with one weight per edge (and head), that has not been computed.

    PyG's layers compute one such message per edge and sum them by target. If nothing else is done with it, `sum_rows`
    takes the sum from the nodes; any other function gets the values.
    """

    nodes: Tensor
    source: Tensor
    weight: Tensor | None
    version: int

    @staticmethod
    def of(x: Tensor, index: Tensor, weight: Tensor | None = None) -> Gathered:
        blank = torch.full((), math.nan, dtype=x.dtype, device=x.device)
        out = blank.expand(index.numel(), *x.shape[1:]).as_subclass(Gathered)
        out.nodes, out.source, out.weight, out.version = x, index, weight, in_place_version(unwrapped(x))
        return out

    def compute(self) -> Tensor:
        """The values."""
        if in_place_version(unwrapped(self.nodes)) != self.version:
            raise RuntimeError("a tensor was modified in place after rows of it were selected")
        out = to_edges_op(_flat(self.nodes), _ends(self.source, size=self.nodes.size(0)), _backend(self.nodes))
        out = out.reshape(out.size(0), *self.nodes.shape[1:])
        return out if self.weight is None else self.weight * out

    def sum_by(self, target: Tensor, size: int) -> Tensor:
        """`sum_rows` of it."""
        if size != self.nodes.size(0) or in_place_version(unwrapped(self.nodes)) != self.version:
            return sum_rows(self.compute(), target, size)
        x, weight, backend = _flat(self.nodes), self.weight, _backend(self.nodes)
        edges, reverse = _edges(self.source, target, size=size)
        if weight is None:
            out = spmm_op(x, edges[:5], reverse[:5], backend)
        elif is_batched(weight) or weight.requires_grad or weight.numel() != target.numel():
            heads = weight.reshape(target.numel(), -1).to(x.dtype)
            out = attend_op(heads, x, edges, reverse, backend)
        else:
            per_edge = weight.reshape(-1)
            out = spmm_op(x, [*edges[:5], per_edge[edges[5]]], [*reverse[:5], per_edge[reverse[5]]], backend)
        return out.reshape(size, *self.nodes.shape[1:])

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SIZES:
            with torch.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _ABOUT_NODES:
            return func(args[0].nodes, *args[1:], **kwargs)
        if func is Tensor.expand_as and type(args[0]) is not Gathered:
            return args[0].expand(args[1].shape)
        if func in _PRODUCTS:
            out = _product(*args, **kwargs)
            if out is not NotImplemented:
                return out
        args, kwargs = tree_map_only(Gathered, Gathered.compute, (args, kwargs))
        return func(*args, **kwargs)


_SIZES: set[Any] = {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point}
_SIZES |= {getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "layout", "is_cuda")}
_ABOUT_NODES: set[Any] = {Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty, Tensor.new_full}
_ABOUT_NODES |= {getattr(Tensor, name).__get__ for name in ("requires_grad", "grad_fn")}
_PRODUCTS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}


def _product(a: Any, b: Any) -> Any:
    """A message times a weight per edge, or per edge and head."""
    message, weight = (a, b) if isinstance(a, Gathered) else (b, a)
    if isinstance(weight, Gathered) or not isinstance(weight, Tensor) or weight.dim() != message.dim():
        return NotImplemented
    heads = weight.shape[1:-1] in (message.shape[1:-1], (1,) * (weight.dim() - 2))
    if message.weight is not None or weight.size(0) != message.size(0) or weight.size(-1) != 1 or not heads:
        return NotImplemented
    if weight.dtype != message.dtype:
        return NotImplemented
    return Gathered.of(message.nodes, message.source, weight)


def sum_rows(x: Tensor, index: Tensor, size: int) -> Tensor:
    """For each number below `size`, the sum of the rows of `x` where the index has it."""
    if isinstance(x, Gathered):
        return x.sum_by(index, size)
    out = to_nodes_op(_flat(x), _ends(index, size=size), _backend(x))
    return out.reshape(size, *x.shape[1:])


def _index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    if not _is_shared_index(index) or not _has_rows(x) or dim % x.dim() or not index.numel():
        return NotImplemented
    return Gathered.of(x, index)


def _getitem(x: Tensor, index: Any) -> Any:
    if not _is_shared_index(index) or not _has_rows(x) or not index.numel() or int(index.min()) < 0:
        return NotImplemented
    return Gathered.of(x, index)


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    gathered = isinstance(src, Gathered)
    if not (gathered or _has_rows(src)) or is_batched(index) or index.shape != src.shape or dim % src.dim():
        return NotImplemented
    if not index.numel():
        return NotImplemented
    if any(size > 1 and stride for size, stride in zip(index.shape[1:], index.stride()[1:], strict=True)):
        return NotImplemented  # each column has its own index
    row = index
    while row.dim() > 1:
        row = row.select(-1, 0)
    return x + sum_rows(src, row, x.size(0)) if _is_shared_index(row) else NotImplemented


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    gathered = isinstance(source, Gathered)
    if not (gathered or _has_rows(source)) or not _is_shared_index(index) or dim % source.dim() or alpha != 1:
        return NotImplemented
    if not index.numel():
        return NotImplemented
    return x + sum_rows(source, index, x.size(0))


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def changed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = function(x, *args, **kwargs) if is_batched(x) else NotImplemented
        return out if out is NotImplemented else x.copy_(out)

    return changed


# --- tensors ----------------------------------------------------------------------------------------------------------


def _new_zeros(x: Tensor, *size: Any, **options: Any) -> Any:
    """With replicas beside columns, where the sums that will be written to it have them."""
    source, level = x.nodes if isinstance(x, Gathered) else x, only_vmap_level()
    shape = size[0] if size and isinstance(size[0], Sequence) else size
    if not is_batched(source) or level is None or len(shape) < 2 or options:
        return NotImplemented
    inner = unwrapped(source)
    return add_batch_dim(inner.new_zeros(shape[0], inner.size(batch_dim(source)), *shape[1:]), 1, level)


def _new_empty(x: Tensor, *size: Any, **options: Any) -> Any:
    """With values of every replica's own, because it will be written to."""
    source, key = x.nodes if isinstance(x, Gathered) else x, current_key()
    if is_batched(source) or key is None or not is_batched(key):
        return NotImplemented
    out = source.new_empty(*size, **options)
    return key.new_empty(out.shape, dtype=out.dtype, device=out.device) if out.is_floating_point() else out


def _empty(*size: Any, **options: Any) -> Any:
    return _new_empty(torch.empty(0), *size, **options)


def _setitem(x: Tensor, index: Any, value: Any) -> Any:
    """`x[mask] = number` where each replica has its own mask."""
    is_mask = isinstance(index, Tensor) and index.dtype == torch.bool and is_batched(index)
    if not is_mask or not is_batched(x) or index.shape != x.shape or not isinstance(value, int | float):
        return NotImplemented
    x.masked_fill_(index, value)
    return None


# --- linear maps ------------------------------------------------------------------------------------------------------


class _SparseForms:
    """Features that are mostly 0, in compressed rows; a tensor is looked at when it comes a second time."""

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __call__(self, x: Tensor) -> Tensor:
        """`x`, or its sparse form if that is known to be faster."""
        version, form = self._known.get(x, (None, None))
        if version != in_place_version(x):
            self._known[x] = in_place_version(x), None
            return x
        if form is None:
            few = int(torch.count_nonzero(x)) < SPARSE * x.numel()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Sparse")  # PyTorch warns that CSR tensors are in beta
                form = x.to_sparse_csr() if few else False
            self._known[x] = version, form
        return x if form is False else form


_sparse_form = _SparseForms()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    x = x.compute() if isinstance(x, Gathered) else x
    if not is_batched(weight) or weight.dim() != 2 or x.dim() < 2 or not x.numel():
        return NotImplemented
    if only_vmap_level() is None or (x.requires_grad and not is_batched(x)):
        return NotImplemented
    if not is_batched(x):
        return linear(_sparse_form(x), weight, bias) if x.dim() == 2 and x.device.type == "cpu" else NotImplemented
    rows = math.prod(x.shape[:-1])
    return linear(x.reshape(rows, x.size(-1)), weight, bias).reshape(*x.shape[:-1], weight.size(0))


def _matmul(x: Tensor, other: Tensor) -> Any:
    return _linear(x, other.t()) if other.dim() == 2 and not isinstance(other, Gathered) else NotImplemented


_REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.index_select: _index_select,
    Tensor.index_select: _index_select,
    Tensor.__getitem__: _getitem,
    Tensor.__setitem__: _setitem,
    torch.scatter_add: _scatter_add,
    Tensor.scatter_add: _scatter_add,
    Tensor.scatter_add_: _in_place(_scatter_add),
    torch.index_add: _index_add,
    Tensor.index_add: _index_add,
    Tensor.index_add_: _in_place(_index_add),
    Tensor.new_zeros: _new_zeros,
    Tensor.new_empty: _new_empty,
    torch.empty: _empty,
    functional.linear: _linear,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.mm: _matmul,
    Tensor.__matmul__: _matmul,
}
