"""Training on samples in blocks, with checkpoints; `tests/cli/test_torchrun.py` has several processes."""

from pathlib import Path
from typing import Any

import pytest

from gfgn.data.generators.dimensions import dimensions
from gfgn.train import Replica, TrainConfig
from gfgn.train.checkpoint import CheckpointError
from gfgn.train.distributed import Processes, train_distributed


@pytest.mark.parametrize("model", ["graphsage", "gfgn-graph"])
def test_checkpoints(model: str, tmp_path: Path) -> None:
    data, config = dimensions(60, degree=6, splits=1), TrainConfig(6, 6)
    replica = Replica(options=(("batch_size", 8),))

    def stop(status: Any) -> None:
        if status.epoch == 3:
            raise KeyboardInterrupt

    whole = train_distributed(model, data, replica, config, blocks_per_step=2)
    with pytest.raises(KeyboardInterrupt):
        train_distributed(model, data, replica, config, blocks_per_step=2, checkpoint=tmp_path, status=stop)
    seen: list[int] = []
    options: dict[str, Any] = {"blocks_per_step": 2, "checkpoint": tmp_path}
    options["status"] = lambda status: seen.append(status.epoch)
    run = train_distributed(model, data, replica, config, **options)
    assert seen == [4, 5, 6]
    assert (run.history, run.val, run.test, run.epoch) == (whole.history, whole.val, whole.test, whole.epoch)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="delete it to train from the start"):
        train_distributed(model, data, replica, config, **options)


def test_the_learning_rate_follows_the_schedule() -> None:
    data, replica = dimensions(60, degree=6, splits=1), Replica(options=(("batch_size", 8),))
    configs = [TrainConfig(6, 6), TrainConfig(6, 6, schedule="step")]  # the same in the first third of the epochs
    constant, step = (train_distributed("gfgn-graph", data, replica, config).history for config in configs)
    for name in ("train_loss", "val_loss"):
        assert constant[name][:2] == step[name][:2]
        assert all(a != b for a, b in zip(constant[name][2:], step[name][2:], strict=True))


def test_wrong_arguments() -> None:
    data = dimensions(60, degree=6, splits=1)
    for model in ("gcn", "vr-gcn", "graphsaint"):
        with pytest.raises(ValueError, match=f"independent samples of nodes, got '{model}'"):
            train_distributed(model, data, Replica())
    with pytest.raises(ValueError, match="blocks_per_step must be at least 2, one per process, got 1"):
        train_distributed("graphsage", data, Replica(), group=Processes(0, 2))
