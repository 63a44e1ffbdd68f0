"""Machine code of kernels: compiled by LLVM for this processor on first use, and kept on disk.

The cache is in the first folder that can be written, and everything works without it: what cannot be read is compiled
again. Kernels are read from any of the folders: the one next to their source may have been filled before it became
read-only. `GFGN_CACHE`, where it is set, is the only folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import stat
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, cast

import llvmlite
import numpy as np
import torch
from llvmlite import binding
from torch import Tensor

from gfgn.ops.cpu.compiler import Layout, compile_kernel

DIGEST = hashlib.sha256().digest_size
SUFFIX = ".kernel"
logger = logging.getLogger(__name__)
_lock = threading.RLock()
_warned: list[str] = []
_compile_seconds = 0.0

ANNOUNCE_AFTER = 3.0
"""Seconds of compilation after which it is announced."""


# --- LLVM -------------------------------------------------------------------------------------------------------------


class Machine:
    """The processor, and the memory with the code of all kernels of this process."""

    def __init__(self) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self.triple = binding.get_process_triple() + ("-elf" if sys.platform == "win32" else "")
        self.cpu, self.features = binding.get_host_cpu_name(), _features()
        target = binding.Target.from_triple(self.triple)
        options = {"cpu": self.cpu, "features": self.features, "opt": 3, "jit": True, "codemodel": "jitdefault"}
        options["reloc"] = "static" if target.name.startswith("x86") else "default"
        self.target = target.create_target_machine(**options)
        self.engine = binding.create_mcjit_compiler(binding.parse_assembly(""), self.target)

    def compile(self, code: str) -> bytes:
        """The object file of LLVM code."""
        module = binding.parse_assembly(code, binding.create_context())
        module.triple, module.data_layout = self.triple, str(self.engine.target_data)
        options = binding.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization, options.slp_vectorization = True, False
        builder = binding.create_pass_builder(self.target, options)
        builder.getModulePassManager().run(module, builder)
        return bytes(self.target.emit_object(module))

    def load(self, content: bytes, name: str) -> int:
        """The address of a function of an object file."""
        self.engine.add_object_file(binding.ObjectFileRef.from_data(content))
        self.engine.finalize_object()
        address: int = self.engine.get_function_address(name)
        if not address:
            raise ValueError(f"an object file has no {name}")
        return address


def _features() -> str:
    try:
        return str(binding.get_host_cpu_features().flatten())
    except RuntimeError:  # LLVM does not know them on every system; the name of the processor implies most
        return ""


def _after_fork() -> None:
    """A lock that another thread of the parent held would never be released."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def machine() -> Machine:
    return Machine()


# --- kernels ----------------------------------------------------------------------------------------------------------

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_char_p)  # runs without the interpreter lock
DTYPES: dict[Any, Any] = {
    getattr(torch, name): np.dtype(name) for name in ("float32", "float64", "int32", "int64", "uint8", "uint32")
} | {torch.bfloat16: np.dtype("V2")}  # NumPy has no bfloat16
WORDS = {int: "q", bool: "q", float: "d"}


class Call(NamedTuple):
    """A call of a kernel, which any number of threads may make."""

    function: Callable[[bytes], None]
    arguments: bytes
    held: Any
    """The arrays, until the call ends."""

    def __call__(self) -> None:
        self.function(self.arguments)


class Kernel:
    """An entry point, compiled for the dtypes of its two records on the first call with them."""

    def __init__(self, function: FunctionType) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.compiled: dict[Any, tuple[Callable[[bytes], None], struct.Struct]] = {}
        self.loaded = 0  # how many came from the cache

    def __call__(self, op: Any, work: Any) -> None:
        self.bind(op, work)()

    def bind(self, op: Any, work: Any) -> Call:
        """The call with these arguments; compiles the kernel if necessary."""
        words: list[Any] = []
        key: list[Any] = [type(op), type(work)]
        for value in (*op, *(work or ())):
            kind = type(value)
            if kind in WORDS:
                key.append(kind)
                words.append(value)
            elif isinstance(value, Tensor):
                key.append(value.dtype)
                words.append(value.data_ptr())
            elif kind is np.ndarray:
                key.append(value.dtype)
                words.append(value.ctypes.data)
            else:
                key.append(len(value))
        signature = tuple(key)
        found = self.compiled.get(signature)
        if found is None:
            with _lock:
                found = self.compiled.get(signature) or self._compile(signature, len(op))
        function, pack = found
        return Call(function, pack.pack(*words), (op, work))

    def _compile(self, signature: tuple[Any, ...], size: int) -> tuple[Callable[[bytes], None], struct.Struct]:
        op, work, *fields = signature
        fields = [DTYPES.get(field, field) for field in fields]
        name = f"{self.function.__name__}_{_digest(repr(fields))[:16]}"
        content = self._find(name)
        if content is None:
            records = [Layout(op, tuple(fields[:size])), Layout(work, tuple(fields[size:]))]
            start = time.perf_counter()
            content = machine().compile(compile_kernel(self.function, name, records))
            _announce(time.perf_counter() - start)
            save(self._source, name, content)
        address = machine().load(content, name)
        words = "".join(WORDS.get(cast(Any, field), "Q") for field in fields if not isinstance(field, int))
        self.compiled[signature] = ENTRY(address), struct.Struct(f"={words}")
        return self.compiled[signature]

    @property
    def _source(self) -> Path:
        return Path(self.function.__code__.co_filename)

    def _find(self, name: str) -> bytes | None:
        content = find(self._source, name)
        self.loaded += content is not None
        return content


