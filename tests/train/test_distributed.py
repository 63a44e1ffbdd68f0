"""Training in several processes: the losses of one process, also after a worker was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from train.distributed_run import BLOCKS, CONFIG, REPLICA, make_data

from gfgn.data.generators.dimensions import dimensions
from gfgn.train import Replica, Run, TrainConfig
from gfgn.train.checkpoint import CheckpointError
from gfgn.train.distributed import Processes, train_distributed

SCRIPT = Path(__file__).with_name("distributed_run.py")


def launch(folder: Path, *arguments: str) -> dict[str, Any]:
    """The result of two processes that `torchrun` starts, and starts again once."""
    paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # a new store for every start
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    command = [*torchrun, "--nproc-per-node", "2", str(SCRIPT), str(folder), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert result["count"] == 2
    return result


@pytest.fixture(scope="module")
def alone() -> Run:
    return train_distributed("graphsage", make_data(), REPLICA, CONFIG, blocks_per_step=BLOCKS)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(alone: Run, tmp_path: Path) -> None:
    two = launch(tmp_path)
    assert two["epochs"] == list(range(1, 9))
    assert alone.history["train_loss"][-1] < alone.history["train_loss"][0]
    for name in ("train_loss", "val_loss"):
        assert two["history"][name] == pytest.approx(alone.history[name], rel=1e-4)


@pytest.mark.slow
def test_a_killed_worker(alone: Run, tmp_path: Path) -> None:
    killed = launch(tmp_path, "kill")
    assert killed["epochs"][0] in (4, 5)  # it continued; the first process may have saved the next epoch or not
    assert killed["epochs"][-1] == 8
    for name in ("train_loss", "val_loss"):
        assert killed["history"][name] == pytest.approx(alone.history[name], rel=1e-4)
    assert killed["test"] == pytest.approx(alone.test, abs=0.05)


def test_checkpoints(tmp_path: Path) -> None:
    data, config = dimensions(60, degree=6, splits=1), TrainConfig(6, 6)
    replica = Replica(options=(("batch_size", 8),))

    def stop(status: Any) -> None:
        if status.epoch == 3:
            raise KeyboardInterrupt

    whole = train_distributed("graphsage", data, replica, config, blocks_per_step=2)
    with pytest.raises(KeyboardInterrupt):
        train_distributed("graphsage", data, replica, config, blocks_per_step=2, checkpoint=tmp_path, status=stop)
    seen: list[int] = []
    options: dict[str, Any] = {"blocks_per_step": 2, "checkpoint": tmp_path}
    options["status"] = lambda status: seen.append(status.epoch)
    run = train_distributed("graphsage", data, replica, config, **options)
    assert seen == [4, 5, 6]
    assert (run.history, run.val, run.test, run.epoch) == (whole.history, whole.val, whole.test, whole.epoch)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="delete it to train from the start"):
        train_distributed("graphsage", data, replica, config, **options)


def test_wrong_arguments() -> None:
    data = dimensions(60, degree=6, splits=1)
    for model in ("gcn", "vr-gcn", "graphsaint"):
        with pytest.raises(ValueError, match=f"independent samples of nodes, got '{model}'"):
            train_distributed(model, data, Replica())
    with pytest.raises(ValueError, match="blocks_per_step must be at least 2, one per process, got 1"):
        train_distributed("graphsage", data, Replica(), own=Processes(0, 2))
