"""Plans train what is missing and nothing else, also after a process was killed."""

from typing import Any

import pytest
from runs.stores import Recorder, row

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
