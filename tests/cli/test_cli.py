"""The command: its table, its files, and one line for whatever goes wrong."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gfgn
from gfgn.cli.app import app
from gfgn.data import load
from gfgn.runs import Store
from gfgn.runs.comparison import make_plan

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
    code = (
        "import sys, gfgn.cli.app; print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_training_and_data_need_nothing_that_only_the_command_needs() -> None:
    code = (
        "import sys, torch_geometric; before = set(sys.modules)\n"
        "import gfgn.data, gfgn.train, gfgn.runs; new = set(sys.modules) - before\n"
        "unwanted = 'typer rich matplotlib pandas pyarrow sklearn yaml gfgn.report gfgn.cli.app'.split()\n"
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


def test_models_lists_them_all() -> None:
    from gfgn.nn.registry import MODELS

    result = CliRunner().invoke(app, ["models"])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if not line.startswith(" ")}
    assert [name for name in rows if name != "name"] == list(MODELS)
    assert "Wu et al., Simplifying Graph" in rows["sgc"]
    assert "hops 2" in rows["sgc"]


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
    from gfgn.data import Dataset
    from gfgn.data.generators import dimensions

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
    assert "edges made undirected" in result.stderr
    assert "4 runs" in result.stdout
    assert (out / "report.html").exists()


def test_check_says_what_was_understood_and_trains_nothing(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(own_graph(tmp_path)), "--check", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for words in ("nodes     40", "a (20), b (20)", "edges made undirected"):
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


def test_report_of_a_study_is_its_tables(tmp_path: Path) -> None:
    folder = tmp_path / "table2-longer"
    shutil.copytree(Path(__file__).parents[1] / "results" / "table2-longer", folder)
    page = (folder / "README.md").read_bytes()
    (folder / "README.md").unlink()
    runner = CliRunner()
    result = runner.invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    assert (folder / "README.md").read_bytes() == page
    for arguments, message in (
        ([str(folder), "--out", "page.html"], "--out and --runs are for a comparison"),
        ([str(shutil.copytree(folder, tmp_path / "own"))], "gfgn reproduce STUDY.yaml --tables --out"),
    ):
        result = runner.invoke(app, ["report", *arguments])
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


# --- reproduce -------------------------------------------------------------------------------------------------------

SMALL_STUDY = """
title: Small
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models: {gcn: {}, mlp: {}}
splits: 2
seeds: 1
training: {max_epochs: 2, patience: 2}
"""


def test_reproduce_runs_a_study_and_checks_it(tmp_path: Path) -> None:
    study, out = tmp_path / "small.yaml", tmp_path / "out"
    study.write_text(SMALL_STUDY)
    runner, arguments = CliRunner(), ["reproduce", str(study), "--out", str(out)]
    result = runner.invoke(app, [*arguments, "--device", "cpu", "--models", "gcn", "--limit-minutes", "30"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 new runs; ")
    assert result.stderr.startswith("karate gcn: 2 runs, 2 of them new, ")
    result = runner.invoke(app, [*arguments, "--device", "cpu"])
    assert result.stdout.startswith("2 new runs; ")
    checked = runner.invoke(app, [*arguments, "--check", "--datasets", "karate"])
    assert checked.exit_code == 0, checked.output
    assert checked.stdout == "all as committed\n"
    page = (out / "README.md").read_text()
    (out / "README.md").write_text(page.replace("| 2 |", "| 3 |"))
    checked = runner.invoke(app, [*arguments, "--check"])
    assert checked.exit_code == 1
    assert f"differs: {out / 'README.md'}: has " in checked.stdout
    assert runner.invoke(app, [*arguments, "--tables"]).exit_code == 0
    assert (out / "README.md").read_text() == page


def test_reproduce_says_what_there_is() -> None:
    result = CliRunner().invoke(app, ["reproduce"])
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert {"table1", "table2", "arxiv", "noise", "lambda", "scores"} <= set(names)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "did you mean 'table1'?"),
        (["table1", "--models", "gfgn"], "--models must be among gfgn-graph"),
        (["table1", "--datasets", "ppi"], "--datasets must be among blogcatalog"),
        (["table1", "--limit-minutes", "0"], "limit_minutes must be above 0, got 0.0"),
        (["table1", "--device", "abacus"], "--device must be auto or one that this machine has (cpu"),
        (["table1", "--tables"], "out must be the folder of a study with runs.csv"),
        (["table1", "--check"], "out must be the folder of a study with runs.csv"),
    ],
)
def test_reproduce_fails_in_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interrupted_study_says_that_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfgn.paper import reproduce

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "reproduce", interrupt)
    result = CliRunner().invoke(app, ["reproduce", "table1", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "gfgn: interrupted; finished runs are kept, run it again to go on" in result.stderr


# --- facts about data of many labels and graphs ----------------------------------------------------------------------


def test_describe_many_labels_in_many_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    import torch

    import gfgn.data
    from gfgn.data import Dataset, Split
    from gfgn.data.generators import dimensions
    from gfgn.graph import Graph

    def of_many(name: str) -> Dataset:
        data = dimensions(120, degree=8, splits=1)
        batch = (torch.arange(120) >= 60).long()
        inside = batch[data.graph.edge_index[0]] == batch[data.graph.edge_index[1]]
        graph = Graph.from_edge_index(data.graph.edge_index[:, inside], 120, batch=batch)
        labels = torch.nn.functional.one_hot(data.y, 6).bool()
        masks = Split(torch.arange(120) < 30, (torch.arange(120) >= 30) & (batch == 0), batch == 1)
        return dataclasses.replace(data, name=name, graph=graph, y=labels, metric="micro_f1", splits=[masks])

    monkeypatch.setattr(gfgn.data, "load", of_many)
    result = CliRunner().invoke(app, ["datasets", "describe", "ppi"])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.startswith("  ")}
    assert lines["nodes"].split(maxsplit=1)[1] == "120 in 2 graphs"
    assert re.fullmatch(r"6 labels, on \d+ to \d+ nodes", lines["classes"].split(maxsplit=1)[1])
    assert re.fullmatch(r"edge 0\.\d+, node 0\.\d+", lines["homophily"].split(maxsplit=1)[1])
    assert "nan" not in result.stdout
