"""The on-disk cache of compiled samplers: in the first folder that can be written, and nothing fails without it."""

import errno
import importlib.util
import logging
import os
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gfgn.ops.cpu import numba_internals

SOURCE = """
from gfgn.ops.cpu.numba_internals import kernel

@kernel
def double(x):
    return 2 * x

@kernel
def triple(x):
    return 3 * x
"""


class Place:
    """A module with two kernels, and the folders in which its cache may be; a blocked one is a file instead."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.file = root, root / "kernels.py"
        self.tree, self.home, self.temporary = root / "__pycache__", root / "home", root / "tmp"
        self.file.write_text(SOURCE)
        self.temporary.mkdir()
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        monkeypatch.setattr(numba_internals, "_warned", [])

    def block(self, *folders: Path) -> None:
        for folder in folders:
            if folder.is_dir():
                folder.rmdir()
            folder.write_text("not a folder")

    def load(self) -> ModuleType:
        """The module as a new process imports it."""
        spec = importlib.util.spec_from_file_location("kernels_of_a_test", self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        source = self.file.read_text()
        exec(compile(source, str(self.file), "exec"), module.__dict__)
        return module

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.root.rglob(f"*.{suffix}"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def hits(kernel: Any) -> int:
    return int(kernel.stats.cache_hits.total())


def test_defining_a_kernel_touches_no_file(place: Place) -> None:
    place.load()
    assert [path.name for path in place.root.iterdir()] != []
    assert place.files("nbi") == []
    assert not place.tree.exists()


def test_kernels_are_kept_next_to_their_source(place: Place) -> None:
    assert place.load().double(4) == 8
    assert [path.parent for path in place.files("nbi")] == [place.tree]
    again = place.load().double
    assert again(5) == 10
    assert hits(again) == 1


def test_a_read_only_package_is_cached_at_home(place: Place) -> None:
    place.block(place.tree)
    assert place.load().double(4) == 8
    assert [place.home in path.parents for path in place.files("nbi")] == [True]


def test_without_a_home_the_temporary_folder_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.block(place.tree)
    monkeypatch.chdir(place.root)
    monkeypatch.setattr(Path, "home", no_home)
    assert place.load().double(4) == 8
    [path] = place.files("nbi")
    folder = path.parents[1]
    assert folder.parent == place.temporary
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not (place.root / "~").exists()
    again = place.load().double
    assert again(5) == 10
    assert hits(again) == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the owner of a folder is checked on POSIX systems")
@pytest.mark.parametrize("kind", ["open to others", "link"])
def test_a_temporary_folder_that_others_can_write_is_not_used(place: Place, kind: str) -> None:
    place.block(place.tree, place.home)
    folder = place.temporary / f"gfgn-kernels-{os.getuid()}"
    if kind == "link":
        (place.root / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(place.root / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    assert place.load().double(4) == 8
    assert place.files("nbi") == []


def test_nowhere_to_write_is_one_warning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.block(place.tree, place.home, place.temporary)
    module = place.load()
    with caplog.at_level(logging.WARNING):
        assert module.double(4) == 8
        assert module.double(0.5) == 1.0
        assert module.triple(4) == 12
    [record] = caplog.records
    assert "NUMBA_CACHE_DIR" in record.getMessage()


def test_a_read_only_package_with_a_filled_cache_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.load().double(4) == 8
    kept = place.files("nbi")
    monkeypatch.setattr(numba_internals.InTreeCacheLocator, "ensure_cache_path", refuse_to_write)
    place.block(place.home, place.temporary)
    again = place.load().double
    assert again(5) == 10
    assert hits(again) == 1
    assert place.files("nbi") == kept


def no_home() -> Path:
    """What happens with neither HOME nor an entry of the user."""
    raise RuntimeError("Could not determine home directory.")


def refuse_to_write(self: object) -> None:
    raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))


def test_a_full_disk_is_one_warning(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    module = place.load()
    module.double._cache.open()
    monkeypatch.setattr(type(module.double._cache._cache_file), "_open_for_write", full)
    with caplog.at_level(logging.WARNING):
        assert module.double(4) == 8
        assert module.triple(4) == 12
    [record] = caplog.records
    assert os.strerror(errno.ENOSPC) in record.getMessage()


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_compiled_again_and_replaced(place: Place, suffix: str, part: float) -> None:
    assert place.load().double(4) == 8
    [path] = place.files(suffix)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    damaged = place.load().double
    assert damaged(5) == 10
    assert hits(damaged) == 0
    repaired = place.load().double
    assert repaired(6) == 12
    assert hits(repaired) == 1
