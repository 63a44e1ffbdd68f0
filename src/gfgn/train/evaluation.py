"""`evaluate_classes`: predicted probabilities class by class: precision, recall, confusion matrix and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

BINS = 10


@dataclass(frozen=True)
class Bin:
    """Predictions whose confidence is above `low` and at most `high`; their means are `None` if there are none."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ClassReport:
    """How well each class is predicted.

    Attributes:
        precision, recall, f1: One value per class; 0 where the denominator is 0, as in scikit-learn.
        support: Number of nodes of each class; of each label for multi-label data.
        confusion: `confusion[i][j]` nodes of class `i` are predicted as class `j`. For multi-label data one row per
            label: true negatives, false positives, false negatives and true positives.
        bins: Confidence and accuracy of predictions in bins of equal width.
        calibration_error: Expected calibration error: mean distance between confidence and accuracy of a bin, weighted
            by the number of its predictions.
    """

    class_names: tuple[str, ...]
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]
    support: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    bins: tuple[Bin, ...]
    calibration_error: float
    multilabel: bool = False

    def to_json(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """One row per class: name, precision, recall, F1 in percent, and number of nodes."""
        scores = ([f"{100 * value:.1f}%" for value in values] for values in (self.precision, self.recall, self.f1))
        return list(zip(self.class_names, *scores, [f"{count:,}" for count in self.support], strict=True))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ClassReport:
        """The report from what `to_json` returned and JSON kept."""
        lists = {name: tuple(content[name]) for name in ("class_names", "precision", "recall", "f1", "support")}
        confusion, bins = tuple(map(tuple, content["confusion"])), tuple(Bin(**each) for each in content["bins"])
        return cls(**{**content, **lists, "confusion": confusion, "bins": bins})


def evaluate_classes(
    probabilities: Tensor | NDArray[Any], y: Tensor | NDArray[Any], class_names: Sequence[str]
) -> ClassReport:
    """Compares predicted probabilities with the true classes.

    Args:
        probabilities: `[N, C]`: of each class; for multi-label data, of each label.
        y: `[N]` classes, of which −1 (unknown) is left out; or `[N, C]` of bool for multi-label data.
        class_names: Names of the classes or labels.
    """
    p, truth = _array(probabilities).astype(np.float64), _array(y)
    if p.ndim != 2 or p.shape[1] != len(class_names):
        expected = f"[N, {len(class_names)}], one column per class name"
        raise ValueError(f"probabilities must have shape {expected}, got {list(p.shape)}")
    if truth.shape not in (p.shape, p.shape[:1]):
        raise ValueError(f"y must have shape {list(p.shape[:1])} or {list(p.shape)}, got {list(truth.shape)}")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probabilities must be between 0 and 1, got {p.min()} to {p.max()}")
    if truth.ndim == 2:
        return _labels(p, truth.astype(bool), tuple(class_names))
    return _classes(p[truth >= 0], truth[truth >= 0], tuple(class_names))


def _classes(p: NDArray[np.float64], y: NDArray[np.int64], names: tuple[str, ...]) -> ClassReport:
    predicted, count = p.argmax(1), len(names)
    if y.size and y.max() >= count:
        raise ValueError(f"y must hold classes from 0 to {count - 1}, or −1 if unknown, got {y.max()}")
    confusion = np.bincount(count * y + predicted, minlength=count * count).reshape(count, count)
    hits, support, guesses = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    return _report(names, hits, support, guesses, confusion, p.max(1, initial=0.0), predicted == y)


def _labels(p: NDArray[np.float64], y: NDArray[np.bool_], names: tuple[str, ...]) -> ClassReport:
    predicted = p > 0.5
    hits, support, guesses = (each.sum(0) for each in (predicted & y, y, predicted))
    counts = np.stack([len(y) - support - guesses + hits, guesses - hits, support - hits, hits], axis=1)
    return _report(names, hits, support, guesses, counts, np.maximum(p, 1 - p).ravel(), (predicted == y).ravel(), True)


def _report(
    names: tuple[str, ...],
    hits: NDArray[np.int64],
    support: NDArray[np.int64],
    guesses: NDArray[np.int64],
    confusion: NDArray[np.int64],
    confidence: NDArray[np.float64],
    right: NDArray[np.bool_],
    multilabel: bool = False,
) -> ClassReport:
    totals = {"precision": guesses, "recall": support, "f1": (support + guesses) / 2}
    scores = {name: tuple((hits / np.maximum(total, 0.5)).tolist()) for name, total in totals.items()}
    bins = _bins(confidence, right)
    gaps = [
        b.count * abs(b.confidence - b.accuracy) for b in bins if b.confidence is not None and b.accuracy is not None
    ]
    return ClassReport(
        names,
        **scores,
        support=tuple(support.tolist()),
        confusion=tuple(map(tuple, confusion.tolist())),
        bins=bins,
        calibration_error=sum(gaps) / max(1, right.size),
        multilabel=multilabel,
    )


def _bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    edges = np.linspace(0, 1, BINS + 1)
    index = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(index, minlength=BINS)
    means = [np.bincount(index, values, BINS) / np.maximum(counts, 1) for values in (confidence, right)]
    return tuple(
        Bin(float(edges[k]), float(edges[k + 1]), int(count), *(float(mean[k]) if count else None for mean in means))
        for k, count in enumerate(counts)
    )


def _array(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
