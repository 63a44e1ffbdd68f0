"""Imports go one way, and the library works without the reproduction of the paper."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gfgn
import gfgn.graph

ROOT = Path(__file__).parents[1]
LAYERS = ["cli", "paper", "report", "estimator", "runs", "train", "sampling", "nn", "data", "graph", "ops"]
"""Each layer may import those to its right."""
HOMES = {"__main__": "cli", "GFGNClassifier": "estimator", "Nodes": "estimator", "Graph": "graph"}
HOMES |= {"metrics": "graph", "GFGN": "nn", "GFGNConv": "nn", "lazy": "ops", "literal": "ops", "pages": "ops"}
"""The layers of modules and names outside of the layers' folders."""
MAY_IMPORT_PAPER = "gfgn.cli.reproduce"
MODULE_NAME = re.compile(r"gfgn\.[\w.]+")


def find_modules(source: Path) -> dict[str, Path]:
    """All modules below a folder, by dotted name."""
    paths = {path.relative_to(source).with_suffix(""): path for path in sorted(source.rglob("*.py"))}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def find_imports(name: str, modules: dict[str, Path], strings: bool = True) -> set[str]:
    """The modules of gfgn that a module imports at any level of its code, or names in a string."""
    tree = ast.parse(modules[name].read_text(encoding="utf-8"))
    package = name if modules[name].name == "__init__.py" else name.rpartition(".")[0]
    nodes = [node for node in ast.walk(tree) if strings or isinstance(node, ast.Import | ast.ImportFrom)]
    targets = {target for node in nodes for target in _targets(node, package, modules)}
    return {target for target in targets if target.partition(".")[0] == "gfgn"}


