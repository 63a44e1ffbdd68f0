"""Every reader on damaged files: a dataset or one line, never a traceback, an abort, a hang or executed code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stress.cases import Cases, cases

import gfgn

PATHS = os.pathsep.join([str(Path(gfgn.__file__).parents[1]), str(Path(__file__).parents[1])])


def fuzz(folder: Path, first: int, last: int) -> dict[str, Any]:
    """The result of `stress.readers` on a range of seeds."""
    command = [sys.executable, "-m", "stress.readers", str(first), str(last)]
    environment = os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    current = folder / "current"
    case = current.read_text() if current.is_file() else "the first case"
    assert result.returncode == 0, f"{case} ended the process with {result.returncode}: {result.stderr[-3000:]}"
    return dict(json.loads(result.stdout.splitlines()[-1]))


def test_damaged_files(tmp_path: Path) -> None:
    """17 kinds of files; the valid ones (seed −1) are all read, and damage must leave some readable."""
    pytest.importorskip("resource", reason="limits of memory need a Unix system")
    result = fuzz(tmp_path, -1, len(cases(20)))
    assert not result["failures"], "\n".join(result["failures"][:20])
    for kind, counts in result["counts"].items():
        assert counts["read"] >= 1, kind
        assert counts["refused"] >= 1, kind
    Cases.run += sum(sum(counts.values()) for counts in result["counts"].values())
    assert result["mebibytes"] < 2048  # no damaged file takes much more than importing PyTorch does
