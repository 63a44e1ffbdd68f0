"""`code_version`: which code trained a run."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"  # of an installed release, whose version a record has anyway, and of runs recorded without it


@cache
def code_version() -> str:
    """The commit of the checkout that gfgn is imported from, with "modified" if its sources differ from it."""
    try:
        _git("ls-files", "--error-unmatch", "code.py")  # a release may be installed inside of another repository
        return _git("rev-parse", "--short=8", "HEAD") + " modified" * bool(_git("status", "--porcelain", ".."))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
