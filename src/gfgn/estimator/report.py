"""The report of a trained classifier: one sentence for the terminal, and an HTML page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import gfgn
from gfgn.data.dataset import NodeDataset
from gfgn.data.files import replace_text
from gfgn.data.mapped import is_mapped
from gfgn.estimator.card import TITLES, caveat, in_unit, level_sentence
from gfgn.estimator.evaluation import Evaluation
from gfgn.nn.registry import MODELS
from gfgn.report.elements import folded, heading, soft, table
from gfgn.report.explained import classes_section, curves, extremes_section
from gfgn.report.features import features_section, write_features
from gfgn.report.html import check_page, fill_page, links
from gfgn.runs.comparison import in_words
from gfgn.runs.explanation import LOCAL, Explained, explain_features, find_extremes, thinned
from gfgn.runs.text import count
from gfgn.train.settings import threads_for
from gfgn.train.task import make_task, with_sparse_features

if TYPE_CHECKING:
    from gfgn.estimator.classifier import GFGNClassifier


def headline(classifier: GFGNClassifier) -> str:
    """How good the classifier is, in one sentence."""
    facts = classifier._facts
    metric, scores = facts["metric"], facts["scores"]
    low, high = facts["accuracy_interval"]
    networks = "1 network" if len(classifier.history_) == 1 else f"{len(classifier.history_)} networks"
    text = f"{classifier._members.model}, {networks}: accuracy {100 * scores['accuracy']:.1f}%"
    text += f" [{100 * low:.1f}, {100 * high:.1f}] on {facts['part_nodes']:,} {facts['part']} nodes"
    if metric != "accuracy":
        text += f", {TITLES[metric]} {in_unit(metric, scores[metric])}"
    error = facts["classes"]["calibration_error"]
    return f"{text}, expected calibration error {100 * error:.1f}%.{caveat(facts['part'])}"


def score_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row per class: name, precision, recall, F1 and number of nodes."""
    classes = facts["classes"]
    columns = [classes[name] for name in ("class_names", "precision", "recall", "f1", "support")]
    return [
        (name, *(f"{100 * value:.1f}%" for value in values), f"{support:,}")
        for name, *values, support in zip(*columns, strict=True)
    ]


def write_model_report(classifier: GFGNClassifier, dataset: NodeDataset, evaluation: Evaluation, folder: Path) -> Path:
    """Writes `report.html` and `gates.csv` into the folder of the model and returns the path of the page."""
    check_page(folder / "report.html")
    explained = {} if is_mapped(dataset.graph) else _explain(classifier, dataset, folder)
    metric, part = dataset.metric, evaluation.part
    nodes = f"{evaluation.nodes:,} {part} nodes"
    sections = {
        "scores-0": ("Scores", _scores(classifier, evaluation)),
        "classes-0": ("Classes", classes_section(evaluation.classes, nodes.capitalize(), 0, 2)),
        "training-0": ("Training", _training(classifier, metric)),
    } | explained
    shown = {target: section for target, section in sections.items() if section[1]}
    title = f"GFGN on {dataset.name}"
    parts = [
        heading(1, title),
        f'<p class="headline">{escape(headline(classifier))}</p>',
        _introduction(classifier, dataset),
        links([(target, name) for target, (name, _) in shown.items()], "Sections"),
        *(content for _, content in shown.values()),
        f"<footer>Made with gfgn {escape(gfgn.__version__)}. The model is beside this page, see README.md.</footer>",
    ]
    path = folder / "report.html"
    return replace_text(path, fill_page(title, parts))


def _explain(classifier: GFGNClassifier, dataset: NodeDataset, folder: Path) -> dict[str, tuple[str, str]]:
    """What the first network makes of features, and of nodes or edges if its level has gates of these.

    It reads the whole graph several times, as many as there are features."""
    data, members = with_sparse_features(dataset), classifier._members
    network = members.network(0).to(data.x.dtype)
    level = MODELS[members.model].gate_level(members.settings.items())
    explained = Explained(members.model, level, members.lam, dataset.metric, network.eval(), make_task(data, [0]))
    with threads_for(dataset):
        known = {"graph": torch.from_numpy(classifier.smoothing_scores_)}  # what the model card shows
        features = explain_features(explained, dataset, known)
        extremes = find_extremes(explained, dataset) if level in LOCAL else None
    write_features(features, folder / "gates.csv")
    return {
        "features-0": ("Features", features_section(features, dataset.metric, 0, 2, "gates.csv")),
        "extremes-0": ("Nodes and edges", extremes_section(extremes, 0, 2)),
    }


def _introduction(classifier: GFGNClassifier, dataset: NodeDataset) -> str:
    facts = classifier._facts
    parts = ", ".join(f"{count:,} {name}" for name, count in facts["labelled"].items() if count)
    levels = level_sentence(dataset.metric, classifier.level_scores_, len(classifier.history_))
    text = (
        f"{facts['nodes']:,} nodes, {facts['edges']:,} directed edges, {dataset.num_features:,} features, "
        f"{dataset.num_classes} classes; labeled nodes: {parts}. "
        f"{levels} {in_words(classifier.best_params_).capitalize()}."
    )
    assert classifier.encoder_ is not None
    notes = "".join(f"<li>{escape(note)}</li>" for note in classifier.encoder_.notes())
    return f"{soft(text)}\n{folded('How the columns were encoded', f'<ul>{notes}</ul>')}"


def _scores(classifier: GFGNClassifier, evaluation: Evaluation) -> str:
    rows = [[TITLES[name], in_unit(name, value)] for name, value in evaluation.scores.items()]
    low, high = evaluation.interval
    note = (
        f"Of the calibrated mean of {count(len(classifier.history_), 'network')} on {evaluation.nodes:,} "
        f"{evaluation.part} nodes. 95% interval of the accuracy (Wilson): {100 * low:.1f} to {100 * high:.1f}%."
    )
    note += caveat(evaluation.part)
    return heading(2, "Scores", "scores-0") + "\n" + table(["score", "value"], rows, "Scores", note)


def _training(classifier: GFGNClassifier, metric: str) -> str:
    """The curves of the first network."""
    history, best = classifier.history_[0], classifier._facts["best_epochs"][0]
    run = {"epoch": best, "epochs": len(history["val"])}
    title = heading(2, "Training of the first network", "training-0")
    return f"{title}\n{curves(thinned(history, best), run, metric)}"
