"""Downloads that report progress, resume after an interruption, and are verified before they are used.

An incomplete download is kept next to its target with the suffix `.part`, and renamed when it is complete and verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
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
from pathlib import Path
from urllib.error import HTTPError

from gfgn.data.datasets.catalog import Source
from gfgn.data.files import atomic_write

ATTEMPTS = 3  # attempts per file if the connection breaks; each resumes where the last one ended
TIMEOUT = 30.0  # seconds without data after which a connection counts as broken
BLOCK = 2**18
LOG_INTERVAL = 10.0  # seconds between progress messages if stderr is not a terminal

logger = logging.getLogger(__name__)


class ChecksumError(ValueError):
    """A file is not the expected one; a downloaded one has been deleted."""


def fetch(sources: Sequence[Source], root: Path, missing: Sequence[str]) -> None:
    """Downloads the sources of the missing files."""
    for source in sources:
        target, wanted = root / source.path, [file for file in source.files if file in missing]
        if wanted and not source.members:
            download(source.url, target, checksums().get(source.path))
        elif wanted:
            if not target.is_file():
                download(source.url, target)
            _extract(target, root, {file: source.members[file] for file in wanted})
            target.unlink()


@cache
def checksums() -> dict[str, str]:
    """The known SHA-256 hashes of raw files, by path relative to the folder of all datasets."""
    lines = (files("gfgn.data.datasets") / "checksums.txt").read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def verify_files(root: Path, files: Sequence[str]) -> None:
    """Raises if a raw file is not the published one; files without a known hash are not checked."""
    for file in files:
        expected = checksums().get(file)
        if expected is not None and (actual := _sha256(root / file)) != expected:
            cure = "delete it to download the published one"
            raise ChecksumError(f"{root / file} has the SHA-256 {actual}, expected {expected}; {cure}")


def download(url: str, path: Path, sha256: str | None = None) -> None:
    """Downloads one file.

    A `.part` file from an interrupted download is resumed if the server supports it. If it does not, or if the result
    fails verification, the whole file is downloaded again. What was received before an `OSError` stays in that file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    for _ in range(ATTEMPTS):
        resumed = False
        try:
            resumed = _transfer(url, part)
            _verify(part, sha256, url)
            part.replace(path)
            return
        except (ConnectionError, TimeoutError, http.client.HTTPException, ChecksumError) as error:
            if isinstance(error, ChecksumError) and not resumed:
                raise
            failure = error  # a resumed file may begin with another version
    if isinstance(failure, http.client.HTTPException):
        raise ConnectionError(f"{url} broke off ({failure!r})") from failure
    raise failure


def _transfer(url: str, part: Path) -> bool:
    """Downloads the rest of the file into `part`; returns whether it resumed an earlier download."""
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "gfgn"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        error.close()
        if _content_range(error.headers)[1] == start:
            return True  # the part is complete
        part.unlink()
        return _transfer(url, part)
    with response:
        first, total = _content_range(response.headers)
        if response.status != http.HTTPStatus.PARTIAL_CONTENT or first != start:
            start = 0  # the server sends the whole file
        if first not in (None, start):
            raise OSError(f"{url} sends bytes from {first}, expected them from {start}")
        if total is None and response.headers["Content-Length"]:
            total = int(response.headers["Content-Length"])
        name = part.name.removesuffix(".part")
        with part.open("ab" if start else "wb") as file, _progress(name, start, total) as advance:
            while block := response.read(BLOCK):
                file.write(block)
                advance(len(block))
    size = part.stat().st_size
    if total is not None and size != total:
        if size > total:
            part.unlink()
        raise ConnectionError(f"{url} ended after {size:,} of {total:,} bytes")
    return start > 0


def _content_range(headers: Message) -> tuple[int | None, int | None]:
    """The first byte and the total size in the header `Content-Range`."""
    match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", headers.get("Content-Range", ""))
    if match is None:
        return None, None
    first, total = match.groups()
    return int(first) if first else None, int(total) if total != "*" else None


def _verify(part: Path, sha256: str | None, name: str) -> None:
    """Deletes the file and raises if its hash is not the expected one."""
    if sha256 is None:
        return
    if (actual := _sha256(part)) != sha256:
        part.unlink()
        raise ChecksumError(f"{name} has the SHA-256 {actual}, expected {sha256}; the download was deleted")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _extract(archive: Path, root: Path, members: Mapping[str, str]) -> None:
    """Extracts files from a zip archive, which has a checksum of each; deletes a damaged archive."""
    try:
        with zipfile.ZipFile(archive) as packed:
            names = [name for name in packed.namelist() if not name.startswith("__MACOSX")]
            for file, end in members.items():
                matches = [name for name in names if f"/{name}".endswith(f"/{end}")]
                if len(matches) != 1:
                    raise KeyError(f"it has {len(matches)} files {end}, expected one")
                with atomic_write(root / file) as part:
                    with packed.open(matches[0]) as source, part.open("wb") as out:
                        shutil.copyfileobj(source, out, BLOCK)
                    _verify(part, checksums().get(file), f"{file} of {archive.name}")
    except (zipfile.BadZipFile, zlib.error, EOFError, ChecksumError, KeyError) as error:
        archive.unlink()
        raise ChecksumError(f"{archive.name} is damaged or not the expected archive ({error}); deleted") from error


@contextlib.contextmanager
def _progress(name: str, start: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of bytes received; shows a bar on a terminal and logs otherwise."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=total, completed=start)
            yield lambda size: bar.advance(task, size)
        return
    done, last = start, -LOG_INTERVAL

    def advance(size: int) -> None:
        nonlocal done, last
        done += size
        if size == 0 or time.monotonic() - last >= LOG_INTERVAL:
            last = time.monotonic()
            of = "" if total is None else f" of {total / 2**20:.1f}"
            logger.info("downloading %s: %.1f%s MiB", name, done / 2**20, of)

    advance(0)
    yield advance
