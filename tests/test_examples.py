"""The examples run, and print a plausible result."""

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
LOWEST = {
    "classifier": 0.9,
    "graph_batches": 0.9,
    "neighbor_loader": 0.7,
    "node_classification": 0.8,
    "custom_model": 0.7,
}
"""The accuracy that the last line of an example reaches at least."""


def run(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_every_example_is_tested_and_short() -> None:
    paths = {path.stem: path for path in FOLDER.glob("*.py")}
    assert paths.keys() == {*LOWEST, "gates", "own_data"}
    assert all(len(path.read_text(encoding="utf-8").splitlines()) <= 40 for path in paths.values())


@pytest.mark.parametrize("name", LOWEST)
def test_example_learns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = re.search(r"accuracy: (\d\.\d+)$", run(name, monkeypatch, capsys)[-1])
    assert accuracy is not None
    assert float(accuracy[1]) >= LOWEST[name]


def test_gates(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = run("gates", monkeypatch, capsys, "--epochs", "40", "--out", str(tmp_path))
    for level, line in zip(("graph", "neighbor", "pair"), lines, strict=False):
        follows, alone = map(float, re.findall(r"\d\.\d\d", line))
        assert line.split()[0] == level
        assert follows > alone + 0.2
    assert (tmp_path / "gates.svg").read_text(encoding="utf-8").count("<use") > 36


def test_own_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    first, *scores, report = run("own_data", monkeypatch, capsys)
    assert first.startswith("200 nodes, ")
    assert [line.split(":")[0] for line in scores] == ["mlp", "gcn", "gfgn-pair"]
    assert "3 models on " in Path(report.removeprefix("report: ")).read_text(encoding="utf-8")
