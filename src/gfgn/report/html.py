"""`write_report`: comparisons as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from gfgn.data.files import replace_text
from gfgn.report.charts import Chart, legend, padded, stack
from gfgn.report.elements import Bold, Prose, figure, folded, heading, soft, table
from gfgn.report.explained import classes_section, extremes_section, gates_section, run_section
from gfgn.report.features import ForeignFileError, features_section, write_gates
from gfgn.runs import Comparison
from gfgn.runs.comparison import in_words, rank_models
from gfgn.runs.record import is_gfgn
from gfgn.runs.text import (
    bounds,
    count,
    divergence,
    gain,
    interval,
    mean_and_std,
    p_value,
    percent,
    scale,
    short_names,
)
from gfgn.runs.text import heading as metric_heading
from gfgn.runs.verdict import headline
from gfgn.train.evaluation import ClassReport

GENERATOR = '<meta name="generator" content="gfgn">'  # in the head of every page, so that it can be recognized
EARLIER = "--blue: #0072B2"  # in that of earlier releases
ROW = 58  # pixels of a model in the chart of all runs


def write_report(comparisons: Sequence[Comparison], path: str | Path) -> Path:
    """Writes the report, one section per comparison, and returns its path.

    The features of explained comparisons are written to `gates.csv` beside it, or to one `gates-NAME.csv` each if there
    are several comparisons.
    """
    if not comparisons:
        raise ValueError("comparisons must not be empty, got none")
    path = Path(path)
    check_page(path)
    with explained_errors(*comparisons):
        files = write_gates(comparisons, path.parent)
    return replace_text(path, _page(comparisons, files))


@contextmanager
def explained_errors(*comparisons: Comparison) -> Iterator[None]:
    """Turns the exceptions of an explanation that gfgn has not written into one that says what to do."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        if isinstance(error, ForeignFileError):
            raise
        names = ", ".join(comparison.dataset.name for comparison in comparisons)
        raise ValueError(
            f"the explanation of {names} in the store is damaged ({type(error).__name__}: {error}); move the store "
            "away and run `gfgn compare` again"
        ) from error


def check_page(path: Path) -> None:
    """Refuses to overwrite a file that is not a report of gfgn."""
    if path.is_file() and path.stat().st_size:
        with path.open(encoding="utf-8", errors="replace") as file:
            start = file.read(2000)
        if GENERATOR not in start and EARLIER not in start:
            raise ForeignFileError(
                f"the report must not replace a file of somebody else, got {path}: name another folder"
            )


def _page(comparisons: Sequence[Comparison], files: Sequence[str | None]) -> str:
    several = len(comparisons) > 1
    same_training = several and len({comparison.settings for comparison in comparisons}) == 1
    models = {model for comparison in comparisons for model in comparison.study.models}
    data = count(len(comparisons), "dataset") if several else comparisons[0].dataset.name
    title = f"{count(len(models), 'model')} on {data}"
    sections = [heading(1, title)]
    if several:
        targets = [(f"data-{k}", each.dataset.name) for k, each in enumerate(comparisons)]
        sections += [links(targets, "Datasets"), _overview(comparisons)]
    if same_training:
        sections.append(soft(_training(comparisons[0])))
    for number, comparison in enumerate(comparisons):
        if several:
            sections.append(heading(2, comparison.dataset.name, f"data-{number}"))
        sections.append(_dataset(comparison, number, 3 if several else 2, files[number], not same_training))
    sections.append(_footer(comparisons))
    return fill_page(title, sections)


def fill_page(title: str, sections: Sequence[str]) -> str:
    """The whole page; empty sections are left out."""
    template, script = (
        Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("template.html", "page.js")
    )
    body = "\n".join(filter(None, sections))
    return Template(template).substitute(title=escape(title), body=body, script=script)


def links(targets: Sequence[tuple[str, str]], label: str) -> str:
    """A list of links to sections of the page."""
    items = "".join(f'<li><a href="#{target}">{escape(text)}</a></li>' for target, text in targets)
    return f'<nav aria-label="{escape(label)}"><ul>{items}</ul></nav>'


def _dataset(comparison: Comparison, number: int, level: int, file: str | None, with_training: bool) -> str:
    """All sections of one comparison, with headings from `level` on."""
    sections = {f"results-{number}": ("Results", _results(comparison, number, level))} if comparison.models else {}
    if comparison.models:
        sections[f"runs-{number}"] = ("All runs", _runs(comparison, number, level))
        sections[f"chosen-{number}"] = ("Configurations", _selections(comparison, number, level))
        sections[f"gates-{number}"] = ("Gates", gates_section(comparison, number, level))
        if comparison.explanation is not None:
            with explained_errors(comparison):
                sections |= _explained(comparison, comparison.explanation, number, level, file)
    shown = {target: section for target, section in sections.items() if section[1]}
    targets = [(target, title) for target, (title, _) in shown.items()]
    parts = [
        f'<p class="headline">{escape(headline(comparison))}</p>',
        _introduction(comparison, with_training),
        _incomplete(comparison),
        links(targets, f"Sections on {comparison.dataset.name}") if len(targets) > 2 else "",
        *(content for _, content in shown.values()),
    ]
    return "\n".join(filter(None, parts))


