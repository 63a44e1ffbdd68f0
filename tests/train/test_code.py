"""`code_version`: a hash of what trains, the same wherever it is installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gfgn
from gfgn.train.code import code_version

SOURCE = Path(gfgn.__file__).parent


def version_of(folder: Path) -> str:
    """The version of a copy of the package, which need not run."""
    program = "import runpy; print(runpy.run_path('gfgn/train/code.py')['code_version']())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout[:-1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "gfgn", ignore=shutil.ignore_patterns("__pycache__", "*.nb?"))
    return tmp_path


def carriage_returns(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def more(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "\nX = 1\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "change", "same"),
    [
        ("ops/cpu/gates.py", more, False),
        ("train/batch.py", more, False),
        ("train/other.py", lambda path: path.write_text(""), False),
        ("graph.py", Path.unlink, False),
        ("graph.py", carriage_returns, True),
        ("report/html.py", more, True),
        ("ops/notes.txt", lambda path: path.write_text("notes"), True),
    ],
)
def test_it_depends_on_what_trains(copy: Path, name: str, change: Callable[[Path], object], same: bool) -> None:
    change(copy / "gfgn" / name)
    assert (version_of(copy) == code_version()) is same


def test_it_is_short() -> None:
    assert len(code_version()) == 8
    int(code_version(), 16)
