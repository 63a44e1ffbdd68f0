"""scikit-learn's own checks of an estimator, but for those that contradict a graph as input."""

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_methods_subset_invariance, parametrize_with_checks

from gfgn import GFGNClassifier

MINUS_ONE = "the check has a class −1, which marks nodes without a label, as in sklearn.semi_supervised"
GRAPH_GATE = (
    "the gate of the graph level is one for the whole graph: it depends on all nodes that are predicted together"
)
BY_NAME = "columns of a data frame in another order are matched by name, as those of tables are"
CONTRADICTIONS = {
    "check_classifiers_classes": MINUS_ONE,
    "check_methods_subset_invariance": GRAPH_GATE,
    "check_dataframe_column_names_consistency": BY_NAME,
}
"""The checks that fail, and why."""
ESTIMATOR = GFGNClassifier(max_epochs=30, lr=0.05, hidden_channels=16, device="cpu")


@parametrize_with_checks([ESTIMATOR], expected_failed_checks=lambda _: CONTRADICTIONS)
def test_scikit_learn(estimator: GFGNClassifier, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("level", ["neighbor", "pair"])
def test_nodes_are_predicted_alone_or_together(level: str) -> None:
    """The second contradiction is the graph level's only."""
    check_methods_subset_invariance("GFGNClassifier", clone(ESTIMATOR).set_params(level=level))
