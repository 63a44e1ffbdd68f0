"""The one library that compiles kernels, and where it is used."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from gfgn.ops import cpu

SOURCES = Path(cpu.__file__).parent
ROOT = Path(__file__).parents[3]


def test_llvmlite_is_in_the_range_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = [r.specifier for r in map(Requirement, project["dependencies"]) if r.name == "llvmlite"]
    assert len(ranges) == 1, "pyproject.toml must require llvmlite once"
    assert version("llvmlite") in ranges[0], f"llvmlite {version('llvmlite')} is installed, expected {ranges[0]}"


def test_only_the_compiler_imports_llvmlite_and_nothing_imports_numba() -> None:
    allowed = {"types.py", "compiler.py", "machine.py"}
    for path in SOURCES.parents[1].rglob("*.py"):
        imports = re.findall(r"^[ \t]*(?:import|from) (numba|llvmlite)\b", path.read_text(), flags=re.MULTILINE)
        assert not imports or (set(imports) == {"llvmlite"} and path.name in allowed), path
