"""No file makes gfgn import or call code: not a store, a saved model, a study, options, or what lies in the folder."""

import importlib
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from runs.small_studies import STUDY
from stress.cases import assert_refused, gfgn

HOSTILE = "from pathlib import Path\nPath(__file__).with_name('trace').touch()\nfrom nets import Net\n"
NAME = "hostile_net:Net"
pytestmark = pytest.mark.stress


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


def test_a_store(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare", "karate", "--models", "majority", "--splits", "1", "--quiet", "--out", "out"]
    assert gfgn(capsys, *command).code == 0
    with sqlite3.connect("out/runs.sqlite") as database:
        for table, column in (("runs", "model"), ("notes", "content")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, 'majority', ?)", (NAME,))
    database.close()
    gfgn(capsys, "report", "out/runs.sqlite")
    gfgn(capsys, *command)
    assert not hostile.exists()


def test_a_study(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Path("odd.yaml")
    study.write_text(STUDY.replace("gcn: {dropout: [0.5]}", f"gcn: {{}}\n  {NAME}: {{}}"))
    for options in ((), ("--check",), ("--tables",)):
        assert_refused(gfgn(capsys, "reproduce", study, *options), "odd", NAME, "--trust-code")
    assert not hostile.exists()


def test_modules_in_the_folder_of_a_graph(hostile: Path) -> None:
    """PyG and other libraries try to import what may not be installed. The command
    as it is installed has its own folder, not the current one, first on the path."""
    for name in ("pyg_lib", "torch_sparse", "torch_scatter", "cupy", "ray", "mlflow", "wandb"):
        shutil.copy("hostile_net.py", f"{name}.py")
    code = "import sys; sys.path.remove(''); from gfgn.cli import main; main()"
    arguments = ["compare", "karate", "--models", "mlp,gcn", "--splits", "1", "--epochs", "2", "--quiet"]
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not hostile.exists()
