"""The model card: what a saved model is, what it was trained on, and how well it did, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gfgn.literal import one_line, visible
from gfgn.metrics import METRICS

TITLES = {name: metric.title for name, metric in METRICS.items()} | {
    "log_loss": "log loss"
}  # which is not negated here
FIRST = 2  # networks per level, at most, that the choice of a level goes by
EXTREMES = 10  # features shown with the largest and with the smallest gates


def model_card(content: dict[str, Any], feature_names: Sequence[str]) -> str:
    """The card of the content of `model.json`."""
    sections = [_summary(content), _data(content), _scores(content), _features(content, feature_names), _use(content)]
    return visible("\n\n".join(sections)) + "\n"


def _summary(content: dict[str, Any]) -> str:
    network, fitted, made = content["network"], content["fitted"], content["made"]
    count = len(fitted["history_"])
    networks = "one network" if count == 1 else f"an ensemble of {count} networks"
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    kind = "labels, several per node" if network["multilabel"] else "classes"
    names = ", ".join(_code(name) for name in content["classes"]["values"][:20])
    more = " and more" if len(content["classes"]["values"]) > 20 else ""
    return (
        f"# {content['facts'].get('name', 'Node classifier')}\n\n"
        f"A Graph Feature Gating Network (`{network['model']}`, {networks}) that predicts "
        f"{network['out_channels']} {kind} of the nodes of a graph: {names}{more}.\n\n"
        f"Made on {made['date'][:10]} with {versions}."
    )


def _data(content: dict[str, Any]) -> str:
    facts, encoder = content["facts"], content["encoder"]
    parts = facts["labelled"]
    labelled = f"{parts['train']:,} training and {parts['val']:,} validation nodes"
    if parts.get("test"):
        labelled += f", and {parts['test']:,} test nodes that training did not see"
    columns = ", ".join(f"`{column['name']}` ({column['kind']})" for column in encoder["columns"][:30])
    if len(encoder["columns"]) > 30:
        columns += f" and {len(encoder['columns']) - 30:,} more"
    return (
        f"## Data\n\n{facts['nodes']:,} nodes, {facts['edges']:,} directed edges; {labelled}.\n\n"
        f"Columns: {columns}. Scaling: `{encoder['scale']}`."
    )


def _scores(content: dict[str, Any]) -> str:
    fitted, facts = content["fitted"], content["facts"]
    metric = facts["metric"]
    lines = [
        f"| validation, mean of the networks | {TITLES[metric]} | {_number(natural(metric, fitted['val_score_']))} |"
    ]
    for name, value in facts.get("scores", {}).items():
        lines.append(f"| {facts['part']} ({facts['part_nodes']:,} nodes) | {TITLES[name]} | {_number(value)} |")
    chosen = ", ".join(
        f"`{name}` {value if isinstance(value, str) else format(value, 'g')}"
        for name, value in fitted["best_params_"].items()
    )
    text = "\n".join(["## Scores", "", "| nodes | score | value |", "|---|---|--:|", *lines])
    if "classes" in facts:
        low, high = facts["accuracy_interval"]
        error = facts["classes"]["calibration_error"]
        text += f"\n\n95% interval of the accuracy: {low:.3f} to {high:.3f}. Expected calibration error: {error:.3f}."
        text += caveat(facts["part"])
        text += f"\n\n{_classes(facts['classes'])}"
    levels = level_sentence(metric, fitted["level_scores_"], len(fitted["history_"]))
    return f"{text}\n\n{levels} Hyperparameters: {chosen}."


def level_sentence(metric: str, scores: dict[str, float], networks: int) -> str:
    """The level with its validation score, and whether it was chosen by it or given."""
    of = f" of the first {min(networks, FIRST)} networks" if networks > 1 else ""
    values = ", ".join(f"{level} {in_unit(metric, natural(metric, score))}" for level, score in scores.items())
    chosen = "The level was chosen by the" if len(scores) > 1 else "The level was given;"
    return f"{chosen} validation {TITLES[metric]}{of}: {values}."


def caveat(part: str) -> str:
    """What to say of scores on validation nodes."""
    if part != "validation":
        return ""
    return " There are no test nodes: training was stopped by these nodes, so that the scores are optimistic."


def natural(metric: str, score: float) -> float:
    """A score as it is shown: the log loss is not negated."""
    return -score if metric == "log_loss" else score


def in_unit(metric: str, value: float) -> str:
    """A score as text: in percent, or the log loss."""
    return f"{value:.3f}" if metric == "log_loss" else f"{100 * value:.1f}%"


def _classes(classes: dict[str, Any]) -> str:
    """Precision, recall and F1 of each class."""
    columns = [classes[name] for name in ("class_names", "precision", "recall", "f1", "support")]
    rows = [
        f"| {_code(str(n))} | {p:.3f} | {r:.3f} | {f:.3f} | {k:,} |" for n, p, r, f, k in zip(*columns, strict=True)
    ]
    return "\n".join(["| class | precision | recall | F1 | nodes |", "|---|--:|--:|--:|--:|", *rows])


def _features(content: dict[str, Any], names: Sequence[str]) -> str:
    """The features that the networks take most and least from neighbors."""
    scores = content["fitted"]["smoothing_scores_"]
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    few = len(order) <= 2 * EXTREMES
    rows = [
        f"| {_code(names[k])} | {scores[k]:.2f} |" for k in (order if few else [*order[:EXTREMES], *order[-EXTREMES:]])
    ]
    which = "" if few else f"; the {EXTREMES} largest and the {EXTREMES} smallest values"
    lam = content["network"]["lam"]
    reader = "a GFGN of graph level with one gate per feature, trained for this table alone,"
    intro = f"How much of a feature {reader} takes from the neighbors, from 0 to λ, here {lam:g}{which}:"
    return "\n".join(["## What the graph smooths", "", intro, "", "| feature | smoothing score |", "|---|--:|", *rows])


def _use(content: dict[str, Any]) -> str:
    return (
        "## Use\n\n```console\n$ gfgn predict THIS_FOLDER my-graph/ --out predictions.csv\n```\n\n"
        '```python\nfrom gfgn import GFGNClassifier\n\nclf = GFGNClassifier.load("THIS_FOLDER")\n```\n\n'
        "Predictions hold for graphs like the one above: the same columns, and edges that mean the same. "
        f"Probabilities were calibrated on the validation nodes (temperature {content['fitted']['temperature_']:.2f})."
    )


def _code(name: object) -> str:
    """A name as code in Markdown, where nothing in it is markup, in a table too."""
    return f"`{one_line(str(name)).replace('`', 'ʼ').replace('|', chr(92) + '|')}`"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
