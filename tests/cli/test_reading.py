"""Options of commands that read a graph of one's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from gfgn.cli import app
from gfgn.cli.reading import OPTIONS, Scale, read_options

SIZE = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    nodes = {"node": np.arange(SIZE), "pet": ["cat", "dog"] * (SIZE // 2), "income": random.normal(5e4, 1e4, SIZE)}
    part = ["train"] * 20 + ["val"] * 10 + ["test"] * 10
    bio = [f"text {k}" for k in range(SIZE)]
    pd.DataFrame(nodes | {"size": random.normal(size=SIZE), "part": part, "bio": bio}).to_csv(
        tmp_path / "nodes.csv", index=False
    )
    edges = {"source": np.arange(SIZE), "target": (np.arange(SIZE) + 2) % SIZE}
    pd.DataFrame(edges).to_csv(tmp_path / "edges.csv", index=False)
    return tmp_path


NAMES = ("--id", "node", "--label", "pet", "--split", "part", "--drop", "bio")


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result


def test_compare_check(folder: Path) -> None:
    text = run("compare", str(folder), "--check", *NAMES).stdout
    for line in (
        "columns   2: 2 numeric",
        "features  2: income, size; scale standard",
        "classes   2: cat (20), dog (20)",
        "splits    1; the first: train 20, val 10, test 10",
        "metric    roc_auc",
        "standardized by the mean and standard deviation of 20 training nodes: income, size",
        "note      nodes.csv: 1 column dropped: bio",
    ):
        assert line in text
    text = run("compare", str(folder), "--check", *NAMES, "--normalize", "--directed", "--metric", "accuracy").stdout
    for line in ("scale row", "directed", "metric    accuracy"):
        assert line in text
    drop = ("--id", "node", "--label", "pet", "--drop", "bio", "--drop", "part", "--drop", "income")
    text = run("compare", str(folder), "--check", *drop, "--stratify", "--scale", "none").stdout
    for line in ("features  1: size; scale none", "10 stratified splits"):
        assert line in text


def test_describe_a_path(folder: Path) -> None:
    result = run("datasets", "describe", str(folder), *NAMES)
    assert f"{folder.name}: Read from nodes.csv." in result.stdout
    assert "2, of 20 to 20 nodes" in result.stdout
    assert "measured by roc_auc" in result.stdout
    assert "feature dimensions by smoothness" in result.stdout
    assert "license" not in result.stdout
    assert "standardized by" in result.stderr
    unlabelled = run(
        "datasets", "describe", str(folder), "--id", "node", "--drop", "bio", "--drop", "pet", "--drop", "part"
    )
    assert "classes      none" in unlabelled.stdout


def test_defaults_are_those_of_read() -> None:
    from gfgn.data import ReadOptions

    assert read_options(dict.fromkeys(OPTIONS)) == ReadOptions()
    assert read_options({"drop": ["a"], "sep": r"\t", "scale": Scale.row}) == ReadOptions(
        drop=["a"], sep="\t", scale="row"
    )


@pytest.mark.parametrize(
    "arguments", [("--check",), ("--label", "pet"), ("--drop", "a"), ("--source", "a"), ("--directed",)]
)
def test_options_of_tables_are_refused_for_a_name(arguments: tuple[str, ...]) -> None:
    error = run("compare", "karate", *arguments, code=2).stderr
    assert f"{arguments[0]} is for tables" in error
    assert "'karate'" in error


def test_metric_of_a_named_dataset() -> None:
    assert "metric must be one of 'accuracy'" in run("compare", "karate", "--metric", "f2", code=2).stderr
    assert "measured by macro_f1" in run("datasets", "describe", "karate", "--metric", "macro_f1").stdout


def test_bad_options(folder: Path) -> None:
    both = run("compare", str(folder), "--check", *NAMES, "--normalize", "--scale", "none", code=2).stderr
    assert both == "gfgn: --normalize is short for --scale row, got it with --scale none\n"
    wrong = run("compare", str(folder), "--check", "--id", "name", code=2).stderr
    assert "nodes.csv has no column 'name', only node, pet" in wrong
    assert "no such file" in run("datasets", "describe", str(folder / "nowhere"), code=2).stderr


def test_what_people_have_and_what_was_guessed(folder: Path) -> None:
    edges = pd.read_csv(folder / "edges.csv").rename(columns={"source": "one", "target": "two"}).assign(kind=1)
    edges.loc[SIZE] = [0, 999, 1]
    edges.to_csv(folder / "edges.csv", index=False, sep=";", encoding="utf-16")
    (folder / "nodes.csv").write_text((folder / "nodes.csv").read_text().replace(",", "\t"))
    options = (*NAMES, "--source", "one", "--target", "two", "--skip-unknown", "--check")
    text = run("compare", str(folder), *options).stdout
    for words in ("separated by ';'", "separated by '\\t'", "read as utf-16", "1 edge with an unknown id skipped"):
        assert words in text
    (folder / "edges.csv").write_bytes(edges.to_csv(index=False, sep=";").encode())
    given = run("compare", str(folder), *options, "--sep", ";", code=2).stderr
    assert "nodes.csv" in given  # which has tabs


@pytest.mark.parametrize("command", ["train", "compare", "advise"])
def test_an_input_error_comes_before_pytorch(folder: Path, command: str) -> None:
    code = (
        "import sys; from gfgn.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    for arguments, message in (((folder, "--id", "name"), "nodes.csv has no column 'name'"), (("karat",), "'karate'?")):
        given = [sys.executable, "-c", code, command, *map(str, arguments)]
        result = subprocess.run(given, capture_output=True, text=True, check=True)
        assert message in result.stderr
        assert result.stdout.split() == ["2", "False"]
