"""What is imported when, and the library without the reproduction of the paper; import-linter checks the layers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gfgn
import gfgn.graph

ROOT = Path(__file__).parents[1]
MODULES = ("data", "estimator", "nn", "ops", "report", "runs", "sampling", "train")


def run_in(folder: Path, code: str) -> str:
    """Runs code with the gfgn of a copy of the repository and returns what it prints."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_packages_are_imported_when_they_are_needed() -> None:
    code = "import sys, gfgn\ndir(gfgn)\nprint([name for name in sys.modules if name.startswith(('torch', 'gfgn.'))])"
    assert run_in(ROOT, code) == "['gfgn.lazy']"
    late = {"typer", "matplotlib", "lightgbm", "ray", "duckdb", "openpyxl"}
    code = f"import sys, gfgn\nfor name in {MODULES}: getattr(gfgn, name)\nprint({late} & set(sys.modules))"
    assert run_in(ROOT, code) == "set()"


def test_public_names() -> None:
    assert set(dir(gfgn)) == {*MODULES, "GFGN", "GFGNClassifier", "GFGNConv", "Graph", "GraphNodes", "__version__"}
    assert all(getattr(gfgn, name).__name__ == f"gfgn.{name}" for name in MODULES)
    assert gfgn.Graph is gfgn.graph.Graph
    assert gfgn.GFGNConv is gfgn.nn.GFGNConv
    with pytest.raises(AttributeError, match="'unknown'"):
        _ = gfgn.unknown


def test_the_library_works_without_the_paper(tmp_path: Path) -> None:
    """In a copy without `gfgn.paper` every module imports, a comparison runs, and `reproduce` says what is missing."""
    shutil.copytree(ROOT / "src" / "gfgn", tmp_path / "src" / "gfgn", ignore=shutil.ignore_patterns("paper"))
    files = (tmp_path / "src").rglob("*.py")
    names = [".".join(path.relative_to(tmp_path / "src").with_suffix("").parts) for path in files]
    kept = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    run_in(
        tmp_path,
        "import importlib, sys\nfrom typer.testing import CliRunner\n"
        f"for name in {kept}: importlib.import_module(name)\n"
        "call = lambda *words: CliRunner().invoke(sys.modules['gfgn.cli'].app, words)\n"
        "assert 'gfgn.paper' in call('reproduce', 'table1').stderr\n"
        "assert call('compare', '--models', 'majority', '--splits', '1', '--out', 'out').exit_code == 0\n"
        f"assert sys.modules['gfgn'].__file__.startswith({str(tmp_path)!r})\n",
    )
