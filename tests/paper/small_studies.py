"""What the tests of studies share: a study in a file, and a run of it without words."""

from pathlib import Path
from typing import Any

from gfgn.paper.reproduce import Outcome, reproduce


def quiet(line: str) -> None:
    pass


def write_study(folder: Path, text: str, name: str = "small") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def run(path: Path, out: Path, **settings: Any) -> Outcome:
    return reproduce(path, out, **{"device": "cpu", "say": quiet, **settings})