def _targets(node: ast.AST, package: str, modules: dict[str, Path]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            parents = package.split(".")[: len(package.split(".")) + 1 - level] if level else []
            base = ".".join([*parents, *([module] if module else [])])
            for alias in names:
                full = f"{base}.{alias.name}"
                yield full if full in modules or base == "gfgn" else base
        case ast.Attribute(value=ast.Name(id="gfgn"), attr=attribute):
            yield f"gfgn.{attribute}"
        case ast.Constant(value=str(text)) if MODULE_NAME.fullmatch(text):
            yield text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text.startswith("gfgn."):
            yield text.rpartition(".")[0] if text.count(".") > 1 else "gfgn.?"


def layer_of(name: str) -> str:
    """The layer of a module or of a name in `gfgn`; "gfgn" for the package itself and its version."""
    first = name.split(".")[1] if "." in name else "__version__"
    return "gfgn" if first == "__version__" else HOMES.get(first, first)


def find_violations(source: Path) -> list[str]:
    """Imports against the order of the layers, and cycles of modules; one line each."""
    modules = find_modules(source)
    imports = {name: find_imports(name, modules) for name in modules if name.partition(".")[0] == "gfgn"}
    del imports["gfgn"]  # names everything, and imports nothing by itself
    lines = []
    for name, targets in imports.items():
        for target in sorted(targets):
            low, high = layer_of(name), layer_of(target)
            if {low, high} - {*LAYERS, "gfgn"}:
                lines.append(f"{name} imports {target}: not in the list of layers")
            elif high == "paper" and low != "paper" and name != MAY_IMPORT_PAPER:
                lines.append(f"{name} imports {target}: only {MAY_IMPORT_PAPER} may")
            elif high != "gfgn" and LAYERS.index(high) < LAYERS.index(low):
                lines.append(f"{name} imports {target}: {low} is below {high}")
    statements = {name: find_imports(name, modules, strings=False) - {"gfgn"} for name in imports}
    try:
        TopologicalSorter(statements).prepare()
    except CycleError as error:
        lines.append(f"cycle: {' -> '.join(reversed(error.args[1]))}")
    return lines


def test_imports_follow_the_layers() -> None:
    assert find_violations(ROOT / "src") == []


@pytest.mark.parametrize(
    "line",
    [
        "import gfgn.train.loop",
        "from gfgn.train import loop",
        "from gfgn import train",
        "from ..train import loop",
        "from .. import train",
        "if TYPE_CHECKING:\n    from gfgn.train.loop import fit",
        "def f():\n    from gfgn.train.loop import fit",
        "import gfgn\ngfgn.train.loop",
        'import_module("gfgn.train.loop")',
        'import_module(f"gfgn.train.{name}")',
        'import_module(f"gfgn.{name}")',
        "from gfgn.elsewhere import x",
        "from gfgn.paper import claims",
        "from gfgn.nn import conv",
    ],
)
def test_a_wrong_import_is_reported(line: str, tmp_path: Path) -> None:
    files = {"__init__": "", "nn/__init__": "", "nn/model": line, "nn/conv": "from gfgn.nn.model import x"}
    files |= {"train/__init__": "", "train/loop": "import gfgn\nfrom gfgn import GFGN, nn\nfrom gfgn.nn import model"}
    for name, text in files.items():
        path = tmp_path / "gfgn" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        if name != "nn/model":
            path.write_text(text)
    assert find_violations(tmp_path) == []
    (tmp_path / "gfgn" / "nn" / "model.py").write_text(line)
    violations = find_violations(tmp_path)
    assert violations
    assert all("gfgn.nn.model" in violation for violation in violations)


def test_importing_gfgn_does_not_import_pytorch() -> None:
    code = "import sys, gfgn\ndir(gfgn)\nprint([name for name in sys.modules if name.startswith(('torch', 'gfgn.'))])"
    assert run_in(ROOT, code).strip() == "['gfgn.lazy']"


def test_public_names_are_imported_on_first_use() -> None:
    modules = {"data", "estimator", "nn", "ops", "report", "runs", "sampling", "train"}
    assert set(dir(gfgn)) == modules | {"GFGN", "GFGNClassifier", "GFGNConv", "Graph", "Nodes", "__version__"}
    for name in modules:
        assert getattr(gfgn, name).__name__ == f"gfgn.{name}"
    assert gfgn.Graph is gfgn.graph.Graph
    assert gfgn.GFGNConv is gfgn.nn.GFGNConv
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        _ = gfgn.unknown


def test_importing_the_library_needs_only_pytorch_and_scipy() -> None:
    """Packages for tables, figures and files are imported where they are used."""
    modules = find_modules(ROOT / "src")
    pending = {f"gfgn.{layer}" for layer in LAYERS[LAYERS.index("runs") :]}
    imported: set[str] = set()
    while pending:
        name = pending.pop()
        imported.add(name)
        if name in modules:
            top = ast.parse(modules[name].read_text(encoding="utf-8")).body
            package = name if modules[name].name == "__init__.py" else name.rpartition(".")[0]
            targets = {target for node in top for target in _targets(node, package, modules)}
            parents = {".".join(target.split(".")[:k]) for target in targets for k in range(1, target.count(".") + 1)}
            pending |= (targets | parents) - imported - {"gfgn"}
    assert not imported & {"typer", "rich", "matplotlib", "pandas", "pyarrow", "sklearn", "yaml"}
    assert {"gfgn.data.named.catalog", "gfgn.runs.store", "torch", "numpy", "scipy"} <= imported


# --- without gfgn.paper -----------------------------------------------------------------------------------------------


def test_only_tests_of_the_paper_import_it() -> None:
    tests = ROOT / "tests"
    modules = {name: path for name, path in find_modules(tests).items() if path.parent.name != "paper"}
    assert [name for name in modules if "paper" in map(layer_of, find_imports(name, modules))] == []


@pytest.mark.slow
def test_the_library_works_without_the_paper(tmp_path: Path) -> None:
    """In a copy without `gfgn.paper`, every module imports, every test is collected, and the tests of the upper layers
    pass. The tests above show that no other test reaches `gfgn.paper`."""
    for folder in ("src", "tests"):  # the copied cache of compiled kernels is valid, as modification times are the same
        shutil.copytree(ROOT / folder, tmp_path / folder)
        shutil.rmtree(next((tmp_path / folder).glob("**/paper")))
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CITATION.cff", "benchmarks", "docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    names = [name for name in find_modules(tmp_path / "src") if name != "gfgn.__main__"]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    tested = ["-x", "-m", "not slow", "tests/cli", "tests/report"]
    tested += [str(path) for path in (tmp_path / "tests" / "runs").glob("test_study*.py")]
    run_in(
        tmp_path,
        "import importlib, sys, pytest\nfrom typer.testing import CliRunner\n"
        f"for name in {names}: importlib.import_module(name)\n"
        "result = CliRunner().invoke(sys.modules['gfgn.cli'].app, ['reproduce', 'table1'])\n"
        "assert 'the reproduction of the paper (the package gfgn.paper) is not installed' in result.stderr\n"
        f"assert sys.modules['gfgn'].__file__.startswith({str(tmp_path)!r})\n"
        f"sys.exit(pytest.main({[*options, '--collect-only']}) or pytest.main({[*options, *tested]}))",
    )


def run_in(folder: Path, code: str) -> str:
    """Runs code with the gfgn of a copy of the repository and returns what it prints."""
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
