"""Trials that fit into some minutes: the same number for every model, chosen once."""

from typing import Any

import pytest

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import Store, budget
from gfgn.runs.budget import halving_epochs, plan_in_time
from gfgn.runs.comparison import run_comparison
from gfgn.runs.engine import successive_halving

MODELS = ("majority", "mlp", "gfgn-graph")


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=2)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds of an epoch on one split by model, instead of measured ones; 0.5 s for a fit of the majority class."""
    costs, measured = {"mlp": 0.01, "gfgn-graph": 0.03}, []

    def measure(dataset: NodeDataset, plan: Any, model: str, device: str) -> Any:
        measured.append(model)
        return costs.get(model, 0.5)

    monkeypatch.setattr(budget, "seconds_per_epoch", measure)
    costs["measured"] = measured  # type: ignore[assignment]
    return costs


def test_epochs_of_a_search() -> None:
    assert halving_epochs(1, 400) == 400
    assert halving_epochs(2, 400) == 2 * 200 + 200
    assert halving_epochs(16, 400) == 16 * 25 + 8 * 25 + 4 * 50 + 2 * 100 + 200
    assert halving_epochs(3, 8) == 24  # too short to stop any


def test_the_estimate_is_an_upper_bound(data: NodeDataset) -> None:
    """No search trains more epochs than estimated."""
    from gfgn.runs.grid import SPACE, sample
    from gfgn.train import TrainConfig

    with Store(":memory:") as store:
        successive_halving(store, data, "mlp", sample(SPACE, 8), range(2), config=TrainConfig(80, 80))
        assert sum(row.epochs for row in store.rows(dropped=True)) <= 2 * halving_epochs(8, 80)


@pytest.mark.parametrize(("minutes", "trials"), [(0.001, 1), (1.0, 2), (1.3, 4), (2.0, 16), (1000.0, 256)])
def test_the_largest_number_that_fits(minutes: float, trials: int, data: NodeDataset, costs: dict[str, float]) -> None:
    with Store(":memory:") as store:
        plan, chosen = plan_in_time(store, data, minutes, models=MODELS, splits=2, max_epochs=400)
    assert chosen.trials == trials
    assert (1 if plan.search is None else plan.search.configurations) == len(plan.shared) == trials
    expected = 0.08 * halving_epochs(trials, 400) + 1.0  # two splits of both networks, and of the majority class
    assert sum(chosen.seconds.values()) == pytest.approx(expected)
    assert chosen.fits == (trials > 1)
    if 1 < trials < 256:
        assert 0.08 * halving_epochs(2 * trials, 400) + 1.0 > 0.9 * 60 * minutes - 0.5


def test_the_choice_is_kept(data: NodeDataset, costs: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"models": MODELS, "splits": 1, "max_epochs": 20}
    with Store(":memory:") as store:
        plan, chosen = plan_in_time(store, data, 0.05, **settings)
        run_comparison(store, data, plan)
        count = len(store)
        costs |= {"mlp": 10.0}
        again, same = plan_in_time(store, data, 0.05, **settings)
        assert (again, same) == (plan, chosen)
        assert costs["measured"] == list(MODELS)
        run_comparison(store, data, again)
        assert len(store) == count
        _, other = plan_in_time(store, data, 0.1, **settings)
        assert (other.trials, other.fits) == (1, False)


def test_costs_are_measured(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        models = ("majority", "mlp", "graphsaint")
        plan, chosen = plan_in_time(store, data, 1e-4, models=models, splits=1, max_epochs=30)
        assert len(store) == 0
    assert plan.search is None
    assert set(chosen.seconds) == set(models)
    assert chosen.seconds["graphsaint"] > 0
    with Store(":memory:") as store, pytest.raises(ValueError, match="minutes must be a finite number above 0, got 0"):
        plan_in_time(store, data, 0)
