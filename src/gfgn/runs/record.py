"""Records of runs: what identifies a run, how it was made, and its scores."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch_geometric

import gfgn
from gfgn.data.dataset import NodeDataset
from gfgn.data.named.catalog import DATASETS
from gfgn.data.splits import Split
from gfgn.metrics import guess_score
from gfgn.nn.custom import is_import_name
from gfgn.nn.registry import find_model, known_model
from gfgn.train.catalog import CLASSICAL
from gfgn.train.code import code_version
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica, Run

DEFAULT_CONFIG = TrainConfig()
HYPER = ("lr", "weight_decay", "dropout", "lam")  # what every run has; all else are options of a model
# Hyperparameters that a run may lack. A record keeps them among its options, so that earlier runs stay what they are.
GIVEN = ("input_dropout", "gate_decay")
# Entries of a flat record that hold several values, and the prefix of their columns in a table.
NESTED = {"options": "option", "protocol": "protocol", "gates": "gate"}
VERSIONS = ("gfgn", "code", "torch", "torch_geometric", "python")


@dataclass(frozen=True)
class DatasetRecord:
    """The facts about a dataset that a store keeps: enough to identify its runs and to write a report without it."""

    name: str
    fingerprint: str  # hash of the edges, features and labels
    split_fingerprints: tuple[str, ...] = field(repr=False)
    standin: bool
    metric: str
    description: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    test_share: float | None = None  # see `measure_test_share`; `None` in a store of an earlier release
    # By split, see `guess_scores`; empty in a store of an earlier release, whose plan is the same nevertheless.
    guesses: tuple[float, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, dataset: NodeDataset) -> DatasetRecord:
        """The record of a dataset."""
        same = ("name", "fingerprint", "metric", "description", "num_nodes", "num_features", "num_classes")
        return cls(
            **{name: getattr(dataset, name) for name in same},
            split_fingerprints=tuple(dataset.split_fingerprint(k) for k in range(len(dataset.splits))),
            standin=is_standin(dataset.name),
            num_edges=dataset.graph.num_edges,
            test_share=measure_test_share(dataset.splits),
            guesses=guess_scores(dataset),
        )

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> DatasetRecord:
        """What rows of one dataset say about it: its identity, without its sizes."""
        first, splits = rows[0], {row.replica.split: row.split_fingerprint for row in rows}
        known = tuple(splits.get(split, "") for split in range(max(splits) + 1))
        return cls(first.dataset, first.dataset_fingerprint, known, first.standin, first.metric, "", 0, 0, 0, 0)

    def split_fingerprint(self, split: int) -> str:
        """The fingerprint of a split."""
        count = len(self.split_fingerprints)
        if split >= count:
            raise ValueError(f"split must be below {count}, the number of splits of {self.name!r}, got {split}")
        return self.split_fingerprints[split]


@dataclass(frozen=True)
class Row:
    """One run as the store keeps it.

    Attributes:
        key: Hash of what identifies the run, see `identify`.
        replica: Split, seed and hyperparameters.
        config: How it was trained.
        search: Hash of the search that stopped the run early; empty for a run that was not stopped.
        val: Best validation score; NaN for a run that diverged.
        test: Test score at the best epoch; NaN for a run that diverged or that a search stopped.
        epoch: The best epoch, counted from 0; −1 for a run that diverged.
        epochs: Number of epochs trained.
        seconds: Wall-clock time; for runs that trained together, the time of the batch divided by its runs.
        gates: Summary of the learned first-layer gates; `None` for a model without gates.
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
        cls, run: Run, dataset: DatasetRecord, config: TrainConfig, device: torch.device | str = "cpu", search: str = ""
    ) -> Row:
        """The row of a finished run; `search` is recorded only if the search stopped the run."""
        same = ("model", "val", "epoch", "epochs", "seconds", "num_parameters", "gates")
        replica = canonical(run.model, run.replica)
        search = search if run.dropped else ""
        return cls(
            **{name: getattr(run, name) for name in same},
            key=identify(dataset, run.model, replica, config, search),
            dataset=dataset.name,
            dataset_fingerprint=dataset.fingerprint,
            standin=dataset.standin,
            metric=dataset.metric,
            replica=replica,
            split_fingerprint=dataset.split_fingerprint(replica.split),
            config=config,
            search=search,
            test=math.nan if run.dropped else run.test,
            versions=versions(),
            device=device_name(device),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def dropped(self) -> bool:
        """Whether a search stopped the run early."""
        return self.search != ""

    @property
    def diverged(self) -> bool:
        """Whether no epoch of the run was finite, so that it has no score."""
        return math.isnan(self.val)

    def to_record(self) -> dict[str, Any]:
        """The row as a flat record; the entries of `NESTED` are dictionaries."""
        record = {part.name: getattr(self, part.name) for part in fields(self)}
        replica, config, versions = (record.pop(name) for name in ("replica", "config", "versions"))
        record |= {"split": replica.split, "seed": replica.seed, "options": _options(replica)}
        record |= {name: float(getattr(replica, name)) for name in HYPER}
        record |= {"max_epochs": config.max_epochs, "patience": config.patience, "protocol": further_settings(config)}
        return record | {f"{name}_version": versions[name] for name in VERSIONS}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Row:
        """The row from a record as `to_record` returns it."""
        own = {part.name: record[part.name] for part in fields(cls) if part.name in record}
        hyper = {name: record[name] for name in ("split", "seed", *HYPER)}
        hyper |= {name: record["options"][name] for name in GIVEN if name in record["options"]}
        options = tuple((name, value) for name, value in record["options"].items() if name not in GIVEN)
        return cls(
            **own,
            replica=Replica(**hyper, options=options),
            config=TrainConfig(record["max_epochs"], record["patience"], **record["protocol"]),
            versions={name: record[f"{name}_version"] for name in VERSIONS},
        )


def identify(
    dataset: DatasetRecord, model: str, replica: Replica, config: TrainConfig = DEFAULT_CONFIG, search: str = ""
) -> str:
    """Hash of what identifies a run: runs with the same hash are the same run, whenever and wherever they were made.

    The dataset and the split count by name and by content, and λ only for a model with gates. `search` is the hash of
    the search that stopped the run early, if any.
    """
    replica = canonical(model, replica)
    parts = {
        "dataset": [dataset.name, dataset.fingerprint, dataset.metric],
        "split": [replica.split, dataset.split_fingerprint(replica.split)],
        "model": model,
        "seed": replica.seed,
        "floats": [float(getattr(replica, name)) for name in HYPER],
        "options": _options(replica),
        "protocol": [config.max_epochs, config.patience, further_settings(config)],
        "search": search,
    }
    return digest(parts)


def _options(replica: Replica) -> dict[str, Any]:
    """What a record keeps as options: those of the model, and hyperparameters that not every run has."""
    return dict(replica.options) | {name: float(value) for name, value in replica.given.items()}


def identify_row(row: Row) -> str:
    """The key that a row must have."""
    return identify(DatasetRecord.of_rows([row]), row.model, row.replica, row.config, row.search)


def measure_test_share(splits: Sequence[Split]) -> float | None:
    """The mean number of test nodes over the mean number of training and validation nodes of a split.

    Intervals over splits are corrected by it, see `gfgn.train.statistics.standard_error`. It is 0 for several splits
    of which no two share a node, and `None` without splits.
    """
    if not splits:
        return None
    used = torch.stack([split.train | split.val | split.test for split in splits])
    if len(splits) > 1 and int(used.sum(0).max()) <= 1:
        return 0.0
    tested = sum(int(split.test.sum()) for split in splits)
    return tested / max(1, int(used.sum()) - tested)


def guess_scores(dataset: NodeDataset) -> tuple[float, ...]:
    """By split, the expected score of guesses on its test nodes; empty where one has no nodes to score."""
    tested = [dataset.y[split.test].cpu() for split in dataset.splits]
    scores = [guess_score(dataset.metric, y, dataset.num_classes) if len(y) else math.nan for y in tested]
    return tuple(scores) if all(map(math.isfinite, scores)) else ()


def digest(content: Any) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of `content` as JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_gfgn(model: str) -> bool:
    """Whether the model is a GFGN."""
    return model.startswith("gfgn-")


def canonical(model: str, replica: Replica) -> Replica:
    """The replica without what the model ignores: λ and `gate_decay` if it has no gates, dropout rates that it does not
    take, and all hyperparameters if it has no network."""
    if model in CLASSICAL:
        return Replica(replica.split, replica.seed)
    entry = known_model(model)
    if entry is None:  # one of the user's own has no gates
        return replace(replica, lam=1.0, gate_decay=None) if is_import_name(model) else replica
    if not entry.gated:
        replica = replace(replica, lam=1.0, gate_decay=None)
    rate = replica.input_dropout if entry.takes_input_dropout else None
    return replace(replica, dropout=replica.dropout if entry.takes_dropout else 0.0, input_dropout=rate)


def import_own(model: str) -> None:
    """Imports a model of one's own that the caller of a function has named, so that `canonical` knows it."""
    if is_import_name(model):
        find_model(model)


def further_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings of `config` other than its length that are not the default: a setting added later must not change
    the identity of earlier runs."""
    names = [setting.name for setting in fields(config)[2:]]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(DEFAULT_CONFIG, name)}


def is_standin(name: str) -> bool:
    """Whether the dataset with this name, in the registry or in results, is a stand-in for a published one."""
    entry = DATASETS.get(name.partition(" (stand-in)")[0])
    return entry is not None and entry.standin


@cache
def versions() -> dict[str, str]:
    """Versions of gfgn, torch, torch_geometric and Python."""
    others = (torch.__version__, torch_geometric.__version__, platform.python_version())
    return dict(zip(VERSIONS, (gfgn.__version__, code_version(), *others), strict=True))


@cache
def device_name(device: torch.device | str) -> str:
    """The model name of the GPU or of the processor."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return f"{device.type}, {platform.machine()}"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
