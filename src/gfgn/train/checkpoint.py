"""Training saved now and then, as safetensors and JSON, to go on from after an interruption.

A batch of replicas is a set of tensors and an epoch; saved and read back, it goes on exactly where it was.
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
    """The saves of one call of `train_replicas`.

    Two files a batch: `NAME.safetensors` with the tensors of the replicas in training, and `NAME.json` with what they
    are and with the runs that have ended. Both are named after what they are of, so that a folder can serve many calls,
    and a save is never taken for another's.

    Args:
        folder: Where the files are.
        model, data, replicas, config: What is trained.
        every: Epochs between two saves.
    """

    def __init__(
        self, folder: Path, model: str, data: Dataset, replicas: Sequence[Replica], config: TrainConfig, every: int
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be 1 or larger, got {every}")
        self.folder, self.every = folder, every
        self.replicas = replicas
        self._what = [
            gfgn.__version__,
            model,
            data.fingerprint,
            [data.split_fingerprint(split) for split in sorted({replica.split for replica in replicas})],
            dataclasses.asdict(config),
        ]
        self._saved: dict[str, int] = {}
        """The epoch of each batch's last save."""
        self._batches: dict[Batch, tuple[Path, list[int]]] = {}
        """The file of each batch, and the replicas it began with."""

    def _path(self, places: Sequence[int]) -> Path:
        """The file of the batch that began with these replicas, without its suffix."""
        replicas = [dataclasses.asdict(self.replicas[place]) for place in places]
        key = hashlib.blake2b(json.dumps([*self._what, replicas]).encode(), digest_size=10).hexdigest()
        return self.folder / f"batch-{key}"

    def resume(self, batch: Batch, places: list[int]) -> dict[int, Run]:
        """Puts a batch that has not begun where its save is, if there is one. `places` become those still in
        training; returns the runs that had ended."""
        from safetensors.torch import load_file

        path = self._path(places)
        began = list(places)
        self._batches[batch] = (path, began)
        if not path.with_suffix(".json").is_file():
            return {}
        saved = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        tensors = load_file(path.with_name(saved["tensors"]))
        batch.keep([began.index(place) for place in saved["alive"]])
        for name, value in batch.tensors.items():
            if saved["alive"]:
                value.copy_(tensors[name])
        batch.epoch = self._saved[path.name] = saved["epoch"]
        places[:] = saved["alive"]
        return {int(place): self._run(int(place), fields, tensors) for place, fields in saved["ended"].items()}

    def _run(self, place: int, fields: dict[str, Any], tensors: dict[str, Tensor]) -> Run:
        prefix = f"state {place} "
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        return Run(replica=self.replicas[place], state=state or None, **fields)

    def save(self, batch: Batch, places: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Saves a batch if it is time: every so many epochs, and when it has come to an end."""
        from safetensors.torch import save_file

        path, began = self._batches[batch]
        if places and batch.epoch - self._saved.get(path.name, 0) < self.every:
            return
        self._saved[path.name] = batch.epoch
        self.folder.mkdir(parents=True, exist_ok=True)
        ended = {place: _fields(runs[place]) for place in began if place in runs}
        tensors = path.with_name(f"{path.name}-{batch.epoch}.safetensors")
        save_file(_tensors(batch, {place: runs[place] for place in ended}), _part(tensors))
        _part(tensors).replace(tensors)
        about = {"epoch": batch.epoch, "alive": list(places), "ended": ended, "tensors": tensors.name}
        index = path.with_suffix(".json")
        _part(index).write_text(json.dumps(about), encoding="utf-8")
        _part(index).replace(index)  # from here on the new save counts, and the older ones do not
        for old in self.folder.glob(f"{path.name}-*.safetensors"):
            if old != tensors:
                old.unlink()


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _fields(run: Run) -> dict[str, object]:
    fields = {f.name: getattr(run, f.name) for f in dataclasses.fields(run)}
    del fields["replica"], fields["state"]
    return fields


def _tensors(batch: Batch, ended: Mapping[int, Run]) -> dict[str, Tensor]:
    """The tensors of the replicas in training, and the states, if kept, of those that have ended."""
    states = {
        f"state {place} {name}": value for place, run in ended.items() for name, value in (run.state or {}).items()
    }
    return {name: value.contiguous() for name, value in (batch.tensors | states).items()}
