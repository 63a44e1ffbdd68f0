"""`Training`: the networks of a classifier, their level, depth and hyperparameters chosen by validation."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from sklearn.base import BaseEstimator

from gfgn.data.dataset import NodeDataset
from gfgn.estimator.card import FIRST
from gfgn.nn.registry import MODELS
from gfgn.runs.comparison import variant_configurations
from gfgn.runs.engine import ProgressCallback, keep_rows, successive_halving
from gfgn.runs.grid import SPACE, Configuration, make_replica, sample
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.distributed import Processes, train_distributed
from gfgn.train.loop import train_replicas
from gfgn.train.memory import SamplingChoice, choose_sampling
from gfgn.train.replica import Replica, Run

LEVELS = ("graph", "neighbor", "pair")
BATCH_SIZE = 1024  # of training on samples
BLOCKS = 4  # of a step on samples, which up to as many processes divide among them
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """The networks, one run each, and what they were chosen by.

    Attributes:
        model: Their name in the registry.
        level_scores: By level, its best validation score.
        sampled: Whether they trained on samples of the graph.
    """

    model: str
    level: str
    level_scores: dict[str, float]
    configuration: Configuration
    runs: list[Run]
    sampled: bool


@dataclass(frozen=True)
class Training:
    """One call of `GFGNClassifier.fit`: network `k` trains on split `k` of the dataset, by turns, with seed `seed + k`.

    Attributes:
        classifier: The `GFGNClassifier` whose parameters count.
        processes: This process of those that train together.
        checkpoint_dir: Folder of checkpoints of training on samples.
        store: Where the runs of this call are kept.
    """

    classifier: BaseEstimator
    dataset: NodeDataset
    seed: int
    processes: Processes
    callback: ProgressCallback | None
    checkpoint_dir: Path | None
    store: Store

    def run(self) -> Trained:
        """Trains the first networks of every level, and the others of the best one."""
        given, callback = self.classifier, self.callback or ProgressCallback()
        batch_size, first = self._choose_batch_size(), range(min(given.replicas, FIRST))
        levels, best, scores = LEVELS if given.level == "auto" else (given.level,), -np.inf, dict[str, float]()
        for level in levels:
            runs_in_all = len(first) * (len(configurations(given)) if given.trials is None else 1 + given.trials)
            callback.on_model_begin(self.dataset.name, model_name(given.model, level), runs_in_all, 0)
            for configuration in self._tuned(level):
                runs = self._train(level, configuration, first, given.max_epochs, batch_size)
                score = float(np.mean([run.val for run in runs]))
                scores[level] = max(score, scores.get(level, score))
                # A lower loss decides between equal scores, which are frequent with few validation nodes.
                rank = score - 1e-6 * float(np.mean([run.history["val_loss"][run.epoch] for run in runs]))
                if rank > best:
                    best, chosen, found = rank, (level, configuration), runs
            callback.on_model_end(self.dataset.name, model_name(given.model, level))
        model, rest = model_name(given.model, chosen[0]), range(first.stop, given.replicas)
        if rest:
            callback.on_model_begin(self.dataset.name, model, len(rest), 0)
            found += self._train(*chosen, rest, max(run.epoch for run in found) + 1, batch_size)
            callback.on_model_end(self.dataset.name, model)
        return Trained(model, chosen[0], scores, chosen[1], found, batch_size is not None)

    def _choose_batch_size(self) -> int | None:
        """That of training on samples, `None` for the whole graph; says which way was taken and why."""
        given, data = self.classifier, self.dataset
        if given.batch_size is not None:
            choice = SamplingChoice(True, f"{data.name}: steps take samples, as batch_size={given.batch_size} asks for")
        elif self.processes.count > 1:
            choice = SamplingChoice(
                True, f"{data.name}: steps take samples, which {self.processes.count} processes divide among them"
            )
        else:
            device = self.processes.device
            together = min(given.replicas, FIRST, torch.get_num_threads()) if device == "cpu" else 1
            model = model_name(given.model, "pair" if given.level == "auto" else given.level)
            deepest = make_replica(configurations(given)[-1])
            choice = choose_sampling(model, data, deepest, device, together)
        if self.processes.rank == 0:
            _logger.info(choice.reason)
        if not choice.sampled:
            return None
        for name, none in (("trials", None), ("class_weights", False), ("model", "gfgn")):
            if (value := getattr(given, name)) != none:
                raise ValueError(f"{name} must be {none!r} for training on samples, got {value!r} ({choice.reason})")
        return given.batch_size or BATCH_SIZE

    def _tuned(self, level: str) -> list[Configuration]:
        """The given hyperparameters with every depth, or the best of `trials` random ones."""
        given = self.classifier
        if given.trials is None:
            return configurations(given)
        drawn = variant_configurations(_depths(given), sample(SPACE, given.trials, self.seed), {}, drawn=True)
        tried = [each | _architecture(given) for each in drawn]
        splits, seeds = range(min(len(self.dataset.splits), FIRST)), [self.seed]
        found = successive_halving(
            self.store, self.dataset, model_name(given.model, level), tried, splits, seeds,
            config=self._config(given.max_epochs), device=self.processes.device, callback=self.callback,
        )  # fmt: skip
        return [found.best]

    def _config(self, max_epochs: int) -> TrainConfig:
        return TrainConfig(max_epochs, self.classifier.patience, class_weights=self.classifier.class_weights)

    def _train(
        self, level: str, configuration: Configuration, networks: Sequence[int], max_epochs: int, batch_size: int | None
    ) -> list[Run]:
        model, config = model_name(self.classifier.model, level), self._config(max_epochs)
        splits, device, callback = len(self.dataset.splits), self.processes.device, self.callback
        replicas = [make_replica(configuration, k % splits, self.seed + k) for k in networks]
        progress = None
        if callback is not None:  # only then, as the record of a dataset costs a hash of its data
            keep, record = keep_rows(self.store, callback), DatasetRecord.of(self.dataset)

            def progress(run: Run) -> None:
                keep(RunRecord.of(run, record, config, device), run.history)

        if batch_size is None:
            runs = train_replicas(
                model, self.dataset, replicas, **asdict(config), device=device, keep_state=True, gates=False,
                progress=progress, status=None if callback is None else callback.on_status,
            )  # fmt: skip
        else:
            runs = []
            for replica in replicas:
                runs.append(self._train_on_samples(model, replica, config, batch_size))
                if progress is not None:
                    progress(runs[-1])
        for run in runs:
            if run.diverged:
                raise ValueError(f"training diverged with lr={run.replica.lr}: use a smaller lr, or scale='standard'")
        return runs

    def _train_on_samples(self, model: str, replica: Replica, config: TrainConfig, batch_size: int) -> Run:
        """One network. A step has blocks that several processes divide among them, as many for one process."""
        blocks = max(BLOCKS, self.processes.count)
        sampling = (("batch_size", -(-batch_size // blocks)), ("fanout", self.classifier.fanout))
        replica = replace(replica, options=tuple(sorted((*replica.options, *sampling))))
        return train_distributed(
            model, self.dataset, replica, config, self.processes,
            blocks_per_step=blocks, checkpoint=self.checkpoint_dir,
            status=None if self.callback is None else self.callback.on_status,
        )  # fmt: skip


def model_name(model: str, level: str) -> str:
    """The name in the registry of `"gfgn"` or `"gfgn-plus"` with a level."""
    return "gfgn-plus" if (model, level) == ("gfgn-plus", "neighbor") else f"{model}-{level}"


def configurations(given: BaseEstimator) -> list[Configuration]:
    """The hyperparameters of a classifier with every depth. One that is not the default wins over that of a depth."""
    defaults = inspect.signature(type(given)).parameters
    values = {name: getattr(given, name) for name in ("lr", "weight_decay", "dropout", "lam")}
    changed = {name: value for name, value in values.items() if value != defaults[name].default}
    return [values | depth | changed | _architecture(given) for depth in _depths(given)]


def _architecture(given: BaseEstimator) -> Configuration:
    # A learned bias, because the mean of a standardized feature, which the gates read, is 0.
    heads = MODELS[model_name(given.model, "graph")].options["heads"].default if given.heads is None else given.heads
    return {"hidden": given.hidden_channels, "heads": heads, "gate_bias": 0.0}


def _depths(given: BaseEstimator) -> list[Configuration]:
    """Depths, with what belongs to them; a single one if it is given."""
    depths = [dict(depth) for depth in MODELS[model_name(given.model, "graph")].variants] or [{"layers": 2}]
    if given.num_layers is None:
        return depths
    shallower = [depth for depth in depths if depth["layers"] <= given.num_layers] or depths
    return [shallower[-1] | {"layers": given.num_layers}]
