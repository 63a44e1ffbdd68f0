"""Scores, intervals and differences as text, by metric."""

import math

import pytest

from gfgn.metrics import METRICS
from gfgn.runs import text
from gfgn.train import Summary

SUMMARY = Summary(0.8125, 0.01, 0.7, 0.9, 3)


def test_every_metric_has_a_name_and_a_unit() -> None:
    assert text.heading("roc_auc") == "ROC AUC, %"
    assert text.heading("log_loss") == "negative log loss"
    assert [metric for metric in METRICS if text.scale(metric) != 100] == ["log_loss"]


def test_in_percent() -> None:
    assert text.score(0.8125, "accuracy") == "81.2"
    assert text.score(0.8125, "accuracy", digits=2) == "81.25"
    assert text.percent(SUMMARY, "macro_f1") == "81.2 ± 1.0"
    assert text.percent(SUMMARY._replace(runs=1), "accuracy") == "81.2"  # one run does not vary
    assert text.interval(SUMMARY, "roc_auc") == "[70.0, 90.0]"
    assert text.gain(Summary(0.02, 0.1, -0.01, 0.05, 4), "accuracy") == "+2.0 [−1.0, +5.0]"


def test_log_loss_is_a_plain_number() -> None:
    summary = Summary(-0.4321, 0.012, -0.5, -0.36, 4)
    assert text.score(-0.4321, "log_loss") == "−0.432"
    assert text.percent(summary, "log_loss") == "−0.432 ± 0.012"
    assert text.interval(summary, "log_loss") == "[−0.500, −0.360]"
    assert text.gain(summary, "log_loss") == "−0.432 [−0.500, −0.360]"


def test_an_interval_lies_within_the_possible_scores() -> None:
    """Two splits say little: their interval may be wider than the range of scores."""
    assert text.interval(SUMMARY._replace(low=-0.7, high=1.2), "accuracy") == "[0.0, 100.0]"
    assert text.interval(Summary(-0.4, 0.1, -1.2, 0.4, 2), "log_loss") == "[−1.200, 0.000]"
    assert text.gain(Summary(0.1, 0.1, -1.2, 1.4, 2), "accuracy") == "+10.0 [−120.0, +140.0]"


@pytest.mark.parametrize("metric", METRICS)
def test_one_split_has_no_interval(metric: str) -> None:
    alone = Summary(-0.25, 0.0, math.nan, math.nan, 1)
    assert text.interval(alone, metric) == "–"
    assert "nan" not in text.percent(alone, metric) + text.gain(alone, metric)
    assert text.gain(alone, metric) in ("−25.0", "−0.250")
    assert text.score(math.nan, metric) == "–"
