"""PyTorch functions that modules call under `vmap`, where the library's own operators are faster or more general.

All replicas have the same graph: the index of a gather or a sum is not batched, its values are. PyTorch then repeats
the index for every replica. Here, replicas are further columns, as in all of the library's operators (`[N, R·D]`), and
sums run in its kernels. Messages that are only multiplied by a weight and summed are never computed: see `Gathered`.

Every function returns `NotImplemented` for arguments that PyTorch is to handle itself. What the operators need to know
about an index is computed once per tensor, which waits for the device: see `_remembered`.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from gfgn.ops.attention import attend_op
from gfgn.ops.cache import TensorCache
from gfgn.ops.csr import compress
from gfgn.ops.dense import linear
from gfgn.ops.dispatch import choose
from gfgn.ops.edges import to_edges_op, to_nodes_op
from gfgn.ops.features import sparse_if_smaller
from gfgn.ops.keys import current_key
from gfgn.ops.sums import spmm_op
from gfgn.ops.torch_internals import (
    add_batch_dim,
    base_of,
    batch_dim,
    in_place_version,
    is_batched,
    only_vmap_level,
    tree_map_only,
    unwrapped,
    without_function_modes,
)

MAX_CACHED_RESULTS = 256  # results for indices and features
FEW_CLASSES = 32
T = TypeVar("T")


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
    """The same tensors, with values where these have not been computed; see `Deferred`."""
    with without_function_modes():
        return tree_map_only(Deferred, lambda x: x.compute(), values)


# --- patterns of indices ----------------------------------------------------------------------------------------------


_known: TensorCache[Any] = TensorCache(MAX_CACHED_RESULTS)


def _remembered(build: Callable[..., T], size: int, *tensors: Tensor) -> T:
    """`build(*tensors, size)`, computed once while the tensors, or those that they are views of, are alive and
    unchanged: those of a graph, and those that `gfgn.train.constants` returns at every step."""
    bases = [base_of(x) for x in tensors]
    if any(base.is_inference() for base in bases):  # whose changes are not counted
        return build(*tensors, size)
    views = tuple((x.storage_offset(), x.shape, x.stride(), x.dtype) for x in tensors)
    return _known.get(bases, (build, size, views), lambda: build(*tensors, size))


def _check_index(index: Tensor, size: int) -> None:
    low, high = index.aminmax()
    if low < 0 or high >= size:
        raise IndexError(f"index must be at least 0 and below {size}, got values from {int(low)} to {int(high)}")


def _build_ends(index: Tensor, size: int) -> list[Tensor]:
    """A `CSR` with one row per number below `size` that holds where the index has it, and the index."""
    _check_index(index, size)
    order = torch.argsort(index, stable=True)
    return [*compress(index[order], order, size), index.clone()]


def _build_nonnegative(index: Tensor, size: int) -> Tensor | None:
    """The index without numbers that count from the end; `None` if there are none."""
    return torch.where(index < 0, index + size, index) if bool((index < 0).any()) else None


def _build_edges(source: Tensor, target: Tensor, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """The edges by target and by source: a `CSR`, and for each of its entries the number of the edge."""
    _check_index(source, size)
    _check_index(target, size)
    by_target, by_source = torch.argsort(target, stable=True), torch.argsort(source, stable=True)
    return (
        [*compress(target[by_target], source[by_target], size), by_target],
        [*compress(source[by_source], target[by_source], size), by_source],
    )


def _build_weighted(source: Tensor, target: Tensor, weight: Tensor, size: int) -> tuple[list[Tensor], list[Tensor]]:
    """The edges by target and by source with their weights, as `spmm_op` takes them."""
    edges, reverse = _remembered(_build_edges, size, source, target)
    return [*edges[:5], weight[edges[5]]], [*reverse[:5], weight[reverse[5]]]


def _is_shared_index(index: Any, x: Tensor) -> bool:
    """Whether this is an index of rows of `x` that is the same for all replicas."""
    return (
        isinstance(index, Tensor)
        and index.dim() == 1
        and index.dtype == torch.int64
        and index.numel() > 0
        and index.device == x.device
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


class Deferred(Tensor):
    """A tensor that has a shape but no values of its own: any function that needs them gets those of `compute`."""

    @classmethod
    def blank(cls, like: Tensor, shape: Sequence[int]) -> Self:
        """A tensor of this shape, with dtype and device of `like`."""
        value = torch.full((), math.nan, dtype=like.dtype, device=like.device)
        return value.expand(tuple(shape)).as_subclass(cls)

    @abstractmethod
    def compute(self) -> Tensor:
        """The values."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SIZES:
            with torch.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _ABOUT_NODES and isinstance(args[0], Gathered):
            return func(args[0].nodes, *args[1:], **kwargs)
        if func is Tensor.expand_as and not isinstance(args[0], Deferred):
            return args[0].expand(args[1].shape)
        if func in _PRODUCTS:
            out = _product(*args, **kwargs)
            if out is not NotImplemented:
                return out
        args, kwargs = tree_map_only(Deferred, lambda x: x.compute(), (args, kwargs))
        return func(*args, **kwargs)


