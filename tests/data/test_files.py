"""Files that are replaced in one step."""

import tempfile
from pathlib import Path

import pytest

from gfgn.data import files


def test_a_file_that_another_process_takes_for_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its creation and its lock, a writer of the same path may remove it."""
    make, removed = tempfile.mkstemp, []

    def mkstemp(*arguments: str | Path) -> tuple[int, str]:
        handle, name = make(*arguments)
        if not removed:
            Path(name).unlink()
            removed.append(name)
        return handle, name

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    files.replace_text(tmp_path / "file.txt", "text")
    assert removed
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
