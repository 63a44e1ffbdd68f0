"""Trackers: callbacks that send finished runs to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import itertools
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from gfgn.runs.record import NESTED, Row, digest
from gfgn.runs.text import count
from gfgn.runs.training import History, ProgressCallback

PER = ("run", "configuration")
RESULTS = ("val", "test", "epoch", "epochs", "seconds", "num_parameters")  # and all that begin with `gate_`
CURVES = "history/"  # prefix of the names of curves: a score and a curve have different names
BATCH = 1000  # largest number of values that MLflow takes at a time
_logger = logging.getLogger(__name__)

Value = bool | int | float | str
Finished = tuple[Row, History]


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker sends: one run, or all runs of one configuration. Names are those of the columns of a store.

    Attributes:
        name: `dataset/model/…`, different for every run and configuration.
        facts: What identifies the run and how it was made: dataset, model, split, seed, hyperparameters, versions, ….
            Of several runs, what they have in common.
        scores: Validation and test score, best epoch, seconds, …; without those that are not finite. Of several runs,
            their means, the means by split (`val_split_0`, `test_split_0`, …) and `num_runs`.
        curves: `"history/train_loss"`, `"history/val_loss"` and `"history/val"`, one value per epoch. Of several runs,
            their means, up to the last epoch that all of them trained.
        table: Of several runs, one row per run.
    """

    name: str
    facts: dict[str, Value]
    scores: dict[str, float]
    curves: dict[str, list[float]] = field(default_factory=dict, repr=False)
    table: list[dict[str, Value]] = field(default_factory=list, repr=False)

    @property
    def group(self) -> str:
        """Dataset and model."""
        return self.name.rpartition("/")[0]

    @property
    def epochs(self) -> list[dict[str, float]]:
        """The values of all curves by epoch."""
        return [dict(zip(self.curves, values, strict=True)) for values in zip(*self.curves.values(), strict=True)]


class Tracker(ProgressCallback, ABC):
    """Sends runs that were trained, not those that were in the store already; a subclass says how, in `send`.

    Runs are sent from a thread of the tracker's own: training does not wait for it, `close` does. If sending fails, a
    warning says so, and nothing more is sent. Training goes on, and the store has every run.

    Args:
        per: `"run"`: one tracked run per run, sent as it finishes; `"configuration"`: one for all runs of a model on a
            dataset that differ only in split and seed, sent when the model has all its runs, or by `close`.
    """

    needs_history = True

    def __init__(self, per: str = "run") -> None:
        if per not in PER:
            raise ValueError(f"per must be 'run' or 'configuration', got {per!r}")
        self.per = per
        self.sent = 0  # number of tracked runs
        self.failed = False
        self._finished: dict[Hashable, list[Finished]] = {}  # by configuration, runs that have not been sent
        self._thread: ThreadPoolExecutor | None = None

    @abstractmethod
    def send(self, run: TrackedRun) -> None:
        """Sends one run; called from one thread, one run after the other."""

    def on_history(self, row: Row, history: History) -> None:
        key = row.key if self.per == "run" else _configuration(row)
        self._finished.setdefault(key, []).append((row, history))
        if self.per == "run":
            self._flush()

    def on_model_end(self, dataset: str, model: str) -> None:
        self._flush()

    def close(self) -> None:
        """Sends what has not been sent and waits until it has arrived."""
        self._flush()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
            _logger.info("%s: %s", self, count(self.sent, self.per))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _flush(self) -> None:
        for finished in self._finished.values():
            self._thread = self._thread or ThreadPoolExecutor(1, "gfgn-tracker")
            self._thread.submit(self._send, finished)
        self._finished = {}

    def _send(self, finished: list[Finished]) -> None:
        if self.failed:
            return
        try:
            self.send(describe_run(*finished[0]) if self.per == "run" else describe_configuration(finished))
            self.sent += 1
        except Exception as error:
            self.failed = True
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            _logger.warning("%s failed; no more runs are tracked, but all are in the store: %s", self, reason)


