"""`Constants`: lets a module that was not written for it run fast on the same graph again and again.

A module of the user's own gets plain tensors, and computes at every step what depends on them alone: degrees,
normalized weights, added self-loops. Inside this mode such a result is computed once and returned from then on, so
that nothing is left that waits for a GPU. What depends on parameters too runs in the operators of `gfgn.ops` where
that is the same function: products with features (sparse if these are), rows gathered by a constant index, sums of
rows by a constant index, and all of `Σ_j w_ij x_j` as one product with a sparse matrix, without a tensor of messages.
"""

# mypy: disable-error-code="no-any-return,attr-defined"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gfgn.ops.csr import compress
from gfgn.ops.dispatch import choose
from gfgn.ops.edges import to_edges_op, to_nodes_op
from gfgn.ops.sparse import shared_linear_op, sparse_linear
from gfgn.ops.sums import spmm_op
from gfgn.ops.torch_internals import as_plain_tensors
from gfgn.train.task import sparse_if_smaller

Key = tuple[Any, ...]
FACTORIES = frozenset({torch.arange, torch.ones, torch.zeros, torch.full, torch.eye})
PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))


SHAPE = frozenset({Tensor.size, Tensor.dim, Tensor.numel, Tensor.shape.__get__, Tensor.ndim.__get__, Tensor.__len__})
OF_SOURCE = frozenset(
    {
        *(Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.is_floating_point),
        *(Tensor.dtype.__get__, Tensor.device.__get__, Tensor.layout.__get__, Tensor.requires_grad.__get__),
        *(Tensor.is_cuda.__get__, Tensor.is_sparse.__get__),
    }
)


class NotConstant(Exception):
    """Raised where a module changes the features or the edges in place."""


