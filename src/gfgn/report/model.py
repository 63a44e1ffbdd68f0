"""`write_model`: what `gfgn train` writes: a trained classifier, its model card and its HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from gfgn import __version__
from gfgn.data.assemble import Reading
from gfgn.data.dataset import NodeDataset
from gfgn.data.files import replace_text
from gfgn.data.mapped import is_mapped
from gfgn.estimator.card import caveat, in_unit, labeled_in_words, level_sentence, natural, title_of
from gfgn.estimator.classifier import GFGNClassifier
from gfgn.estimator.evaluation import Evaluation, as_trained, evaluate, first_network
from gfgn.pages import render
from gfgn.report.files import check_page, write_features
from gfgn.report.panels import Panel, classes, curves, extremes, features
from gfgn.runs.explanation import LOCAL, explain_features, find_extremes, thinned
from gfgn.runs.text import count, edges_in_words, in_words
from gfgn.train.settings import threads_for


def write_model(
    classifier: GFGNClassifier, data: NodeDataset | Reading, folder: Path, reading: Mapping[str, object] | None = None
) -> tuple[dict[str, object], Evaluation]:
    """Evaluates a classifier on the test nodes of the data that it was fitted to, and writes it with its report.

    Args:
        reading: How the data were read, for those that the model predicts later.

    Returns:
        What `gfgn train --json` prints, and the evaluation.
    """
    dataset = as_trained(classifier, data)
    evaluation = evaluate(classifier, dataset)
    classifier.facts_ |= {"reading": {name: value for name, value in (reading or {}).items() if value}}
    classifier.facts_ |= evaluation.facts()
    classifier.save(folder)
    report = write_model_report(classifier, dataset, evaluation, folder)
    scores = {level: natural(dataset.metric, score) for level, score in classifier.level_scores_.items()}
    result: dict[str, object] = {
        "level": classifier.level_,
        "validation": scores,
        "metric": dataset.metric,
        "parameters": classifier.best_params_,
        **evaluation.facts(),
        "files": {"model": str(folder), "card": str(folder / "README.md"), "report": str(report)},
    }
    return result, evaluation


def write_model_report(classifier: GFGNClassifier, dataset: NodeDataset, evaluation: Evaluation, folder: Path) -> Path:
    """Writes `report.html` and `gates.csv` into the folder of the model and returns the path of the page."""
    path, facts, part = folder / "report.html", classifier.facts_, evaluation.part
    check_page(path)
    history, best = classifier.history_[0], evaluation.best_epochs[0]
    networks = count(len(classifier.history_), "network")
    low, high = (100 * end for end in evaluation.interval)
    scores = {
        "rows": [(title_of(name), in_unit(name, value)) for name, value in evaluation.scores.items()],
        "note": f"Of the calibrated mean of {networks} on {evaluation.nodes:,} {part} nodes. "
        f"95% interval of the accuracy (Wilson): {low:.1f} to {high:.1f}%.{caveat(part)}",
    }
    training = {"charts": curves(thinned(history, best), best, len(history["val"]), dataset.metric)}
    panels = [
        Panel("scores", "Scores", scores),
        classes(evaluation.classes, f"{evaluation.nodes:,} {part} nodes"),
        Panel("training", "Training of the first network", training),
        *([] if is_mapped(dataset.graph) else _explain(classifier, dataset, folder / "gates.csv")),
    ]
    assert classifier.encoder_ is not None
    page = render(
        "report/templates/model.html.j2",
        title=f"GFGN on {dataset.name}",
        headline=evaluation.headline,
        dataset=dataset,
        edges=edges_in_words(facts["edges"], classifier.directed),
        labelled=labeled_in_words(facts["labelled"], facts["splits"]),
        levels=level_sentence(dataset.metric, classifier.level_scores_, len(classifier.history_)),
        configuration=in_words(classifier.best_params_).capitalize(),
        notes=classifier.encoder_.notes(),
        panels=panels,
        version=__version__,
    )
    return replace_text(path, page)


def _explain(classifier: GFGNClassifier, dataset: NodeDataset, path: Path) -> list[Panel]:
    """What the first network makes of features, and of nodes or edges if its level has gates of these.

    It reads the whole graph several times, as many as there are features."""
    explained = first_network(classifier, dataset)
    with threads_for(dataset):
        known = {"graph": torch.from_numpy(classifier.smoothing_scores_)}  # what the model card shows
        found = explain_features(explained, dataset, known)
        ends = extremes(find_extremes(explained, dataset) if explained.level in LOCAL else None)
    write_features(found, path)
    return [features(found, dataset.metric, path.name), *([ends] if ends else [])]
