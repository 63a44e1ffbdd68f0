"""`evaluate_classes`, against scikit-learn and plain loops."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix, multilabel_confusion_matrix, precision_recall_fscore_support

from gfgn.train.evaluation import BINS, Bin, ClassReport, evaluate_classes

NAMES = ["a", "b", "c"]


def calibration(confidence: list[float], right: list[bool]) -> tuple[list[tuple[int, float, float]], float]:
    """Count, mean confidence and accuracy of each bin, and the expected calibration error, by a plain loop."""
    rows, error = [], 0.0
    for k in range(BINS):
        inside = [i for i, c in enumerate(confidence) if k / BINS < c <= (k + 1) / BINS or (c == 0 and k == 0)]
        if not inside:
            rows.append((0, math.nan, math.nan))
            continue
        mean, accuracy = (sum(values[i] for i in inside) / len(inside) for values in (confidence, right))
        rows.append((len(inside), mean, accuracy))
        error += len(inside) / len(confidence) * abs(mean - accuracy)
    return rows, error


def check_bins(report: ClassReport, confidence: list[float], right: list[bool]) -> None:
    rows, error = calibration(confidence, right)
    assert [each.count for each in report.bins] == [count for count, _, _ in rows]
    for each, (count, mean, accuracy) in zip(report.bins, rows, strict=True):
        if count:
            assert (each.confidence, each.accuracy) == pytest.approx((mean, accuracy))
        else:
            assert (each.confidence, each.accuracy) == (None, None)
    assert report.calibration_error == pytest.approx(error)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 3))
def test_against_scikit_learn(seed: int, nodes: int, occurring: int) -> None:
    draw = np.random.default_rng(seed)
    p = draw.dirichlet([0.7] * 3, nodes)
    y = draw.integers(-1, occurring, nodes)
    y[0] = 0
    report = evaluate_classes(torch.from_numpy(p), torch.from_numpy(y), NAMES)
    known, predicted = y >= 0, p.argmax(1)
    expected = precision_recall_fscore_support(y[known], predicted[known], labels=[0, 1, 2], zero_division=0.0)
    for ours, theirs in zip((report.precision, report.recall, report.f1, report.support), expected, strict=True):
        assert ours == pytest.approx(tuple(theirs))
    assert np.array_equal(report.confusion, confusion_matrix(y[known], predicted[known], labels=[0, 1, 2]))
    check_bins(report, p.max(1)[known].tolist(), (predicted == y)[known].tolist())
    assert ClassReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_many_labels_against_scikit_learn(seed: int, nodes: int) -> None:
    draw = np.random.default_rng(seed)
    p, y = draw.random((nodes, 3)), draw.random((nodes, 3)) < [0.5, 0.1, 0.9]
    report = evaluate_classes(p, y, NAMES)
    expected = precision_recall_fscore_support(y, p > 0.5, average=None, zero_division=0.0)
    for ours, theirs in zip((report.precision, report.recall, report.f1, report.support), expected, strict=True):
        assert ours == pytest.approx(tuple(theirs))
    assert np.array_equal(report.confusion, multilabel_confusion_matrix(y, p > 0.5).reshape(3, 4))
    check_bins(report, np.maximum(p, 1 - p).ravel().tolist(), ((p > 0.5) == y).ravel().tolist())
    assert report.multilabel
    assert ClassReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_confident_model_that_is_always_wrong() -> None:
    report = evaluate_classes(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1, 1]), ["no", "yes"])
    assert report.calibration_error == 1
    assert report.bins[-1] == Bin(0.9, 1.0, 2, 1.0, 0.0)
    assert report.confusion == ((0, 0), (2, 0))
    nothing = evaluate_classes(np.ones((2, 2)) / 2, np.array([-1, -1]), ["no", "yes"])
    assert nothing.support == (0, 0)
    assert nothing.calibration_error == 0


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        (np.ones((2, 3)) / 3, np.zeros(2, int), r"probabilities must have shape \[N, 2\], one column per class name"),
        (np.ones((2, 2)) / 2, np.zeros(3, int), r"y must have shape \[2\] or \[2, 2\], got \[3\]"),
        (np.ones((2, 2)) * 2, np.zeros(2, int), "probabilities must be between 0 and 1, got 2.0 to 2.0"),
        (np.ones((2, 2)) / 2, np.full(2, 2), "y must hold classes from 0 to 1, or −1 if unknown, got 2"),
    ],
)
def test_bad_input(p: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_classes(p, y, ["no", "yes"])
