"""Numba's compiler with a cache on disk, for the samplers; all in gfgn that rests on private names of Numba.

The range of `numba` in `pyproject.toml` is bounded because of the names below; `tests/ops/cpu/test_numba_internals.py`
reads this list and says which of them is gone.

- `numba.core.options.DefaultOptions.no_cfunc_wrapper`: an `njit` option that saves compile time
- `numba.core.caching.FunctionCache`, `numba.core.caching.CompileResultCacheImpl`,
  `numba.core.caching.UserProvidedCacheLocator`, `numba.core.caching.InTreeCacheLocator`,
  `numba.core.caching.UserWideCacheLocator`, `numba.core.caching.IndexDataCacheFile`: the on-disk cache, whose
  `_source_stamp` is extended to the files that a kernel inlines code from
"""

import functools
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

F = TypeVar("F", bound=Callable[..., Any])
logger = logging.getLogger(__name__)


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
