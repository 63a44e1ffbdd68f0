"""Records of runs: what identifies a run, how it was made, and its scores."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path

import torch
import torch_geometric

import gfgn
from gfgn.data.dataset import NodeDataset
from gfgn.data.mapped import is_mapped
from gfgn.data.named.catalog import DATASETS
from gfgn.data.splits import Split
from gfgn.metrics import guess_score
from gfgn.runs.grid import COMMON_PARAMS, Configuration, Value, canonical, make_replica
from gfgn.train.code import code_version
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica, Run

DEFAULT_CONFIG = TrainConfig()


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
    directed: bool | None = field(default=None, compare=False)  # `None` if not known: edges in files are not all read

    @classmethod
    def of(cls, dataset: NodeDataset) -> DatasetRecord:
        """The record of a dataset."""
        graph = dataset.graph
        same = ("name", "fingerprint", "metric", "description", "num_nodes", "num_features", "num_classes")
        return cls(
            **{name: getattr(dataset, name) for name in same},
            split_fingerprints=tuple(dataset.split_fingerprint(k) for k in range(len(dataset.splits))),
            standin=is_standin(dataset.name),
            num_edges=graph.num_edges,
            test_share=measure_test_share(dataset.splits),
            guesses=guess_scores(dataset),
            directed=None if is_mapped(graph) else not graph.by_source.same_pattern(graph.by_target),
        )

    @classmethod
    def of_rows(cls, rows: Sequence[RunRecord]) -> DatasetRecord:
        """What runs on one dataset say about it: its identity, without its sizes."""
        first, splits = rows[0], {row.split: row.split_fingerprint for row in rows}
        known = tuple(splits.get(split, "") for split in range(max(splits) + 1))
        return cls(first.dataset, first.dataset_fingerprint, known, first.standin, first.metric, "", 0, 0, 0, 0)

    def split_fingerprint(self, split: int) -> str:
        """The fingerprint of a split."""
        count = len(self.split_fingerprints)
        if split >= count:
            raise ValueError(f"split must be below {count}, the number of splits of {self.name!r}, got {split}")
        return self.split_fingerprints[split]


@dataclass(frozen=True)
class RunRecord:
    """One run as a store keeps it: JSON values under these names.

    Attributes:
        key: Hash of what identifies the run, see `identify`.
        options: The model's options, and the hyperparameters that not every run has.
        protocol: Settings of the training configuration, other than its length, that are not the default.
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
    split: int
    split_fingerprint: str
    seed: int
    lr: float
    weight_decay: float
    dropout: float
    lam: float
    options: dict[str, Value]
    max_epochs: int
    patience: int
    protocol: dict[str, Value]
    search: str
    val: float
    test: float
    epoch: int
    epochs: int
    seconds: float
    num_parameters: int
    gates: dict[str, float] | None = field(repr=False)
    gfgn_version: str = field(repr=False)
    code_version: str = field(repr=False)
    torch_version: str = field(repr=False)
    torch_geometric_version: str = field(repr=False)
    python_version: str = field(repr=False)
    device: str = field(repr=False)
    date: str = field(repr=False)

    @classmethod
    def of(
        cls, run: Run, dataset: DatasetRecord, config: TrainConfig, device: torch.device | str = "cpu", search: str = ""
    ) -> RunRecord:
        """The record of a finished run; `search` is recorded only if the search stopped the run."""
        replica = canonical(run.model, run.replica)
        search = search if run.dropped else ""
        made: Configuration = {name: float(getattr(replica, name)) for name in COMMON_PARAMS}
        made |= {f"{name}_version": version for name, version in versions().items()}
        same = ("model", "val", "epoch", "epochs", "seconds", "num_parameters", "gates")
        return cls(
            **{name: getattr(run, name) for name in same},
            **{name: getattr(replica, name) for name in ("split", "seed")},
            **made,
            key=identify(dataset, run.model, replica, config, search),
            dataset=dataset.name,
            dataset_fingerprint=dataset.fingerprint,
            standin=dataset.standin,
            metric=dataset.metric,
            split_fingerprint=dataset.split_fingerprint(replica.split),
            options=_options(replica),
            max_epochs=config.max_epochs,
            patience=config.patience,
            protocol=further_settings(config),
            search=search,
            test=math.nan if run.dropped else run.test,
            device=device_name(device),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @cached_property
    def replica(self) -> Replica:
        """Split, seed and hyperparameters."""
        hyper: Configuration = {name: getattr(self, name) for name in COMMON_PARAMS}
        return make_replica(hyper | self.options, self.split, self.seed)

    @cached_property
    def config(self) -> TrainConfig:
        """How the run was trained."""
        settings: Configuration = dict(self.protocol)
        return TrainConfig(self.max_epochs, self.patience, **settings)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of gfgn, its code, torch, torch_geometric and Python."""
        return {name: getattr(self, f"{name}_version") for name in versions()}

    @property
    def dropped(self) -> bool:
        """Whether a search stopped the run early."""
        return self.search != ""

    @property
    def diverged(self) -> bool:
        """Whether no epoch of the run was finite, so that it has no score."""
        return math.isnan(self.val)

    def to_json(self) -> str:
        """The record as JSON; a score that is NaN becomes null."""
        values = {name: getattr(self, name) for name in COLUMNS}
        values |= {name: None if math.isnan(values[name]) else values[name] for name in ("val", "test")}
        return json.dumps(values, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """The record from the text that `to_json` returns."""
        content = json.loads(text)
        unknown = {name: math.nan for name in ("val", "test") if content[name] is None}
        record = cls(**content | unknown)
        record.replica, record.config  # noqa: B018  # a damaged record is an error now, not later
        return record

    def cells(self) -> dict[str, Value]:
        """The record as one flat row of a table: `options`, `protocol` and `gates` have a column per entry."""
        flat = {name: getattr(self, name) for name in COLUMNS if name not in NESTED}
        nested: list[tuple[str, Mapping[str, Value]]] = [
            (prefix, getattr(self, name) or {}) for name, prefix in NESTED.items()
        ]
        return flat | {f"{prefix}_{key}": value for prefix, values in nested for key, value in values.items()}


COLUMNS = tuple(part.name for part in fields(RunRecord))
NESTED = {"options": "option", "protocol": "protocol", "gates": "gate"}  # and the prefix of their columns in a table


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
        "floats": [float(getattr(replica, name)) for name in COMMON_PARAMS],
        "options": _options(replica),
        "protocol": [config.max_epochs, config.patience, further_settings(config)],
        "search": search,
    }
    return digest(parts)


def identify_row(row: RunRecord) -> str:
    """The key that a record must have."""
    return identify(DatasetRecord.of_rows([row]), row.model, row.replica, row.config, row.search)


def digest(content: object) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of `content` as JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _options(replica: Replica) -> dict[str, Value]:
    return {**dict(replica.options), **{name: float(value) for name, value in replica.given.items()}}


def further_settings(config: TrainConfig) -> dict[str, Value]:
    """The settings of `config` other than its length that are not the default: a setting added later must not change
    the identity of earlier runs."""
    names = [setting.name for setting in fields(config)[2:]]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(DEFAULT_CONFIG, name)}


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


def is_gfgn(model: str) -> bool:
    """Whether the model is a GFGN."""
    return model.startswith("gfgn-")


def is_standin(name: str) -> bool:
    """Whether the dataset with this name, in the registry or in results, is a stand-in for a published one."""
    entry = DATASETS.get(name.partition(" (stand-in)")[0])
    return entry is not None and entry.standin


@cache
def versions() -> dict[str, str]:
    """Versions of gfgn, its code, torch, torch_geometric and Python."""
    return {
        "gfgn": gfgn.__version__,
        "code": code_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


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
