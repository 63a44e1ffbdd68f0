"""`gfgn compare` and `gfgn report`: tables, files, and one line for every error."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.data import load
from gfgn.report.progress import RunProgress
from gfgn.runs import Store
from gfgn.runs.comparison import comparison_study, keep_study
from gfgn.runs.record import DatasetRecord

QUICK = ["--splits", "2", "--epochs", "3"]


def compare(out: Path, *arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["compare", *arguments, "--out", str(out)])
    assert result.exit_code == code, result.output
    return result


def report(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["report", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder and the output of a comparison on karate."""
    out = tmp_path_factory.mktemp("compared")
    return out, compare(out, "karate", *QUICK, "--models", "mlp, gfgn-graph")


@pytest.fixture
def folder(compared: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(compared[0], tmp_path / "report")


def test_the_table_is_printed_and_the_files_are_written(compared: tuple[Path, Any]) -> None:
    out, result = compared
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "±" in lines["mlp"]
    assert "[" in lines["gfgn-graph"]
    assert "against mlp" in lines["model"]
    assert re.search(r"^4 runs, [\d.]+ s in all$", result.stdout, re.M)
    assert "versions of the code" not in result.stdout + (out / "report.html").read_text()
    assert str(out / "report.html") in result.stdout
    assert (out / "report.html").stat().st_size > 10_000
    assert len((out / "runs.csv").read_text().splitlines()) == 5
    with Store(out / "runs.sqlite", read_only=True) as store:
        assert len(store) == 4


def test_a_second_call_trains_only_what_is_missing(folder: Path) -> None:
    before = (folder / "runs.csv").read_text()
    result = compare(folder, "karate", "--splits", "3", "--epochs", "3", "--models", "mlp,gcn")
    assert "4 runs, 2 more from the store" in result.stdout
    assert set(before.splitlines()) < set((folder / "runs.csv").read_text().splitlines())


def test_several_datasets_and_the_grid_of_the_paper(tmp_path: Path) -> None:
    models = ["--models", "mlp,gfgn-graph", "--seeds", "2"]
    data, settings = own_graph(tmp_path), ["--splits", "1", "--epochs", "1", "--grid", "paper"]
    result = compare(tmp_path, "karate", data, *settings, *models)
    # 8 configurations of the MLP and 16 of GFGN on one split, then a second seed of the selected one, on two datasets
    assert f"{2 * (8 + 1 + 16 + 1)} runs, " in result.stdout
    assert "karate: " in result.stdout
    assert "average rank: " in result.stdout
    selected = r"^  gfgn-graph: learning rate [\d.]+, weight decay \S+, dropout 0.\d, λ \d(?:, gate_bias 0)? \("
    assert len(re.findall(selected, result.stdout, re.M)) == 2
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "2 models on 2 datasets" in page
    assert page.count("<summary>All 24 configurations tried") == 2
    table = [line.split(",") for line in (tmp_path / "runs.csv").read_text().splitlines()]
    assert {line[table[0].index("lr")] for line in table[1:]} == {"0.005", "0.05"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["karat"], "did you mean 'karate'?"),
        (["nowhere/graph"], "DATA must be the name of a dataset or the path of a graph, got 'nowhere/graph'"),
        (["karate", "--models", "gfgn-pear"], "did you mean 'gfgn-pair'?"),
        (["karate", "--models", ","], "models must name at least one"),
        (["karate", "--splits", "99"], "splits must be 1 to 10 for 'karate', got 99"),
        (["karate", "--seeds", "0"], "seeds must be 1 or larger, got 0"),
        (["karate", "--epochs", "0"], "max_epochs must be 1 or larger, got 0"),
        (["karate", "--device", "abacus"], "device must be auto or one that this machine has (cpu"),
        (["karate", "Karate"], "DATA must be graphs with different names, got karate, karate"),
        (["karate", "--check"], "--check is for tables of your own"),
    ],
)
def test_an_error_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = compare(tmp_path / "out", *arguments, code=2)
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("a,b\n1,2\n")
    result = compare(tmp_path, "karate", *QUICK, "--models", "mlp", code=2)
    assert "runs.csv is something else" in result.stderr
    assert (tmp_path / "runs.csv").read_text() == "a,b\n1,2\n"
    result = compare(tmp_path / "runs.csv", "karate", *QUICK, "--models", "mlp", code=2)
    assert result.stderr.count("\n") == 1


def test_an_interrupted_comparison_keeps_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    arguments = ("karate", *QUICK, "--models", "mlp,gcn")
    monkeypatch.setattr(RunProgress, "on_model_end", interrupt)
    result = compare(tmp_path, *arguments, code=130)
    assert f"2 finished runs are kept in {tmp_path / 'runs.sqlite'}" in result.stderr
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    monkeypatch.setattr(RunProgress, "on_model_begin", interrupt)
    assert "interrupted; no run had finished" in compare(tmp_path, *arguments, code=130).stderr


def test_a_study_in_a_file(tmp_path: Path) -> None:
    """`--write-config` writes what `--config`, and `gfgn reproduce`, read: the same runs."""
    own = own_graph(tmp_path)
    for data, more in (("karate", ["--trials", "2"]), (own, ["--directed", "--set", "mlp.layers=3"])):
        out, file = str(tmp_path / Path(data).name), str(tmp_path / "study.yaml")
        call = [data, *QUICK, "--models", "majority,mlp,gfgn-plus", "--set", "lr=0.03", *more]
        assert compare(Path(out), *call, "--write-config", file).stdout == f"study: {file}\n"
        assert not Path(out).exists() or data == own
        first = compare(Path(out) / "out", *call)
        again = compare(Path(out) / "out", "--config", file)
        assert "0 runs, " in again.stdout
        assert first.stdout.splitlines()[2:6] == again.stdout.splitlines()[2:6]
    error = compare(tmp_path, "--config", file, "--epochs", "3", code=2).stderr
    assert "epochs" in error
    assert "--config" in error
    assert "0 runs" not in compare(tmp_path / "more", "--config", file, "--splits", "1", "--seeds", "2").stdout
    for name, value in (("seeds", 0), ("splits", 99)):
        error = compare(tmp_path, "--config", file, f"--{name}", value, code=2).stderr
        assert name in error
        assert str(value) in error


