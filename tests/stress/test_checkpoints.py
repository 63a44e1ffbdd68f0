"""Damaged checkpoints are refused in one sentence that names the file and the cure, or are harmless."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from stress.cases import FACTOR, cases, change, damaged

from gfgn.data import NodeDataset, dimensions
from gfgn.train import Replica, train_replicas
from gfgn.train.checkpoint import CheckpointError, _digest

REPLICAS = [Replica(seed=0), Replica(seed=1, lr=0.1)]


class Stop(Exception):
    """Interrupts training."""


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=1)


def train(data: NodeDataset, folder: Path, **settings: Any) -> Any:
    options: dict[str, Any] = {"checkpoint": folder, "checkpoint_every": 1, "patience": 2, "keep_state": True}
    return train_replicas("mlp", data, REPLICAS, 4, **options, **settings)


@pytest.fixture(scope="module")
def interrupted(data: NodeDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint of training that was interrupted after two epochs."""
    folder, seen = tmp_path_factory.mktemp("interrupted"), []

    def stop(status: object) -> None:
        seen.append(status)
        if len(seen) == 3:
            raise Stop

    with pytest.raises(Stop):
        train(data, folder, status=stop)
    return folder


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_checkpoint_names_file_and_cure(
    data: NodeDataset, interrupted: Path, tmp_path: Path, suffix: str
) -> None:
    refused, damaged_ones, whole = 0, cases(30), train(data, tmp_path / "whole")
    for seed in damaged_ones:
        folder = tmp_path / str(seed)
        shutil.copytree(interrupted, folder)
        [path] = folder.glob(f"*{suffix}")
        path.write_bytes(damaged(path.read_bytes(), seed))
        message = refusal(data, folder, whole)
        assert message is None or (str(folder) in message and "delete it to train from the start" in message), seed
        refused += message is not None
        shutil.rmtree(folder)
    assert refused > 0.9 * len(damaged_ones)


def test_a_forged_checkpoint_is_used_or_refused(data: NodeDataset, interrupted: Path, tmp_path: Path) -> None:
    """Values of other types or sizes, with a digest that fits; of training that was interrupted, and that ended."""
    train(data, tmp_path / "ended")
    used = 0
    for seed in cases(60):
        draw, folder = random.Random(seed), tmp_path / str(seed)
        shutil.copytree(draw.choice((interrupted, tmp_path / "ended")), folder)
        [tensors], [main] = folder.glob("*.safetensors"), folder.glob("*.json")
        content = json.loads(main.read_text())
        if seed % 3:
            change(content["saved"], draw)
        else:
            tensors.write_bytes(damaged(tensors.read_bytes(), seed))
        content["sha256"] = _digest(content["saved"], tensors.read_bytes())
        main.write_text(json.dumps(content))
        message = ""
        try:
            train(data, folder)
        except CheckpointError as error:
            message = str(error)
        assert not message or "delete it to train from the start" in message, seed
        used += not message
        shutil.rmtree(folder)
    assert 0 < used < 60 * FACTOR


def refusal(data: NodeDataset, folder: Path, whole: Any) -> str | None:
    """The message with which a checkpoint is refused; `None` if training resumed and has the whole result."""
    try:
        runs = train(data, folder)
    except CheckpointError as error:
        return str(error)
    assert [run.history for run in runs] == [run.history for run in whole]
    return None


def test_a_checkpoint_reads_no_file_outside_its_folder(data: NodeDataset, interrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(interrupted, folder)
    [tensors], [main] = folder.glob("*.safetensors"), folder.glob("*.json")
    tensors.rename(tmp_path / tensors.name)
    main.write_text(main.read_text().replace(tensors.name, f"../{tensors.name}"))
    with pytest.raises(CheckpointError, match="delete it to train from the start"):
        train(data, folder)
