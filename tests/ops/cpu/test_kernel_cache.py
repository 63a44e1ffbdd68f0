"""The on-disk cache of compiled kernels: in the first folder that can be written, and nothing fails without it."""

import logging
import os
import tempfile
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from gfgn.ops.cpu import compiler, machine

SOURCE = """
from gfgn.ops.cpu.machine import kernel
from gfgn.ops.cpu.vectors import read, write

@kernel
def double(op, work):
    write(2 * read(op.x, 0), op.x, 0)

@kernel
def triple(op, work):
    write(3 * read(op.x, 0), op.x, 0)
"""
Numbers = namedtuple("Numbers", "x")


def result(kernel: Any, value: float) -> float:
    """Runs a kernel on one number."""
    x = torch.tensor([value])
    kernel(Numbers(x), None)
    return float(x)


class Place:
    """A module with two kernels, and the folders in which its cache may be; a blocked one is a file instead."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.file = root, root / "kernels.py"
        self.tree, self.home, self.temporary = root / "__pycache__", root / "home", root / "tmp"
        self.file.write_text(SOURCE)
        self.temporary.mkdir()
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.delenv("GFGN_CACHE", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        monkeypatch.setattr(machine, "_warned", [])

    def block(self, *folders: Path) -> None:
        for folder in folders:
            if folder.is_dir():
                folder.rmdir()
            folder.write_text("not a folder")

    def load(self) -> ModuleType:
        """The module as a new process imports it."""
        module = ModuleType("kernels_of_a_test")
        exec(compile(self.file.read_text(), str(self.file), "exec"), vars(module))
        compiler._definitions.cache_clear()
        machine._source_stamp.cache_clear()
        return module

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.root.rglob(f"*.{suffix}"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def hits(kernel: Any) -> int:
    return int(kernel.loaded)


def test_kernels_are_kept_next_to_their_source(place: Place) -> None:
    assert result(place.load().double, 4) == 8
    assert [path.parent for path in place.files("kernel")] == [place.tree]
    again = place.load().double
    assert result(again, 5) == 10
    assert hits(again) == 1


def test_a_read_only_package_is_cached_at_home(place: Place) -> None:
    place.block(place.tree)
    assert result(place.load().double, 4) == 8
    assert [place.home in path.parents for path in place.files("kernel")] == [True]


def test_without_a_home_the_temporary_folder_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.block(place.tree)
    monkeypatch.chdir(place.root)
    monkeypatch.setattr(Path, "home", no_home)
    assert result(place.load().double, 4) == 8
    [path] = place.files("kernel")
    folder = path.parents[1]
    assert folder.parent == place.temporary
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not (place.root / "~").exists()
    again = place.load().double
    assert result(again, 5) == 10
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
    assert result(place.load().double, 4) == 8
    assert place.files("kernel") == []


def test_nowhere_to_write_is_one_warning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.block(place.tree, place.home, place.temporary)
    module = place.load()
    with caplog.at_level(logging.WARNING):
        assert result(module.double, 4) == 8
        assert result(module.double, 0.5) == 1.0
        assert result(module.triple, 4) == 12
    [record] = caplog.records
    assert "GFGN_CACHE" in record.getMessage()


def no_home() -> Path:
    """What happens with neither HOME nor an entry of the user."""
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_compiled_again_and_replaced(place: Place, part: float) -> None:
    assert result(place.load().double, 4) == 8
    [path] = place.files("kernel")
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    damaged = place.load().double
    assert result(damaged, 5) == 10
    assert hits(damaged) == 0
    repaired = place.load().double
    assert result(repaired, 6) == 12
    assert hits(repaired) == 1


def test_a_kernel_is_compiled_again_when_a_source_changes_and_the_old_file_is_removed(place: Place) -> None:
    assert result(place.load().double, 4) == 8
    [before] = place.files("kernel")
    place.file.write_text(SOURCE.replace("2 * read", "4 * read"))
    assert result(place.load().double, 4) == 16
    [after] = place.files("kernel")
    assert after.name != before.name


def test_the_reference_never_opens_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from gfgn.data import load
    from gfgn.train import Replica, train_replicas

    def refuse(source: Path, name: str) -> bytes:
        raise AssertionError(f"the cache of {name} was opened")

    monkeypatch.setenv("GFGN_BACKEND", "reference")
    monkeypatch.setattr(machine, "find", refuse)
    monkeypatch.setattr(machine.Kernel, "bind", refuse)
    for model in ("mlp", "gfgn-graph", "gfgn-neighbor", "gfgn-pair", "gat"):
        [run] = train_replicas(model, load("karate"), [Replica()], max_epochs=2)
        assert run.epochs == 2
