"""The analyses by name."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gfgn.paper
from gfgn.paper.analyses import ANALYSES

MODULES = (
    *("analyses", "spectral", "motivation", "parameters", "scores", "mechanism", "thesis", "cornell"),
    *("claims", "evidence", "rules", "rules.accuracy", "rules.gates", "rules.method"),
)


def test_names() -> None:
    assert list(ANALYSES) == ["spectral", "motivation", "parameters", "scores", "mechanism", "cornell", "claims"]


@pytest.mark.parametrize("name", list(ANALYSES))
def test_an_analysis_calls_its_module(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = import_module(f"gfgn.paper.{name}")
    assert list(inspect.signature(module.analyze).parameters)[:4] == ["out", "root", "device", "progress"]
    calls: list[tuple[object, ...]] = []

    def analyze(out: Path, *, root: Path | None, device: str, progress: object) -> list[Path]:
        calls.append((out, root, device))
        return [out / "file"]

    monkeypatch.setattr(module, "analyze", analyze)
    paths = ANALYSES[name](tmp_path, root=Path("data"), device="cpu", progress=print)
    assert paths == [tmp_path / "file"]
    assert calls == [(tmp_path, Path("data"), "cpu")]


def test_import_without_packages_for_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only drawing needs Matplotlib."""
    known = {name: import_module(f"gfgn.paper.{name}") for name in MODULES}
    monkeypatch.setattr(gfgn, "paper", gfgn.paper)  # undone afterwards: the fresh modules must not stay
    for name in [name for name in sys.modules if name.startswith(("gfgn.paper", "gfgn.report"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "pandas", "sklearn", "typer"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in MODULES:
        assert import_module(f"gfgn.paper.{name}") is not known[name]  # imported again, without these packages
