"""The sections of the report on one explained run: classes, calibration, training, gates, nodes and edges."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from gfgn.metrics import METRICS
from gfgn.report.charts import Chart, legend, padded
from gfgn.report.elements import figure, folded, heading, hidden_caption, row_head, scrolling, soft, table
from gfgn.runs import Comparison
from gfgn.runs.comparison import in_words
from gfgn.runs.record import is_gfgn
from gfgn.runs.text import count, scale, score, unit
from gfgn.runs.text import heading as metric_heading
from gfgn.train.evaluation import ClassReport

Explanation = dict[str, Any]  # or a part of it, see `gfgn.runs.explain`
GATES = {"min": "minimum", "mean": "mean", "max": "maximum", "std": "std. dev.", "below_055": "below 0.55, %"}
NAMED = 8  # classes up to which the columns of the confusion matrix have names instead of numbers
OPEN, LARGEST = 50, 200  # classes up to which the confusion matrix is open, and up to which it is there at all
MISTAKES = 15  # kinds of mistakes listed for many classes


def run_section(explanation: Explanation, several: bool, metric: str, number: int, level: int) -> str:
    """Which run is explained, of `several` models or one, and its training curves."""
    run = explanation["run"]
    best = ", the model with the best mean validation score of those that can be trained again" if several else ""
    text = (
        f"What follows is about one run of {run['model']}{best}: "
        f"split {run['split']}, seed {run['seed']}, {in_words(run['configuration'], run['model'])}. "
    )
    text += f"It was trained again for this page; its test {METRICS[metric].title} is {_score(run['test'], metric)}."
    if run["test"] is not None and run["stored_test"] is not None and abs(run["test"] - run["stored_test"]) > 1e-3:
        text += f" In the store it is {_score(run['stored_test'], metric)}: another device or another version."
    parts = [heading(level, f"One run of {run['model']}", f"run-{number}"), f"<p>{escape(text)}</p>"]
    return "\n".join([*parts, curves(explanation["history"], run, metric)])


def _score(value: float | None, metric: str) -> str:
    return "unknown" if value is None else score(value, metric) + unit(metric)


def curves(history: dict[str, Any], run: dict[str, Any], metric: str) -> str:
    """Losses and validation score by epoch; `run` has its best epoch and the number of epochs."""
    scores = [None if value is None else scale(metric) * value for value in history["val"]]
    epochs = [epoch + 1 for epoch in history["epoch"]]
    span = (1.0, float(max(2, epochs[-1])))
    charts = []
    best = f"best epoch: {run['epoch'] + 1}"
    for lines, what in (
        ({"line a": history["train_loss"], "line b": history["val_loss"]}, "loss"),
        ({"line b": scores}, f"validation {METRICS[metric].title}"),
    ):
        chart = Chart(span, padded(value for values in lines.values() for value in values), 180)
        chart.x_axis("epoch")
        chart.y_axis(what if what == "loss" else f"validation {metric_heading(metric)}")
        for kind, values in lines.items():
            chart.line(zip(epochs, values, strict=True), kind)
        chart.segment((run["epoch"] + 1,) * 2, chart.y, "mark")
        last = [f"{values[-1]:.3g}" for values in lines.values() if values[-1] is not None]
        alt = f"Line chart of the {what} over {run['epochs']} epochs, ending at {' and '.join(last)}; {best}."
        entries = [("line a", "training"), ("line b", "validation")][len(lines) == 1 :]
        charts.append(legend([*entries, ("mark", best)]) + chart.svg(alt))
    return figure("".join(charts), "Training curves. Parameters of the best epoch are used.")


# --- classes ----------------------------------------------------------------------------------------------------------


def classes_section(report: ClassReport, nodes: str, number: int, level: int) -> str:
    """Scores by class, confusion matrix and calibration; `nodes` says on which nodes."""
    noun = "label" if report.multilabel else "class"
    rows = [
        [name, f"{precision:.2f}", f"{recall:.2f}", f"{f1:.2f}", f"{support:,}"]
        for name, precision, recall, f1, support in zip(
            report.class_names, report.precision, report.recall, report.f1, report.support, strict=True
        )
    ]
    note = (
        f"{nodes}. Precision: how many of the nodes predicted as the {noun} are of it; "
        "recall: how many of its nodes are found; F1: their harmonic mean."
    )
    scores = table([noun, "precision", "recall", "F1", "nodes"], rows, f"Scores by {noun}", note)
    if len(rows) > OPEN:
        scores = folded(f"Scores of all {len(rows)} {'labels' if report.multilabel else 'classes'}", scores)
    parts = [heading(level, f"Scores by {noun}", f"classes-{number}"), scores]
    if not report.multilabel:
        parts += [heading(level + 1, "Confusion matrix", f"confusion-{number}"), _confusion(report)]
    parts += [heading(level + 1, "Calibration", f"calibration-{number}"), _calibration(report)]
    return "\n".join(parts)


def _confusion(report: ClassReport) -> str:
    """The matrix, for many classes below the most frequent mistakes."""
    classes = len(report.class_names)
    parts = []
    if classes > NAMED:
        parts.append(_mistakes(report))
    if classes <= LARGEST:
        note = soft(
            "Rows: true class; columns: predicted class. Number of nodes, and below it the percentage of the row; "
            "correct predictions are framed."
        )
        matrix = _matrix(report) + note
        parts.append(matrix if classes <= OPEN else folded(f"Confusion matrix of {classes} classes", matrix))
    else:
        parts.append(soft(f"The confusion matrix of {classes:,} classes is not shown."))
    return "\n".join(parts)


def _mistakes(report: ClassReport) -> str:
    counts = np.array(report.confusion)
    np.fill_diagonal(counts, 0)
    order = np.argsort(-counts, axis=None, kind="stable")[:MISTAKES]
    rows = []
    for true, predicted in zip(*np.unravel_index(order, counts.shape), strict=True):
        if counts[true, predicted]:
            share = f"{100 * counts[true, predicted] / report.support[true]:.0f}"
            names = report.class_names[true], report.class_names[predicted]
            rows.append([*names, f"{counts[true, predicted]:,}", share])
    heads = ["true class", "predicted class", "nodes", "% of the true class"]
    return table(heads, rows, "Most frequent mistakes", "The most frequent mistakes.") if rows else ""


def _matrix(report: ClassReport) -> str:
    """A cell's tint is the percentage of its row, which is also written in it."""
    names, named = report.class_names, len(report.class_names) <= NAMED
    heads = [
        f'<th scope="col">{escape(name)}</th>'
        if named
        else f'<th scope="col"><abbr title="{escape(name)}">{k}</abbr></th>'
        for k, name in enumerate(names, 1)
    ]
    lines = []
    for true, (name, counts) in enumerate(zip(names, report.confusion, strict=True)):
        total = max(1, sum(counts))
        cells = [_matrix_cell(value, value / total, true == predicted) for predicted, value in enumerate(counts)]
        label = name if named else f"{true + 1} {name}"
        lines.append(f"<tr>{row_head(label)}{''.join(cells)}</tr>")
    head = f'<thead><tr><th scope="col">true \\ predicted</th>{"".join(heads)}</tr></thead>'
    body = "\n".join(lines)
    content = f'<table class="matrix">\n{hidden_caption("Confusion matrix")}{head}\n<tbody>\n{body}\n</tbody></table>'
    return scrolling(content, "Confusion matrix")