def _explained(
    comparison: Comparison, explanation: dict[str, Any], number: int, level: int, file: str | None
) -> dict[str, tuple[str, str]]:
    """The sections on the run explained."""
    metric, several = comparison.dataset.metric, len(comparison.models) > 1
    report = ClassReport.from_json(explanation["classes"])
    nodes = f"Test nodes of split {explanation['run']['split']}"
    features = features_section(explanation["features"], metric, number, level, file)
    return {
        f"run-{number}": ("One run", run_section(explanation, several, metric, number, level)),
        f"classes-{number}": ("Classes", classes_section(report, nodes, number, level)),
        f"features-{number}": ("Features", features),
        f"extremes-{number}": ("Nodes and edges", extremes_section(explanation["extremes"], number, level)),
    }


def _footer(comparisons: Sequence[Comparison]) -> str:
    rows = [row for comparison in comparisons for runs in comparison.rows.values() for row in runs]
    runs = sum(
        comparison.study.plan(cell).count
        for comparison in comparisons
        for cell in comparison.study.all_cells()
        if cell.model in comparison.rows
    )
    versions = {f"gfgn {row.versions['gfgn']}, torch {row.versions['torch']}, {row.device}" for row in rows}
    trained = f" Trained with {'; '.join(sorted(versions))}." if versions else ""
    return f"<footer>{count(runs, 'run')}, all of them in the store and in runs.csv.{escape(trained)}</footer>"


def _overview(comparisons: Sequence[Comparison]) -> str:
    """One row per model, one column per dataset, and the average rank."""
    summaries = [comparison.summary() for comparison in comparisons]
    models = list(dict.fromkeys(model for comparison in comparisons for model in comparison.models))
    ranks = rank_models(comparisons) if len(models) > 1 else {}
    best = [
        max((summary[model].mean for model in each.scored), default=0.0)
        for each, summary in zip(comparisons, summaries, strict=True)
    ]
    metrics = [comparison.dataset.metric for comparison in comparisons]
    rows, names = [], short_names(models)
    for model in models:
        row: list[str] = [names[model]]
        for summary, highest, metric in zip(summaries, best, metrics, strict=True):
            text = percent(summary[model], metric) if model in summary else ""
            row.append(Bold(text) if text and summary[model].mean == highest else text)
        rows.append(row + ([f"{ranks[model]:.2f}" if model in ranks else ""] if ranks else []))
    heads = ["model", *(comparison.dataset.name for comparison in comparisons), *(["rank"] if ranks else [])]
    note = "Test score (in percent unless it is a log loss), mean ± standard deviation over runs; the best of each "
    note += "dataset in bold."
    if ranks:
        note += " Rank: average over datasets, among the models that ran on all of them; ties share their average rank."
    return table(heads, rows, "Test scores by model and dataset", note)


# --- one dataset ------------------------------------------------------------------------------------------------------


def _introduction(comparison: Comparison, with_training: bool) -> str:
    data, study = comparison.dataset, comparison.study
    text = data.description[:1].upper() + data.description[1:]
    text += "" if not text or text.endswith((".", "!", "?")) else "."
    warning = (
        '<p class="warn">This is a stand-in with the structure of a published dataset; its scores are not comparable '
        "with published ones.</p>\n"
    )
    sizes = (
        f"{data.num_nodes:,} nodes, {data.num_edges:,} directed edges, {data.num_features:,} feature dimensions, "
        f"{data.num_classes} classes. {count(study.splits, 'split')}, {count(study.seeds, 'seed')} each."
    )
    details = f"{sizes} {_training(comparison)}" if with_training else sizes
    return f"<p>{escape(text)}</p>\n{warning if data.standin else ''}{soft(details)}"


def _training(comparison: Comparison) -> str:
    text = f"Every network: {comparison.settings}."
    if comparison.study.config.best == "last":
        return text
    return f"{text} The best epoch is chosen on the validation nodes; the test score is that of the chosen epoch."


