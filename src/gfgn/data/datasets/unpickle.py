"""`unpickle`: a pickle of NumPy arrays, SciPy CSR matrices and plain containers; anything else in it is an error.

A pickle is a program. This one is run with names of its own: no class or function of another module is ever imported
or called, and arrays are made from their bytes only after these have been checked.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from gfgn.data.messages import DataError, reason

# Without those that call `find_class` by number, persistent objects, and the buffers and frames of later protocols.
OPCODES = """MARK STOP POP POP_MARK DUP PROTO NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT
BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1
TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET GLOBAL REDUCE NEWOBJ BUILD
"""
DTYPE = re.compile(r"[?bBhHiIlLqQefd]|[|<>=]?[biuf][1248]")


class _Dtype:
    """Stands for `numpy.dtype`: one type of numbers."""

    def __init__(self, name: str, align: object = False, copy: object = True) -> None:
        if not isinstance(name, str) or not DTYPE.fullmatch(name):
            raise DataError(f"an array is of type {name!r}, expected numbers")
        self.value = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise DataError(f"an array has the byte order {order!r}, expected '<', '>', '|' or '='")
        self.value = self.value.newbyteorder(order)


class _Array:
    """Stands for `numpy.ndarray`: its state is the version, shape, type, order and bytes."""

    value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        content = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise DataError("an array has no type or no bytes, expected numbers")
        if math.prod(shape) * dtype.value.itemsize != len(content):
            raise DataError(f"an array has shape {list(shape)} of {dtype.value} in {len(content):,} bytes")
        array = np.frombuffer(content, dtype.value).reshape(shape, order="F" if fortran else "C")
        self.value = array.astype(dtype.value.newbyteorder("="))


class _Sparse:
    """Stands for a SciPy CSR matrix, whose state is a dictionary of its arrays."""

    value: scipy.sparse.csr_array | None = None

    def __setstate__(self, state: Any) -> None:
        data, indices, indptr = (state[name].value for name in ("data", "indices", "indptr"))
        rows, columns = state["_shape"]
        matrix = scipy.sparse.csr_array((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
        self.value = matrix


def _reconstruct(*arguments: object) -> _Array:
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


def _containers(*arguments: object) -> defaultdict[Any, list[Any]]:
    return defaultdict(list)


GLOBALS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Sparse,
    ("scipy.sparse._csr", "csr_matrix"): _Sparse,
    ("scipy.sparse._csr", "csr_array"): _Sparse,
    ("collections", "defaultdict"): _containers,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle._Unpickler):
    """Python's unpickler rather than the one in C, which reserves memory for any number that a file names."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in OPCODES.split())
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in GLOBALS:
            raise DataError(f"it calls {module}.{name}, expected arrays, sparse matrices, lists and dictionaries")
        return GLOBALS[module, name]

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, _Dtype | _Array | _Sparse):
            raise DataError(f"it gives a state to a {type(target).__name__}, expected arrays and sparse matrices")
        target.__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build


def unpickle(path: Path) -> Any:
    """The array, CSR matrix or dictionary in a file.

    Raises:
        DataError: The file is damaged or holds anything else; nothing in it has been executed.
    """
    try:
        value = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except KeyError as error:
        code = f"opcode {error.args[0]}" if isinstance(error.args[0], int) else repr(error.args[0])
        raise DataError(f"{path.name} is not a pickle of arrays ({code} is unknown)") from error
    except Exception as error:  # a damaged pickle raises anything
        raise DataError(f"{path.name} is not a pickle of arrays: {reason(error)}") from error
    return value.value if isinstance(value, _Array | _Sparse) else value
