"""No file makes gfgn import or call code: not a store, a saved model, a study, options, or what lies in the folder."""

import importlib
import json
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs.small_studies import STUDY
from runs.stores import RECORD, made_study, row
from stress.cases import Result, assert_refused, gfgn

from gfgn import GFGNClassifier
from gfgn.data import dimensions
from gfgn.runs import Store, read_comparisons, read_runs, write_runs
from gfgn.runs.comparison import _keep_study
from gfgn.runs.record import identify_row
from gfgn.train import TrainConfig

HOSTILE = "from pathlib import Path\nPath(__file__).with_name('trace').touch()\nfrom nets import Net\n"
NAME = "hostile_net:Net"


@pytest.fixture(autouse=True)
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that can be imported, and what it leaves behind when it is."""
    (tmp_path / "hostile_net.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "hostile_net", raising=False)
    importlib.invalidate_caches()
    return tmp_path / "trace"


def test_the_module_can_be_imported(hostile: Path) -> None:
    importlib.import_module("hostile_net")
    assert hostile.exists()


@pytest.mark.parametrize("trials", [None, 4])
def test_a_store(tmp_path: Path, hostile: Path, capsys: pytest.CaptureFixture[str], trials: int | None) -> None:
    rows = [replace(row(split=k, model="gcn"), model=NAME) for k in range(2)]
    rows = [replace(each, key=identify_row(each)) for each in rows]
    configurations = tuple(each | {"lr": lr} for each in ({},) for lr in ((0.1,) if trials is None else (0.1, 0.2)))
    study = made_study([NAME], 2, TrainConfig(64, 5), configurations)
    with Store("runs.sqlite") as store:
        store.add(rows)
        _keep_study(store, study, RECORD)
    assert gfgn(capsys, "report", "runs.sqlite").code == 0
    with Store("runs.sqlite") as store:
        assert len(store.rows()) == 2
        (comparison,) = read_comparisons(store)
        assert list(comparison.study.models) == [NAME]
        assert store.to_csv("runs.csv").read_text().count(NAME) == 2
    assert len(read_runs(write_runs(Path("runs.csv.gz"), rows))) == 2
    assert not hostile.exists()


def test_a_comparison_into_a_store(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "karate", "--models", "majority", "--splits", "1", "--quiet", "--out", "out"]
    assert gfgn(capsys, *command).code == 0
    with sqlite3.connect("out/runs.sqlite") as database:
        ((number, content),) = database.execute("SELECT number, content FROM notes WHERE kind = 'comparison'")
        database.execute("UPDATE notes SET content = ? WHERE number = ?", (content.replace("majority", NAME), number))
    database.close()
    gfgn(capsys, *command)
    assert not hostile.exists()


@pytest.mark.parametrize("name", [NAME, "subprocess:check_call", "os:system"])
def test_a_saved_model(hostile: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    data = dimensions(40, degree=4, splits=1)
    GFGNClassifier(level="graph", max_epochs=2).fit(
        data.x.numpy(), data.y.numpy(), edge_index=data.graph.edge_index
    ).save("model")
    settings = Path("model/model.json")
    content = json.loads(settings.read_text())
    content["network"] |= {"model": name, "settings": {"popenargs": ["touch", "trace"], "command": "touch trace"}}
    settings.write_text(json.dumps(content))
    assert_refused(gfgn(capsys, "predict", "model", "karate", "--out", "out.csv"), "model.json", name)
    assert not hostile.exists()


def test_a_study(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Path("odd.yaml")
    study.write_text(STUDY.replace("gcn: {dropout: [0.5]}", f"gcn: {{}}\n  {NAME}: {{}}"))
    for options in ((), ("--check",), ("--tables",), ("--models", "gcn")):
        assert_refused(gfgn(capsys, "reproduce", study, *options), "odd", NAME, "--trust-code")
    study.write_text(STUDY.replace("gcn: 1.5", f'"{NAME}": 1.5'))
    assert_refused(gfgn(capsys, "reproduce", study), "odd", NAME)
    assert not hostile.exists()


def test_options_in_a_file(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path("odd.yaml")
    config.write_text(f"data: [karate]\nmodels: [gcn, '{NAME}']\nepochs: 2\nsplits: 1\n")
    compare = ("compare", "--config", config, "--quiet", "--out", "out")
    assert_refused(gfgn(capsys, *compare), "odd.yaml", NAME, "--trust-code")
    config.write_text("trust-code: true\n")
    assert_refused(gfgn(capsys, *compare), "odd.yaml", "trust-code")
    assert not hostile.exists()


def run_here(*arguments: str) -> Result:
    """The command as it is installed: its own folder, not the current one, is the first on the path."""
    code = "import sys; sys.path.remove(''); from gfgn.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    return Result(result.returncode, result.stdout, result.stderr)


def test_modules_in_the_folder_of_a_graph(hostile: Path) -> None:
    """PyG and other libraries try to import what may not be installed; installed packages may name models."""
    for name in ("pyg_lib", "torch_sparse", "torch_scatter", "cupy", "ray", "mlflow", "wandb"):
        shutil.copy("hostile_net.py", f"{name}.py")
    info = Path("hostile_net-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-net\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gfgn.models]\nhostile = {NAME}\n")
    assert run_here("models").code == 0
    result = run_here("compare", "karate", "--models", "mlp,gcn", "--splits", "1", "--epochs", "2", "--quiet")
    assert result.code == 0, result.err
    assert not hostile.exists()
