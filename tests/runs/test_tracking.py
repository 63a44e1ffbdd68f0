"""Trackers get every run that was trained, once, with its curves; what they do never harms training."""

import inspect
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs.fake_trackers import Memory, MlflowClient, WandbRun, fake_mlflow, fake_wandb
from runs.small_studies import ALL_RUNS, run, write_study
from runs.stores import Recorder, row

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import (
    CallbackList,
    MLflowTracker,
    ProgressCallback,
    Store,
    TensorBoardTracker,
    TrackedRun,
    Tracker,
    WandbTracker,
    compare,
    engine,
    grid,
    successive_halving,
    train_missing,
)
from gfgn.runs.tracking import make_tracker
from gfgn.train import Replica, TrainConfig, train_replicas

QUICK = TrainConfig(4, 4)
CURVES = ("train_loss", "val_loss", "val")


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=3)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_a_run_with_its_curves(data: NodeDataset, store: Store) -> None:
    replica = Replica(1, 2, lr=0.05, options=(("heads", 4),))
    with Memory() as tracker:
        (kept,) = train_missing(store, data, "gfgn-pair", [replica], QUICK, callback=tracker)
    (tracked,) = tracker.runs
    (alone,) = train_replicas("gfgn-pair", data, [replica], 4, 4)
    assert tracked.curves == {f"history/{name}": alone.history[name] for name in CURVES}
    assert len(tracked.curves["history/val"]) == kept.epochs
    assert tracked.name == f"dimensions/gfgn-pair/split1-seed2-{kept.key[:8]}"
    expected = {"dataset": "dimensions", "standin": False, "model": "gfgn-pair", "split": 1, "seed": 2, "lr": 0.05}
    expected |= {"weight_decay": 5e-4, "dropout": 0.5, "lam": 1.0, "option_heads": 4, "max_epochs": 4, "patience": 4}
    expected |= {"key": kept.key, "metric": "accuracy", "device": kept.device, "date": kept.date}
    expected |= {f"{name}_version": version for name, version in kept.versions.items()}
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


def test_models_without_a_network_and_on_samples(data: NodeDataset, store: Store) -> None:
    with Memory() as tracker:
        train_missing(store, data, "majority", [Replica()], callback=tracker)
        train_missing(store, data, "graphsaint", [Replica()], QUICK, callback=tracker)
    first, second = tracker.runs
    assert first.curves == {}
    assert len(second.curves["history/val"]) == second.scores["epochs"]


# --- once, and nothing more -------------------------------------------------------------------------------------------


def test_only_runs_that_were_trained_are_sent(data: NodeDataset, store: Store) -> None:
    arguments: dict[str, Any] = {"models": ["majority", "mlp"], "store": store, "max_epochs": 2}
    first, second, third = Memory(), Memory(), Memory()
    with pytest.raises(KeyboardInterrupt):
        compare(data, splits=2, seeds=2, **arguments, callback=CallbackList(first, Recorder(stop=5)))
    first.close()
    assert len(first.runs) == len(store) - 1 == 4  # the process ended between the store and the tracker
    with second:
        compare(data, splits=3, seeds=2, **arguments, callback=second)
    assert len(second.runs) == len(store) - 5
    with third:
        compare(data, splits=3, seeds=2, **arguments, callback=third)
    assert (third.runs, third.sent) == ([], 0)
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
    assert len(store) - 1 <= len(keys) <= len(store)
    assert any(each.facts["search"] for each in second.runs)


