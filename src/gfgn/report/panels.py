"""The panels of a report: each function says what one shows, and the template of its name lays it out.

A new panel is a function here, listed in `PANELS`, and `templates/NAME.html.j2`, where NAME is that of the panel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from markupsafe import Markup

from gfgn.metrics import METRICS
from gfgn.pages import render
from gfgn.report.charts import Chart, Dot, Label, Segment, padded, stack
from gfgn.runs import text
from gfgn.runs.explanation import Explanation, Extremes, Features, Values
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Results
from gfgn.train.evaluation import ClassReport

ROW = 60  # pixels of a model in the chart of all runs
GATES = {"min": "minimum", "mean": "mean", "max": "maximum", "std": "std. dev.", "below_055": "below 0.55, %"}
MISTAKES = 15  # kinds of mistakes listed for many classes
ENDS = 20  # features at each end of the order that are shown first


@dataclass(frozen=True)
class Panel:
    """A section of a page: the name of its template and of the target of links to it, its title, and its content."""

    name: str
    title: str
    content: Mapping[str, object]

    def render(self, index: int, level: int) -> Markup:
        """The panel as HTML in the `index`-th part of a page, with headings from `level` on."""
        place = {"title": self.title, "id": f"{self.name}-{index}", "index": index, "level": level, "text": text}
        return Markup(render(f"report/templates/{self.name}.html.j2", **place, **self.content))


# --- comparisons ------------------------------------------------------------------------------------------------------


def results_table(comparison: Results, full: bool = True) -> tuple[list[str], dict[str, list[str]]]:
    """The heads of the table of results and, by model, its cells: scores, differences from the baseline and, if `full`,
    p-values and costs."""
    metric, baseline, names = comparison.dataset.metric, comparison.baseline, text.short_names(comparison.models)
    gaps = {model: comparison.gap_to_baseline(model) for model in comparison.models}
    paired = baseline is not None and any(gaps.values())
    heads = ["model", f"test {text.heading(metric)}", "95% interval"]
    heads += [f"against {names[baseline]}", *["p"] * full] if baseline and paired else []
    heads += ["parameters", "s / run"] if full else []
    rows = {}
    for model, summary in comparison.summary().items():
        runs, gap = comparison.rows[model], gaps[model]
        cells = [names[model], text.percent(summary, metric), text.interval(summary, metric)]
        if paired:
            cells += [text.gain(gap, metric) if gap else "", *[text.p_value(gap.p) if gap else ""] * full]
        if full:
            cells += [f"{runs[0].num_parameters:,}", f"{fmean(run.seconds for run in runs):.2f}"]
        rows[model] = cells
    return heads, rows


def results(comparison: Results) -> Panel | None:
    """Test scores by model, differences from the baseline, and costs."""
    heads, rows = results_table(comparison)
    baseline = heads[3].removeprefix("against ") if "p" in heads else ""
    by_score = comparison.baseline != comparison.study.baseline
    content = {"heads": heads, "rows": rows, "baseline": baseline, "by_score": by_score}
    return Panel("results", "Results", content) if rows else None


def all_runs(comparison: Results) -> Panel | None:
    """Every run as a mark, one row per model, with the mean and its 95% interval above."""
    metric, summaries = comparison.dataset.metric, comparison.summary()
    factor, names = text.scale(metric), text.short_names(summaries)
    scores = {
        model: [factor * run.test for run in comparison.rows[model] if math.isfinite(run.test)] for model in summaries
    }
    intervals = {model: [factor * bound for bound in text.bounds(summaries[model], metric)] for model in summaries}
    shown = [value for values in (*intervals.values(), *scores.values()) for value in values]
    scored = "; ".join(f"{model} {text.percent(summary, metric)}" for model, summary in summaries.items())
    chart = Chart(
        x=padded(shown),
        y=(float(len(scores)), 0.0),
        height=ROW * len(scores),
        x_title=f"test {text.heading(metric)}",
        alt=f"Dot plot of the test score of every run, one row per model. {scored}.",
        legend=[("a", "run of a GFGN"), ("b", "run of another model"), ("interval", "mean and its 95% interval")],
    )
    for row, (model, summary) in enumerate(summaries.items()):
        chart.labels.append(Label(ROW * row + 15, names[model], text.percent(summary, metric)))
        low, high = intervals[model]
        if np.isfinite([low, high]).all():
            chart.segments.append(Segment((low, high), (row + 0.43, row + 0.43), "interval"))
        if np.isfinite(summary.mean):
            chart.segments.append(Segment((factor * summary.mean,) * 2, (row + 0.37, row + 0.49), "interval"))
        kind = "a" if is_gfgn(model) else "b"
        chart.dots += [
            Dot(value, row + 0.59 + offset, kind)
            for value, offset in zip(scores[model], stack(scores[model]), strict=True)
        ]
    return Panel("runs", "All runs", {"chart": chart}) if summaries else None


def configurations(comparison: Results) -> Panel | None:
    """The selected configuration of each model and, folded, all that were tried."""
    content = {"metric": comparison.dataset.metric, "selections": comparison.selections}
    return Panel("chosen", "Selected configurations", content) if comparison.selections else None


def gates(comparison: Results) -> Panel | None:
    """The first-layer gates of the trained models, from the summaries in the runs."""
    found = {}
    for model in filter(is_gfgn, comparison.models):
        known = [row.gates for row in comparison.rows[model] if row.gates and row.gates.keys() >= GATES.keys()]
        if known:
            found[model] = {name: fmean(each[name] for each in known) for name in GATES}
    return Panel("gates", "What the gates learned", {"heads": list(GATES.values()), "gates": found}) if found else None


def one_run(comparison: Results, explanation: Explanation) -> Panel:
    """Which run is explained, and its training curves."""
    run, metric = explanation.run, comparison.dataset.metric

    def shown(value: float | None) -> str:
        return "unknown" if value is None else text.score(value, metric) + text.unit(metric)

    differs = run.test is not None and run.stored_test is not None and abs(run.test - run.stored_test) > 1e-3
    content = {
        "run": run,
        "several": len(comparison.models) > 1,
        "configuration": text.in_words(run.configuration, run.model),
        "metric": METRICS[metric].title,
        "test": shown(run.test),
        "stored": shown(run.stored_test) if differs else "",
        "charts": curves(explanation.history, run.epoch, run.epochs, metric),
    }
    return Panel("run", f"One run of {run.model}", content)


PANELS: Sequence[Callable[[Results], Panel | None]] = (results, all_runs, configurations, gates)


def comparison_panels(comparison: Results, explained: Explanation | None, file: str) -> list[Panel]:
    """The panels of a comparison; `file` has the features of the explained run."""
    panels, metric = [panel(comparison) for panel in PANELS], comparison.dataset.metric
    if explained is not None:
        panels += [
            one_run(comparison, explained),
            classes(explained.classes, f"Test nodes of split {explained.run.split}"),
            features(explained.features, metric, file),
            extremes(explained.extremes),
        ]
    return [panel for panel in panels if panel is not None]


# --- runs and trained models ------------------------------------------------------------------------------------------


def curves(history: Mapping[str, Values], best: int, epochs: int, metric: str) -> list[Chart]:
    """Losses and validation score by epoch."""
    scores = [None if value is None else text.scale(metric) * value for value in history["val"]]
    shown = [epoch for epoch in history["epoch"] if epoch is not None]
    marked = f"best epoch: {best}"
    charts = []
    for lines, what, title in (
        ({"line a": history["train_loss"], "line b": history["val_loss"]}, "loss", "loss"),
        ({"line b": scores}, f"validation {METRICS[metric].title}", f"validation {text.heading(metric)}"),
    ):
        last = [f"{values[-1]:.3g}" for values in lines.values() if values[-1] is not None]
        chart = Chart(
            x=(0.0, max(1.0, shown[-1])),
            y=padded(value for values in lines.values() for value in values),
            height=180,
            x_title="epoch",
            y_title=title,
            alt=f"Line chart of the {what} over {epochs} epochs, ending at {' and '.join(last)}; {marked}.",
            legend=[*[("line a", "training"), ("line b", "validation")][len(lines) == 1 :], ("mark", marked)],
            lines={kind: list(zip(shown, values, strict=True)) for kind, values in lines.items()},
        )
        chart.segments.append(Segment((best, best), chart.y, "mark"))
        charts.append(chart)
    return charts


def classes(report: ClassReport, nodes: str) -> Panel:
    """Scores by class, confusion matrix and calibration; `nodes` says on which nodes."""
    noun, names = "label" if report.multilabel else "class", report.class_names
    mistakes = []
    if not report.multilabel:
        wrong = np.array(report.confusion)
        np.fill_diagonal(wrong, 0)
        for k in np.argsort(-wrong, axis=None, kind="stable")[:MISTAKES].tolist():
            true, predicted = divmod(k, len(names))
            if number := int(wrong[true, predicted]):
                share = f"{100 * number / report.support[true]:.0f}"
                mistakes.append((names[true], names[predicted], f"{number:,}", share))
    content = {"report": report, "noun": noun, "nodes": nodes, "mistakes": mistakes, "chart": _calibration(report)}
    return Panel("classes", f"Scores by {noun}", content)


def _calibration(report: ClassReport) -> Chart:
    """Accuracy against confidence, one mark per bin."""
    error = f"Expected calibration error: {100 * report.calibration_error:.1f}%"
    filled = [(each, each.confidence, each.accuracy) for each in report.bins]
    points = [(each, x, y) for each, x, y in filled if x is not None and y is not None]
    return Chart(
        x=(0.0, 1.0),
        y=(0.0, 1.0),
        height=260,
        x_title="confidence (probability of the prediction)",
        y_title="accuracy",
        alt=f"Accuracy against confidence in {len(points)} bins. {error}.",
        legend=[("a", "predictions of one bin"), ("mark", "perfect calibration")],
        segments=[Segment((0.0, 1.0), (0.0, 1.0), "mark")],
        dots=[
            Dot(x, y, "a", f"confidence {x:.2f}, accuracy {y:.2f}, {each.count:,} predictions") for each, x, y in points
        ],
        lines={"line a": [(x, y) for _, x, y in points]},
    )


@dataclass(frozen=True)
class Column:
    """A column of the table of features: numbers with `digits`, or texts."""

    label: str
    values: Sequence[float | str | None]
    digits: int = 0


def features(features: Features, metric: str, file: str) -> Panel:
    """Gates, smoothness and importance of the features."""
    factor, points = text.scale(metric), ", points" if text.unit(metric) else ""
    levels = list(features.gates)
    columns = [Column(f"gate, {level}", values, 2) for level, values in features.gates.items()]
    columns.append(Column("smoothness", features.smoothness, 2))
    drops = [None if value is None else round(factor * value, 4) for value in features.importance]
    columns.append(Column(f"importance{points}", drops, 2 if points else 4))
    if features.follows is not None:
        texts = ["follows the graph" if each else "does not" for each in features.follows]
        columns.append(Column("by construction", texts))
    main = levels.index(features.level) if features.level in levels else 0 if levels else 1  # importance without gates
    content = {
        "features": features,
        "metric": METRICS[metric].title,
        "computed": sum(value is not None for value in features.importance),
        "shared": features.source is not None and len(set(features.source)) < len(features.names),
        "chart": _importance_by_gate(features, columns[main], drops, f"importance{points}") if levels else None,
        "columns": columns,
        "main": main,
        "groups": _groups(features.names, columns[main]),
        "data": {"names": features.names, "columns": [vars(each) for each in columns], "main": main},
        "ends": ENDS,
        "file": file,
    }
    return Panel("features", "Features", content)


def _groups(names: Sequence[str], column: Column) -> list[tuple[str, list[int]]]:
    """The rows that are shown without a script: all by their value, or both ends of the order."""
    value = {k: each for k, each in enumerate(column.values) if isinstance(each, float | int)}
    known = sorted(value, key=lambda k: -value[k])
    if len(names) <= 2 * ENDS:
        return [("", [*known, *(k for k in range(len(names)) if k not in value)])]
    return [
        (f"{ENDS} highest: {column.label}", known[:ENDS]),
        (f"{ENDS} lowest: {column.label}", known[: -ENDS - 1 : -1]),
    ]


def _importance_by_gate(features: Features, gate: Column, drops: Values, label: str) -> Chart | None:
    """Importance against the gate, one mark per feature."""
    follows = features.follows or [True] * len(features.names)
    points = [
        (name, float(x), drop, follow)
        for name, x, drop, follow in zip(features.names, gate.values, drops, follows, strict=True)
        if x is not None and drop is not None
    ]
    if not points:
        return None
    top = sorted(points, key=lambda point: -point[2])[:3]
    most = ", ".join(f"{name} (gate {x:.2f})" for name, x, *_ in top)
    return Chart(
        x=(0.0, max(1.0, *(x for _, x, _, _ in points))),
        y=padded((point[2] for point in points), True),
        height=260,
        x_title=f"{gate.label} level (0: own value, 1: neighbors')",
        y_title=label,
        alt=f"Scatter plot of importance against the gate of {len(points):,} features. Most important: {most}.",
        legend=[("a", "follows the graph by construction"), ("b", "does not")] if features.follows else [],
        dots=[
            Dot(x, drop, "a" if follow else "b", f"{name}: gate {x:.2f}, {label} {drop:g}")
            for name, x, drop, follow in points
        ],
    )


def extremes(extremes: Extremes | None) -> Panel | None:
    """The nodes or edges with the highest and lowest gates."""
    if extremes is None:
        return None
    return Panel("extremes", f"{extremes.kind.capitalize()} with extreme gates", {"extremes": extremes})