def _incomplete(comparison: Comparison) -> str:
    models = "; ".join(f"{model}, {have:,} of {need:,} runs" for model, (have, need) in comparison.incomplete.items())
    left_out = f'<p class="warn">Left out because runs are missing: {escape(models)}.</p>' if models else ""
    rows = comparison.rows
    lines = [divergence(model, number, len(rows[model])) for model, number in comparison.diverged.items()]
    others = ", ".join(f"{model} ({count(number, 'run')})" for model, number in comparison.others.items())
    more = soft(f"Also in the store, trained with other settings: {others}.") if others else ""
    return left_out + "".join(f'<p class="warn">{escape(line)}.</p>' for line in lines) + more


def _results(comparison: Comparison, number: int, level: int) -> str:
    metric, baseline = comparison.dataset.metric, comparison.best_baseline
    paired = baseline is not None and any(map(is_gfgn, comparison.models))
    heads = ["model", f"test {metric_heading(metric)}", "95% interval", "parameters", "s / run"]
    note = "Mean ± standard deviation over runs; t-interval of the mean over splits, corrected for their overlap."
    names = short_names(comparison.models)
    if baseline is not None and paired:
        heads[3:3] = [f"against {names[baseline]}", "p"]
        note += (
            f" {names[baseline]} is the baseline with the best test score; differences are paired by split and seed."
        )
        note += " p: paired t-test over splits."
    rows = []
    for model, summary in comparison.summary().items():
        runs = comparison.rows[model]
        difference, test = comparison.gain(model), comparison.significance(model)
        against = [gain(difference, metric), p_value(test.t_p)] if difference and test else ["", ""]
        costs = [f"{runs[0].num_parameters:,}", f"{np.mean([run.seconds for run in runs]):.2f}"]
        scores = [Bold(percent(summary, metric)), interval(summary, metric)]
        rows.append([names[model], *scores, *(against if paired else []), *costs])
    return heading(level, "Results", f"results-{number}") + "\n" + table(heads, rows, "Test scores by model", note)


def _selections(comparison: Comparison, number: int, level: int) -> str:
    """The selected configuration of each model and, folded, all that were tried."""
    if not comparison.selections:
        return ""
    selected, tried, names = [], [], short_names(comparison.models)
    for model, selection in comparison.selections.items():
        for candidate in selection.candidates:
            score = mean_and_std(candidate.val, candidate.std, candidate.runs, comparison.dataset.metric)
            tried.append([names[model], score, Prose(in_words(candidate.configuration, model))])
        selected.append(tried[-len(selection.candidates)])
    heads = ["model", f"validation {metric_heading(comparison.dataset.metric)}", Prose("configuration")]
    note = "Mean ± standard deviation of the best validation score over splits. Test scores play no part."
    title = f"All {len(tried)} configurations tried"
    return (
        f"{heading(level, 'Selected configurations', f'chosen-{number}')}\n"
        f"{table(heads, selected, 'Selected configurations', note)}\n{folded(title, table(heads, tried, title))}"
    )


def _runs(comparison: Comparison, number: int, level: int) -> str:
    """Every run as a mark, one row per model, with the mean and its 95% interval above."""
    metric, summaries = comparison.dataset.metric, comparison.summary()
    factor, names = scale(metric), short_names(summaries)
    scores = {
        model: [factor * run.test for run in comparison.rows[model] if math.isfinite(run.test)] for model in summaries
    }
    intervals = {model: [factor * bound for bound in bounds(summaries[model], metric)] for model in summaries}
    span = padded(
        [
            *(end for ends in intervals.values() for end in ends),
            *(value for values in scores.values() for value in values),
        ]
    )
    chart = Chart(span, (float(len(scores)), 0.0), ROW * len(scores))
    chart.x_axis(f"test {metric_heading(metric)}")
    for row, (model, summary) in enumerate(summaries.items()):
        chart.text("0", ROW * row + 15, names[model], kind="name")
        chart.text("100%", ROW * row + 15, percent(summary, metric), "end")
        low, high = intervals[model]
        if np.isfinite([low, high]).all():
            chart.segment((low, high), (row + 0.42, row + 0.42), "interval")
        if np.isfinite(summary.mean):
            chart.segment((factor * summary.mean,) * 2, (row + 0.36, row + 0.48), "interval")
        for value, offset in zip(scores[model], stack(scores[model]), strict=True):
            chart.dot(value, row + 0.58 + offset, "a" if is_gfgn(model) else "b")
    text = "; ".join(f"{model} {percent(summary, metric)}" for model, summary in summaries.items())
    alt = f"Dot plot of the test score of every run, one row per model. {text}."
    marks = legend([("a", "run of a GFGN"), ("b", "run of another model"), ("interval", "mean and its 95% interval")])
    title = heading(level, "All runs", f"runs-{number}")
    return title + "\n" + figure(marks + chart.svg(alt), "Each mark is one run.")