def test_histories_are_kept_only_on_request(data: NodeDataset, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    train = engine.train_runs

    def spy(*arguments: Any, history: bool, **options: Any) -> Any:
        asked.append(history)
        return train(*arguments, history=history, **options)

    monkeypatch.setattr(engine, "train_runs", spy)

    class Other(ProgressCallback):
        def on_history(self, *_: Any) -> None:
            raise AssertionError("has not asked for histories")

    recorder, tracker = Recorder(), Memory()
    callbacks = [None, CallbackList(recorder, Other()), CallbackList(Other(), CallbackList(tracker))]
    for seed, callback in enumerate(callbacks):
        train_missing(store, data, "mlp", [Replica(seed=seed)], QUICK, callback=callback)
    tracker.close()
    assert asked == [False, False, True]
    assert len(recorder.rows) == len(tracker.runs) == 1


def test_a_list_passes_every_event_on(data: NodeDataset, store: Store) -> None:
    one, two = Recorder(), Recorder()
    compare(data, ["mlp"], 2, store=store, max_epochs=2, callback=CallbackList(one, two))
    assert one.events == two.events == [("begin", "dimensions", "mlp", 2, 0), ("end", "dimensions", "mlp")]
    assert one.rows == two.rows == store.rows()
    assert one.states == two.states != []


def test_a_failure_is_said_once_and_loses_nothing(
    data: NodeDataset, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    plain = compare(data, ["mlp"], 3, max_epochs=3)
    with caplog.at_level(logging.INFO, "gfgn.runs.tracking"), Memory(good=1) as broken, Memory() as working:
        result = compare(data, ["mlp"], 3, store=store, max_epochs=3, callback=CallbackList(broken, working))
    assert [own.test for own in result.rows["mlp"]] == [own.test for own in plain.rows["mlp"]]
    assert (len(store), len(working.runs), len(broken.runs), broken.calls) == (3, 3, 1, 2)
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning == "memory failed; no more runs are tracked, but all are in the store: OSError: no space left"
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.INFO] == [
        "memory: 3 runs",
        "memory: 1 run",
    ]


def test_a_study(tmp_path: Path) -> None:
    with Memory() as tracker:
        run(write_study(tmp_path), tmp_path / "out", callback=tracker)
        run(write_study(tmp_path), tmp_path / "out", callback=tracker)
    assert len(tracker.runs) == ALL_RUNS
    assert {each.name.rpartition("/")[0] for each in tracker.runs} == {"karate/gcn", "karate/gfgn-graph"}


# --- names and packages -----------------------------------------------------------------------------------------------


def test_trackers_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mlflow(monkeypatch)
    fake_wandb(monkeypatch)
    server = make_tracker("mlflow:http://localhost:5000")
    assert isinstance(server, MLflowTracker)
    assert (server.uri, str(server)) == ("http://localhost:5000", "MLflow in http://localhost:5000")
    default = make_tracker("wandb")
    assert isinstance(default, WandbTracker)
    assert default.project == "gfgn"
    with pytest.raises(ValueError, match=r"track must be tensorboard\[:DIR\], .*, got 'aim:x'"):
        make_tracker("aim:x")


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("tensorboard", "torch.utils.tensorboard", "tracking"),
        ("mlflow", "mlflow", "tracking"),
        ("wandb", "wandb", "wandb"),
    ],
)
def test_a_missing_package(name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"tracking with {name} needs .*: pip install 'gfgn\[{extra}\]'"):
        make_tracker(name)


def test_packages_are_imported_only_when_used() -> None:
    code = "import sys, gfgn.runs; print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert "gfgn" in loaded
    assert loaded & {"tensorboard", "mlflow", "wandb"} == set()


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
    assert len([path for path in tmp_path.glob("*/*/*") if path.is_dir()]) == len(tracked)
    for each in tracked:
        events = EventAccumulator(str(tmp_path / each.name)).Reload()
        for name, values in each.curves.items():
            points = events.Scalars(name)
            assert [point.step for point in points] == list(range(len(values)))
            assert [point.value for point in points] == np.float32(values).tolist()
        for name, value in each.scores.items():
            assert events.Scalars(name)[0].value == np.float32(value)
        content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        stored = HParamsPluginData.FromString(content).session_start_info.hparams
        for name, value in each.facts.items():
            assert getattr(stored[name], stored[name].WhichOneof("kind")) == value