class TensorBoardTracker(Tracker):
    """Writes event files: curves as scalars, facts and scores for the HParams page, the table as text.

    Args:
        folder: The folder that `tensorboard --logdir` shows; every tracked run has a folder of its own in it.
        per: See `Tracker`.
    """

    def __init__(self, folder: str | Path = "tensorboard", *, per: str = "run") -> None:
        super().__init__(per)
        self.folder = Path(folder)
        self._writer = _import("torch.utils.tensorboard", "tensorboard", "tracking").SummaryWriter

    def __str__(self) -> str:
        return f"TensorBoard in {self.folder}"

    def send(self, run: TrackedRun) -> None:
        with self._writer(str(self._unused(run.name))) as writer:
            for name, values in run.curves.items():
                for epoch, value in enumerate(values):
                    writer.add_scalar(name, value, epoch)
            if run.table:
                writer.add_text("runs", _markdown(run.table))
            writer.add_hparams(run.facts, run.scores, run_name=".")

    def _unused(self, name: str) -> Path:
        """A folder that does not exist: curves of two runs in one folder would be shown as one."""
        path = self.folder.joinpath(*(re.sub(r"[^\w.()+-]+", "_", part) for part in name.split("/")))
        others = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
        return next(each for each in itertools.chain([path], others) if not each.exists())


class MLflowTracker(Tracker):
    """Creates runs in MLflow: facts are parameters, scores and curves are metrics, the table is `runs.json`.

    Args:
        uri: Of the tracking server or database, such as `"sqlite:///mlflow.db"`; by default MLflow's own setting.
        experiment: Name of the experiment, created if it does not exist.
        per: See `Tracker`.
    """

    def __init__(self, uri: str | None = None, experiment: str = "gfgn", *, per: str = "run") -> None:
        super().__init__(per)
        self.uri, self.experiment = uri, experiment
        self._mlflow = _import("mlflow", "mlflow", "tracking")
        self._client: Any = None

    def __str__(self) -> str:
        return f"MLflow in {self.uri}" if self.uri else "MLflow"

    def send(self, run: TrackedRun) -> None:
        entities, now = self._mlflow.entities, int(1000 * time.time())
        client, experiment = self._connect()
        started = client.create_run(experiment, run_name=run.name, tags={"group": run.group})
        own, metric = started.info.run_id, entities.Metric
        client.log_batch(own, params=[entities.Param(name, str(value)) for name, value in run.facts.items()])
        metrics = [metric(name, value, now, 0) for name, value in run.scores.items()]
        for name, values in run.curves.items():
            metrics += [metric(name, value, now, epoch) for epoch, value in enumerate(values)]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(own, metrics=metrics[start : start + BATCH])
        if run.table:
            client.log_table(own, {name: [row[name] for row in run.table] for name in run.table[0]}, "runs.json")
        client.set_terminated(own)

    def _connect(self) -> tuple[Any, str]:
        """The client and the id of the experiment."""
        if self._client is None:
            client = self._mlflow.MlflowClient(tracking_uri=self.uri)
            found = client.get_experiment_by_name(self.experiment)
            self._client = client, found.experiment_id if found else client.create_experiment(self.experiment)
        connected: tuple[Any, str] = self._client
        return connected


class WandbTracker(Tracker):
    """Creates runs in Weights & Biases: facts are the config, scores the summary, curves the history.

    Args:
        project: Name of the project.
        per: See `Tracker`.
        **options: Further arguments of `wandb.init`, such as `entity`, `mode` and `dir`.
    """

    def __init__(self, project: str = "gfgn", *, per: str = "run", **options: Any) -> None:
        super().__init__(per)
        self.project, self.options = project, options
        self._wandb = _import("wandb", "wandb", "wandb")

    def __str__(self) -> str:
        return f"Weights & Biases in {self.project}"

    def send(self, run: TrackedRun) -> None:
        # The run is over: neither the terminal nor the load of the machine belongs to it.
        settings = self._wandb.Settings(silent=True, console="off", x_disable_stats=True)
        names: dict[str, Any] = {"project": self.project, "name": run.name, "group": run.group, "config": run.facts}
        with self._wandb.init(**names | {"reinit": "create_new", "settings": settings} | self.options) as started:
            for epoch, values in enumerate(run.epochs):
                started.log(values, step=epoch)
            if run.table:
                rows = [list(row.values()) for row in run.table]
                started.log({"runs": self._wandb.Table(columns=list(run.table[0]), data=rows)})
            started.summary.update(run.scores)


