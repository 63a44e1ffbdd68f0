"""`Npz`: the arrays of a `.npz` file, each checked before memory is taken for it; nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gfgn.data.limits import check_memory
from gfgn.data.messages import DataError, reading, reason

MAX_ARRAYS = 1000


class Header(NamedTuple):
    """What an array says about itself; `size` is the number of its bytes that follow."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int

    def __str__(self) -> str:
        return "Python objects" if self.dtype.hasobject else f"{list(self.shape)} of {self.dtype}"


class Npz:
    """An open file; see `open_npz`."""

    def __init__(self, archive: zipfile.ZipFile, label: str, size: int) -> None:
        self.label = label
        self._archive, self._size, self._loaded = archive, size, 0
        entries = archive.infolist()
        if len(entries) > MAX_ARRAYS:
            raise DataError(f"{label} has {len(entries):,} arrays, expected at most {MAX_ARRAYS:,}")
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in entries}

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def header(self, name: str) -> Header | None:
        """Shape and type of an array, which is not loaded; `None` if it is not in NumPy's format."""
        try:
            with self._archive.open(self._entries[name]) as member:
                first = npy.read_magic(member) == (1, 0)
                shape, _, dtype = (npy.read_array_header_1_0 if first else npy.read_array_header_2_0)(member)
                return Header(shape, dtype, self._entries[name].file_size - member.tell())
        except Exception:  # damaged members raise anything
            return None

    def __getitem__(self, name: str) -> NDArray[Any]:
        header = self.header(name)
        if header is None:
            raise DataError(f"{self.label}: {name} is damaged or not in NumPy's format, expected a NumPy array")
        if header.dtype.hasobject:
            objects = "an array of Python objects, which are never unpickled"
            raise DataError(f"{self.label}: {name} is {objects}, expected numbers")
        needed = math.prod(header.shape) * header.dtype.itemsize
        if needed != header.size:
            got = f"{header} takes {needed:,} bytes, but has {header.size:,}"
            raise DataError(f"{self.label}: {name} is damaged: {got}, expected a NumPy array")
        self._loaded += needed
        check_memory(self.label, self._loaded, self._size)
        try:
            with self._archive.open(self._entries[name]) as member:
                return np.asarray(npy.read_array(member, allow_pickle=False))
        except Exception as error:
            raise DataError(f"{self.label}: {name} is damaged ({reason(error)}), expected a NumPy array") from error


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Opens a file; what goes wrong in the block is a `DataError`."""
    with reading(path.name, "a .npz file"):
        with path.open("rb") as file:
            if file.read(6) == b"\x93NUMPY":
                raise DataError(f"{path.name} is a single array, expected a .npz of named arrays")
        with zipfile.ZipFile(path) as archive:
            yield Npz(archive, path.name, path.stat().st_size)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file."""
    with open_npz(path) as file:
        return {name: file[name] for name in file.names}