class Messages(Tensor):
    """`scale · source[index]`, one row per entry of `index`, not computed unless something other than a sum of rows
    needs it: a tensor of the right shape that has no values of its own."""

    source: Tensor
    rows: Tensor
    scale: Tensor | None
    compute: Callable[[], Tensor]
    computed: Tensor | None = None

    @staticmethod
    def of(source: Tensor, index: Tensor, scale: Tensor | None, compute: Callable[[], Tensor]) -> Messages:
        """The rows of `source`; `compute` returns them with their scale."""
        nothing = torch.zeros((), dtype=source.dtype, device=source.device)
        made = nothing.expand(index.numel(), *source.shape[1:]).as_subclass(Messages)
        made.source, made.rows, made.scale, made.compute = source, index, scale, compute
        return made

    def calculate(self) -> Tensor:
        """The rows as an ordinary tensor."""
        if self.computed is None:
            self.computed = self.compute()
        return self.computed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in SHAPE:
            args, kwargs = _with_values(args), {name: _with_values(value) for name, value in (kwargs or {}).items()}
        with as_plain_tensors():
            return func(*args, **(kwargs or {}))


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
        self._derived: dict[Key, Any] = {}  # sparse features, and patterns of indices

    @contextmanager
    def of(self, inputs: Sequence[Any]) -> Iterator[None]:
        """Runs the mode; the tensors among `inputs` are constant, and are the same objects in every call."""
        for value in inputs:
            if isinstance(value, Tensor):
                self._roots.add(self._remember(value, self._number(("input", id(value)))))
                self._derived["input", id(value)] = value  # alive: its id stays its own
        try:
            with self:
                yield
        finally:
            self._known = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(value, Messages) for value in _leaves((*args, *kwargs.values()))):
            result = self._of_messages(func, args, kwargs)
            if result is not NotImplemented:
                return result
            args, kwargs = _with_values(args), {name: _with_values(value) for name, value in kwargs.items()}
        if func is Tensor.__iter__ and id(args[0]) in self._known:
            return iter(self._constant(torch.unbind, (args[0],), {}))
        if func is Tensor.expand_as and id(args[0]) in self._known:
            func, args = Tensor.expand, (args[0], tuple(args[1].shape))
        if _is_in_place(func, kwargs):
            return self._in_place(func, args, kwargs)
        fast = FAST.get(func)
        if fast is not None:
            result = fast(self, *args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._constant(func, args, kwargs)

    # --- results that are constant ----------------------------------------------------------------

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
            if func in (Tensor.scatter_add_, Tensor.index_add_):
                return self._add_rows(func, args, kwargs)
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

    # --- functions that have a faster operator ----------------------------------------------------

    def linear(self, input: Any, weight: Any, bias: Any = None) -> Any:
        """`F.linear` of constant features: one product for all replicas."""
        if self.number_of(input) is None or self.number_of(weight) is not None or input.dim() != 2:
            return NotImplemented
        out = self._product(input, weight.t())
        return out if bias is None else out + bias

    def matmul(self, input: Any, other: Any, **kwargs: Any) -> Any:
        """`input @ other` of constant features."""
        if self.number_of(input) is None or self.number_of(other) is not None or kwargs:
            return NotImplemented
        if not isinstance(other, Tensor) or input.dim() != 2 or other.dim() != 2:
            return NotImplemented
        return self._product(input, other)

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        sparse = self._derive("features", x, lambda: sparse_if_smaller(x))
        if sparse.layout == torch.sparse_csr:
            return sparse_linear(sparse, weight)
        return shared_linear_op(weight, x, None)

    def index_select(self, input: Any, dim: Any, index: Any) -> Any:
        """Rows of a tensor that is not constant, by a constant index."""
        if not self._is_by_rows(input, dim) or self.number_of(index) is None or index.dim() != 1:
            return NotImplemented
        ends = self._ends(index, input.size(0))
        return Messages.of(input, index, None, lambda: _of_matrix(to_edges_op, input, ends, index.numel()))

    def getitem(self, input: Any, index: Any) -> Any:
        """`input[index]`, the same."""
        if not isinstance(index, Tensor) or index.dtype != torch.int64:
            return NotImplemented
        return self.index_select(input, 0, index)

    def _add_rows(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`scatter_add_` and `index_add_` of rows that are not constant, by a constant index."""
        if kwargs or len(args) != 4:
            return func(*args, **kwargs)
        target, dim, index, source = args
        if self.number_of(index) is None or not self._is_by_rows(source, dim) or source.shape[1:] != target.shape[1:]:
            return func(*args)
        if func is Tensor.scatter_add_ and not self._is_row_index(target, dim, index, source):
            return func(*args)
        rows = target.size(0)
        return target.add_(_of_matrix(to_nodes_op, source, self._ends(index, rows), rows))

    def _of_messages(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What can be said of messages without computing them: their shape, a multiple of them, and their sums."""
        if func in SHAPE:
            return func(*args, **kwargs)
        if func in OF_SOURCE:
            return func(args[0].source, *args[1:], **kwargs)
        if func is Tensor.expand_as and not isinstance(args[0], Messages):
            return self._constant(Tensor.expand, (args[0], tuple(args[1].shape)), {})
        if func in PRODUCTS and not kwargs:
            messages, factor = args if isinstance(args[0], Messages) else args[::-1]
            return self._scaled(messages, factor)
        if func is Tensor.scatter_add_ and not kwargs and not isinstance(args[0], Messages):
            return self._sum_of_messages(*args)
        return NotImplemented

    def _scaled(self, messages: Messages, factor: Any) -> Any:
        shape = messages.shape
        if self.number_of(factor) is None or factor.dtype != messages.source.dtype:
            return NotImplemented
        if tuple(factor.shape) != (shape[0], *[1] * (len(shape) - 1)):
            return NotImplemented
        scale = self._constant(Tensor.reshape, (factor, (-1,)), {})
        if messages.scale is not None:
            scale = self._constant(torch.mul, (messages.scale, scale), {})
        return Messages.of(messages.source, messages.rows, scale, lambda: factor * messages.calculate())

    def _sum_of_messages(self, target: Tensor, dim: Any, index: Tensor, messages: Messages) -> Any:
        if not self._is_row_index(target, dim, index, messages):
            return NotImplemented
        numbers = tuple(self.number_of(value) for value in (index, messages.rows, messages.scale))
        key = ("sums", *numbers, target.size(0), messages.source.size(0))
        if key not in self._derived:
            into = _first_column(index)
            self._derived[key] = _both_orders(into, target.size(0), messages)
        source = messages.source
        matrix = source.reshape(source.size(0), -1).contiguous()
        out = spmm_op(matrix, *self._derived[key], choose(source.device.type, source.dtype, None))
        return target.add_(out.reshape(target.shape))

    def _is_row_index(self, target: Tensor, dim: Any, index: Any, source: Tensor) -> bool:
        """Whether `scatter_add_` adds whole rows: its index is constant and the same for all of a row."""
        if self.number_of(index) is None or self.number_of(target) is not None or dim not in (0, -source.dim()):
            return False
        return index.shape == source.shape and not any(index.stride()[1:]) and source.shape[1:] == target.shape[1:]

    def _is_by_rows(self, value: Any, dim: Any) -> bool:
        if not isinstance(value, Tensor) or self.number_of(value) is not None or not isinstance(dim, int):
            return False
        floating = value.dtype in (torch.float32, torch.float64)
        return floating and value.dim() > 0 and dim in (0, -value.dim())

    def _ends(self, index: Tensor, num_rows: int) -> list[Tensor]:
        """A `CSR` with one row per node that holds the places of `index` that name it, and `index`."""

        def compute() -> list[Tensor]:
            column = _first_column(index)
            row, place = torch.sort(column, stable=True)
            return [*compress(row, place, num_rows), column]

        return self._derive(f"ends {num_rows}", index, compute)

    def _derive(self, name: str, value: Tensor, compute: Callable[[], Any]) -> Any:
        """What follows from a constant, computed once."""
        key = (name, self.number_of(value))
        if key not in self._derived:
            self._derived[key] = compute()
        return self._derived[key]


FAST: dict[Any, Callable[..., Any]] = {
    F.linear: Constants.linear,
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), Constants.matmul),
    **dict.fromkeys((torch.index_select, Tensor.index_select), Constants.index_select),
    Tensor.__getitem__: Constants.getitem,
}
PRODUCTS = frozenset({torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__})


