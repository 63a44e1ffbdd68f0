"""A study of one's own: tables of results, differences to its baseline, and the report of its folder."""

from pathlib import Path

import pandas as pd
import pytest
from runs.small_studies import run, write_study
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.runs import read_runs
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_file import read_study
from gfgn.runs.study_files import keep_spec, write_tables
from gfgn.train import difference, paired_test

STUDY = """
title: Own
datasets: [karate, {path: mine, label: plan}]
models: {mlp: {}, gcn: {}, gfgn-graph: {lam: [1, 2]}}
grid: {lr: [1e-1]}
baseline: mlp
splits: 3
seeds: 1
training: {max_epochs: 5, patience: 5}
vary: {variant: {plain: {}, short: {training: {max_epochs: 2}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of the study."""
    root = tmp_path_factory.mktemp("own")
    path, graph = write_study(root, STUDY, "own"), root / "mine"
    graph.mkdir()
    rows = "".join(f"n{k},{k % 7},{'ab'[k % 2]}\n" for k in range(60))
    (graph / "nodes.csv").write_text(f"id,size,plan\n{rows}")
    (graph / "edges.csv").write_text("source,target\n" + "".join(f"n{k},n{(k + 2) % 60}\n" for k in range(60)))
    run(path, root / "out")
    keep_spec(path, root / "out")
    return root / "out"


def test_differences_are_to_the_baseline_of_the_study(folder: Path) -> None:
    results = Results(read_study(folder / "study.yaml"), read_runs(folder / "runs.csv.gz"))
    parts = results.comparisons()
    assert [part.dataset.name for part in parts] == ["karate, plain", "karate, short", "mine, plain", "mine, short"]
    for part in parts:
        assert part.baseline == "mlp"
        share, (mlp, gcn) = part.dataset.test_share, (part.rows[model] for model in ("mlp", "gcn"))
        gap, expected = part.gap_to_baseline("gcn"), difference(gcn, mlp, share)
        assert gap is not None
        assert (gap.mean, gap.low, gap.high) == (expected.mean, expected.low, expected.high)
        assert gap.p == paired_test(gcn, mlp, share).t_p
        assert part.gap_to_baseline("mlp") is None
    assert results.gap(Cell("karate", "gcn", "plain"), Cell("karate", "mlp", "plain")) == parts[0].gap_to_baseline(
        "gcn"
    )


def test_tables(folder: Path) -> None:
    results = Results(read_study(folder / "study.yaml"), read_runs(folder / "runs.csv.gz"))
    table, markdown, latex = write_tables(results, folder)
    frame = pd.read_csv(table)
    assert len(frame) == 3 * 2 * 2
    assert set(frame["baseline"]) == {"mlp"}
    own = frame[frame["model"] == "mlp"]
    assert own["chosen_lam"].isna().all()  # the MLP has none
    assert own["difference_mean"].isna().all()
    lines = markdown.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("| model | karate, plain, accuracy, % | karate, short, ")
    assert [line.split(" ")[1] for line in lines if line.startswith("| g")] == ["gcn", "gfgn-graph"] * 2
    text = latex.read_text(encoding="utf-8")
    assert text.count(r"\begin{tabular}{lrrrr}") == text.count(r"\end{tabular}") == 2
    assert r"accuracy, \%" in text
    assert not set("±−–") & set(text)


def test_the_report_of_the_folder(folder: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(folder), "--runs", str(folder / "all.csv")])
    assert result.exit_code == 0, result.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "karate, short" in page
    assert "against mlp" in page
    assert len(pd.read_csv(folder / "all.csv")) == len(read_runs(folder / "runs.csv.gz"))
    result = CliRunner().invoke(app, ["report", str(folder), "--runs", str(folder / "all.txt")])
    assert result.exit_code == 2
    assert "--runs must end in .csv or .parquet" in result.output
    assert not (folder / "all.txt").exists()