def _matrix_cell(value: int, share: float, correct: bool) -> str:
    frame = ' class="correct"' if correct else ""
    if not value:
        return f"<td{frame}>0</td>" if correct else "<td></td>"
    return f'<td{frame} style="--share:{share:.2f}">{value:,}<small>{100 * share:.0f}%</small></td>'


def _calibration(report: ClassReport) -> str:
    """Accuracy against confidence, one mark per bin."""
    chart = Chart((0.0, 1.0), (0.0, 1.0), 260)
    chart.x_axis("confidence (probability of the prediction)")
    chart.y_axis("accuracy")
    chart.segment((0.0, 1.0), (0.0, 1.0), "mark")
    filled = [each for each in report.bins if each.confidence is not None and each.accuracy is not None]
    points = []
    for each in filled:
        assert each.confidence is not None
        assert each.accuracy is not None
        label = f"confidence {each.confidence:.2f}, accuracy {each.accuracy:.2f}, {each.count:,} predictions"
        chart.dot(each.confidence, each.accuracy, "a", label)
        points.append(
            [f"{each.low:.1f} to {each.high:.1f}", f"{each.confidence:.2f}", f"{each.accuracy:.2f}", f"{each.count:,}"]
        )
    chart.line([(each.confidence or 0.0, each.accuracy) for each in filled], "line a")
    error = f"Expected calibration error: {100 * report.calibration_error:.1f}%"
    alt = f"Accuracy against confidence in {len(filled)} bins. {error}."
    marks = legend([("a", "predictions of one bin"), ("mark", "perfect calibration")])
    caption = f"{error}. Marks below the diagonal: the model is surer than it should be; above: less sure."
    heads = ["confidence", "mean", "accuracy", "predictions"]
    return figure(marks + chart.svg(alt), caption) + folded(
        "Calibration as a table", table(heads, points, "Calibration")
    )


