"""Trackers get every run that was trained, once, with its curves; what they do never harms training."""

import logging
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs.fake_trackers import Memory, MlflowClient, WandbRun, fake_mlflow, fake_wandb
from runs.stores import Recorder, row

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import (
    CallbackList,
    MLflowTracker,
    Store,
    TensorBoardTracker,
    TrackedRun,
    Tracker,
    WandbTracker,
    compare,
    grid,
    successive_halving,
    train_missing,
)
from gfgn.runs.tracking import make_tracker
from gfgn.train import Replica, TrainConfig, train_replicas

QUICK = TrainConfig(4, 4)


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=3)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


def test_a_run_with_its_curves(data: NodeDataset, store: Store) -> None:
    replica = Replica(1, 2, lr=0.05, options=(("heads", 4),))
    with Memory() as tracker:
        (kept,) = train_missing(store, data, "gfgn-pair", [replica], QUICK, callback=tracker)
    (tracked,) = tracker.runs
    (alone,) = train_replicas("gfgn-pair", data, [replica], 4, 4)
    assert tracked.curves == {f"history/{name}": alone.history[name] for name in ("train_loss", "val_loss", "val")}
    assert tracked.name == f"dimensions/gfgn-pair/split1-seed2-{kept.key[:8]}"
    expected = {"dataset": "dimensions", "standin": False, "model": "gfgn-pair", "split": 1, "seed": 2, "lr": 0.05}
    expected |= {"option_heads": 4, "max_epochs": 4, "key": kept.key, "metric": "accuracy", "device": kept.device}
    assert expected.items() <= tracked.facts.items()
    results = {name: getattr(kept, name) for name in ("val", "test", "epoch", "epochs", "seconds", "num_parameters")}
    assert tracked.scores == results | {f"gate_{name}": value for name, value in (kept.gates or {}).items()}


def test_a_stopped_and_a_diverged_run() -> None:
    stopped = TrackedRun.of(row(search="abc"), {})
    assert "test" not in stopped.scores
    assert (stopped.facts["search"], stopped.scores["val"]) == ("abc", 0.5)
    diverged = TrackedRun.of(row(val=math.nan, test=0.5), {"val": [0.5, math.nan]})
    assert "val" not in diverged.scores
    np.testing.assert_equal(diverged.curves, {"history/val": [0.5, math.nan]})


def test_only_runs_that_were_trained_are_sent(data: NodeDataset, store: Store) -> None:
    arguments: dict[str, Any] = {"models": ["majority", "mlp"], "store": store, "max_epochs": 2}
    first, second, third = Memory(), Memory(), Memory()
    with pytest.raises(KeyboardInterrupt):
        compare(data, splits=2, seeds=2, **arguments, callback=CallbackList(first, Recorder(stop=5)))
    first.close()
    assert len(first.runs) == len(store) - 1 == 4  # the process ended between the store and the tracker
    for tracker in (second, third):
        with tracker:
            compare(data, splits=3, seeds=2, **arguments, callback=tracker)
    assert (len(second.runs), third.runs) == (len(store) - 5, [])
    keys = [each.facts["key"] for each in first.runs + second.runs]
    assert len(set(keys)) == len(keys)


def test_an_interrupted_search_is_tracked_once(data: NodeDataset, store: Store) -> None:
    arguments: Any = (store, data, "mlp", grid(lr=(0.01, 0.02, 0.05, 0.1)), [0, 1])
    first, second = Memory(), Memory()
    interrupted = CallbackList(first, Recorder(stop=3))
    with pytest.raises(KeyboardInterrupt):
        successive_halving(*arguments, rungs=[2], config=QUICK, callback=interrupted, batch_size=2)
    first.close()
    with second:
        successive_halving(*arguments, rungs=[2], config=QUICK, callback=second)
    keys = [each.facts["key"] for each in first.runs + second.runs]
    assert len(set(keys)) == len(keys)
    assert any(each.facts["search"] for each in second.runs)


