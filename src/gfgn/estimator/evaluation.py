"""Scores of a classifier on the test nodes of a dataset, and its first network for explanations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from scipy.stats import binomtest

from gfgn.data.dataset import NodeDataset
from gfgn.estimator.card import caveat, in_unit, title_of
from gfgn.estimator.inputs import GraphNodes
from gfgn.estimator.members import SMALLEST
from gfgn.metrics import METRICS, metrics_for
from gfgn.nn.registry import MODELS
from gfgn.runs.explanation import TrainedModel
from gfgn.train.evaluation import ClassReport, evaluate_classes
from gfgn.train.task import make_task, with_sparse_features

if TYPE_CHECKING:
    from gfgn.data import Reading
    from gfgn.estimator.classifier import GFGNClassifier


@dataclass(frozen=True)
class Evaluation:
    """Scores on held-out nodes.

    Attributes:
        part: `"test"`, or `"validation"` if there are no test nodes: then the scores are optimistic.
        scores: By name of a metric; the log loss is not negated.
        interval: 95% interval of the accuracy, after Wilson.
        classes: Precision, recall, confusion matrix and calibration by class.
        headline: How good the classifier is, in one sentence.
        best_epochs: Of every network, counted from 0.
    """

    part: str
    nodes: int
    scores: dict[str, float]
    interval: tuple[float, float]
    classes: ClassReport
    headline: str
    best_epochs: list[int]

    def facts(self) -> dict[str, object]:
        """The evaluation as JSON types."""
        return {
            "part": self.part,
            "part_nodes": self.nodes,
            "scores": self.scores,
            "accuracy_interval": list(self.interval),
            "classes": self.classes.to_json(),
        }


def evaluate(classifier: GFGNClassifier, dataset: NodeDataset) -> Evaluation:
    """Evaluates on the test nodes of the first split, once; without any on the validation nodes, each predicted by the
    networks that have it for validation."""
    part, mask, metric = "test", dataset.splits[0].test, dataset.metric
    if mask.any():
        probabilities = torch.from_numpy(classifier.predict_proba(GraphNodes(dataset)[mask.numpy()]))
    else:
        part, (mask, probabilities) = "validation", classifier._validated
    y = dataset.y[mask]
    logits, every = probabilities.clamp(min=SMALLEST).log()[None], torch.ones(1, len(y), dtype=torch.bool)
    found = {name: float(METRICS[name].score(logits, y, every)) for name in metrics_for(multilabel=False)}
    scores = {name: -value if name == "log_loss" else value for name, value in found.items() if math.isfinite(value)}
    report = evaluate_classes(probabilities, y, dataset.class_names or [str(k) for k in range(dataset.num_classes)])
    interval = binomtest(round(scores["accuracy"] * len(y)), len(y)).proportion_ci(method="wilson")
    networks = len(classifier.history_)
    headline = (
        f"{classifier._members.model}, {networks} network{'' if networks == 1 else 's'}: accuracy "
        f"{100 * scores['accuracy']:.1f}% [{100 * interval.low:.1f}, {100 * interval.high:.1f}] "
        f"on {len(y):,} {part} nodes"
    )
    if metric != "accuracy":
        headline += f", {title_of(metric)} {in_unit(metric, scores[metric])}"
    headline += f", expected calibration error {100 * report.calibration_error:.1f}%.{caveat(part)}"
    ends = (float(interval.low), float(interval.high))
    return Evaluation(part, len(y), scores, ends, report, headline, classifier.facts_["best_epochs"])


def as_trained(classifier: GFGNClassifier, data: NodeDataset | Reading) -> NodeDataset:
    """The data that a classifier was fitted to as its networks see them, with the splits of the networks."""
    return replace(classifier.encode(data), splits=classifier._splits, metric=classifier.facts_["metric"])


def first_network(classifier: GFGNClassifier, dataset: NodeDataset) -> TrainedModel:
    """The first network of a classifier, which an explanation is about."""
    data, members = with_sparse_features(dataset), classifier._members
    network = members.network(0).to(data.x.dtype).eval()
    level = MODELS[members.model].gate_level(members.settings.items())
    return TrainedModel(members.model, level, members.lam, dataset.metric, network, make_task(data, [0]))
