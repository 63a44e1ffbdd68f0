"""The model card: what a saved model is, what it was trained on, and how well it did, as Markdown."""

from __future__ import annotations

import math
from typing import Any

EXTREMES = 10  # features shown with the largest and with the smallest gates


def model_card(content: dict[str, Any]) -> str:
    """The card of the content of `model.json`."""
    sections = [_summary(content), _data(content), _scores(content), _features(content), _use(content)]
    return "\n\n".join(filter(None, sections)) + "\n"


def _summary(content: dict[str, Any]) -> str:
    network, fitted, made = content["network"], content["fitted"], content["made"]
    count = len(fitted["history_"])
    networks = "one network" if count == 1 else f"an ensemble of {count} networks"
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    kind = "labels, several per node" if network["multilabel"] else "classes"
    names = ", ".join(f"`{name}`" for name in content["classes"]["values"][:20])
    more = " and more" if len(content["classes"]["values"]) > 20 else ""
    return (
        f"# {content['facts'].get('name', 'Node classifier')}\n\n"
        f"A Graph Feature Gating Network (level `{fitted['level_']}`, {networks}) that predicts "
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
    lines = [f"| validation, mean of the networks | {metric} | {_number(fitted['val_score_'])} |"]
    for name, scores in facts.get("scores", {}).items():
        lines += [f"| {name} | {key} | {_number(value)} |" for key, value in scores.items()]
    levels = ", ".join(f"{level} {_number(score)}" for level, score in fitted["level_scores_"].items())
    chosen = ", ".join(f"`{name}` {value:g}" for name, value in fitted["best_params_"].items())
    table = "\n".join(["| nodes | score | value |", "|---|---|--:|", *lines])
    text = f"## Scores\n\n{table}\n\nLevels by validation score: {levels}. Hyperparameters: {chosen}."
    if "classes" in facts:
        text += f"\n\n{facts['classes']}"
    return text


def _features(content: dict[str, Any]) -> str:
    """The features that the networks take most and least from neighbors."""
    names, scores = content["encoder"].get("feature_names"), content["fitted"]["smoothing_scores_"]
    if names is None or len(names) != len(scores):
        return ""
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    shown = order if len(order) <= 2 * EXTREMES else [*order[:EXTREMES], *order[-EXTREMES:]]
    rows = "\n".join(f"| `{names[k]}` | {scores[k]:.2f} |" for k in shown)
    return (
        "## What the graph smooths\n\nHow much of a feature a node takes from its neighbors (0: nothing)"
        f"{'' if len(shown) == len(order) else f'; the {EXTREMES} largest and the {EXTREMES} smallest values'}:\n\n"
        f"| feature | smoothing score |\n|---|--:|\n{rows}"
    )


def _use(content: dict[str, Any]) -> str:
    return (
        "## Use\n\n```console\n$ gfgn predict THIS_FOLDER my-graph/ --out predictions.csv\n```\n\n"
        '```python\nfrom gfgn import GFGNClassifier\n\nclf = GFGNClassifier.load("THIS_FOLDER")\n```\n\n'
        "Predictions hold for graphs like the one above: the same columns, and edges that mean the same. "
        f"Probabilities were calibrated on the validation nodes (temperature {content['fitted']['temperature_']:.2f})."
    )


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
