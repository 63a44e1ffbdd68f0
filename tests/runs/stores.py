"""Rows and helpers that the tests of stores, plans and reports share."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gfgn.runs import ProgressCallback
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.study import Search, Study
from gfgn.train import Replica, Run, Status, TrainConfig

RECORD = DatasetRecord(
    name="toy",
    fingerprint="f00d",
    split_fingerprints=tuple(f"s{k}" for k in range(10)),
    standin=False,
    metric="accuracy",
    description="a toy",
    num_nodes=10,
    num_edges=20,
    num_features=3,
    num_classes=2,
)
DEFAULT_CONFIG = TrainConfig(5, 5)


def made_study(
    models: Iterable[str],
    splits: int,
    config: TrainConfig = DEFAULT_CONFIG,
    configurations: tuple[dict[str, Any], ...] = ({},),
) -> Study:
    """The study of a comparison on the toy dataset."""
    return Study(
        name="toy",
        title="",
        about="",
        datasets=("toy",),
        models=dict.fromkeys(models, configurations),
        splits=splits,
        seeds=1,
        config=config,
        search=Search(len(configurations), 0, {}, rungs=None) if len(configurations) > 1 else None,
        shared=configurations,
    )


def row(split: int = 0, seed: int = 0, model: str = "gfgn-graph", **fields: Any) -> RunRecord:
    """A row of the toy dataset; `fields` belong to the run or the replica, or are `record`, `config` or `search`."""
    names = ("lr", "weight_decay", "dropout", "lam", "options", "input_dropout")
    hyper = {name: fields.pop(name) for name in names if name in fields}
    config = fields.pop("config", DEFAULT_CONFIG)
    record, search = fields.pop("record", RECORD), fields.pop("search", "")
    run = Run(
        **{
            "replica": Replica(split, seed, **hyper),
            "model": model,
            "val": 0.5,
            "test": 0.25,
            "epoch": 3,
            "epochs": 5,
            "history": {},
            "seconds": 0.125,
            "num_parameters": 17,
            "gates": {"min": 0.1, "mean": 0.4} if model.startswith("gfgn") else None,
            "dropped": bool(search),
            **fields,
        }
    )
    return RunRecord.of(run, record, config, search=search)


class Recorder(ProgressCallback):
    """Records all events; raises `KeyboardInterrupt` after `stop` runs."""

    def __init__(self, stop: int = -1) -> None:
        self.events: list[Any] = []
        self.rows: list[RunRecord] = []
        self.states: list[Status] = []
        self.stop = stop

    def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        self.events.append(("begin", dataset, model, runs, kept))

    def on_run_end(self, row: RunRecord) -> None:
        self.rows.append(row)
        if len(self.rows) == self.stop:
            raise KeyboardInterrupt

    def on_status(self, status: Status) -> None:
        self.states.append(status)

    def on_model_end(self, dataset: str, model: str) -> None:
        self.events.append(("end", dataset, model))


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts many processes, which is fast only with fork")


def start_process(target: Callable[..., None], *arguments: Any) -> Any:
    """A separate process. It is forked from one that has imported gfgn, and so starts quickly."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gfgn.runs", "gfgn.data"])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process