def _both_orders(into: Tensor, num_rows: int, messages: Messages) -> tuple[list[Tensor], list[Tensor]]:
    """The sparse matrix that sums messages, by targets and by sources, as `spmm_op` takes it."""

    def order(row: Tensor, column: Tensor, rows: int) -> list[Tensor]:
        row, place = torch.sort(row, stable=True)
        values = [] if messages.scale is None else [messages.scale[place]]
        return [*compress(row, column[place], rows), *values]

    return order(into, messages.rows, num_rows), order(messages.rows, into, messages.source.size(0))


def _first_column(index: Tensor) -> Tensor:
    while index.dim() > 1:
        index = index.select(1, 0)
    return index


def _with_values(value: Any) -> Any:
    """The same with messages computed."""
    if isinstance(value, Messages):
        return value.calculate()
    if isinstance(value, list | tuple):
        made = [_with_values(part) for part in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def _of_matrix(operator: Any, x: Tensor, ends: list[Tensor], rows: int) -> Tensor:
    """An operator of matrices, for a tensor with any number of dimensions."""
    matrix = x.reshape(x.size(0), -1)
    out = operator(matrix.contiguous(), ends, choose(x.device.type, x.dtype, None))
    return out.reshape(rows, *x.shape[1:])


def _is_in_place(func: Any, kwargs: Any) -> bool:
    name = getattr(func, "__name__", "")
    augmented = (
        name.startswith("__i")
        and name.endswith("__")
        and name not in ("__iter__", "__int__", "__index__", "__invert__")
    )
    return (
        (name.endswith("_") and not name.endswith("__"))
        or augmented
        or name in ("__setitem__", "__set__")
        or "out" in kwargs
    )


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
