"""Everything in gfgn that rests on names Numba and llvmlite make no promise about.

The other modules write kernels with the decorators `kernel` and `inlined`, and LLVM code with `instruction`. The range
of `numba` in `pyproject.toml` is bounded because of the names below; `tests/ops/cpu/test_numba_internals.py` reads this
list and says which of them is gone.

- `numba.core.cgutils.unpack_tuple`, `numba.core.cgutils.create_struct_proxy`: pointers of a record of arrays
- `numba.core.cgutils.get_or_insert_function`: calls of LLVM intrinsics
- `numba.core.base.BaseContext.cast`, `numba.core.base.BaseContext.make_tuple`,
  `numba.core.base.BaseContext.get_value_type`, `numba.core.base.BaseContext.get_constant`,
  `numba.core.base.BaseContext.get_dummy_value`: values inside LLVM code
- `numba.core.types.Type`, `numba.core.types.CPointer`, `numba.core.types.NamedTuple`, `numba.core.types.UniTuple`,
  `numba.core.types.ExternalFunction`: types of kernel arguments
- `numba.extending.models.PrimitiveModel`, `numba.extending.register_model`, `numba.extending.intrinsic`,
  `numba.extending.overload`: the vector type and its operations
- `numba.core.options.DefaultOptions.forceinline`, `numba.core.options.DefaultOptions.no_cpython_wrapper`,
  `numba.core.options.DefaultOptions.no_cfunc_wrapper`: `njit` options that inline and save a third of the compile time
- `numba.core.caching.FunctionCache`, `numba.core.caching.CompileResultCacheImpl`,
  `numba.core.caching.UserProvidedCacheLocator`, `numba.core.caching.InTreeCacheLocator`,
  `numba.core.caching.UserWideCacheLocator`, `numba.core.caching.IndexDataCacheFile`: the on-disk cache, whose
  `_source_stamp` is extended to the files that a kernel inlines code from
- `llvmlite.ir.IRBuilder.atomic_rmw`, `llvmlite.ir.IRBuilder.shuffle_vector`, `llvmlite.ir.IRBuilder.insert_element`,
  `llvmlite.ir.IRBuilder.cttz`, `llvmlite.ir.IRBuilder.fneg`: LLVM instructions
"""

import functools
import hashlib
import inspect
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.extending import intrinsic, models, overload, register_model

LANES = 16
"""Columns in a vector: one AVX-512 register of float32, two of float64, four or eight of NEON."""

F = TypeVar("F", bound=Callable[..., Any])
logger = logging.getLogger(__name__)


