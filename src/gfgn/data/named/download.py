"""Downloads of raw files, verified by their SHA-256 before they are used."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from gfgn.data.files import atomic_write
from gfgn.data.named.catalog import Source

ATTEMPTS = 3


class ChecksumError(ValueError):
    """A file is not the expected one."""


def fetch(source: Source, root: Path) -> None:
    """Downloads the missing files of a source."""
    missing = [name for name in source.names if not (root / source.folder / name).is_file()]
    if source.archive and missing:
        archive = _download(source.archive, root / source.folder / "download.zip", None)
        try:
            _extract(archive, root / source.folder, missing)
        finally:
            archive.unlink()
        return
    for name in missing:
        path = f"{source.folder}/{name}"
        _download(f"{source.url}/{name}", root / path, checksums().get(path))


def _download(url: str, path: Path, known: str | None) -> Path:
    import pooch  # type: ignore[import-untyped]

    store = pooch.create(path.parent, "", registry={path.name: known}, urls={path.name: url}, retry_if_failed=ATTEMPTS)
    return Path(store.fetch(path.name, progressbar=sys.stderr.isatty()))


@cache
def checksums() -> dict[str, str]:
    """The known SHA-256 hashes of raw files, by path relative to the folder of all datasets."""
    lines = (files("gfgn.data.named") / "checksums.txt").read_text("utf-8").splitlines()
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def verify_files(root: Path, paths: Sequence[str]) -> None:
    """Raises if a raw file is not the published one; files without a known hash are not checked."""
    for path, expected in ((path, checksums()[path]) for path in paths if path in checksums()):
        with (root / path).open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != expected:
            cure = "delete it to download the published one"
            raise ChecksumError(f"{root / path} has the SHA-256 {actual}, expected {expected}; {cure}")


def _extract(archive: Path, folder: Path, names: Sequence[str]) -> None:
    """Extracts files from a zip archive, each named by the end of its path in the archive."""
    with zipfile.ZipFile(archive) as packed:
        packed_names = [name for name in packed.namelist() if not name.startswith("__MACOSX")]
        for name in names:
            matches = [each for each in packed_names if f"/{each}".endswith(f"/{name}")]
            if len(matches) != 1:
                raise ChecksumError(f"{archive.name} has {len(matches)} files {name}, expected one")
            with atomic_write(folder / name) as part, packed.open(matches[0]) as source, part.open("wb") as out:
                shutil.copyfileobj(source, out)