# --- gates ------------------------------------------------------------------------------------------------------------


def gates_section(comparison: Comparison, number: int, level: int) -> str:
    """The first-layer gates of the trained models, from the summaries in the runs; empty without a GFGN."""
    rows = []
    for model in filter(is_gfgn, comparison.models):
        gates = [
            row.gates for row in comparison.rows[model] if row.gates is not None and row.gates.keys() >= GATES.keys()
        ]
        if gates:
            *means, below = (float(np.mean([each[name] for each in gates])) for name in GATES)
            rows.append([model, *(f"{mean:.2f}" for mean in means), f"{100 * below:.0f}"])
    if not rows:
        return ""
    note = (
        "First-layer gates at the best epoch over all hidden units (and nodes or edges), averaged over runs. At 0 a "
        "node keeps its own value, at 1 it takes its neighbors'; no gate exceeds λ."
    )
    title = heading(level, "What the gates learned", f"gates-{number}")
    return f"{title}\n{table(['model', *GATES.values()], rows, 'Gates of the models', note)}"


def extremes_section(extremes: Explanation | None, number: int, level: int) -> str:
    """The nodes or edges with the highest and lowest gates; empty if there are none."""
    if not extremes:
        return ""
    edges = extremes["kind"] == "edges"
    what = "edges" if edges else "nodes"
    total = count(extremes["total"], what[:-1])
    text = f"First-layer gates of {extremes['model']}, averaged over hidden units, of {total}. "
    text += (
        "An edge with a high gate: its target takes much from its source."
        if edges
        else "High: the node takes much from its neighbors."
    )
    parts = [heading(level, f"{what.capitalize()} with extreme gates", f"extremes-{number}"), soft(text)]
    for end, title in (
        ("most", f"{what.capitalize()} with the highest gates"),
        ("least", f"{what.capitalize()} with the lowest gates"),
    ):
        parts += [heading(level + 1, title), _extremes(extremes[end], edges, title)]
    return "\n".join(parts)


def _extremes(rows: Sequence[dict[str, Any]], edges: bool, title: str) -> str:
    """One row per node or edge: ids and gate first, which is what a narrow screen shows."""
    ends = ("source", "target") if edges else ("node",)
    facts = [f"{end} {part}" if edges else part for part in ("class", "degree") for end in ends]
    body = []
    for row in rows:
        classes, degrees = ([node[part] for node in row["nodes"]] for part in ("class", "degree"))
        ids = [node["id"] for node in row["nodes"]]
        body.append(
            [*ids, f"{row['gate']:.3f}", *(each or "–" for each in classes), *(f"{each:,}" for each in degrees)]
        )
    return table([*ends, "gate", *facts], body, title)