def _announce(seconds: float) -> None:
    """Logs once that kernels are being compiled, if it takes long."""
    global _compile_seconds
    before, _compile_seconds = _compile_seconds, _compile_seconds + seconds
    if before < ANNOUNCE_AFTER <= _compile_seconds:
        logger.warning("gfgn compiles its CPU kernels (once; cached on disk)")


def kernel(function: Any) -> Any:
    """Makes a function of two records an entry point: compiled on its first call, kept on disk, and run without the
    interpreter lock."""
    return Kernel(function)


# --- the cache --------------------------------------------------------------------------------------------------------


def find(source: Path, name: str) -> bytes | None:
    """The object file of a kernel, or `None`."""
    file = _file_name(source, name)
    for folder in _folders(source):
        try:
            content = (folder / file).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]:
            return content[DIGEST:]
        logger.debug("a cached kernel in %s cannot be read", folder / file)
    return None


def save(source: Path, name: str, content: bytes) -> None:
    """Keeps the object file of a kernel in the first folder that can be written, and removes those of older sources."""
    file, problem = _file_name(source, name), "there is no folder for them"
    for folder in _folders(source, create=True):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f"{file}.")
            try:
                with os.fdopen(handle, "wb") as unfinished:
                    unfinished.write(hashlib.sha256(content).digest() + content)
                Path(temporary).replace(folder / file)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            problem = str(error)
            continue
        for old in folder.glob(f"{file.rpartition('-')[0]}-*{SUFFIX}"):
            if old.name != file:
                with contextlib.suppress(OSError):
                    old.unlink()
        return
    if not _warned:
        _warned.append(problem)
        logger.warning(
            "gfgn cannot keep its compiled CPU kernels (%s), so that every process compiles them again; "
            "GFGN_CACHE names a folder that can be written",
            problem,
        )


def _folders(source: Path, create: bool = False) -> Iterator[Path]:
    """Where compiled kernels may be kept, best first."""
    own = f"{source.parent.name}-{_digest(str(source.parent))[:16]}"
    given = os.environ.get("GFGN_CACHE")
    if given:
        yield Path(given, own)
        return
    yield source.parent / "__pycache__"
    with contextlib.suppress(RuntimeError):  # without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gfgn", "kernels", own)
    temporary = Path(tempfile.gettempdir(), f"gfgn-kernels-{os.getuid() if hasattr(os, 'getuid') else 'user'}")
    with contextlib.suppress(OSError):
        if create:
            temporary.mkdir(mode=0o700, exist_ok=True)
        if _is_private(temporary):
            yield temporary / own


def _is_private(folder: Path) -> bool:
    """Whether only this user can read and write a folder: its content is executed."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)


def _file_name(source: Path, name: str) -> str:
    """The name of a kernel's file: the kernel, the machine, and the sources it may be compiled from."""
    host = machine()
    target = _digest(f"{host.triple} {host.cpu} {host.features} {llvmlite.__version__} {binding.llvm_version_info}")
    return f"{source.stem}.{name}-{target[:16]}-{_source_stamp(source.parent)[:16]}{SUFFIX}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _source_stamp(folder: Path) -> str:
    """A digest of the sources that kernels of `folder` may inline."""
    here = Path(__file__).parent
    sources = {*folder.glob("*.py"), *here.glob("*.py"), here.parent / "csr.py"}
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(sources))).hexdigest()
