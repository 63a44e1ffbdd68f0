"""Trackers: callbacks that send finished runs to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import itertools
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from gfgn.runs.engine import History, ProgressCallback
from gfgn.runs.record import RunRecord
from gfgn.runs.text import count

RESULTS = ("val", "test", "epoch", "epochs", "seconds", "num_parameters")  # and all that begin with `gate_`
BATCH = 1000  # largest number of values that MLflow takes at a time
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker sends: one run. Names are those of the columns of a store.

    Attributes:
        name: `dataset/model/split0-seed0-…`, different for every run.
        facts: What identifies the run and how it was made: dataset, model, split, seed, hyperparameters, versions, ….
        scores: Validation and test score, best epoch, seconds, …; without those that are not finite.
        curves: `"history/train_loss"`, `"history/val_loss"` and `"history/val"`, one value per epoch.
    """

    name: str
    facts: dict[str, bool | int | float | str]
    scores: dict[str, float]
    curves: dict[str, list[float]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, row: RunRecord, history: History) -> TrackedRun:
        """A finished run as a tracker sends it."""
        cells = {name: value if value is not None else "None" for name, value in row.cells().items()}
        results = {name: float(value) for name, value in cells.items() if name in RESULTS or name.startswith("gate_")}
        return cls(
            name=f"{row.dataset}/{row.model}/split{row.split}-seed{row.seed}-{row.key[:8]}",
            facts={name: value for name, value in cells.items() if name not in results},
            scores={name: value for name, value in results.items() if math.isfinite(value)},
            curves={f"history/{key}": list(values) for key, values in history.items()},
        )

    @property
    def group(self) -> str:
        """Dataset and model."""
        return self.name.rpartition("/")[0]


class Tracker(ProgressCallback, ABC):
    """Sends runs that were trained, not those that were in the store already; a subclass says how, in `send`.

    Runs are sent from a thread of the tracker: training does not wait for it, `close` does. If sending fails, a warning
    says so, and nothing more is sent. Training goes on, and the store has every run.
    """

    needs_history = True

    def __init__(self, name: str = "") -> None:
        self.name = name or type(self).__name__
        self.sent = 0  # number of tracked runs
        self.failed = False
        self._thread: ThreadPoolExecutor | None = None

    @abstractmethod
    def send(self, run: TrackedRun) -> None:
        """Sends one run; called from one thread, one run after the other."""

    def on_history(self, row: RunRecord, history: History) -> None:
        self._thread = self._thread or ThreadPoolExecutor(1, "gfgn-tracker")
        self._thread.submit(self._send, TrackedRun.of(row, history))

    def close(self) -> None:
        """Waits until all runs have arrived."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
            _logger.info("%s: %s", self.name, count(self.sent, "run"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _send(self, run: TrackedRun) -> None:
        if self.failed:
            return
        try:
            self.send(run)
            self.sent += 1
        except Exception as error:
            self.failed = True
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            _logger.warning("%s failed; no more runs are tracked, but all are in the store: %s", self.name, reason)


class TensorBoardTracker(Tracker):
    """Writes event files into a folder, one per run: curves as scalars, facts and scores for the HParams page."""

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        super().__init__(f"TensorBoard in {folder}")
        self.folder = Path(folder)
        self._writer = _import("torch.utils.tensorboard", "tensorboard", "tracking").SummaryWriter

    def send(self, run: TrackedRun) -> None:
        path = self.folder.joinpath(*(re.sub(r"[^\w.()+-]+", "_", part) for part in run.name.split("/")))
        others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
        # Curves of two runs in one folder would be shown as one.
        folder = next(each for each in itertools.chain([path], others) if not each.exists())
        with self._writer(str(folder)) as writer:
            for name, values in run.curves.items():
                for epoch, value in enumerate(values):
                    writer.add_scalar(name, value, epoch)
            writer.add_hparams(run.facts, run.scores, run_name=".")


class MLflowTracker(Tracker):
    """Creates runs in MLflow: facts are parameters, scores and curves are metrics.

    Args:
        uri: Of the tracking server or database, such as `"sqlite:///mlflow.db"`; by default MLflow's own setting.
        experiment: Name of the experiment, created if it does not exist.
    """

    def __init__(self, uri: str | None = None, experiment: str = "gfgn") -> None:
        super().__init__(f"MLflow in {uri}" if uri else "MLflow")
        self.uri, self.experiment = uri, experiment
        self._mlflow = _import("mlflow", "mlflow", "tracking")

    @cached_property
    def _connection(self) -> tuple[Any, str]:
        """The client and the id of the experiment."""
        client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        found = client.get_experiment_by_name(self.experiment)
        return client, found.experiment_id if found else client.create_experiment(self.experiment)

    def send(self, run: TrackedRun) -> None:
        (client, experiment), entities, now = self._connection, self._mlflow.entities, int(1000 * time.time())
        run_id = client.create_run(experiment, run_name=run.name, tags={"group": run.group}).info.run_id
        client.log_batch(run_id, params=[entities.Param(name, str(value)) for name, value in run.facts.items()])
        metrics = [entities.Metric(name, value, now, 0) for name, value in run.scores.items()]
        for name, values in run.curves.items():
            metrics += [entities.Metric(name, value, now, epoch) for epoch, value in enumerate(values)]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + BATCH])
        client.set_terminated(run_id)


class WandbTracker(Tracker):
    """Creates runs in a project of Weights & Biases: facts are the config, scores the summary, curves the history.

    `options` are further arguments of `wandb.init`, such as `entity`, `mode` and `dir`.
    """

    def __init__(self, project: str = "gfgn", **options: object) -> None:
        super().__init__(f"Weights & Biases in {project}")
        self.project, self.options = project, options
        self._wandb = _import("wandb", "wandb", "wandb")

    def send(self, run: TrackedRun) -> None:
        # The run is over: neither the terminal nor the load of the machine belongs to it.
        settings = self._wandb.Settings(silent=True, console="off", x_disable_stats=True)
        names = {"project": self.project, "name": run.name, "group": run.group, "config": run.facts}
        with self._wandb.init(**names | {"reinit": "create_new", "settings": settings} | self.options) as started:
            for epoch, values in enumerate(zip(*run.curves.values(), strict=True)):
                started.log(dict(zip(run.curves, values, strict=True)), step=epoch)
            started.summary.update(run.scores)


TRACKERS: dict[str, type[TensorBoardTracker | MLflowTracker | WandbTracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MLflowTracker,
    "wandb": WandbTracker,
}


def make_tracker(track: str) -> Tracker:
    """The tracker that `tensorboard[:DIR]`, `mlflow[:URI]` or `wandb[:PROJECT]` names."""
    name, _, where = track.partition(":")
    if name not in TRACKERS:
        raise ValueError(f"track must be tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT], got {track!r}")
    return TRACKERS[name](where) if where else TRACKERS[name]()


def _import(module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        advice = f"pip install 'gfgn[{extra}]'"
        raise ImportError(f"tracking with {package} needs a package that is not installed: {advice}") from error