def test_tensorboard_has_one_folder_per_run(tracked: list[TrackedRun], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the package tensorboard")
    tracker, each = TensorBoardTracker(tmp_path), tracked[0]
    odd = TrackedRun("my data (stand-in)/my.module:Net/x", each.facts, each.scores)
    send(tracker, [odd, odd, odd])
    folders = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/*"))
    assert folders == [f"my_data_(stand-in)/my.module_Net/{name}" for name in ("x", "x-2", "x-3")]


def check_mlflow(run: TrackedRun, params: Any, metrics: list[tuple[str, float, int]]) -> None:
    assert params == {name: str(value) for name, value in run.facts.items()}
    expected = [(name, value, 0) for name, value in run.scores.items()]
    expected += [(name, value, step) for name, values in run.curves.items() for step, value in enumerate(values)]
    assert sorted(metrics) == sorted(expected)


def test_mlflow_calls(tracked: list[TrackedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    client = fake_mlflow(monkeypatch)
    long = TrackedRun("a/b/c", {}, {}, {"history/val": [0.5] * 2500})
    send(MLflowTracker("uri"), [*tracked, long])
    send(MLflowTracker("uri"), tracked)  # into the same experiment
    runs = list(client.runs.values())
    assert client.experiments == {"gfgn": "0"}
    assert [own["name"] for own in runs] == [each.name for each in [*tracked, long, *tracked]]
    for own, each in zip(runs, [*tracked, long], strict=False):
        check_mlflow(each, own["params"], [(metric.key, metric.value, metric.step) for metric in own["metrics"]])
        assert (own["status"], own["tags"]) == ("FINISHED", {"group": each.name.rpartition("/")[0]})


def test_mlflow(tracked: list[TrackedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the package mlflow")
    monkeypatch.chdir(tmp_path)  # where MLflow writes artifacts
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    send(MLflowTracker(uri, "trial"), tracked)
    client = mlflow.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("trial").experiment_id])
    assert len(runs) == len(tracked)
    for own in runs:
        each = next(each for each in tracked if each.name == own.info.run_name)
        names = [*each.scores, *each.curves]
        history = [point for name in names for point in client.get_metric_history(own.info.run_id, name)]
        check_mlflow(each, own.data.params, [(point.key, point.value, point.step) for point in history])
        assert own.info.status == "FINISHED"


def test_the_mlflow_of_the_tests_is_like_the_real_one() -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the package mlflow")
    for name, method in inspect.getmembers(MlflowClient, inspect.isfunction):
        real = list(inspect.signature(getattr(mlflow.MlflowClient, name)).parameters)
        own = list(inspect.signature(method).parameters)
        assert real[: len(own)] == own, name


def check_wandb(run: TrackedRun, config: Any, history: list[dict[str, float]], summary: dict[str, Any]) -> None:
    assert config == run.facts
    assert [{name: step[name] for name in run.curves} for step in history if run.curves.keys() <= step.keys()] == [
        {name: values[step] for name, values in run.curves.items()} for step in range(3)
    ]
    assert {name: summary[name] for name in run.scores} == run.scores


def test_wandb_calls(tracked: list[TrackedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WandbRun] = fake_wandb(monkeypatch)
    send(WandbTracker("mine", entity="us"), tracked)
    for own, each in zip(started, tracked, strict=True):
        given = own.arguments
        assert (given["project"], given["entity"], given["reinit"]) == ("mine", "us", "create_new")
        assert (given["name"], given["group"], own.finished) == (each.name, each.name.rpartition("/")[0], True)
        check_wandb(each, given["config"], list(own.history.values()), own.summary)


def test_wandb(tracked: list[TrackedRun], tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="needs the package wandb")
    send(WandbTracker(mode="offline", dir=str(tmp_path)), tracked)
    wandb.teardown()  # waits for the process that writes the files
    files = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    runs = [read_wandb(path.read_bytes()) for path in files]
    assert sorted(name for name, *_ in runs) == sorted(each.name for each in tracked)
    for name, config, history, summary in runs:
        each = next(each for each in tracked if each.name == name)
        check_wandb(each, {key: config[key] for key in each.facts}, history, summary)


def read_wandb(content: bytes) -> tuple[str, dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Name, config, history and summary of a run from its file: a header of 7 bytes, then records, each with its
    checksum, length and kind, in one or more pieces within blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    def items(entries: Any) -> dict[str, Any]:
        return {entry.key or entry.nested_key[0]: json.loads(entry.value_json) for entry in entries}

    name, position, piece = "", 7, b""
    config: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    while position + 7 <= len(content):
        if position % 32768 > 32768 - 7:  # no header fits into the rest of the block
            position += 32768 - position % 32768
            continue
        length, kind = int.from_bytes(content[position + 4 : position + 6], "little"), content[position + 6]
        piece += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            record, piece = Record.FromString(piece), b""
            match record.WhichOneof("record_type"):
                case "run":
                    name, config = record.run.display_name, config | items(record.run.config.update)
                case "history":
                    history.append(items(record.history.item))
                case "summary":
                    summary |= items(record.summary.update)
    return name, config, history, summary
