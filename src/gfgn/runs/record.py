"""What is written down of a run: everything that identifies it, everything that tells how it was made, its scores."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch_geometric

import gfgn
from gfgn.data.dataset import Dataset
from gfgn.nn.registry import MODELS
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica, Run

DEFAULT_CONFIG = TrainConfig()


@dataclass(frozen=True)
class DatasetRecord:
    """What the store keeps of a dataset: enough to name its runs and to write a report without it.

    Attributes:
        name: Short name.
        fingerprint: Of the edges, features and labels.
        split_fingerprints: One a split.
        standin: Whether it only stands in for a published dataset, whose scores its own must never be taken for.
        metric: What scores are.
        description: One sentence on what this graph is.
        num_nodes: Number of nodes.
        num_edges: Number of directed edges.
        num_features: Number of feature dimensions.
        num_classes: Number of classes, or of labels.
    """

    name: str
    fingerprint: str
    split_fingerprints: tuple[str, ...] = field(repr=False)
    standin: bool
    metric: str
    description: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetRecord:
        """The record of a dataset."""
        return cls(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            split_fingerprints=tuple(dataset.split_fingerprint(k) for k in range(len(dataset.splits))),
            standin=is_standin(dataset.name),
            metric=dataset.metric,
            description=dataset.description,
            num_nodes=dataset.num_nodes,
            num_edges=dataset.graph.num_edges,
            num_features=dataset.num_features,
            num_classes=dataset.num_classes,
        )


@dataclass(frozen=True)
class Row:
    """One run as the store has it.

    Attributes:
        key: Hash of what identifies the run, see `identify`.
        dataset: Name of the dataset.
        dataset_fingerprint: Of its edges, features and labels.
        standin: Whether the dataset only stands in for a published one.
        metric: What scores are.
        model: Name of the model.
        replica: Split, seed and hyper-parameters.
        split_fingerprint: Of the masks of the split.
        config: How it was trained.
        search: Hash of the search that ended the run before its time, empty for a run that ended by itself.
        val: Best validation score.
        test: Test score at that epoch; NaN for a run that a search ended.
        epoch: That epoch, counted from 0.
        epochs: Number of epochs trained.
        seconds: Wall-clock time of the run; in a batch of runs its share of the batch.
        num_parameters: Number of learned values.
        gates: Summary of the learned first-layer gates, `None` for a model without.
        versions: Of gfgn, torch, torch_geometric and Python.
        device: Name of the device.
        date: When the run was written down, in UTC.
    """

    key: str
    dataset: str
    dataset_fingerprint: str
    standin: bool
    metric: str
    model: str
    replica: Replica
    split_fingerprint: str
    config: TrainConfig
    search: str
    val: float
    test: float
    epoch: int
    epochs: int
    seconds: float
    num_parameters: int
    gates: dict[str, float] | None = field(default=None, repr=False)
    versions: dict[str, str] = field(default_factory=dict, repr=False)
    device: str = field(default="", repr=False)
    date: str = field(default="", repr=False)

    @classmethod
    def of(
        cls,
        run: Run,
        dataset: DatasetRecord,
        config: TrainConfig,
        device: torch.device | str = "cpu",
        search: str = "",
    ) -> Row:
        """The row of a finished run.

        Args:
            run: The run.
            dataset: What it was trained on.
            config: How it was trained.
            device: Where.
            search: Hash of the search it belongs to; kept only if the search ended the run.
        """
        replica = canonical(run.model, run.replica)
        search = search if run.dropped else ""
        return cls(
            key=identify(dataset, run.model, replica, config, search),
            dataset=dataset.name,
            dataset_fingerprint=dataset.fingerprint,
            standin=dataset.standin,
            metric=dataset.metric,
            model=run.model,
            replica=replica,
            split_fingerprint=_split_fingerprint(dataset, replica.split),
            config=config,
            search=search,
            val=run.val,
            test=math.nan if run.dropped else run.test,
            epoch=run.epoch,
            epochs=run.epochs,
            seconds=run.seconds,
            num_parameters=run.num_parameters,
            gates=run.gates,
            versions=versions(),
            device=device_name(device),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def dropped(self) -> bool:
        """Whether a search ended the run before its time."""
        return self.search != ""


def identify(
    dataset: DatasetRecord, model: str, replica: Replica, config: TrainConfig = DEFAULT_CONFIG, search: str = ""
) -> str:
    """Hash of what identifies a run: two runs with the same one are the same run, whenever and wherever it was made.

    The data and the split count by their contents and their names. For a model without gates λ does not count.

    Args:
        dataset: What it is trained on.
        model: Name of the model.
        replica: Split, seed and hyper-parameters.
        config: How it is trained.
        search: Hash of the search that ended the run before its time; empty for a run that ended by itself.
    """
    replica = canonical(model, replica)
    parts = {
        "dataset": [dataset.name, dataset.fingerprint, dataset.metric],
        "split": [replica.split, _split_fingerprint(dataset, replica.split)],
        "model": model,
        "seed": replica.seed,
        "floats": [float(replica.lr), float(replica.weight_decay), float(replica.dropout), float(replica.lam)],
        "options": dict(replica.options),
        "protocol": [config.max_epochs, config.patience, beyond(config)],
        "search": search,
    }
    return digest(parts)


def digest(content: Any) -> str:
    """32 hexadecimal digits of the SHA-256 of some content, written as JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_gfgn(model: str) -> bool:
    """Whether the model of that name is a GFGN."""
    return model.startswith("gfgn-")


def canonical(model: str, replica: Replica) -> Replica:
    """The replica as runs are told apart by: a model without gates ignores λ, which is then 1."""
    entry = MODELS.get(model)
    return replica if entry is None or entry.gated else replace(replica, lam=1.0)


def beyond(config: TrainConfig) -> dict[str, Any]:
    """What a config sets beyond the length of training. What is as usual is left out, so that a further setting does
    not change what earlier runs are identified by."""
    names = [setting.name for setting in fields(config)[2:]]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(DEFAULT_CONFIG, name)}


@cache
def is_standin(name: str) -> bool:
    """Whether the dataset of that name, in the registry or in results, only stands in for a published one."""
    from gfgn.data.datasets.registry import DATASETS

    entry = DATASETS.get(name.partition(" (stand-in)")[0])
    return entry is not None and entry.standin


@cache
def versions() -> dict[str, str]:
    """Versions of what runs are made with."""
    return {
        "gfgn": gfgn.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def device_name(device: torch.device | str) -> str:
    """The device in words: the model of the GPU or of the processor."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return _processor() if device.type == "cpu" else f"{device.type}, {platform.machine()}"


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _split_fingerprint(dataset: DatasetRecord, split: int) -> str:
    if split >= len(dataset.split_fingerprints):
        raise ValueError(
            f"split must be below {len(dataset.split_fingerprints)}, the number of splits of {dataset.name!r}, "
            f"got {split}"
        )
    return dataset.split_fingerprints[split]