class Gathered(Deferred):
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
        out = Gathered.blank(x, (index.numel(), *x.shape[1:]))
        out.nodes, out.source, out.weight, out.version = x, index, weight, in_place_version(unwrapped(x))
        return out

    def compute(self) -> Tensor:
        """The values."""
        if in_place_version(unwrapped(self.nodes)) != self.version:
            raise RuntimeError("a tensor was modified in place after rows of it were selected")
        out = to_edges_op(
            _flat(self.nodes), _remembered(_build_ends, self.nodes.size(0), self.source), _backend(self.nodes)
        )
        out = out.reshape(out.size(0), *self.nodes.shape[1:])
        return out if self.weight is None else self.weight * out

    def sum_by(self, target: Tensor, size: int) -> Tensor:
        """`sum_rows` of it."""
        if size != self.nodes.size(0) or in_place_version(unwrapped(self.nodes)) != self.version:
            return sum_rows(self.compute(), target, size)
        x, weight, backend = _flat(self.nodes), self.weight, _backend(self.nodes)
        if weight is not None and (is_batched(weight) or weight.requires_grad or weight.numel() != target.numel()):
            heads = weight.reshape(target.numel(), -1).to(x.dtype)
            out = attend_op(heads, x, *_remembered(_build_edges, size, self.source, target), backend)
        elif weight is not None:
            out = spmm_op(x, *_remembered(_build_weighted, size, self.source, target, weight.reshape(-1)), backend)
        else:
            edges, reverse = _remembered(_build_edges, size, self.source, target)
            out = spmm_op(x, edges[:5], reverse[:5], backend)
        return out.reshape(size, *self.nodes.shape[1:])


class Zeros(Deferred):
    """What `like.new_zeros(shape)` returns: the first sum that is added to it takes its place."""

    like: Tensor
    written: Tensor | None

    @staticmethod
    def of(like: Tensor, shape: Sequence[int]) -> Zeros:
        out = Zeros.blank(like, shape)
        out.like, out.written = like, None
        return out

    def compute(self) -> Tensor:
        """The values: with replicas beside columns, where what will be written to it has them."""
        if self.written is None:
            inner, level = unwrapped(self.like), only_vmap_level()
            assert level is not None
            zeros = inner.new_zeros(self.size(0), inner.size(batch_dim(self.like)), *self.shape[1:])
            self.written = add_batch_dim(zeros, 1, level)
        return self.written


_SIZES: set[Any] = {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point}
_SIZES |= {getattr(Tensor, name).__get__ for name in ("shape", "ndim", "dtype", "device", "layout", "is_cuda")}
_ABOUT_NODES: set[Any] = {Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty, Tensor.new_full}
_ABOUT_NODES |= {getattr(Tensor, name).__get__ for name in ("requires_grad", "grad_fn")}
_PRODUCTS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__}


def _product(a: Any, b: Any) -> Any:
    """A message times a weight per edge, or per edge and head."""
    message, weight = (a, b) if isinstance(a, Gathered) else (b, a)
    if not isinstance(message, Gathered) or isinstance(weight, Deferred) or not isinstance(weight, Tensor):
        return NotImplemented
    if weight.dim() != message.dim():
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
    out = to_nodes_op(_flat(x), _remembered(_build_ends, size, index), _backend(x))
    return out.reshape(size, *x.shape[1:])


def _index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    if not _has_rows(x) or not _is_shared_index(index, x) or dim % x.dim():
        return NotImplemented
    return Gathered.of(x, index)


def _getitem(x: Tensor, index: Any) -> Any:
    if not _has_rows(x) or not _is_shared_index(index, x):
        return NotImplemented
    nonnegative = _remembered(_build_nonnegative, x.size(0), index)
    return Gathered.of(x, index if nonnegative is None else nonnegative)


