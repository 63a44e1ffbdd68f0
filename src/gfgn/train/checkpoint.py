"""`Checkpoint`: saves training as safetensors and JSON, and resumes it after an interruption.

A batch of replicas is a set of tensors and an epoch; after loading, it continues exactly where it was saved.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

import gfgn
from gfgn.data.dataset import Dataset
from gfgn.train.batch import Batch
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica, Run


class Checkpoint:
    """The checkpoints of one call of `train_replicas`.

    Two files per batch: `NAME.safetensors` with the tensors of the replicas in training, and `NAME.json` with their
    indices and the finished runs. The name is a hash of everything that determines the training, so that many calls can
    share a folder.
    """

    def __init__(
        self, folder: Path, model: str, data: Dataset, replicas: Sequence[Replica], config: TrainConfig, every: int
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be 1 or larger, got {every}")
        self.folder, self.replicas, self.every = folder, replicas, every
        self._identity = [
            gfgn.__version__,
            model,
            data.fingerprint,
            [data.split_fingerprint(split) for split in sorted({replica.split for replica in replicas})],
            dataclasses.asdict(config),
        ]
        self._saved: dict[str, int] = {}  # the epoch of each batch's last checkpoint
        self._batches: dict[Batch, tuple[Path, list[int]]] = {}  # the file of each, and the replicas it started with

    def resume(self, batch: Batch, indices: list[int]) -> dict[int, Run]:
        """Restores a new batch from its checkpoint, if any; finished replicas are removed, their runs returned."""
        from safetensors.torch import load_file

        replicas = [dataclasses.asdict(self.replicas[index]) for index in indices]
        key = hashlib.blake2b(json.dumps([*self._identity, replicas]).encode(), digest_size=10).hexdigest()
        path, started = self.folder / f"batch-{key}", list(indices)
        self._batches[batch] = (path, started)
        if not path.with_suffix(".json").is_file():
            return {}
        saved = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        tensors = load_file(path.with_name(saved["tensors"]))
        batch.keep([started.index(index) for index in saved["alive"]])
        for name, value in batch.tensors.items():
            if saved["alive"]:
                value.copy_(tensors[name])
        batch.epoch = self._saved[path.name] = saved["epoch"]
        indices[:] = saved["alive"]
        return {int(index): self._run(int(index), fields, tensors) for index, fields in saved["ended"].items()}

    def _run(self, index: int, fields: dict[str, Any], tensors: dict[str, Tensor]) -> Run:
        prefix = f"state {index} "
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        return Run(replica=self.replicas[index], state=state or None, **fields)

    def save(self, batch: Batch, indices: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Saves a batch every `every` epochs and when all its replicas have finished."""
        from safetensors.torch import save_file

        path, started = self._batches[batch]
        if indices and batch.epoch - self._saved.get(path.name, 0) < self.every:
            return
        self._saved[path.name] = batch.epoch
        self.folder.mkdir(parents=True, exist_ok=True)
        ended = {index: runs[index] for index in started if index in runs}
        tensors = path.with_name(f"{path.name}-{batch.epoch}.safetensors")
        save_file(_tensors(batch, ended), _temporary(tensors))
        _temporary(tensors).replace(tensors)
        content = {
            "epoch": batch.epoch,
            "alive": list(indices),
            "ended": {index: _fields(run) for index, run in ended.items()},
            "tensors": tensors.name,
        }
        main = path.with_suffix(".json")
        _temporary(main).write_text(json.dumps(content), encoding="utf-8")
        _temporary(main).replace(main)  # from here on the new checkpoint is the valid one
        for old in self.folder.glob(f"{path.name}-*.safetensors"):
            if old != tensors:
                old.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _fields(run: Run) -> dict[str, object]:
    return {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name not in ("replica", "state")}


def _tensors(batch: Batch, ended: Mapping[int, Run]) -> dict[str, Tensor]:
    """The tensors of the replicas in training, and the kept states of the finished ones."""
    states = {
        f"state {index} {name}": value for index, run in ended.items() for name, value in (run.state or {}).items()
    }
    return {name: value.contiguous() for name, value in (batch.tensors | states).items()}
