"""How often the printed 95% intervals contain the truth: a small version of `benchmarks/interval_coverage.py`."""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DATA_SETS = 500


@pytest.fixture(scope="module")
def coverage() -> dict[str, dict[int, dict[str, Any]]]:
    """By estimate and number of splits, how often each kind of interval contains the truth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        module = importlib.import_module("interval_coverage")
    setting = module.Setting(nodes=1000, classes=5, features=30, distance=3.0)
    scores = module.simulate(setting, DATA_SETS)
    table: dict[str, dict[int, dict[str, Any]]] = {}
    for row in module.measure(scores, module.MODELS, module.PAIRS, setting.nodes):
        table.setdefault(row["estimate"], {})[row["splits"]] = row
    return table


ESTIMATES = ["ridge on features", "ridge on neighbors' features", "neighbors − features"]


@pytest.mark.parametrize("splits", [4, 10])
@pytest.mark.parametrize("estimate", ESTIMATES)
def test_printed_intervals_contain_the_truth(
    coverage: dict[str, dict[int, dict[str, Any]]], estimate: str, splits: int
) -> None:
    assert 0.92 <= coverage[estimate][splits]["printed"] <= 0.98


def test_similar_models_have_wide_intervals(coverage: dict[str, dict[int, dict[str, Any]]]) -> None:
    """Two models that learn from the same features differ mostly by what they were trained on, which splits share less
    than their test nodes: the intervals of their difference are wider than needed, never too narrow."""
    assert all(coverage["nearest mean − ridge"][splits]["printed"] >= 0.95 for splits in (4, 10))


@pytest.mark.parametrize("estimate", ESTIMATES)
def test_other_intervals_are_too_narrow(coverage: dict[str, dict[int, dict[str, Any]]], estimate: str) -> None:
    assert coverage[estimate][4]["bootstrap"] < 0.85
    assert coverage[estimate][10]["bootstrap"] < 0.85
    assert coverage[estimate][10]["t"] < 0.92
