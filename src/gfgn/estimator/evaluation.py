"""Scores of a classifier on the test nodes of a dataset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.estimator.members import SMALLEST
from gfgn.metrics import METRICS, metrics_for
from gfgn.train.evaluation import ClassReport, evaluate_classes

if TYPE_CHECKING:
    from gfgn.estimator.classifier import GFGNClassifier


@dataclass(frozen=True)
class Evaluation:
    """Scores on held-out nodes.

    Attributes:
        part: `"test"`, or `"validation"` if there are no test nodes: then the scores are optimistic.
        scores: By name of a metric; the log loss is not negated.
        interval: 95% interval of the accuracy, after Wilson.
        classes: Precision, recall, confusion matrix and calibration by class.
    """

    part: str
    nodes: int
    scores: dict[str, float]
    interval: tuple[float, float]
    classes: ClassReport

    def facts(self) -> dict[str, Any]:
        """The evaluation as JSON types."""
        return {
            "part": self.part,
            "part_nodes": self.nodes,
            "scores": self.scores,
            "accuracy_interval": list(self.interval),
            "classes": self.classes.to_json(),
        }


def evaluate(classifier: GFGNClassifier, dataset: NodeDataset) -> Evaluation:
    """Evaluates on the test nodes of the first split, once; on the validation nodes if there are none."""
    split = dataset.splits[0]
    part, mask = ("test", split.test) if split.test.any() else ("validation", split.val)
    probabilities, y = torch.from_numpy(classifier._probabilities(dataset, mask)), dataset.y[mask]
    scores = {name: _score(name, probabilities, y) for name in metrics_for(multilabel=False)}
    names = dataset.class_names or [str(k) for k in range(dataset.num_classes)]
    report = evaluate_classes(probabilities, y, names)
    count = int(mask.sum())
    known = {name: value for name, value in scores.items() if math.isfinite(value)}
    return Evaluation(part, count, known, wilson(scores["accuracy"], count), report)


def _score(metric: str, probabilities: Tensor, y: Tensor) -> float:
    every = torch.ones(1, len(y), dtype=torch.bool)
    score = float(METRICS[metric].score(probabilities.clamp(min=SMALLEST).log()[None], y, every))
    return -score if metric == "log_loss" else score


def wilson(accuracy: float, count: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a proportion."""
    center = (accuracy + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(accuracy * (1 - accuracy) / count + z * z / (4 * count * count))
    return center - half, center + half
