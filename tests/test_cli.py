"""The command: its table, its files, and one line for whatever goes wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gfgn
from gfgn.cli import app
from gfgn.data import load
from gfgn.experiments import Store
from gfgn.experiments.compare import make_plan

QUICK = ["--splits", "2", "--epochs", "3"]


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"gfgn {gfgn.__version__}"


def test_compare_prints_the_table_and_writes_the_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp, gfgn-graph", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "±" in lines["mlp"]
    assert "[" in lines["gfgn-graph"]
    assert "against mlp" in lines["model"]
    assert "4 runs, " in result.stdout
    assert " s in all" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 5
    assert "dimensions mlp: 2 runs" in result.stderr
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        assert len(store) == 4


def test_run_again_it_goes_on(tmp_path: Path) -> None:
    runner, out = CliRunner(), ["--out", str(tmp_path)]
    runner.invoke(app, ["compare", *QUICK, "--models", "mlp", *out])
    before = (tmp_path / "runs.csv").read_text()
    result = runner.invoke(app, ["compare", "--splits", "3", "--epochs", "3", "--models", "mlp,gcn", *out])
    assert result.exit_code == 0, result.output
    assert "4 runs, 2 more were there already" in result.stdout
    assert "dimensions mlp: 3 runs, 2 of them there already" in result.stderr
    assert set(before.splitlines()) < set((tmp_path / "runs.csv").read_text().splitlines())


def test_several_datasets_and_the_grid_of_the_paper(tmp_path: Path) -> None:
    arguments = ["compare", "karate", "dimensions", *QUICK, "--grid", "paper", "--models", "mlp,gfgn-graph"]
    result = CliRunner().invoke(app, [*arguments, "--seeds", "2", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    # 8 configurations of the MLP and 16 of the GFGN on two splits, then a second seed of the chosen one, twice
    assert f"{2 * (8 * 2 + 2 + 16 * 2 + 2)} runs, " in result.stdout
    assert "karate: " in result.stdout
    assert "average rank: " in result.stdout
    assert (
        len(
            re.findall(
                r"^  gfgn-graph: learning rate [\d.]+, weight decay \S+, dropout 0.\d, λ \d \(", result.stdout, re.M
            )
        )
        == 2
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2 models on 2 datasets" in page
    assert page.count("All 24 that were tried") == 2
    chosen = [line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines()]
    assert {line[chosen[0].index("lr")] for line in chosen[1:]} == {"0.005", "0.05"}


def test_report_writes_the_same_page_from_the_store_alone(tmp_path: Path) -> None:
    runner = CliRunner()
    runner.invoke(app, ["compare", "karate", *QUICK, "--models", "mlp,gfgn-graph", "--out", str(tmp_path)])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    (tmp_path / "report.html").unlink()
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.stdout == f"report: {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    other = tmp_path / "elsewhere.html"
    result = runner.invoke(app, ["report", str(tmp_path / "runs.sqlite"), "--out", str(other)])
    assert other.read_text(encoding="utf-8") == page
    runner.invoke(app, ["report", str(tmp_path), "--runs", str(tmp_path / "again.csv")])
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "runs.csv").read_text()
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    runner.invoke(app, ["report", str(tmp_path), "--runs", str(tmp_path / "again.parquet")])
    assert len(pd.read_parquet(tmp_path / "again.parquet")) == 4
    result = runner.invoke(app, ["report", str(tmp_path), "--runs", "runs.xls"])
    assert result.stderr == "gfgn: --runs must end in .csv or .parquet, got runs.xls\n"


def test_report_says_what_is_not_there(tmp_path: Path) -> None:
    runner = CliRunner()
    for make, message in (
        (lambda path: None, "where there is no file"),
        (lambda path: path.write_text("not a store"), "file is not a database"),
        (lambda path: Store(path).close(), "holds 0 runs but no comparison to report"),
    ):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        make(path)
        result = runner.invoke(app, ["report", str(path)])
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    unfinished = make_plan(load("karate"), ["mlp"], 2)
    with Store(tmp_path / "runs.sqlite") as store:
        store.note("comparison", "karate", unfinished.to_json())
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "left out: mlp on karate, which has 0 of 2 runs so far" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dimension"], "did you mean 'dimensions'?"),
        (["--models", "gfgn-pear"], "did you mean 'gfgn-pair'?"),
        (["--models", ","], "models must name at least one"),
        (["--splits", "99"], "splits must be 1 to 10 for 'dimensions', got 99"),
        (["--seeds", "0"], "seeds must be 1 or larger, got 0"),
        (["--epochs", "0"], "max_epochs must be 1 or larger, got 0"),
        (["--device", "abacus"], "--device must be auto or one that this machine has (cpu"),
        (["karate", "Karate"], "DATA must be graphs of different names, got karate, karate"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_foreign_table_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("a,b\n1,2\n")
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "runs.csv is something else" in result.stderr
    assert (tmp_path / "runs.csv").read_text() == "a,b\n1,2\n"


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "file" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_interruption_says_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gfgn.report.terminal as terminal

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(terminal.Lines, "end", interrupt)
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp,gcn", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert f"2 finished runs are kept in {tmp_path / 'runs.sqlite'}" in result.stderr
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    monkeypatch.setattr(terminal.Lines, "begin", interrupt)
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp,gcn", "--out", str(tmp_path)])
    assert "interrupted; no run had finished" in result.stderr


def test_as_a_process(tmp_path: Path) -> None:
    """Usage errors too are one line, which only a process can show; and no heavy import precedes them."""
    done = subprocess.run(
        [sys.executable, "-m", "gfgn", "compare", "--splits", "many"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gfgn: Invalid value for '--splits'")
    assert done.stderr.count("\n") == 1
    code = "import sys, gfgn.cli; print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_training_and_data_need_nothing_that_only_the_command_needs() -> None:
    code = (
        "import sys, torch_geometric; before = set(sys.modules)\n"
        "import gfgn.data, gfgn.train, gfgn.experiments; new = set(sys.modules) - before\n"
        "unwanted = 'typer rich matplotlib pandas pyarrow sklearn yaml gfgn.report gfgn.cli'.split()\n"
        "print([m for m in unwanted if m in new])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


# --- datasets --------------------------------------------------------------------------------------------------------


def test_datasets_lists_them_all() -> None:
    from gfgn.data import DATASETS

    result = CliRunner().invoke(app, ["datasets"])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if not line.startswith(" ")}
    assert [name for name in rows if name != "name"] == list(DATASETS)
    assert rows["karate"].split()[-3:] == ["34", "4", "embedded"]
    assert rows["cora"].split()[-3:] == ["2,708", "7", "download"]
    assert "a stand-in, not ogbn-arxiv" in rows["ogbn-arxiv-structure"]
    assert rows["ogbn-arxiv-structure"].split()[-1] == "stand-in"


def test_describe_in_the_terminal() -> None:
    result = CliRunner().invoke(app, ["datasets", "describe", "Karate"])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert lines["karate:"].startswith("karate: members of a karate club")
    assert lines["edges"].split()[1] == "78"
    assert "edge 0.756, node " in lines["homophily"]
    assert "mean 4.6, quartiles 2, 3 and 5, from 1 to 17; 0 nodes" in lines["degree"]
    assert lines["16–31"].split()[-1] == "2"
    assert "█" in lines["2–3"]
    assert result.stdout.count("█") > 50
    assert "feature dimensions by smoothness" in result.stdout
    assert "in the paper" not in result.stdout


def test_describe_as_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "karate.png"
    result = CliRunner().invoke(app, ["datasets", "describe", "karate", "--png", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in result.stdout
    assert "█" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["karat"], "did you mean 'karate'?"),
        (["karate", "--png", "no/such/folder/karate.png"], "No such file or directory"),
        (["ogbn-arxiv-structure"], "a stand-in in the raw layout of ogbn-arxiv"),
    ],
)
def test_describe_fails_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GFGN_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["datasets", "describe", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_compare_by_another_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    import gfgn.data
    from gfgn.data import Dataset, dimensions

    def measured_otherwise(name: str) -> Dataset:
        data = dimensions(120, degree=8, splits=2)
        return dataclasses.replace(data, name=name, metric="roc_auc", num_classes=2, y=data.y % 2)

    monkeypatch.setattr(gfgn.data, "load", measured_otherwise)
    result = CliRunner().invoke(app, ["compare", "tolokers", *QUICK, "--models", "mlp", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "test ROC AUC, %" in result.stdout


@pytest.mark.parametrize("name", ["karate", "digits"])
def test_compare_on_the_other_embedded_graphs(name: str, tmp_path: Path) -> None:
    arguments = ["compare", name, *QUICK, "--models", "mlp,gfgn-pair", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert f"{name}: " in result.stdout


def own_graph(folder: Path, labels: bool = True) -> Path:
    """A small graph in two CSV files, half of its nodes in class "a"."""
    rows = [f"n{i},{'ab'[i % 2] if labels else ''},{i % 2 + i / 100}" for i in range(40)]
    header = "id,label,size" if labels else "id,note,size"
    (folder / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    edges = [f"n{i},n{(i + 2) % 40}" for i in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return folder


def test_compare_reads_a_graph_of_ones_own(tmp_path: Path) -> None:
    data, out = own_graph(tmp_path), tmp_path / "report"
    result = CliRunner().invoke(app, ["compare", str(data), "--epochs", "3", "--models", "mlp", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "edges symmetrised" in result.stderr
    assert "4 runs" in result.stdout
    assert (out / "report.html").exists()


def test_check_says_what_was_understood_and_trains_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(own_graph(tmp_path)), "--check", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for words in ("nodes     40", "a (20), b (20)", "edges symmetrised"):
        assert words in result.stdout
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_a_graph_of_ones_own_is_one_line(tmp_path: Path) -> None:
    runner = CliRunner()
    for data, message in (
        (tmp_path / "nowhere", "there is no folder or file"),
        (own_graph(tmp_path, labels=False), "has no column 'label'|must have labels to train on|empty"),
    ):
        result = runner.invoke(app, ["compare", str(data), "--out", str(tmp_path / "out")])
        assert result.exit_code == 2, result.output
        assert re.search(message, result.stderr), result.stderr
        assert len(result.stderr.strip().splitlines()) <= 6
        assert "Traceback" not in result.output
    result = runner.invoke(app, ["compare", "karate", "--check"])
    assert result.exit_code == 2
    assert "--check is for a graph of your own" in result.stderr
