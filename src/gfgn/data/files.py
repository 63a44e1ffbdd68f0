"""Files that are replaced in one step, and small files of settings."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gfgn.data.messages import DataError, reason

if os.name == "posix":
    import fcntl


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary file next to `path`, which replaces `path` when the block ends without an exception.

    Other processes see the old file or the new one, never a part of it, and so does the next start after a loss of
    power. Missing folders are created, and temporary files that a killed process left behind are removed. A device such
    as `/dev/stdout` is written to, not replaced. An `OSError` names `path`.
    """
    unfinished = None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder, a file was expected")
        if path.exists() and not path.is_file():
            with tempfile.TemporaryDirectory() as folder:
                yield (unfinished := Path(folder, path.name))
                with unfinished.open("rb") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
            return
        with _replacement(path, folder=False) as unfinished:
            yield unfinished
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())  # otherwise a loss of power could leave the new name with no content
    except OSError as error:
        if error.filename not in (None, str(unfinished), unfinished):
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


@contextmanager
def atomic_folder(folder: Path | str) -> Iterator[Path]:
    """Yields a temporary folder, which becomes `folder` when the block ends without an exception; `folder` must be new
    or empty. A process that is killed leaves nothing in the way: its folder is removed by the next one."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists, expected a new or an empty folder")
    with _replacement(folder, folder=True) as unfinished:
        yield unfinished
        if folder.exists():
            folder.rmdir()


@contextmanager
def _replacement(path: Path, folder: bool) -> Iterator[Path]:
    """A new temporary file or folder, which replaces `path` at the end of the block. This process holds a lock on it;
    those that nobody holds were left behind and are removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError), _locked(left, wait=False):
            _remove(left)
    prefix, suffix = f".{path.name}.", ".part"
    while True:
        if folder:
            unfinished = Path(tempfile.mkdtemp(suffix, prefix, path.parent))
        else:
            handle, name = tempfile.mkstemp(suffix, prefix, path.parent)
            os.close(handle)
            unfinished = Path(name)
        with _locked(unfinished, wait=True):
            if not unfinished.exists():  # another process took it for left behind before it was locked
                continue
            try:
                yield unfinished
                unfinished.chmod(0o755 if folder else 0o644)
                unfinished.replace(path)
            finally:
                _remove(unfinished)
            return


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[None]:
    """Locks a file or a folder; an `OSError` if another process holds it. Windows has no such locks."""
    if os.name != "posix":
        if not wait:
            raise BlockingIOError
        yield
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        if not wait:
            raise
        yield  # another process has removed it
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if not wait:
                raise  # otherwise a file system without locks
        yield
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> Path:
    """Writes a text file in one step and returns its path."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return path


def read_yaml(path: Path) -> Any:
    """The content of a small YAML file; anything that is wrong with it is a `ValueError` that names the file."""
    import yaml

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, TypeError, LookupError, OverflowError, RecursionError, AttributeError) as error:
        message = " ".join(str(error).split()) if isinstance(error, yaml.YAMLError) else reason(error)
        raise ValueError(f"{path} must be a YAML file, got one that cannot be read: {message}") from None
