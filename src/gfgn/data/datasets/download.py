"""Downloads that show their progress, go on where an interrupted one ended, and are checked before they count.

What has come so far is kept beside its target with the ending `.part`, and moved into place when it is complete and
right; there is never half a file under the name of a whole one.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import shutil
import sys
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.error import HTTPError

TRIES = 3
"""Attempts at a file whose connection breaks off; each goes on where the last one ended."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
BLOCK = 2**18
LINE_EVERY = 10.0
"""Seconds between lines of progress where there is no terminal."""


class Source(NamedTuple):
    """Where raw files come from: a file, or a zip archive with some.

    Attributes:
        url: The address.
        path: Where it goes, relative to the folder of all datasets; an archive is removed when it is unpacked.
        members: For an archive: every file to take out of it, relative to the same folder, and the end of the path
            that it has inside. Empty for a file that is used as it is.
    """

    url: str
    path: str
    members: Mapping[str, str] = {}


class ChecksumError(ValueError):
    """What came is not what was expected; it has been removed."""


def fetch(sources: Sequence[Source], root: Path, missing: Sequence[str]) -> None:
    """Downloads those of the sources that the missing files come from."""
    for source in sources:
        wanted = [file for file in (source.members or (source.path,)) if file in missing]
        if not wanted:
            continue
        target = root / source.path
        if not source.members:
            download(source.url, target, checksums().get(source.path))
            continue
        if not target.is_file():
            download(source.url, target)
        _unpack(target, root, {file: source.members[file] for file in wanted})
        target.unlink()


@cache
def checksums() -> dict[str, str]:
    """SHA-256 of the raw files that are known, by their path in the folder of all datasets."""
    lines = (files("gfgn.data.datasets") / "checksums.txt").read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def download(url: str, path: Path, sha256: str | None = None) -> None:
    """Downloads one file.

    A `.part` beside `path`, left by an interrupted download, is continued if the server can; if it cannot, or if the
    result is not right, the file is fetched from the beginning.

    Args:
        url: The address.
        path: Where to put the file; there once it is complete, and not before.
        sha256: What the file must hash to; `None` if that is not known.

    Raises:
        ChecksumError: The file is another one than expected.
        OSError: It could not be fetched; what has come is kept in the `.part`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    failure: Exception = ConnectionError(f"{url} was not reached")
    for _ in range(TRIES):
        try:
            continued = _transfer(url, part)
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            failure = error
            continue
        try:
            _verify(part, sha256, url)
        except ChecksumError as error:
            if not continued:
                raise
            failure = error  # the beginning may be of another file than the end
            continue
        os.replace(part, path)  # noqa: PTH105
        return
    if isinstance(failure, http.client.HTTPException):
        raise ConnectionError(f"{url} broke off ({failure!r})") from failure
    raise failure


def _transfer(url: str, part: Path) -> bool:
    """Brings the rest of the file into `part`; returns whether there was a beginning to go on from."""
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "gfgn"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        error.close()
        if _range(error.headers)[1] == start:
            return True  # there was nothing left to send
        part.unlink()
        return _transfer(url, part)
    with response:
        first, total = _range(response.headers)
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or first != start:
            start = 0  # the server sends the whole file
        if first not in (None, start):
            raise OSError(f"{url} was asked for bytes from {start} on, but sends those from {first} on")
        if total is None and response.headers["Content-Length"]:
            total = int(response.headers["Content-Length"])
        _copy(response, part, start, total)
    size = part.stat().st_size
    if total is not None and size != total:
        if size > total:
            part.unlink()
        raise ConnectionError(f"{url} ended after {size:,} of {total:,} bytes")
    return start > 0


def _range(headers: Message) -> tuple[int | None, int | None]:
    """First byte and size of the whole, as the header `Content-Range` has them."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers.get("Content-Range", ""))
    if found is None:
        return None, None
    first, total = found.groups()
    return int(first) if first else None, int(total) if total != "*" else None


def _copy(response: http.client.HTTPResponse, part: Path, start: int, total: int | None) -> None:
    name = part.name.removesuffix(".part")
    with part.open("ab" if start else "wb") as file, _progress(name, start, total) as advance:
        while block := response.read(BLOCK):
            file.write(block)
            advance(len(block))


def _verify(part: Path, sha256: str | None, url: str) -> None:
    """Removes the file if it is not the expected one."""
    if sha256 is None:
        return
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        part.unlink()
        raise ChecksumError(f"{url} has the SHA-256 {found}, expected {sha256}; what came was removed")


# --- archives --------------------------------------------------------------------------------------------------------


def _unpack(archive: Path, root: Path, wanted: Mapping[str, str]) -> None:
    """Takes files out of a zip archive, which keeps a checksum of each; removes an archive that is damaged."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for file, end in wanted.items():
                target = root / file
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(target.name + ".part")
                with packed.open(_member(packed, end)) as source, part.open("wb") as out:
                    shutil.copyfileobj(source, out, BLOCK)
                _verify(part, checksums().get(file), f"{file} of {archive.name}")
                os.replace(part, target)  # noqa: PTH105
    except (zipfile.BadZipFile, zlib.error, EOFError, ChecksumError, KeyError) as error:
        archive.unlink()
        raise ChecksumError(f"{archive.name} is damaged or another archive than expected ({error}); removed") from error


def _member(packed: zipfile.ZipFile, end: str) -> str:
    wanted = PurePosixPath(end).parts
    found = [name for name in packed.namelist() if PurePosixPath(name).parts[-len(wanted) :] == wanted]
    found = [name for name in found if not name.startswith("__MACOSX")]
    if len(found) != 1:
        raise KeyError(f"it has {len(found)} files {end}, expected one")
    return found[0]


# --- progress --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(name: str, start: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of bytes that have come; shows a bar on a terminal, else lines."""
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task(name, total=total, completed=start)
                yield lambda size: bar.advance(task, size)
            return
    yield _Lines(name, start, total)


class _Lines:
    """Progress as a line on stderr at the beginning, and one now and then."""

    def __init__(self, name: str, start: int, total: int | None) -> None:
        self.name, self.done, self.total = name, start, total
        self.said = time.monotonic()
        self.say()

    def __call__(self, size: int) -> None:
        self.done += size
        if time.monotonic() - self.said >= LINE_EVERY:
            self.said = time.monotonic()
            self.say()

    def say(self) -> None:
        of = "" if self.total is None else f" of {self.total / 2**20:.1f}"
        print(f"gfgn: fetching {self.name}, {self.done / 2**20:.1f}{of} MiB", file=sys.stderr, flush=True)
