"""Downloads of raw files, verified by their SHA-256 before they are used."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from gfgn.data.files import atomic_write
from gfgn.data.named.catalog import Source

ATTEMPTS = 3


class ChecksumError(ValueError):
    """A file is not the expected one."""


def fetch(sources: Sequence[Source], root: Path, missing: Sequence[str]) -> None:
    """Downloads the sources of the missing files."""
    import pooch  # type: ignore[import-untyped]

    for source in sources:
        wanted = {file: source.members.get(file, "") for file in source.files if file in missing}
        if not wanted:
            continue
        known = checksums().get(source.path)
        store = pooch.create(
            root, "", registry={source.path: known}, urls={source.path: source.url}, retry_if_failed=ATTEMPTS
        )
        archive = Path(store.fetch(source.path, progressbar=sys.stderr.isatty()))
        if source.members:
            try:
                _extract(archive, root, wanted)
            finally:
                archive.unlink()


@cache
def checksums() -> dict[str, str]:
    """The known SHA-256 hashes of raw files, by path relative to the folder of all datasets."""
    lines = (files("gfgn.data.named") / "checksums.txt").read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def verify_files(root: Path, paths: Sequence[str]) -> None:
    """Raises if a raw file is not the published one; files without a known hash are not checked."""
    for path in paths:
        expected = checksums().get(path)
        with (root / path).open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if expected is not None and actual != expected:
            cure = "delete it to download the published one"
            raise ChecksumError(f"{root / path} has the SHA-256 {actual}, expected {expected}; {cure}")


def _extract(archive: Path, root: Path, members: Mapping[str, str]) -> None:
    """Extracts files from a zip archive, each named by the end of its path in the archive."""
    with zipfile.ZipFile(archive) as packed:
        names = [name for name in packed.namelist() if not name.startswith("__MACOSX")]
        found = {file: [name for name in names if f"/{name}".endswith(f"/{end}")] for file, end in members.items()}
        for file, matches in found.items():
            if len(matches) != 1:
                raise ChecksumError(f"{archive.name} has {len(matches)} files {members[file]}, expected one")
        for file, (name,) in found.items():
            with atomic_write(root / file) as part, packed.open(name) as source, part.open("wb") as out:
                shutil.copyfileobj(source, out)