def _scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    gathered = isinstance(src, Gathered)
    if not (gathered or _has_rows(src)) or is_batched(index) or index.shape != src.shape or dim % src.dim():
        return NotImplemented
    if src.shape[1:] != x.shape[1:]:
        return NotImplemented
    if any(size > 1 and stride for size, stride in zip(index.shape[1:], index.stride()[1:], strict=True)):
        return NotImplemented  # each column has its own index
    row = index
    while row.dim() > 1:
        row = row.select(-1, 0)
    return _plus(x, sum_rows(src, row, x.size(0))) if _is_shared_index(row, x) else NotImplemented


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    gathered = isinstance(source, Gathered)
    if not (gathered or _has_rows(source)) or not _is_shared_index(index, x) or dim % source.dim() or alpha != 1:
        return NotImplemented
    return _plus(x, sum_rows(source, index, x.size(0)))


def _plus(x: Tensor, sums: Tensor) -> Tensor:
    if not isinstance(x, Zeros):
        return x + sums
    return sums if x.written is None else x.written + sums


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def changed(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        out = function(x, *args, **kwargs) if isinstance(x, Zeros) or is_batched(x) else NotImplemented
        if out is NotImplemented:
            return out
        if isinstance(x, Zeros) and x.written is None:
            x.written = out
            return out
        return computed(x).copy_(out)

    return changed


# --- tensors ----------------------------------------------------------------------------------------------------------


def _new_zeros(x: Tensor, *size: Any, **options: Any) -> Any:
    source = x.nodes if isinstance(x, Gathered) else x
    shape = size[0] if size and isinstance(size[0], Sequence) else size
    if not is_batched(source) or only_vmap_level() is None or len(shape) < 2 or options:
        return NotImplemented
    return Zeros.of(source, shape) if source.is_floating_point() else NotImplemented


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


def _requires_grad(x: Tensor) -> Any:
    """Under `vmap`, no tensor says that it requires a gradient."""
    return unwrapped(x).requires_grad if is_batched(x) and not isinstance(x, Deferred) else NotImplemented


def _refuse_hook(x: Tensor, *args: Any, **kwargs: Any) -> Any:
    if is_batched(x):
        raise NotImplementedError("a hook on a tensor would be ignored, because each replica has its own gradient")
    return NotImplemented


# --- linear maps ------------------------------------------------------------------------------------------------------


def _build_sparse(x: Tensor, _: int) -> Tensor | None:
    """Features that are mostly 0, in compressed rows; `None` for others."""
    sparse = sparse_if_smaller(x)
    return None if sparse is x else sparse


def _smaller(x: Tensor) -> Tensor:
    sparse = _remembered(_build_sparse, 0, x)
    return x if sparse is None else sparse


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    x = x.compute() if isinstance(x, Deferred) else x
    if not is_batched(weight) or weight.dim() != 2 or x.dim() < 2 or not x.numel():
        return NotImplemented
    if only_vmap_level() is None or (x.requires_grad and not is_batched(x)):
        return NotImplemented
    if not is_batched(x):
        return linear(_smaller(x), weight, bias) if x.dim() == 2 else NotImplemented
    rows = math.prod(x.shape[:-1])
    return linear(x.reshape(rows, x.size(-1)), weight, bias).reshape(*x.shape[:-1], weight.size(0))


def _matmul(x: Tensor, other: Tensor) -> Any:
    return _linear(x, other.t()) if other.dim() == 2 and not isinstance(other, Deferred) else NotImplemented


# --- few classes ------------------------------------------------------------------------------------------------------


def _log_softmax(x: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Any:
    """Classes first: on a CPU, a sum over a few adjacent numbers per node takes several times as long."""
    if not is_batched(x) or x.dim() != 2 or dim not in (1, -1) or dtype is not None:
        return NotImplemented
    if x.device.type != "cpu" or x.size(1) > FEW_CLASSES:
        return NotImplemented
    return torch.log_softmax(x.t().contiguous(), 0).t()


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
    functional.log_softmax: _log_softmax,
    torch.log_softmax: _log_softmax,
    Tensor.log_softmax: _log_softmax,
    functional.linear: _linear,
    Tensor.requires_grad.__get__: _requires_grad,  # type: ignore[attr-defined]
    Tensor.register_hook: _refuse_hook,
    Tensor.retain_grad: _refuse_hook,
    torch.matmul: _matmul,
    torch.mm: _matmul,
    Tensor.matmul: _matmul,
    Tensor.mm: _matmul,
    Tensor.__matmul__: _matmul,
}