@pytest.mark.parametrize("text", ["splitz: 2", "- a", "a: [", "title: a"])
def test_a_file_that_is_no_study(text: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    assert "my" in compare(tmp_path, "--config", str(tmp_path / "my.yaml"), code=2).stderr
    assert "no/such" in compare(tmp_path, "--config", "no/such.yaml", code=2).stderr


# --- a graph of one's own ---------------------------------------------------------------------------------------------


def own_graph(folder: Path, labels: bool = True) -> str:
    """Writes a small graph as two CSV files, half of its nodes in class "a"."""
    rows = [f"n{i},{'ab'[i % 2] if labels else ''},{i % 2 + i / 100}" for i in range(40)]
    header = "id,label,size" if labels else "id,note,size"
    (folder / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    edges = [f"n{i},n{(i + 2) % 40}" for i in range(40)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return str(folder)


def test_own_graph(tmp_path: Path) -> None:
    out = tmp_path / "report"
    result = compare(out, own_graph(tmp_path), "--epochs", "3", "--models", "mlp")
    assert re.search("edges (symmetrised|made undirected)", result.stderr)
    assert "4 runs" in result.stdout
    assert (out / "report.html").exists()


def test_check_prints_how_a_graph_was_read(tmp_path: Path) -> None:
    result = compare(tmp_path / "out", own_graph(tmp_path), "--check")
    for text in ("nodes     40", "a (20), b (20)", "edges "):
        assert text in result.stdout
    assert not (tmp_path / "out").exists()


# --- report -----------------------------------------------------------------------------------------------------------


def test_report_writes_the_same_page_from_the_store_alone(folder: Path, tmp_path: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    (folder / "report.html").unlink()
    assert report(str(folder)).stdout == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    report(str(folder / "runs.sqlite"), "--out", str(tmp_path / "elsewhere.html"))
    assert (tmp_path / "elsewhere.html").read_text(encoding="utf-8") == page


def test_report_exports_the_runs(folder: Path) -> None:
    report(str(folder), "--runs", str(folder / "again.csv"))
    assert (folder / "again.csv").read_text() == (folder / "runs.csv").read_text()
    report(str(folder), "--runs", str(folder / "again.parquet"))
    assert len(pandas.read_parquet(folder / "again.parquet")) == 4
    result = report(str(folder), "--runs", "runs.xls", code=2)
    assert result.stderr == "gfgn: --runs must end in .csv or .parquet, got runs.xls\n"


def test_report_names_what_is_missing(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.sqlite" for name in ("missing", "foreign", "empty")}
    files["foreign"].write_text("not a store")
    Store(files["empty"]).close()
    messages = ("where there is no file", "file is not a database", "has 0 runs but no comparison to report")
    for path, message in zip(files.values(), messages, strict=True):
        result = report(str(path), code=2)
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    with Store(tmp_path / "runs.sqlite") as store:
        karate = load("karate")
        keep_study(store, comparison_study(karate, ["mlp"], 2), DatasetRecord.of(karate))
    assert "left out: mlp on karate, which has 0 of 2 runs so far" in report(str(tmp_path)).stdout


def test_models_of_ones_own_are_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net_of_mine.py").write_text(
        "import torch\nfrom torch_geometric.nn import GCNConv\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, in_channels, out_channels, width, dropout=0.5):\n"
        "        super().__init__()\n"
        "        self.conv = GCNConv(in_channels, out_channels)\n\n"
        "    def forward(self, x, edge_index):\n"
        "        return self.conv(x, edge_index)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    name, out = "net_of_mine:Net", tmp_path / "out"
    error = compare(out, "karate", *QUICK, "--models", name, code=2)
    assert f"must include width, which has no default: --set {name}.width=VALUE" in error.stderr
    chosen = ["--models", f"gcn,{name}", "--set", f"{name}.width=3"]
    result = compare(out, "karate", "dimensions", *QUICK, *chosen)
    assert "8 runs" in result.stdout
    assert f"{name} with code " in result.stdout
    again = compare(out, "karate", "dimensions", *QUICK, *chosen)
    assert "0 runs, 8 more from the store" in again.stdout
    report(str(out))


def test_trusted_code_of_a_study_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `--models`: the folder of the command as it is installed is first on the path, not the current one."""
    net = "from gfgn.nn import GFGN\n\n\nclass Net(GFGN):\n    pass\n"
    (tmp_path / "net_of_a_study.py").write_text(net)
    text = """{title: Own, datasets: [karate], models: {mlp: {}, "net_of_a_study:Net": {}}, grid: {lr: [0.05]},
    splits: 1, seeds: 1, training: {max_epochs: 2, patience: 2}}"""
    (tmp_path / "study.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for command in (["compare", "--config", "study.yaml", "--out", "out"], ["report", "."]):
        monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(tmp_path))])
        monkeypatch.delitem(sys.modules, "net_of_a_study", raising=False)
        result = CliRunner().invoke(app, [*command, "--trust-code"])
        assert "no 'net_of_a_study'" not in result.output
        assert (result.exit_code == 0) == (command[0] == "compare"), result.output  # the folder has no runs to report
