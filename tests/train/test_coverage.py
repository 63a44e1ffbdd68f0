"""How often the printed 95% intervals contain the truth: a small version of `benchmarks/interval_coverage.py`."""

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DATA_SETS = 150


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


DIFFERENT = ["ridge on features", "ridge on neighbors' features", "neighbors − features"]
SIMILAR = ["nearest mean − ridge"]  # the difference of two models that learn from the same features


@pytest.mark.parametrize("splits", [4, 10])
@pytest.mark.parametrize("estimate", DIFFERENT + SIMILAR)
def test_printed_intervals_contain_the_truth(
    coverage: dict[str, dict[int, dict[str, Any]]], estimate: str, splits: int
) -> None:
    assert 0.9 <= coverage[estimate][splits]["printed"] <= 0.99
