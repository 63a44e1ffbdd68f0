"""The training loop: against a plain loop, independent of company, and clear about bad input."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from gfgn.data import Dataset, Split, dimensions
from gfgn.train import MODELS, Replica, Run, train_replicas
from gfgn.train.models import builder


@pytest.fixture(scope="module")
def data() -> Dataset:
    return dimensions(150, degree=10, splits=3, seed=1)


def outcome(run: Run) -> tuple[Any, ...]:
    return run.replica, run.val, run.test, run.epoch, run.history


def plain_loop(model: str, data: Dataset, replica: Replica, max_epochs: int, patience: int) -> dict[str, Any]:
    """What `train_replicas` must do, written down without any care for structure: all epochs are trained, all are
    scored on all parts, and the stopping rule is applied to the finished record."""
    split = data.splits[replica.split]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(replica.seed)
    net = builder(model)(data.num_features, data.num_classes, replica)
    optimizer = torch.optim.Adam(net.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    val, val_loss, test, states = [], [], [], []
    for _ in range(max_epochs):
        net.train()
        loss = cross_entropy(net(data.x, data.graph)[split.train], data.y[split.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            logits = net(data.x, data.graph)
        val.append((logits.argmax(1) == data.y)[split.val].float().mean().item())
        val_loss.append(cross_entropy(logits[split.val], data.y[split.val]).item())
        test.append((logits.argmax(1) == data.y)[split.test].float().mean().item())
        states.append(copy.deepcopy(net.state_dict()))
    torch.set_num_threads(threads)

    def best_of(count: int) -> int:
        return max(range(count), key=lambda epoch: (val[epoch], -val_loss[epoch], -epoch))

    length = next((n for n in range(1, max_epochs) if n - 1 - best_of(n) >= patience), max_epochs)
    best = best_of(length)
    return {"length": length, "epoch": best, "val": val[:length], "test": test[best], "state": states[best]}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("patience", [3, 15])
def test_against_a_plain_loop(data: Dataset, model: str, patience: int) -> None:
    replica = Replica(split=1, seed=4, lr=0.02)
    [run] = train_replicas(model, data, [replica], max_epochs=60, patience=patience, keep_state=True)
    expected = plain_loop(model, data, replica, 60, patience)
    assert len(run.history["val"]) == expected["length"]
    assert run.epoch == expected["epoch"]
    assert run.history["val"] == pytest.approx(expected["val"], abs=1e-6)
    assert run.val == run.history["val"][run.epoch]
    assert run.test == pytest.approx(expected["test"], abs=1e-6)
    assert run.state is not None
    for name, value in expected["state"].items():
        torch.testing.assert_close(run.state[name], value)


def test_patience_and_the_epoch_limit_both_end_a_run(data: Dataset) -> None:
    [stopped] = train_replicas("mlp", data, [Replica()], max_epochs=300, patience=5)
    assert len(stopped.history["val"]) == stopped.epoch + 6 < 300
    [limited] = train_replicas("mlp", data, [Replica()], max_epochs=4, patience=100)
    assert len(limited.history["val"]) == len(limited.history["val_loss"]) == len(limited.history["train_loss"]) == 4


@pytest.mark.parametrize("model", MODELS)
def test_a_replica_does_not_know_its_neighbours(data: Dataset, model: str) -> None:
    replicas = [Replica(split=k % 3, seed=k, lr=0.01 * (k + 1), dropout=0.2 * k) for k in range(3)]
    together = train_replicas(model, data, replicas, max_epochs=8)
    reversed_order = train_replicas(model, data, replicas[::-1], max_epochs=8)[::-1]
    torch.manual_seed(99)  # the global state must not matter
    alone = [train_replicas(model, data, [replica], max_epochs=8)[0] for replica in replicas]
    assert [outcome(run) for run in together] == [outcome(run) for run in reversed_order]
    assert [outcome(run) for run in together] == [outcome(run) for run in alone]
    assert len({tuple(run.history["train_loss"]) for run in together}) == 3


def test_the_seed_matters_and_the_global_state_is_left_alone(data: Dataset) -> None:
    torch.manual_seed(7)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    runs = train_replicas("gfgn-pair", data, [Replica(seed=0), Replica(seed=1)], max_epochs=3)
    assert torch.equal(before, torch.get_rng_state())
    assert threads == torch.get_num_threads()
    assert runs[0].history["train_loss"] != runs[1].history["train_loss"]


def test_lam_reaches_the_gates(data: Dataset) -> None:
    runs = train_replicas("gfgn-graph", data, [Replica(lam=0.0), Replica(lam=1.0)], max_epochs=2)
    assert runs[0].history["train_loss"] != runs[1].history["train_loss"]


def test_test_labels_do_not_steer_training(data: Dataset) -> None:
    y = torch.where(data.splits[0].test, (data.y + 1) % data.num_classes, data.y)
    [run] = train_replicas("gfgn-graph", data, [Replica()], max_epochs=10)
    [other] = train_replicas("gfgn-graph", dataclasses.replace(data, y=y), [Replica()], max_epochs=10)
    assert (run.history, run.epoch, run.val) == (other.history, other.epoch, other.val)
    assert run.test != other.test


@pytest.mark.parametrize("model", MODELS)
def test_sparse_features_give_the_dense_result(data: Dataset, model: str) -> None:
    replica = Replica(dropout=0.0)
    [dense] = train_replicas(model, data, [replica], max_epochs=3)
    [sparse] = train_replicas(model, dataclasses.replace(data, x=data.x.to_sparse_csr()), [replica], max_epochs=3)
    assert sparse.history["val_loss"] == pytest.approx(dense.history["val_loss"], rel=1e-3)


def test_progress_sees_each_run_in_order(data: Dataset) -> None:
    seen: list[Run] = []
    runs = train_replicas("mlp", data, [Replica(seed=2), Replica(seed=1)], max_epochs=2, progress=seen.append)
    assert seen == runs
    assert [run.replica.seed for run in seen] == [2, 1]
    assert runs[0].state is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 0.0}, "lr must be a finite number above 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number, 0 or larger, got -1.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"lam": -0.5}, "lam must be a finite number, 0 or larger, got -0.5"),
        ({"split": -1}, "split must be 0 or larger, got -1"),
        ({"seed": -3}, "seed must be 0 or larger, got -3"),
    ],
)
def test_bad_replicas(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replica(**fields)


def test_bad_arguments(data: Dataset) -> None:
    with pytest.raises(ValueError, match=r"model must be one of .*, got 'gfgn-pairs'; did you mean 'gfgn-pair'\?"):
        train_replicas("gfgn-pairs", data, [Replica()])
    with pytest.raises(ValueError, match=r"split must be below 3, .* got 3"):
        train_replicas("mlp", data, [Replica(split=3)])
    with pytest.raises(ValueError, match="patience must be 1 or larger, got 0"):
        train_replicas("mlp", data, [Replica()], patience=0)
    nobody = torch.zeros(data.num_nodes, dtype=torch.bool)
    empty = dataclasses.replace(data, splits=[Split(nobody, *data.splits[0][1:])])
    with pytest.raises(ValueError, match="split 0 of 'dimensions' must have train nodes, got an empty mask"):
        train_replicas("mlp", empty, [Replica()])
