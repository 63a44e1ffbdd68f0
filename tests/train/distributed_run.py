"""A run of several processes, started by `torchrun`; the second one kills itself on request."""

import json
import os
import signal
import sys
from pathlib import Path

from gfgn.data import Dataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.train import Replica, Status, TrainConfig
from gfgn.train.distributed import processes, train_distributed

REPLICA = Replica(lr=0.01, dropout=0.5, options=(("batch_size", 16),))
CONFIG = TrainConfig(8, 8)
BLOCKS = 2  # per step
KILLED_AFTER = 4  # epochs


def make_data() -> Dataset:
    return dimensions(150, degree=6, splits=1)


def main(folder: Path, kill: bool) -> None:
    epochs: list[int] = []

    def status(status: Status) -> None:
        epochs.append(status.epoch)
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if kill and first and status.epoch == KILLED_AFTER and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

    with processes("cpu") as own:
        options = {"blocks_per_step": BLOCKS, "checkpoint": folder, "status": status}
        run = train_distributed("graphsage", make_data(), REPLICA, CONFIG, own, **options)
        if own.rank == 0:
            result = {"history": run.history, "val": run.val, "test": run.test, "epochs": epochs, "count": own.count}
            (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["kill"])
