"""Names that are markup, escape sequences, formulas or HTML: shown literally, from files, a store or a model."""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.literal import INVISIBLE, csv_cell, one_line, visible
from gfgn.report.terminal import literal

ESC = "\x1b[2J\x1b]0;owned\x07"
FORMULA = "=cmd|' /C calc'!A0"
SCRIPT = "<script>alert(1)</script>"
CLASSES = ["[/x]", f"{ESC}red", SCRIPT]
COLUMNS = ["mass [kg]", "[bold]", FORMULA, SCRIPT, f"{ESC}size", "a\u202eb", ":smile:"]
QUICK = ["--epochs", "3", "--device", "cpu"]


class Elements(HTMLParser):
    """The names of all elements of a page, and the contents of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names") / f"[red]{FORMULA[:4]}{ESC}"
    folder.mkdir()
    random, size = np.random.default_rng(0), 60
    ids = [f"@SUM(1){k}" if k % 2 else f"{ESC}{k}" for k in range(size)]
    table = {"id": ids, "label": [CLASSES[k % 3] for k in range(size)]}
    table |= {name: random.normal(size=size) + np.arange(size) % 3 for name in COLUMNS}
    pd.DataFrame(table).to_csv(folder / "nodes.csv", index=False)
    ends = random.integers(0, size, (2, 120))
    pd.DataFrame({"source": [ids[k] for k in ends[0]], "target": [ids[k] for k in ends[1]]}).to_csv(
        folder / "edges.csv", index=False
    )
    return folder


def run(*arguments: object, code: int = 0) -> str:
    """What a command prints, which must hold no character that a terminal acts on."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert not INVISIBLE.search(result.output), result.output
    return str(result.output)


def check_page(path: Path) -> None:
    text, page = path.read_text("utf-8"), Elements()
    page.feed(text)
    assert "alert(1)" in text
    assert SCRIPT not in text
    assert not any(name.startswith("on") for _, names in page.tags for name in names)


def test_how_a_graph_is_read(graph: Path) -> None:
    text = run("compare", graph, "--check")
    for name in ("mass [kg]", "[bold]", FORMULA, SCRIPT, r"\x1b[2J\x1b]0;owned\x07size", "[/x]"):
        assert name in text
    assert r"a\u202eb" in run("compare", graph, "--check", "--drop", COLUMNS[0], "--drop", COLUMNS[1])


def test_a_comparison_and_its_report(graph: Path, tmp_path: Path) -> None:
    text = run("compare", graph, "--models", "mlp,gfgn-graph", "--splits", 1, *QUICK, "--out", tmp_path)
    assert "[red]=cmd" in text
    check_page(tmp_path / "report.html")
    with (tmp_path / "gates.csv").open(newline="", encoding="utf-8") as file:
        names = [row["feature"] for row in csv.DictReader(file)]
    assert f"'{FORMULA}" in names
    assert "mass [kg]" in names


def test_a_model_and_its_predictions(graph: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    text = run("train", graph, "--level", "graph", *QUICK, "--out", model)
    assert "[/x]" in text
    check_page(model / "report.html")
    assert not INVISIBLE.search((model / "README.md").read_text("utf-8"))
    run("predict", model, graph, "--all", "--out", tmp_path / "p.csv")
    frame = pd.read_csv(tmp_path / "p.csv")
    assert frame["id"][1] == "'@SUM(1)1"
    assert frame["id"][0].endswith("0")
    run("predict", model, graph, "--all", "--out", tmp_path / "p.parquet")
    assert pd.read_parquet(tmp_path / "p.parquet")["id"][1] == "@SUM(1)1"
    counts = json.loads(run("predict", model, graph, "--all", "--json", "--quiet", "--out", tmp_path / "p.csv"))
    assert set(counts["predictions"]) <= set(CLASSES)


def test_errors(graph: Path, tmp_path: Path) -> None:
    assert r"\x1b[2J" in run("compare", graph / "nowhere", code=2)
    (tmp_path / "nodes.csv").write_text(f"id,label,{ESC}\na,1,2,3,4{ESC}\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    assert r"\x1b[2J" in run("compare", tmp_path, code=2)


@pytest.mark.parametrize(
    "text", ["[/x]", "mass [kg]", "[bold]a[/bold]", ":smile:", r"a\[b]", "[link=http://x]y[/link]"]
)
def test_text_on_a_terminal_is_literal(text: str) -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system=None, width=200).print(literal(text))
    assert out.getvalue() == f"{text}\n"


def test_visible() -> None:
    assert visible("a\x1b[0m\tb\nc\r\x9b\ud800") == "a\\x1b[0m\tb\nc\\r\\x9b\\ud800"
    assert one_line("a\tb\nc") == "a\\tb\\nc"
    assert visible("naïve – 中文 🙂 mass [kg]") == "naïve – 中文 🙂 mass [kg]"


@pytest.mark.parametrize(
    "text", [FORMULA, "=1+1", " =A1", "\t=A1", "+cmd|' /C calc'!A0", "-SUM(A1)", "@SUM(1)", "=\n1"]
)
def test_formulas_are_quoted(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "+49 30", "@user", "-low", "a=b", "", 5, -1.5, None])
def test_other_cells_are_left_as_they_are(value: object) -> None:
    assert csv_cell(value) == value
