"""Studies train what is missing and nothing else; a configuration is chosen by validation scores alone."""

import itertools
import os
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runs.stores import needs_fork, row, start_process

from gfgn.data import Dataset
from gfgn.data.generators import dimensions
from gfgn.runs import PAPER_GRID, Row, Store, grid, make_replicas, run_study, select
from gfgn.train import Replica, Status, TrainConfig

QUICK = TrainConfig(4, 4)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dimensions(60, degree=6, splits=3)


# --- grids ------------------------------------------------------------------------------------------------------------


def test_the_grid_of_the_paper() -> None:
    assert len(PAPER_GRID) == 16
    combinations = {
        tuple(configuration[name] for name in ("lr", "dropout", "lam", "weight_decay")) for configuration in PAPER_GRID
    }
    assert combinations == set(itertools.product((0.005, 0.05), (0.5, 0.8), (1.0, 2.0), (5e-4, 5e-5)))
    assert len(make_replicas("gfgn-pair", PAPER_GRID, range(10))) == 160
    assert len(make_replicas("gcn", PAPER_GRID, range(10))) == 80  # which ignores λ
    assert {replica.lam for replica in make_replicas("gcn", PAPER_GRID, range(1))} == {1.0}


def test_grids_and_replicas() -> None:
    assert grid(lr=(0.1, 0.2), lam=1.0, hidden=[8, 16]) == [
        {"lr": 0.1, "lam": 1.0, "hidden": 8},
        {"lr": 0.1, "lam": 1.0, "hidden": 16},
        {"lr": 0.2, "lam": 1.0, "hidden": 8},
        {"lr": 0.2, "lam": 1.0, "hidden": 16},
    ]
    assert grid() == [{}]
    assert make_replicas("gfgn-graph", grid(lr=0.1, hidden=8), [2, 1], [0, 5]) == [
        Replica(split, seed, lr=0.1, options=(("hidden", 8),)) for split in (2, 1) for seed in (0, 5)
    ]
    with pytest.raises(ValueError, match=r"lr must be one or more values, each of them once, got \(0.1, 0.1\)"):
        grid(lr=(0.1, 0.1))
    with pytest.raises(ValueError, match=r"lr must be one or more values, each of them once, got \(\)"):
        grid(lr=())
    with pytest.raises(ValueError, match="choices must be hyper-parameters or options of a model, got 'split'"):
        grid(split=(0, 1))


# --- studies ----------------------------------------------------------------------------------------------------------


def test_only_what_is_missing_is_trained(data: Dataset) -> None:
    seen: list[Row] = []
    states: list[Status] = []
    with Store(":memory:") as store:
        few = make_replicas("gfgn-graph", [{}], [1])
        run_study(store, data, "gfgn-graph", few, QUICK, progress=seen.append)
        assert [each.replica for each in seen] == few
        every = make_replicas("gfgn-graph", [{}], [2, 1, 0])
        rows = run_study(store, data, "gfgn-graph", every, QUICK, progress=seen.append, status=states.append)
        assert [each.replica for each in rows] == every
        assert sorted(each.replica.split for each in seen) == [0, 1, 2]
        assert rows[1] == seen[0]
        assert states[-1].replicas == 2
        again = run_study(store, data, "gfgn-graph", every, QUICK, progress=seen.append)
        assert again == rows
        assert len(seen) == 3


def test_a_row_says_what_the_run_was(data: Dataset) -> None:
    with Store(":memory:") as store:
        (found,) = run_study(store, data, "gfgn-neighbor", [Replica(1, 2, lr=0.05, lam=2.0)], QUICK)
    assert (found.dataset, found.dataset_fingerprint) == ("dimensions", data.fingerprint)
    assert found.split_fingerprint == data.split_fingerprint(1)
    assert (found.replica, found.config, found.model) == (Replica(1, 2, lr=0.05, lam=2.0), QUICK, "gfgn-neighbor")
    assert 0 <= found.test <= 1
    assert 0 <= found.epoch < found.epochs <= 4
    assert found.gates is not None
    assert 0 <= found.gates["min"] <= found.gates["mean"] <= found.gates["max"] <= 2


