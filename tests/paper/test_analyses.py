"""The analyses by name."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from gfgn.paper.analyses import ANALYSES

MODULES = ("analyses", "spectral", "motivation", "parameters", "scores", "claims", "evidence", "rules")


def test_names() -> None:
    assert list(ANALYSES) == ["spectral", "motivation", "parameters", "scores", "claims"]
    assert [function.__name__ for function in ANALYSES.values()] == list(ANALYSES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", list(ANALYSES))
def test_the_module_of_that_name_is_called(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[object, ...]] = []

    def analyse(out: Path, *, root: Path | None, device: str, progress: object) -> list[Path]:
        calls.append((out, root, device))
        return [out / "file"]

    monkeypatch.setattr(f"gfgn.runs.{name}.analyse", analyse)
    found = ANALYSES[name](tmp_path, root=Path("data"), device="cpu", progress=print)
    assert found == [tmp_path / "file"]
    assert calls == [(tmp_path, Path("data"), "cpu")]


@pytest.mark.parametrize("name", list(ANALYSES))
def test_arguments(name: str) -> None:
    module = __import__(f"gfgn.runs.{name}", fromlist=["analyse"])
    assert list(inspect.signature(module.analyse).parameters) == ["out", "root", "device", "progress"]


def test_importing_them_needs_no_packages_for_figures() -> None:
    """They run where only PyTorch, PyTorch Geometric, NumPy and SciPy are installed."""
    lacking = (
        "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'pandas', 'sklearn', 'yaml', 'typer'], None))"
    )
    imports = "; ".join(f"import gfgn.runs.{name}" for name in MODULES)
    ended = subprocess.run([sys.executable, "-c", f"{lacking}; {imports}"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
