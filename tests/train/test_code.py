"""`code_version`: the commit of a checkout."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gfgn

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def version(folder: Path) -> str:
    program = "import runpy; print(runpy.run_path('src/gfgn/train/code.py')['code_version']())"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True).stdout.strip()


@needs_git
def test_the_commit_and_whether_the_sources_differ(tmp_path: Path) -> None:
    source = tmp_path / "src" / "gfgn" / "train" / "code.py"
    source.parent.mkdir(parents=True)
    shutil.copy(Path(gfgn.__file__).parent / "train" / "code.py", source)
    git(tmp_path, "init", "--quiet")
    assert version(tmp_path) == "unknown"  # as if installed inside of another repository
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    commit = git(tmp_path, "rev-parse", "--short=8", "HEAD")
    assert version(tmp_path) == commit
    (tmp_path / "notes.txt").write_text("outside of the sources")
    assert version(tmp_path) == commit
    (source.parent.parent / "graph.py").write_text("x = 1")
    assert version(tmp_path) == f"{commit} modified"