def test_models_without_gates_do_not_run_twice(data: Dataset) -> None:
    with Store(":memory:") as store:
        replicas = [Replica(0, lam=1.0), Replica(0, lam=2.0)]
        one, two = run_study(store, data, "mlp", replicas, QUICK)
        assert one == two
        assert len(store) == 1
        run_study(store, data, "gfgn-graph", replicas, QUICK)
        assert len(store) == 3


def test_other_data_and_other_protocols_are_other_runs(data: Dataset) -> None:
    with Store(":memory:") as store:
        run_study(store, data, "mlp", [Replica()], QUICK)
        run_study(store, dimensions(60, degree=6, splits=3, seed=1), "mlp", [Replica()], QUICK)
        run_study(store, data, "mlp", [Replica()], TrainConfig(5, 4))
        assert len(store) == 3


def test_an_error_or_interruption_keeps_what_was_finished(data: Dataset) -> None:
    seen: list[int] = []

    def interrupt(each: Row) -> None:
        seen.append(each.replica.split)
        if each.replica.split == 1:
            raise KeyboardInterrupt

    replicas = make_replicas("mlp", [{}], range(3))
    with Store(":memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            run_study(store, data, "mlp", replicas, QUICK, progress=interrupt, batch_size=1)
        assert sorted(each.replica.split for each in store.rows()) == sorted(seen)  # batches end in any order
        assert seen[-1] == 1
        with pytest.raises(ValueError, match="model must be one of"):
            run_study(store, data, "mpl", replicas, QUICK)


def test_bad_protocols() -> None:
    with pytest.raises(ValueError, match="max_epochs must be 1 or larger, got 0"):
        TrainConfig(max_epochs=0)
    with pytest.raises(ValueError, match="patience must be 1 or larger, got -1"):
        TrainConfig(patience=-1)


# --- processes --------------------------------------------------------------------------------------------------------

STUDY = make_replicas("gfgn-graph", grid(lr=(0.02, 0.05)), range(3), range(10))


def study(path: Path) -> None:
    """The whole of a study, in small batches; in a process of its own, which loads no compiled kernels."""
    os.environ["GFGN_BACKEND"] = "reference"
    torch.set_num_threads(1)
    with Store(path) as store:
        run_study(store, dimensions(60, degree=6, splits=3), "gfgn-graph", STUDY, TrainConfig(8, 8), batch_size=3)


def scores(path: Path) -> list[tuple[Any, ...]]:
    with Store(path) as store:
        return [
            (each.key, each.replica, each.val, each.test, each.epoch, each.epochs, each.num_parameters)
            for each in store.rows()
        ]


def kill_study(path: Path, runs: int, delay: float) -> int:
    """Starts a study and kills it once it has added some runs to the store and a moment has passed; the runs there are.

    The moment is one of the study's own progress and not of the clock, so that a slow machine changes nothing.
    """
    wanted = runs + (len(scores(path)) if path.exists() else 0)
    process = start_process(study, path)
    while runs and process.is_alive() and not (path.exists() and len(scores(path)) >= wanted):
        time.sleep(0.02)
    process.join(delay)
    process.kill()
    process.join()
    return len(scores(path)) if path.exists() else 0


@needs_fork
def test_a_study_killed_twenty_times_ends_like_one_that_was_not(tmp_path: Path) -> None:
    """Processes of their own are killed at random moments by a signal that they cannot catch."""
    whole, killed = tmp_path / "whole.sqlite", tmp_path / "killed.sqlite"
    process = start_process(study, whole)
    process.join()
    assert process.exitcode == 0
    draw, left = random.Random(0), []
    while len(left) < 20:  # a kill that came too late for a study to be interrupted does not count
        left.append(kill_study(killed, draw.randint(0, 3), draw.uniform(0, 0.02)))
        if left[-1] == len(STUDY):
            killed, left = killed.with_stem(f"{killed.stem}-again"), []
    assert len(set(left)) > 2  # kills fell between runs, too
    process = start_process(study, killed)
    process.join()
    assert process.exitcode == 0
    assert scores(killed) == scores(whole)
    assert len(scores(killed)) == len(STUDY)


@needs_fork
def test_two_processes_make_one_study(tmp_path: Path) -> None:
    paths = [tmp_path / "shared.sqlite", tmp_path / "shared.sqlite", tmp_path / "whole.sqlite"]
    processes = [start_process(study, path) for path in paths]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert scores(tmp_path / "shared.sqlite") == scores(tmp_path / "whole.sqlite")
    assert len(scores(tmp_path / "shared.sqlite")) == len(STUDY)


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_the_best_mean_validation_score_wins() -> None:
    rows = [row(split, lr=0.1, val=val, test=1.0) for split, val in enumerate((0.5, 0.9, 0.5))]
    rows += [row(split, lr=0.2, val=val, test=0.0) for split, val in enumerate((0.7, 0.7, 0.7))]
    selection = select(rows)
    assert selection.best["lr"] == 0.2
    first, second = selection.candidates
    assert first == (Replica(lr=0.2).configuration, pytest.approx(0.7), pytest.approx(0.0, abs=1e-12), 3, False)
    assert second.val == pytest.approx(1.9 / 3)
    assert second.std == pytest.approx(0.23094, abs=1e-5)
    assert select(rows[::-1]) == selection


def test_seeds_of_a_split_are_averaged_first() -> None:
    rows = [row(split, seed, val=0.2 * split + 0.1 * seed) for split in range(2) for seed in range(2)]
    (candidate,) = select(rows).candidates
    assert candidate.val == pytest.approx(0.15)
    assert candidate.std == pytest.approx(0.2 / 2**0.5)


def test_the_test_score_is_never_looked_at() -> None:
    class Sealed(SimpleNamespace):
        @property
        def test(self) -> float:
            raise AssertionError("the test score was read")

    runs = [Sealed(replica=Replica(0, lr=lr), val=lr, dropped=False) for lr in (0.1, 0.3, 0.2)]
    assert select(runs).best["lr"] == 0.3


@pytest.mark.parametrize(
    ("name", "values", "wins"),
    [
        *(("lr", (0.1, 0.01), 0.01), ("weight_decay", (0.1, 0.01), 0.1), ("dropout", (0.1, 0.2), 0.2)),
        *(("lam", (2.0, 1.0), 1.0), ("options", ((("hidden", 16),), (("hidden", 32),)), 16)),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_tie_goes_to_the_more_cautious(name: str, values: Any, wins: Any, turned: bool) -> None:
    """Whatever the order, and though 0.1 + 0.2 is not quite 0.3."""
    vals = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1)]
    rows = [
        row(k, val=val, **{name: value})
        for value, group in zip(values, vals, strict=True)
        for k, val in enumerate(group)
    ]
    best = select(rows[::-1] if turned else rows).best
    assert best["hidden" if name == "options" else name] == wins


def test_what_was_given_up_and_what_diverged_come_last() -> None:
    rows = [row(lr=0.1, val=0.9, search="abc"), row(lr=0.2, val=0.1), row(lr=0.3, val=float("nan"))]
    assert [candidate.configuration["lr"] for candidate in select(rows).candidates] == [0.2, 0.3, 0.1]


def test_configurations_must_be_comparable() -> None:
    with pytest.raises(
        ValueError, match=r"runs must be on the same splits and seeds .*, got 1 to 2 runs a configuration"
    ):
        select([row(0, lr=0.1), row(1, lr=0.1), row(0, lr=0.2)])
    with pytest.raises(ValueError, match="each split and seed of a configuration once"):
        select([row(0), row(0)])
    with pytest.raises(ValueError, match="runs must hold at least one run"):
        select([])
