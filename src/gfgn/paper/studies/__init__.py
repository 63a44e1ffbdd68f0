"""The studies of the paper, one YAML file each, and the analyses that `gfgn reproduce` runs in addition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gfgn.data.files import read_yaml
from gfgn.lazy import Lazy

if TYPE_CHECKING:
    from gfgn.runs.study import Study

FOLDER = Path(__file__).parent
# Functions `analyze(out, *, root, device, progress)`, which write files into the folder `out` and return their paths.
# The folders of the studies are next to `out`; datasets are in `root`, and `progress` gets one line per step.
ANALYSES: dict[str, Callable[..., list[Path]]] = {
    name: Lazy(f"gfgn.paper.{name}", "analyze")
    for name in ("spectral", "motivation", "parameters", "scores", "mechanism", "cornell", "claims")
}
FOLDERS = {"mechanism": "thesis"}  # of analyses that belong to a study of another name
# Functions that draw the figures and pages of an analysis again from the tables in the folder of its study.
DRAWN = {FOLDERS.get(name, name): Lazy(f"gfgn.paper.{name}", "draw") for name in ("scores", "mechanism", "cornell")}


def study_names() -> list[str]:
    """The names of the studies of the paper."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def names() -> list[str]:
    """Everything that can be reproduced: the studies and the analyses."""
    return list(dict.fromkeys([*study_names(), *ANALYSES]))


def study_title(name: str) -> str:
    """The title of a study of the paper; reads its file without checking what it names."""
    return str(read_yaml(FOLDER / f"{name}.yaml")["title"])


def load_study(name: str | Path, trust_code: bool = False) -> Study:
    """Reads a study and checks that everything it names exists.

    Args:
        name: One of `study_names()`, or the path of a YAML file.
        trust_code: Whether it may name custom models, see `read_study`.
    """
    from gfgn.runs.study import StudyError
    from gfgn.runs.study_file import did_you_mean, read_study

    path = Path(name) if str(name).endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        hint = did_you_mean(name, names())
        raise StudyError(f"name must be one of {', '.join(names())} or a YAML file, got {str(name)!r}{hint}")
    return read_study(path, trust_code)
