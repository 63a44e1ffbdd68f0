"""`train_runs`: models that train on samples of the graph, and all others."""

from dataclasses import replace

import pytest
import torch

from gfgn.data import NodeDataset, dimensions
from gfgn.train import Replica, Run, Status, TrainConfig, train_replicas, train_runs
from gfgn.train.minibatch import is_sampled

QUICK = TrainConfig(4, 4)
SAGE = Replica(1, 2, lr=0.01, options=(("batch_size", 16), ("hidden", 8)))


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(80, degree=6, splits=2)


def same(run: Run, other: Run) -> bool:
    return replace(run, seconds=0.0) == replace(other, seconds=0.0)


def test_which_runs_train_on_samples() -> None:
    assert is_sampled("vr-gcn", Replica())
    assert is_sampled("graphsaint", Replica())
    assert is_sampled("graphsage", SAGE)
    assert not is_sampled("graphsage", Replica(options=(("hidden", 8),)))
    assert not is_sampled("gfgn-pair", Replica())


@pytest.mark.parametrize("model", ["graphsage", "vr-gcn", "graphsaint"])
def test_a_run_depends_on_its_replica_only(model: str, data: NodeDataset) -> None:
    options = (("batch_size", 16),) if model == "graphsage" else ()
    replicas = [Replica(split, seed, options=options) for split in (0, 1) for seed in (0, 1)]
    seen: list[Run] = []
    states: list[Status] = []
    before = torch.random.get_rng_state()
    runs = train_runs(model, data, replicas, QUICK, progress=seen.append, status=states.append)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [run.replica for run in runs] == replicas
    assert seen == runs
    assert states[-1].finished == 3
    assert states[-1].epoch == 4
    (alone,) = train_runs(model, data, [replicas[2]], QUICK)
    assert same(alone, runs[2])
    assert not same(runs[0], replace(runs[1], replica=runs[0].replica))
    for run in runs:
        assert 0 <= run.val <= 1
        assert 0 <= run.test <= 1
        assert run.epochs == 4
        assert run.num_parameters > 0


def test_other_models_train_in_batches_of_replicas(data: NodeDataset) -> None:
    replicas = [Replica(split, lr=0.05) for split in (0, 1)]
    runs = train_runs("gcn", data, replicas, QUICK)
    expected = train_replicas("gcn", data, replicas, 4, 4, history=False)
    assert all(same(run, other) for run, other in zip(runs, expected, strict=True))
    mixed = [Replica(options=(("hidden", 8),)), SAGE, Replica(1, options=(("hidden", 8),))]
    assert [run.replica for run in train_runs("graphsage", data, mixed, QUICK)] == mixed
    assert train_runs("gcn", data, [], QUICK) == []


def test_unsupported_configurations(data: NodeDataset) -> None:
    with pytest.raises(ValueError, match="config must have the default clip, class_weights and best for vr-gcn"):
        train_runs("vr-gcn", data, [Replica()], TrainConfig(4, 4, clip=1.0))
    with pytest.raises(ValueError, match="vr-gcn must be among hidden, layers, concat, features, got 'alpha'"):
        train_runs("vr-gcn", data, [Replica(options=(("alpha", 0.5),))], QUICK)
