"""`gfgn reproduce`, and `gfgn report` of a study."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.test_app import check_imports_of_command
from typer.testing import CliRunner

from gfgn.cli import app

RESULTS = Path(__file__).parents[2] / "results"
STUDY = """
title: Small
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models: {gcn: {}, mlp: {}}
splits: 2
seeds: 1
training: {max_epochs: 2, patience: 2}
"""


def gfgn(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_list_imports_nothing_slow() -> None:
    check_imports_of_command("reproduce", "table1")


def test_a_study_is_run_and_checked(tmp_path: Path) -> None:
    study, out = tmp_path / "small.yaml", tmp_path / "out"
    study.write_text(STUDY)
    arguments = ("reproduce", study, "--out", out)
    result = gfgn(*arguments, "--device", "cpu", "--models", "gcn, ", "--limit-minutes", "30")
    assert result.stdout.startswith("2 new runs; ")
    assert "karate gcn: 2 runs, 2 of them new, " in result.stderr
    assert gfgn(*arguments, "--device", "cpu").stdout.startswith("2 new runs; ")
    lines = gfgn(*arguments, "--check", "--datasets", "karate", "--full", "--seed", 5).stdout.splitlines()
    assert lines[0] == f"tables and figures of {out}: passed"
    assert lines[-2] == "4 runs on 1 graph trained again (sample 5), 4 equal bit for bit: passed"
    assert lines[-1] == "same as the committed results"
    page = (out / "README.md").read_text()
    (out / "README.md").write_text(page.replace("| 2 |", "| 3 |"))
    assert f"differs: {out / 'README.md'}: has " in gfgn(*arguments, "--check", code=1).stdout
    gfgn(*arguments, "--tables")
    assert (out / "README.md").read_text() == page


def test_without_a_name_the_studies_are_listed() -> None:
    names = [line.split()[0] for line in gfgn("reproduce").stdout.splitlines()]
    assert {"table1", "table2", "arxiv", "noise", "lambda", "scores"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "did you mean 'table1'?"),
        (["table1", "--models", "gfgn"], "models must be among gfgn-graph"),
        (["table1", "--datasets", "ppi"], "datasets must be among blogcatalog"),
        (["table1", "--limit-minutes", "0"], "limit_minutes must be above 0, got 0.0"),
        (["table1", "--device", "abacus"], "device must be auto or one that this machine has (cpu"),
        (["table1", "--tables"], "out must be the folder of a study with runs.csv"),
        (["table1", "--check"], "out must be the folder of a study with runs.csv"),
        (["claims", "--check"], "out must be a folder of results"),
        (["table1", "--full"], "--full is for --check, got it without"),
        (["table1", "--seed", "3"], "--seed is for --check, got it without"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = gfgn("reproduce", *arguments, "--out", tmp_path / "out", code=2)
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interrupted_study_can_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfgn.paper import reproduce

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "reproduce", interrupt)
    result = gfgn("reproduce", "table1", "--out", tmp_path, code=130)
    assert result.stderr == "gfgn: interrupted; finished runs are kept, run again to continue\n"


def test_report_of_a_study_writes_its_tables(tmp_path: Path) -> None:
    folder = shutil.copytree(RESULTS / "table2-longer", tmp_path / "table2-longer")
    page = (folder / "README.md").read_bytes()
    (folder / "README.md").unlink()
    gfgn("report", folder)
    assert (folder / "README.md").read_bytes() == page
    result = gfgn("report", folder, "--out", "page.html", code=2)
    assert "--out and --runs are for a comparison" in result.stderr
    result = gfgn("report", shutil.copytree(folder, tmp_path / "own"), code=2)
    assert "gfgn reproduce STUDY.yaml --tables --out" in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "gfgn.report.figures", raising=False)
    for arguments in (["reproduce", "table1"], ["datasets", "describe", "karate", "--png", "karate.png"]):
        assert "pip install 'gfgn[paper]'" in gfgn(*arguments, code=2).stderr


def test_without_the_reproduction_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gfgn.paper", "gfgn.paper.check", "gfgn.paper.reproduce", "gfgn.paper.studies"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "chosen.csv").touch()
    for arguments in (["reproduce"], ["reproduce", "table1"], ["report", str(tmp_path)]):
        result = gfgn(*arguments, code=2)
        assert result.stderr.startswith("gfgn: this needs gfgn.paper")
        assert result.stderr.count("\n") == 1
