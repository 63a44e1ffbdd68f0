"""The names of Numba that gfgn rests on without a promise from it."""

import ast
import importlib
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gfgn.ops import cpu

SOURCES = Path(cpu.__file__).parent
ROOT = Path(__file__).parents[3]
DOCSTRING = ast.get_docstring(ast.parse((SOURCES / "numba_internals.py").read_text())) or ""
NAMES = re.findall(r"`((?:numba|llvmlite)\.[\w.]+)`", DOCSTRING)


def resolve(name: str) -> object:
    """The object of a dotted name: the longest prefix that is a module, then its attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def test_the_names_are_listed() -> None:
    assert len(NAMES) > 5


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    package = name.split(".")[0]
    try:
        resolve(name)
    except (AttributeError, ModuleNotFoundError) as error:
        pytest.fail(
            f"{package} {version(package)} has no {name} ({error}): src/gfgn/ops/cpu/numba_internals.py needs another "
            f"way to do this, or pyproject.toml must exclude this version"
        )


def test_numba_is_in_the_range_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [r.specifier for r in map(Requirement, project["dependencies"]) if r.name == "numba"]
    assert len(ranges) == 1, "pyproject.toml must require numba once"
    assert version("numba") in ranges[0], f"numba {version('numba')} is installed, pyproject.toml requires {ranges[0]}"


def test_other_modules_import_neither_numba_nor_llvmlite() -> None:
    allowed = {
        "numba_internals.py": "numba",
        "types.py": "llvmlite",
        "compiler.py": "llvmlite",
        "machine.py": "llvmlite",
    }
    for path in SOURCES.parents[1].rglob("*.py"):
        imports = re.findall(r"^[ \t]*(?:import|from) (numba|llvmlite)\b", path.read_text(), flags=re.MULTILINE)
        assert set(imports) <= {allowed.get(path.name)}, path