def test_a_failure_is_said_once_and_loses_nothing(
    data: NodeDataset, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gfgn.runs.tracking"), Memory(good=1) as broken, Memory() as working:
        compare(data, ["mlp"], 3, store=store, max_epochs=3, callback=CallbackList(broken, working))
    assert (len(store), len(working.runs), len(broken.runs), broken.calls) == (3, 3, 1, 2)
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith("memory failed")
    assert warning.endswith("OSError: no space left")


def test_trackers_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mlflow(monkeypatch)
    fake_wandb(monkeypatch)
    server, default = make_tracker("mlflow:http://localhost:5000"), make_tracker("wandb")
    assert isinstance(server, MLflowTracker)
    assert isinstance(default, WandbTracker)
    assert (server.uri, default.project) == ("http://localhost:5000", "gfgn")
    with pytest.raises(ValueError, match=r"track must be tensorboard\[:DIR\], .*, got 'aim:x'"):
        make_tracker("aim:x")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_missing_package(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    with pytest.raises(ImportError, match=rf"{name} needs .*: pip install 'gfgn\["):
        make_tracker(name)


# --- the three of them ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracked(data: NodeDataset) -> list[TrackedRun]:
    """What two runs are sent as."""
    with Memory() as tracker:
        compare(data, ["mlp"], 2, max_epochs=3, callback=tracker)
    return tracker.runs


def send(tracker: Tracker, runs: list[TrackedRun]) -> None:
    for each in runs:
        tracker.send(each)


def test_tensorboard(tracked: list[TrackedRun], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the package tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    send(TensorBoardTracker(tmp_path), tracked)
    for each in tracked:
        events = EventAccumulator(str(tmp_path / each.name)).Reload()
        for name, values in each.curves.items():
            assert [(point.step, point.value) for point in events.Scalars(name)] == list(
                enumerate(np.float32(values).tolist())
            )
        for name, value in each.scores.items():
            assert events.Scalars(name)[0].value == np.float32(value)
        content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        stored = HParamsPluginData.FromString(content).session_start_info.hparams
        for name, value in each.facts.items():
            assert getattr(stored[name], stored[name].WhichOneof("kind")) == value
    odd = TrackedRun("my data (stand-in)/my.module:Net/x", tracked[0].facts, tracked[0].scores)
    send(TensorBoardTracker(tmp_path / "odd"), [odd, odd])
    folders = sorted(str(path.relative_to(tmp_path / "odd")) for path in tmp_path.glob("odd/*/*/*"))
    assert folders == [f"my_data_(stand-in)/my.module_Net/{name}" for name in ("x", "x-2")]


def check_mlflow(run: TrackedRun, params: Any, metrics: list[tuple[str, float, int]]) -> None:
    assert params == {name: str(value) for name, value in run.facts.items()}
    expected = [(name, value, 0) for name, value in run.scores.items()]
    expected += [(name, value, step) for name, values in run.curves.items() for step, value in enumerate(values)]
    assert sorted(metrics) == sorted(expected)


def test_mlflow_calls(tracked: list[TrackedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    client: type[MlflowClient] = fake_mlflow(monkeypatch)
    long = TrackedRun("a/b/c", {}, {}, {"history/val": [0.5] * 2500})
    send(MLflowTracker("uri"), [*tracked, long])
    send(MLflowTracker("uri"), tracked)  # into the same experiment
    runs = list(client.runs.values())
    assert client.experiments == {"gfgn": "0"}
    assert [own["name"] for own in runs] == [each.name for each in [*tracked, long, *tracked]]
    for own, each in zip(runs, [*tracked, long], strict=False):
        check_mlflow(each, own["params"], [(metric.key, metric.value, metric.step) for metric in own["metrics"]])
        assert (own["status"], own["tags"]) == ("FINISHED", {"group": each.group})


def test_wandb_calls(tracked: list[TrackedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WandbRun] = fake_wandb(monkeypatch)
    send(WandbTracker("mine", entity="us"), tracked)
    for own, each in zip(started, tracked, strict=True):
        given = own.arguments
        assert (given["project"], given["entity"], given["reinit"]) == ("mine", "us", "create_new")
        assert (given["name"], given["group"], given["config"], own.finished) == (
            each.name,
            each.group,
            each.facts,
            True,
        )
        assert list(own.history.values()) == [
            {name: values[step] for name, values in each.curves.items()} for step in range(3)
        ]
        assert {name: own.summary[name] for name in each.scores} == each.scores
