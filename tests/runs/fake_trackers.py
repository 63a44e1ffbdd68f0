"""A tracker in memory, and stand-ins for MLflow and Weights & Biases with what trackers call of them."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gfgn.runs import TrackedRun, Tracker, tracking


class Memory(Tracker):
    """Keeps what it is sent; fails from run number `good` on."""

    def __init__(self, good: int | None = None) -> None:
        super().__init__("memory")
        self.runs: list[TrackedRun] = []
        self.good, self.calls = good, 0

    def send(self, run: TrackedRun) -> None:
        self.calls += 1
        if self.good is not None and len(self.runs) >= self.good:
            raise OSError("no space\nleft")
        self.runs.append(run)


def track_in_memory(patch: pytest.MonkeyPatch) -> list[Memory]:
    """Makes `--track memory` a tracker; the list has those that commands made."""
    made: list[Memory] = []

    def make(where: str = "") -> Memory:
        made.append(Memory())
        return made[-1]

    patch.setitem(tracking.TRACKERS, "memory", make)  # type: ignore[arg-type]
    return made


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class MlflowClient:
    """Runs of all clients by id."""

    runs: dict[str, dict[str, Any]]
    experiments: dict[str, str]

    def __init__(self, tracking_uri: str | None = None) -> None:
        self.uri = tracking_uri

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        assert name not in self.experiments
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id: str, *, tags: Any, run_name: str) -> Any:
        run_id = f"id{len(self.runs)}"
        assert experiment_id in self.experiments.values()
        self.runs[run_id] = {"name": run_name, "tags": tags, "params": {}, "metrics": [], "status": "RUNNING"}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) + len(params) <= 1000
        assert len(params) <= 100
        self.runs[run_id]["params"] |= dict(params)
        self.runs[run_id]["metrics"] += metrics

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id]["status"] = "FINISHED"


def fake_mlflow(patch: pytest.MonkeyPatch) -> type[MlflowClient]:
    """Makes `import mlflow` return the stand-in; the client has the runs."""
    module: Any = ModuleType("mlflow")
    client = type("MlflowClient", (MlflowClient,), {"runs": {}, "experiments": {}})
    module.MlflowClient, module.entities = client, SimpleNamespace(Metric=Metric, Param=Param)
    patch.setitem(sys.modules, "mlflow", module)
    return client


class WandbRun:
    def __init__(self, **arguments: Any) -> None:
        self.arguments, self.finished = arguments, False
        self.history: dict[int, dict[str, Any]] = {}
        self.summary: dict[str, Any] = {}

    def __enter__(self) -> "WandbRun":
        return self

    def __exit__(self, *error: object) -> None:
        self.finished = True

    def log(self, data: dict[str, Any], step: int) -> None:
        assert not self.finished
        self.history.setdefault(step, {}).update(data)


def fake_wandb(patch: pytest.MonkeyPatch) -> list[WandbRun]:
    """Makes `import wandb` return the stand-in; the list has the runs."""
    module: Any = ModuleType("wandb")
    runs: list[WandbRun] = []

    def init(**arguments: Any) -> WandbRun:
        runs.append(WandbRun(**arguments))
        return runs[-1]

    module.init, module.Settings = init, SimpleNamespace
    patch.setitem(sys.modules, "wandb", module)
    return runs
