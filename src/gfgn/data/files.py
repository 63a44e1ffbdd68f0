"""Files that are replaced in one step, and small files of settings."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import stat
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
    temporary = None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder, a file was expected")
        device = path.exists() and not path.is_file()
        folder = Path(tempfile.gettempdir()) if device else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder, path.name)
        handle, temporary = _create(folder, path.name)
        try:
            yield temporary
            os.fsync(handle)  # otherwise a loss of power could leave the new name with no content
            if os.name == "posix":  # under the lock: without it, another writer would take the file for a leftover
                _move(temporary, path, device)
        finally:
            os.close(handle)
        if os.name != "posix":  # Windows moves no open file
            _move(temporary, path, device)
    except OSError as error:
        if error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _move(temporary: Path, path: Path, device: bool) -> None:
    if device:
        with temporary.open("rb") as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    else:
        temporary.chmod(0o644)
        temporary.replace(path)


@contextmanager
def atomic_folder(folder: Path | str) -> Iterator[Path]:
    """Yields a temporary folder, which becomes `folder` when the block ends without an exception; `folder` must be new
    or empty. A process that is killed leaves nothing in the way: its folder is removed by the next one."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists, expected a new or an empty folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.*.part"):
        with suppress(OSError), (left / "lock").open("rb") as file:
            if os.name == "posix":
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        with (unfinished / "lock").open("wb") as file:
            if os.name == "posix":
                fcntl.flock(file, fcntl.LOCK_EX)
            yield unfinished
        (unfinished / "lock").unlink()
        unfinished.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _create(folder: Path, name: str) -> tuple[int, Path]:
    """A new temporary file for `name`, locked as long as its handle is open."""
    while True:
        handle, created = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
        if os.name == "posix":
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if Path(created).exists():  # nobody took it for a leftover before it was locked
            return handle, Path(created)
        os.close(handle)


def _remove_leftovers(folder: Path, name: str) -> None:
    """Removes temporary files for `name` whose process has ended: nobody holds their lock."""
    if os.name != "posix":
        return
    for entry in os.scandir(folder):
        if not (entry.name.startswith(f".{name}.") and entry.name.endswith(".part")):
            continue
        with suppress(OSError):  # held by its process, gone already, or somebody else's
            if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                continue
            with Path(entry.path).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(entry.path).unlink()


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
