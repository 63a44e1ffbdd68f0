"""Checkpoints: interrupted training resumes and has the result of uninterrupted training."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from gfgn.data import NodeDataset, dimensions
from gfgn.train import Replica, Run, Status, train_replicas

REPLICAS = [Replica(split=k % 2, seed=k, lr=0.005 * 3**k, dropout=0.2 * k) for k in range(4)]


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(150, degree=10, splits=2, seed=1)


class Stop(Exception):
    """Interrupts the training of a test."""


def interrupt_after(count: int) -> Any:
    calls = iter(range(count))

    def status(_: Status) -> None:
        if next(calls, None) is None:
            raise Stop

    return status


def same(runs: list[Run], others: list[Run]) -> bool:
    return all(
        (a.replica, a.val, a.test, a.epoch, a.epochs, a.history, a.gates)
        == (b.replica, b.val, b.test, b.epoch, b.epochs, b.history, b.gates)
        for a, b in zip(runs, others, strict=True)
    )


@pytest.mark.parametrize(("model", "moments"), [("gcn", (1,)), ("gcn", (7, 3)), ("gfgn-neighbor", (12, 12, 12, 40))])
def test_resumed_training_has_the_uninterrupted_result(
    tmp_path: Path, data: NodeDataset, model: str, moments: tuple[int, ...]
) -> None:
    settings: dict[str, Any] = {"max_epochs": 40, "patience": 6, "batch_size": 3, "keep_state": True}
    whole = train_replicas(model, data, REPLICAS, **settings)
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 2}
    interrupted = 0
    for moment in moments:
        try:
            train_replicas(model, data, REPLICAS, **settings, **saves, status=interrupt_after(moment))
        except Stop:
            interrupted += 1
    assert interrupted
    resumed = train_replicas(model, data, REPLICAS, **settings, **saves)
    assert same(whole, resumed)
    for run, other in zip(whole, resumed, strict=True):
        assert run.state is not None
        assert other.state is not None
        assert all(torch.equal(run.state[name], other.state[name]) for name in run.state)
    seen: list[Run] = []
    again = train_replicas(model, data, REPLICAS, **settings, **saves, progress=seen.append)
    assert same(whole, again)  # all runs have finished: nothing is trained
    assert len(seen) == len(REPLICAS)


def test_a_checkpoint_is_used_by_the_same_call_only(tmp_path: Path, data: NodeDataset) -> None:
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 1}
    first = train_replicas("mlp", data, REPLICAS, 5, **saves)
    for model, replicas, epochs in (("gcn", REPLICAS, 5), ("mlp", REPLICAS[::-1], 5), ("mlp", REPLICAS, 6)):
        runs = train_replicas(model, data, replicas, epochs, **saves)
        assert same(runs, train_replicas(model, data, replicas, epochs))
        assert not any(a.history == b.history for a, b in zip(first, runs, strict=True))


@pytest.mark.parametrize("stop", [False, True])
def test_another_call_may_have_a_batch_at_other_positions(tmp_path: Path, data: NodeDataset, stop: bool) -> None:
    settings: dict[str, Any] = {"max_epochs": 5, "batch_size": 2, "keep_state": True}
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 1}
    status = interrupt_after(3) if stop else None
    with suppress(Stop):
        train_replicas("mlp", data, REPLICAS[:2], **settings, **saves, status=status)
    others = REPLICAS[2:] + REPLICAS[:2]
    resumed, whole = (train_replicas("mlp", data, others, **settings, **more) for more in (saves, {}))
    assert same(resumed, whole)
    for run, other in zip(resumed, whole, strict=True):
        assert run.state is not None
        assert other.state is not None
        assert all(torch.equal(run.state[name], other.state[name]) for name in run.state)


def test_checkpoints_are_safetensors_and_json(tmp_path: Path, data: NodeDataset) -> None:
    train_replicas("mlp", data, REPLICAS, 5, checkpoint=tmp_path, checkpoint_every=1, batch_size=2)
    assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json"}
    assert len(list(tmp_path.glob("*.json"))) == 2
    with pytest.raises(ValueError, match="checkpoint_every must be 1 or larger, got 0"):
        train_replicas("mlp", data, REPLICAS, 5, checkpoint=tmp_path, checkpoint_every=0)


@pytest.mark.parametrize("option", ["history", "keep_state", "gates"])
def test_what_is_kept_of_a_run_is_part_of_the_call(tmp_path: Path, data: NodeDataset, option: str) -> None:
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 1}
    for value in (False, True):
        [run] = train_replicas("gfgn-graph", data, REPLICAS[:1], 3, **saves, **{option: value})
        found = {"history": bool(run.history), "keep_state": run.state is not None, "gates": run.gates is not None}
        assert found[option] is value


def test_a_search_has_no_checkpoints(tmp_path: Path, data: NodeDataset) -> None:
    with pytest.raises(ValueError, match="checkpoint must be None with prune"):
        train_replicas("mlp", data, REPLICAS, 5, checkpoint=tmp_path, rungs=(2,), prune=lambda *_: [True] * 4)