def inlined(function: F, *, fastmath: Any = False) -> F:
    """Compiles a function that only kernels call; it is inlined into them, and cannot be called from Python."""
    options = {"forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, njit(error_model="numpy", fastmath=fastmath, **options)(function))


def kernel(function: F, *, error_model: str = "numpy") -> F:
    """Compiles an entry point on its first call, caches it on disk, and runs it without the interpreter lock."""
    compiled = njit(nogil=True, error_model=error_model, no_cfunc_wrapper=True)(function)
    if hasattr(compiled, "_cache"):  # not under NUMBA_DISABLE_JIT
        compiled._cache = KernelCache(function)
    return cast(F, compiled)


class HomeLocator(UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache folder; without a home, Numba would create a folder named `~`."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        try:
            Path.home()
        except RuntimeError:
            return None
        return super().from_function(function, file)


class TemporaryLocator(UserWideCacheLocator):  # type: ignore[misc]
    """A folder in the system's temporary folder that only this user can read and write: its content is executed."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        folder = Path(tempfile.gettempdir(), f"gfgn-kernels-{os.getuid() if hasattr(os, 'getuid') else 'user'}")
        self._cache_path = str(folder / self.get_suitable_cache_subpath(file))

    def ensure_cache_path(self) -> None:
        folder = Path(self._cache_path).parent
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or (
            hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077)
        ):
            raise PermissionError(f"{folder} belongs to somebody else")
        super().ensure_cache_path()


class ReadOnlyLocator(InTreeCacheLocator):  # type: ignore[misc]
    """The folder next to the source, although nothing can be written there."""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return cls(function, file)


class KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """Where compiled kernels are kept: in the first folder that can be written."""

    _locator_classes = (UserProvidedCacheLocator, InTreeCacheLocator, HomeLocator, TemporaryLocator, ReadOnlyLocator)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a kernel, without which everything works too: what cannot be read is compiled again.

    Kernels are also read from the folder next to their source, which may have been filled before it became read-only.
    The cache is opened when the kernel is first compiled, so that importing kernels touches no file.
    """

    _impl_class = KernelCacheImpl

    def __init__(self, function: Any) -> None:
        self._function = function
        self._cache_path: Any = None
        self._files: list[Any] = []  # the first is the one to write

    def open(self) -> list[Any]:
        """The files to look into."""
        if not self._files:
            super().__init__(self._function)
            source = Path(self._function.__code__.co_filename)
            self._cache_file._source_stamp = stamp = _source_stamp(source.parent)
            self._files = [self._cache_file]
            if Path(self._cache_path) != source.parent / "__pycache__":
                name = self._impl.filename_base
                self._files.append(IndexDataCacheFile(str(source.parent / "__pycache__"), name, stamp))
        return self._files

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        """The cached code of a signature, or `None`."""
        for file in self.open():
            try:
                data = file.load(self._index_key(sig, target_context.codegen()))
                if data is not None:
                    return self._impl.rebuild(target_context, data)
            except Exception as error:  # a damaged file can raise anything
                logger.debug("a cached kernel in %s cannot be read: %s", file._index_path, error)
                if file is self._cache_file:
                    self._try(self.flush)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps the code of a signature, if it can."""
        self.open()
        self._try(lambda: super(KernelCache, self).save_overload(sig, data))

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.disable()
            _warn_uncached(str(error))


def _warn_uncached(reason: str) -> None:
    """Warns once per process, whatever the reasons are."""
    if not _warned:
        _warned.append(reason)
        logger.warning(
            "gfgn cannot keep its compiled CPU kernels (%s), so that every process compiles them again; "
            "NUMBA_CACHE_DIR names a folder that can be written",
            reason,
        )


_warned: list[str] = []


@functools.cache
def _source_stamp(folder: Path) -> str:
    """A digest of the sources that kernels of `folder` may inline; Numba's own stamp covers the kernel's file alone."""
    here = Path(__file__).parent
    sources = {*folder.glob("*.py"), *here.glob("*.py"), here.parent / "csr.py"}
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(sources))).hexdigest()


def instruction(typing: Callable[..., Any]) -> Callable[..., Any]:
    """Defines a function for kernels by its LLVM code.

    Args:
        typing: Maps the argument types to a Numba signature and `emit(llvm, *values)`, which writes the code with an
            `Emitter` and returns the result.
    """

    def definition(context: Any, *arguments: Any) -> Any:
        signature, emit = typing(*arguments)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            result = emit(Emitter(context, builder), *values)
            return context.get_dummy_value() if signature.return_type == types.void else result

        return signature, generate

    parameters = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += inspect.signature(typing).parameters.values()
    functools.update_wrapper(definition, typing)
    definition.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return cast(Callable[..., Any], intrinsic(definition))


def specialized(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Defines a function for kernels by `typed`, which maps the argument types to the Python code for them."""

    @functools.wraps(typed)
    def function(*_: Any) -> Any:
        raise TypeError(f"{typed.__name__} runs inside kernels only")

    overload(function)(typed)
    return function


class Vector(types.Type):  # type: ignore[misc]
    """`LANES` numbers of one type."""

    def __init__(self, scalar: Any) -> None:
        super().__init__(name=f"vector({scalar}, {LANES})")
        self.scalar = scalar


@register_model(Vector)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Any) -> None:
        lane = manager.lookup(vector.scalar).get_value_type()
        super().__init__(manager, vector, ir.VectorType(lane, LANES))


def integers(bits: int) -> Any:
    """The LLVM type of a vector of integers."""
    return ir.VectorType(ir.IntType(bits), LANES)


class Emitter:
    """Writes the LLVM code of one call of an instruction."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context = context
        self.builder = builder

    def zeros(self, vector: Any) -> Any:
        return ir.Constant(self.context.get_value_type(vector), None)

    def number(self, bits: int, value: int) -> Any:
        """An integer constant."""
        return ir.Constant(ir.IntType(bits), value)

    def numbers(self, bits: int, values: int | list[int]) -> Any:
        """A vector of integer constants, all the same if given one."""
        return ir.Constant(integers(bits), values if isinstance(values, list) else [values] * LANES)

    def shuffle(self, vector: Any, lanes: list[int]) -> Any:
        """The vector whose lane `k` is lane `lanes[k]` of `vector`."""
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), self.numbers(32, lanes))

    def splat(self, value: Any) -> Any:
        """The vector whose lanes all hold `value`."""
        empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        return self.shuffle(self.builder.insert_element(empty, value, self.number(32, 0)), [0] * LANES)

    def widen(self, value: Any, kind: Any, vector: Any) -> Any:
        """A value of type `kind` as it is if it is a vector, else its cast to the lanes' type in every lane."""
        if isinstance(kind, Vector):
            return value
        return self.splat(self.context.cast(self.builder, value, kind, vector.scalar))

    def mask(self, lanes: Any, bits: int = LANES) -> Any:
        """A vector of booleans as the low bits of an integer of `bits` bits."""
        return self.builder.zext(self.builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(bits))

    def element(self, pointer: Any, index: Any, offset: int = 0) -> Any:
        """The address of element `index + offset`."""
        if offset:
            index = self.builder.add(index, ir.Constant(index.type, offset))
        return self.builder.gep(pointer, [index])

    def load(self, vector: Any, address: Any) -> Any:
        lanes = self.context.get_value_type(vector).as_pointer()
        return self.builder.load(self.builder.bitcast(address, lanes), align=vector.scalar.bitwidth // 8)

    def store(self, vector: Any, value: Any, address: Any) -> Any:
        address = self.builder.bitcast(address, value.type.as_pointer())
        return self.builder.store(value, address, align=vector.scalar.bitwidth // 8)

    def first_lanes(self, count: Any) -> Any:
        """The mask of the first `count` lanes."""
        return self.builder.icmp_signed("<", self.numbers(64, list(range(LANES))), self.splat(count))

    def load_where(self, vector: Any, address: Any, mask: Any) -> Any:
        """The vector at an address; lanes that are not in the mask are 0 and not read."""
        kind, bits = self.context.get_value_type(vector), vector.scalar.bitwidth
        address = self.builder.bitcast(address, kind.as_pointer())
        align, name = self.number(32, bits // 8), f"llvm.masked.load.v{LANES}f{bits}.p0"
        return self.call(name, kind, address, align, mask, self.zeros(vector))

    def store_where(self, vector: Any, value: Any, address: Any, mask: Any) -> Any:
        bits = vector.scalar.bitwidth
        address = self.builder.bitcast(address, value.type.as_pointer())
        align, name = self.number(32, bits // 8), f"llvm.masked.store.v{LANES}f{bits}.p0"
        return self.call(name, ir.VoidType(), value, address, align, mask)

    def prefetch(self, address: Any) -> Any:
        address = self.builder.bitcast(address, ir.IntType(8).as_pointer())
        read, keep, data = (self.number(32, flag) for flag in (0, 3, 1))
        return self.call("llvm.prefetch.p0", ir.VoidType(), address, read, keep, data)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """Calls an LLVM intrinsic."""
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)


def vector_operator(operation: Callable[..., Any], name: str, *flags: str) -> None:
    """Gives vectors, and a vector with a number, the Python operator `operation` by the LLVM instruction `name`."""

    @instruction
    def lanewise(x: Any, y: Any) -> Any:
        vector = x if isinstance(x, Vector) else y

        def emit(llvm: Emitter, *values: Any) -> Any:
            operands = (llvm.widen(value, kind, vector) for value, kind in zip(values, (x, y), strict=True))
            return getattr(llvm.builder, name)(*operands, flags=flags)

        return vector(x, y), emit

    def compiled(x: Any, y: Any) -> Any:
        return lanewise(x, y)

    def typed(x: Any, y: Any) -> Any:
        return compiled if isinstance(x, Vector) or isinstance(y, Vector) else None

    overload(operation)(typed)


@instruction
def as_pointers(record: Any) -> Any:
    """A record of arrays as a record of pointers, since Numba counts the references of an array at every call."""
    kinds = [types.CPointer(t.dtype) if isinstance(t, types.Array) else t for t in record.types]
    result = types.NamedTuple(kinds, record.instance_class)

    def emit(llvm: Emitter, values: Any) -> Any:
        items = cgutils.unpack_tuple(llvm.builder, values, len(kinds))
        for k, kind in enumerate(record.types):
            if isinstance(kind, types.Array):
                items[k] = cgutils.create_struct_proxy(kind)(llvm.context, llvm.builder, items[k]).data
        return llvm.context.make_tuple(llvm.builder, result, items)

    return result(record), emit


def _do_nothing() -> None:
    """Where the system has no `sched_yield`, waiting is spinning."""


# On a busy machine, the thread that is waited for may need this core.
yield_processor: Callable[[], Any] = (
    types.ExternalFunction("sched_yield", types.int32()) if hasattr(os, "sched_yield") else inlined(_do_nothing)
)
