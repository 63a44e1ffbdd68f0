"""`torchrun -m gfgn train`: two processes have the losses of one, also after one of them was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from estimator.tables import write_tables
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.data import pack, read

SETTINGS = ["--level", "graph", "--replicas", "1", "--epochs", "12", "--set", "batch_size=32", "--device", "cpu"]
KILL = """
import os, signal, threading, time
from pathlib import Path

def kill_when_saved(folder):
    while not any(folder.glob("*.pt")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ.get("RANK") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    threading.Thread(target=kill_when_saved, args=[Path(os.environ["CHECKPOINTS"])], daemon=True).start()
"""  # a `sitecustomize.py`, which Python runs when it starts


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torchrun") / "own"
    write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def alone(graph: Path) -> dict[str, Any]:
    """The model of one process."""
    return train_alone(graph, graph.parent / "alone")


def train_alone(graph: Path, out: Path) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["train", str(graph), "--out", str(out), *SETTINGS])
    assert result.exit_code == 0, result.output
    assert "own: steps take samples, as batch_size=32 asks for" in result.stderr
    return fitted(out)


def fitted(out: Path) -> dict[str, Any]:
    assert not (out / "checkpoints").exists()
    content: dict[str, Any] = json.loads((out / "model.json").read_text())["fitted"]
    return content


def launch(graph: Path, out: Path, *paths: Path) -> str:
    """Trains in two processes, which `torchrun` starts again once; returns what they say."""
    paths = (*paths, Path(__file__).parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "CHECKPOINTS": str(out / "checkpoints")}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "1", "-m", "gfgn", "train", str(graph), "--out", str(out), *SETTINGS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("gfgn-graph, 1 network: accuracy") == 1  # the first process alone
    return done.stderr


def assert_losses_of_one(found: dict[str, Any], expected: dict[str, Any]) -> None:
    (history,), (of_one,) = found["history_"], expected["history_"]
    assert len(of_one["train_loss"]) == 12
    assert of_one["train_loss"][-1] < of_one["train_loss"][0]
    for name in ("train_loss", "val_loss"):
        assert history[name] == pytest.approx(of_one[name], rel=1e-4)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(graph: Path, alone: dict[str, Any], tmp_path: Path) -> None:
    launch(graph, tmp_path / "model")
    assert_losses_of_one(fitted(tmp_path / "model"), alone)


@pytest.mark.slow
def test_a_killed_process(graph: Path, alone: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(KILL)
    said = launch(graph, tmp_path / "model", tmp_path)
    assert "Signal 9 (SIGKILL)" in said or "exitcode: -9" in said
    assert_losses_of_one(fitted(tmp_path / "model"), alone)


@pytest.mark.slow
def test_two_processes_on_a_graph_store(graph: Path, tmp_path: Path) -> None:
    pack(read(graph), tmp_path / "store")
    launch(tmp_path / "store", tmp_path / "model")
    assert_losses_of_one(fitted(tmp_path / "model"), train_alone(tmp_path / "store", tmp_path / "alone"))