TRACKERS: dict[str, type[TensorBoardTracker | MLflowTracker | WandbTracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MLflowTracker,
    "wandb": WandbTracker,
}


def make_tracker(track: str, per: str = "run") -> Tracker:
    """The tracker that `tensorboard[:DIR]`, `mlflow[:URI]` or `wandb[:PROJECT]` names."""
    name, _, where = track.partition(":")
    if name not in TRACKERS:
        raise ValueError(f"track must be tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT], got {track!r}")
    return TRACKERS[name](where, per=per) if where else TRACKERS[name](per=per)


def describe_run(row: Row, history: History) -> TrackedRun:
    """One run as a tracker sends it."""
    columns, replica = _columns(row), row.replica
    facts = {name: value for name, value in columns.items() if not _is_result(name)}
    scores = _finite({name: float(value) for name, value in columns.items() if _is_result(name)})
    name = f"{row.dataset}/{row.model}/split{replica.split}-seed{replica.seed}-{row.key[:8]}"
    return TrackedRun(name, facts, scores, {CURVES + key: list(values) for key, values in history.items()})


def describe_configuration(finished: Sequence[Finished]) -> TrackedRun:
    """Runs that differ only in split and seed as a tracker sends them."""
    finished = sorted(finished, key=lambda each: (each[0].replica.split, each[0].replica.seed))
    rows, histories = [row for row, _ in finished], [history for _, history in finished]
    runs, first = [_columns(row) for row in rows], rows[0]
    common = {name: value for name, value in runs[0].items() if all(run.get(name) == value for run in runs)}
    results = [name for name in runs[0] if _is_result(name)]
    scores = {name: _mean(run[name] for run in runs) for name in results} | {"num_runs": float(len(runs))}
    for split in dict.fromkeys(run["split"] for run in runs):
        own = [run for run in runs if run["split"] == split]
        scores |= {f"{name}_split_{split}": _mean(run[name] for run in own) for name in ("val", "test")}
    curves = {
        CURVES + name: [_mean(values) for values in zip(*(history[name] for history in histories), strict=False)]
        for name in histories[0]
    }
    return TrackedRun(
        name=f"{first.dataset}/{first.model}/{digest(repr(_configuration(first)))[:8]}",
        facts={name: value for name, value in common.items() if not _is_result(name)},
        scores=_finite(scores),
        curves=curves,
        table=[{name: run[name] for name in ("split", "seed", *results)} for run in runs],
    )


def _configuration(row: Row) -> Hashable:
    """What runs have in common that differ only in split and seed."""
    replica = replace(row.replica, split=0, seed=0)
    return row.dataset, row.dataset_fingerprint, row.metric, row.model, replica, tuple(asdict(row.config).items())


def _columns(row: Row) -> dict[str, Value]:
    """The row as the columns of a table of a store."""
    record = row.to_record()
    for name, prefix in NESTED.items():
        record |= {f"{prefix}_{key}": value for key, value in (record.pop(name) or {}).items()}
    return {name: value if isinstance(value, Value) else str(value) for name, value in record.items()}


def _is_result(name: str) -> bool:
    return name in RESULTS or name.startswith(f"{NESTED['gates']}_")


def _mean(values: Iterable[Any]) -> float:
    numbers = [float(value) for value in values]
    return math.fsum(numbers) / len(numbers) if all(map(math.isfinite, numbers)) else math.nan


def _finite(scores: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def _markdown(table: list[dict[str, Value]]) -> str:
    rows = [list(table[0]), ["---"] * len(table[0]), *([str(value) for value in row.values()] for row in table)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _import(module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        advice = f"pip install 'gfgn[{extra}]'"
        raise ImportError(f"tracking with {package} needs a package that is not installed: {advice}") from error
