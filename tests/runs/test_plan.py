"""Plans train what is missing and nothing else, also after a process was killed."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.stores import Recorder, needs_fork, row, start_process

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import Plan, Store, grid, make_replicas, train_missing
from gfgn.runs.plan import read_result
from gfgn.train import TrainConfig

QUICK = TrainConfig(4, 4)


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=3)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_tuning_and_final_runs() -> None:
    plan = Plan("gfgn-graph", tuple(grid(lr=(0.1, 0.2), lam=(1.0, 2.0))), 3, 2, QUICK)
    assert len(plan.tuning()) == 4 * 3
    assert {replica.seed for replica in plan.tuning()} == {0}
    final = plan.final({"lr": 0.2, "lam": 1.0})
    assert {(replica.split, replica.seed) for replica in final} == {(k, s) for k in range(3) for s in range(2)}
    assert plan.count == len({*plan.tuning(), *final}) == 15
    only_lam = Plan("mlp", tuple(grid(lam=(1.0, 2.0))), 3, 2, QUICK)  # one configuration, as λ is ignored
    assert only_lam.tuning() == []
    assert only_lam.count == 6


def test_results_of_incomplete_plans() -> None:
    plan = Plan("gfgn-graph", tuple(grid(lr=(0.1, 0.2))), 2, 2, TrainConfig(5, 5))
    best = {"lr": 0.2}
    rows = {each.replica: each for lr in (0.1, 0.2) for k in range(2) for each in [row(k, lr=lr, val=lr)]}

    def result() -> Any:
        return read_result(plan, lambda replicas: [rows.get(replica) for replica in replicas])

    assert (result().have, result().need, result().rows) == (4, 6, ())
    assert result().configuration["lr"] == 0.2
    rows |= {replica: row(replica.split, 1, lr=0.2) for replica in plan.final(best)[1::2]}
    assert [each.replica for each in result().rows] == plan.final(best)
    assert (result().have, result().mean) == (6, 25.0)
    del rows[plan.tuning()[0]]
    assert (result().have, result().selection, result().mean) == (3, None, None)


# --- training what is missing -----------------------------------------------------------------------------------------


def test_only_missing_runs_are_trained(data: NodeDataset) -> None:
    recorder = Recorder()
    with Store(":memory:") as store:
        few = make_replicas("gfgn-graph", [{}], [1])
        train_missing(store, data, "gfgn-graph", few, QUICK, callback=recorder)
        assert [each.replica for each in recorder.rows] == few
        every = make_replicas("gfgn-graph", [{}], [2, 1, 0])
        rows = train_missing(store, data, "gfgn-graph", every, QUICK, callback=recorder)
        assert [each.replica for each in rows] == every
        assert sorted(each.replica.split for each in recorder.rows) == [0, 1, 2]
        assert rows[1] == recorder.rows[0]
        assert recorder.states[-1].replicas == 2
        assert train_missing(store, data, "gfgn-graph", every, QUICK, callback=recorder) == rows
        assert len(recorder.rows) == 3


# --- processes --------------------------------------------------------------------------------------------------------

REPLICAS = make_replicas("gfgn-graph", grid(lr=(0.02, 0.05)), range(3), range(4))


def train_all(path: Path) -> None:
    """Trains all runs in small batches; in a separate process, without compiled kernels."""
    os.environ["GFGN_BACKEND"] = "reference"
    torch.set_num_threads(1)
    with Store(path) as store:
        data = dimensions(60, degree=6, splits=3)
        train_missing(store, data, "gfgn-graph", REPLICAS, TrainConfig(8, 8), batch_size=3)


def scores(path: Path) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    with Store(path) as store:
        return [
            (each.key, each.replica, each.val, each.test, each.epoch, each.epochs, each.num_parameters)
            for each in store.rows()
        ]


def train_and_kill(path: Path, runs: int, delay: float) -> int:
    """Starts training, kills the process once it has added `runs` runs and `delay` has passed; returns all runs.

    The process is killed after its own progress and not after a fixed time, so that a slow machine changes nothing.
    """
    target = runs + len(scores(path))
    process = start_process(train_all, path)
    while runs and process.is_alive() and len(scores(path)) < target:
        time.sleep(0.02)
    process.join(delay)
    process.kill()
    process.join()
    return len(scores(path))


@needs_fork
def test_killed_processes_lose_nothing_and_two_may_write_at_once(tmp_path: Path) -> None:
    """Processes killed at random moments, then two at once, give the same runs as one that was not disturbed."""
    whole, killed = tmp_path / "whole.sqlite", tmp_path / "killed.sqlite"
    undisturbed, draw = start_process(train_all, whole), random.Random(0)
    left = [train_and_kill(killed, runs, draw.uniform(0, 0.02)) for runs in (0, 1, 3, 2)]
    assert left[-1] < len(REPLICAS)
    assert len(set(left)) > 2  # some were killed between runs
    processes = [undisturbed, start_process(train_all, killed), start_process(train_all, killed)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert scores(killed) == scores(whole)
    assert len(scores(killed)) == len(REPLICAS)
