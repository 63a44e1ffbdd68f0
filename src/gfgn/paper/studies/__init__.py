"""The studies of the paper: one YAML file each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gfgn.data.files import read_yaml

if TYPE_CHECKING:
    from gfgn.runs.study import Study

FOLDER = Path(__file__).parent


def study_names() -> list[str]:
    """The names of the studies of the paper."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def study_title(name: str) -> str:
    """The title of a study of the paper; reads its file without checking what it names."""
    return str(read_yaml(FOLDER / f"{name}.yaml")["title"])


def load_study(name: str | Path, trust_code: bool = False) -> Study:
    """Reads a study and checks that everything it names exists.

    Args:
        name: One of `study_names()`, or the path of a YAML file.
        trust_code: Whether it may name models of one's own, see `read_study`.
    """
    from gfgn.runs.study import StudyError
    from gfgn.runs.study_file import did_you_mean, read_study

    path = Path(name) if str(name).endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = study_names()
        hint = did_you_mean(name, known)
        raise StudyError(f"name must be one of {', '.join(known)} or a YAML file, got {str(name)!r}{hint}")
    return read_study(path, trust_code)
