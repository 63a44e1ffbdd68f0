"""`Checkpoint`: saves training as safetensors and JSON, and resumes it after an interruption.

A batch of replicas is a set of tensors and an epoch; after loading, it continues exactly where it was saved.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

import gfgn
from gfgn.data.dataset import NodeDataset
from gfgn.data.files import atomic_write, replace_text
from gfgn.data.messages import reason
from gfgn.train.batch import Batch
from gfgn.train.code import code_version
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica, Run


class CheckpointError(ValueError):
    """Raised for a checkpoint that cannot be read."""


class Checkpoint:
    """The checkpoints of one call of `train_replicas`.

    Two files per batch: `NAME.safetensors` with the tensors of the replicas in training, and `NAME.json` with their
    positions and the finished runs. The name is a hash of all that determines the training and what is kept of it, so
    that many calls can share a folder.
    """

    def __init__(
        self,
        folder: Path,
        model: str,
        data: NodeDataset,
        replicas: Sequence[Replica],
        config: TrainConfig,
        every: int,
        kept: Mapping[str, bool],
    ) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be 1 or larger, got {every}")
        self.folder, self.replicas, self.every = folder, replicas, every
        self._identity = [
            [gfgn.__version__, code_version()],
            model,
            data.fingerprint,
            [data.split_fingerprint(split) for split in sorted({replica.split for replica in replicas})],
            dataclasses.asdict(config),
            dict(kept),
        ]
        self._saved: dict[str, int] = {}  # the epoch of each batch's last checkpoint
        self._batches: dict[Batch, tuple[Path, list[int]]] = {}  # the file of each, and the replicas it started with

    def resume(self, batch: Batch, indices: list[int]) -> dict[int, Run]:
        """Restores a new batch from its checkpoint, if any; finished replicas are removed, their runs returned."""
        replicas = [dataclasses.asdict(self.replicas[index]) for index in indices]
        key = hashlib.blake2b(json.dumps([*self._identity, replicas]).encode(), digest_size=10).hexdigest()
        path, started = self.folder / f"batch-{key}", list(indices)
        self._batches[batch] = (path, started)
        if not path.with_suffix(".json").is_file():
            return {}
        with _explained(path.with_suffix(".json")):
            return self._restore(batch, indices, path, started)

    def _restore(self, batch: Batch, indices: list[int], path: Path, started: list[int]) -> dict[int, Run]:
        from safetensors.torch import load

        content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        saved = content["saved"]
        data = path.with_name(Path(saved["tensors"]).name).read_bytes()
        if content["sha256"] != _digest(saved, data):
            raise ValueError("its content has changed")
        tensors, ended = load(data), {}
        for position, fields in saved["ended"].items():
            prefix, index = f"state {position} ", started[int(position)]
            state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
            ended[index] = Run(replica=self.replicas[index], state=state or None, **fields)
        batch.keep(saved["alive"])
        for name, value in batch.tensors.items() if saved["alive"] else ():
            value.copy_(tensors[name])
        batch.epoch = self._saved[path.name] = saved["epoch"]
        indices[:] = [started[position] for position in saved["alive"]]
        return ended

    def save(self, batch: Batch, indices: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Saves a batch every `every` epochs and when all its replicas have finished."""
        from safetensors.torch import save

        path, started = self._batches[batch]
        if indices and batch.epoch - self._saved.get(path.name, 0) < self.every:
            return
        self._saved[path.name] = batch.epoch
        # By position in the batch: another call may have the same batch among other replicas.
        ended = {position: runs[index] for position, index in enumerate(started) if index in runs}
        tensors = path.with_name(f"{path.name}-{batch.epoch}.safetensors")
        data = save(_tensors(batch, ended))
        with atomic_write(tensors) as unfinished:
            unfinished.write_bytes(data)
        saved = {
            "epoch": batch.epoch,
            "alive": [started.index(index) for index in indices],
            "ended": {position: _fields(run) for position, run in ended.items()},
            "tensors": tensors.name,
        }
        saved = json.loads(json.dumps(saved))  # keys as text, as they will be read
        content = {"saved": saved, "sha256": _digest(saved, data)}
        replace_text(path.with_suffix(".json"), json.dumps(content))  # from here on the new checkpoint is valid
        for old in self.folder.glob(f"{path.name}-*.safetensors"):
            if old != tensors:
                old.unlink()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns the exceptions of a damaged checkpoint into a `CheckpointError` that names the file and the cure."""
    from safetensors import SafetensorError

    more = (RecursionError, SafetensorError)
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, OSError, ArithmeticError, *more) as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be read ({reason(error)}); delete it to train from the start"
        ) from error


def _digest(saved: dict[str, Any], tensors: bytes) -> str:
    return hashlib.sha256(json.dumps(saved).encode() + tensors).hexdigest()


def _fields(run: Run) -> dict[str, object]:
    return {f.name: getattr(run, f.name) for f in dataclasses.fields(run) if f.name not in ("replica", "state")}


def _tensors(batch: Batch, ended: Mapping[int, Run]) -> dict[str, Tensor]:
    """The tensors of the replicas in training, and the kept states of the finished ones."""
    states = {
        f"state {position} {name}": value
        for position, run in ended.items()
        for name, value in (run.state or {}).items()
    }
    return {name: value.contiguous() for name, value in (batch.tensors | states).items()}
