"""`write_report`: comparisons as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from gfgn.report.figures import gates_figure, runs_figure
from gfgn.runs import Comparison
from gfgn.runs.comparison import in_words, rank_models
from gfgn.runs.gates import MAX_DIMENSIONS
from gfgn.runs.record import is_gfgn
from gfgn.runs.text import count, gain, heading, interval, mean_and_std, p_value, percent

GATES = {"min": "minimum", "mean": "mean", "max": "maximum", "std": "std. dev.", "below_055": "below 0.55, %"}


class Bold(str):
    """A table cell in bold."""


class Prose(str):
    """A left-aligned table cell that wraps."""


def write_report(comparisons: Sequence[Comparison], path: str | Path) -> Path:
    """Writes the report, one section per comparison, and returns its path."""
    if not comparisons:
        raise ValueError("comparisons must not be empty, got none")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(comparisons), encoding="utf-8")
    return path


def _page(comparisons: Sequence[Comparison]) -> str:
    several = len(comparisons) > 1
    same_training = several and len({comparison.settings for comparison in comparisons}) == 1
    models = {model for comparison in comparisons for model in comparison.plan.models}
    data = count(len(comparisons), "dataset") if several else comparisons[0].dataset.name
    title = escape(f"{count(len(models), 'model')} on {data}")
    sections = [f"<h1>{title}</h1>"]
    if several:
        links = (f'<a href="#data-{k}">{escape(each.dataset.name)}</a>' for k, each in enumerate(comparisons))
        sections += [f"<nav>{''.join(links)}</nav>", _overview(comparisons)]
    if same_training:
        sections.append(_soft(_training(comparisons[0])))
    for number, comparison in enumerate(comparisons):
        if several:
            sections.append(f'<h2 id="data-{number}">{escape(comparison.dataset.name)}</h2>')
        sections += [_introduction(comparison, with_training=not same_training), _incomplete(comparison)]
        if comparison.models:
            sections += [_results(comparison), _selections(comparison)]
            sections += [_runs(comparison, number), _gates(comparison, number)]
    sections.append(_footer(comparisons))
    template = Path(__file__).with_name("template.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=title, body="\n".join(filter(None, sections)))


def _footer(comparisons: Sequence[Comparison]) -> str:
    rows = [row for comparison in comparisons for runs in comparison.rows.values() for row in runs]
    runs = sum(comparison.plan.plan(model).count for comparison in comparisons for model in comparison.models)
    versions = {f"gfgn {row.versions['gfgn']}, torch {row.versions['torch']}, {row.device}" for row in rows}
    trained = f" Trained with {'; '.join(sorted(versions))}." if versions else ""
    return f"<footer>{count(runs, 'run')}, all of them in the store and in runs.csv.{escape(trained)}</footer>"


def _overview(comparisons: Sequence[Comparison]) -> str:
    """One row per model, one column per dataset, and the average rank."""
    summaries = [comparison.summary() for comparison in comparisons]
    models = list(dict.fromkeys(model for comparison in comparisons for model in comparison.models))
    ranks = rank_models(comparisons) if len(models) > 1 else {}
    metrics = [comparison.dataset.metric for comparison in comparisons]
    best = [max((score.mean for score in summary.values()), default=0.0) for summary in summaries]
    rows = []
    for model in models:
        row = [model]
        for summary, metric, highest in zip(summaries, metrics, best, strict=True):
            text = percent(summary[model], metric) if model in summary else ""
            row.append(Bold(text) if text and summary[model].mean == highest else text)
        rows.append(row + ([f"{ranks[model]:.2f}" if model in ranks else ""] if ranks else []))
    heads = ["model", *(comparison.dataset.name for comparison in comparisons), *(["rank"] if ranks else [])]
    note = "Test score in percent, mean ± standard deviation over runs; the best of each dataset in bold."
    if ranks:
        note += " Rank: average over datasets, among the models that ran on all of them; ties share their average rank."
    return _table(heads, rows, note)


# --- one dataset ------------------------------------------------------------------------------------------------------


def _introduction(comparison: Comparison, with_training: bool) -> str:
    data, plan = comparison.dataset, comparison.plan
    text = data.description[:1].upper() + data.description[1:]
    text += "" if not text or text.endswith((".", "!", "?")) else "."
    warning = (
        '<p class="warn">This is a stand-in with the structure of a published dataset; its scores are not comparable '
        "with published ones.</p>\n"
    )
    sizes = (
        f"{data.num_nodes:,} nodes, {data.num_edges:,} directed edges, {data.num_features:,} feature dimensions, "
        f"{data.num_classes} classes. {count(plan.splits, 'split')}, {count(plan.seeds, 'seed')} each."
    )
    details = f"{sizes} {_training(comparison)}" if with_training else sizes
    return f"<p>{escape(text)}</p>\n{warning if data.standin else ''}{_soft(details)}"


def _training(comparison: Comparison) -> str:
    choice = "The best epoch is chosen on the validation nodes; the test score is that of the chosen epoch."
    return f"Every model: {comparison.settings}. {choice}"


def _incomplete(comparison: Comparison) -> str:
    models = "; ".join(f"{model}, {have:,} of {need:,} runs" for model, (have, need) in comparison.incomplete.items())
    return f'<p class="warn">Left out because runs are missing: {escape(models)}.</p>' if models else ""


def _results(comparison: Comparison) -> str:
    baseline = comparison.best_baseline
    paired = baseline is not None and any(map(is_gfgn, comparison.models))
    metric = comparison.dataset.metric
    heads = ["model", f"test {heading(metric)}", "95% interval", "parameters", "s / run"]
    note = "Mean ± standard deviation over runs; t-interval of the mean over splits, corrected for their overlap."
    if paired:
        heads[3:3] = [f"against {baseline}", "p"]
        note += f" {baseline} is the baseline with the best test score; differences are paired by split and seed."
        note += " p: paired t-test over splits, with the same correction."
    rows = []
    for model, summary in comparison.summary().items():
        runs = comparison.rows[model]
        difference, test = comparison.gain(model), comparison.significance(model)
        against = [gain(difference, metric), p_value(test.t_p)] if difference and test else ["", ""]
        costs = [f"{runs[0].num_parameters:,}", f"{np.mean([run.seconds for run in runs]):.2f}"]
        rows.append(
            [model, Bold(percent(summary, metric)), interval(summary, metric), *(against if paired else []), *costs]
        )
    return "<h3>Results</h3>\n" + _table(heads, rows, note)


def _selections(comparison: Comparison) -> str:
    """The selected configuration of each model and, folded, all that were tried."""
    if not comparison.selections:
        return ""
    selected, tried, metric = [], [], comparison.dataset.metric
    for model, selection in comparison.selections.items():
        for candidate in selection.candidates:
            score = mean_and_std(candidate.val, candidate.std, candidate.runs, metric)
            tried.append([model, score, Prose(in_words(candidate.configuration, model))])
        selected.append(tried[-len(selection.candidates)])
    heads = ["model", f"validation {heading(metric)}", Prose("configuration")]
    note = "Mean ± standard deviation of the best validation score over splits. Test scores play no part."
    return (
        f"<h3>Selected configurations</h3>\n{_table(heads, selected, note)}\n"
        f"<details><summary>All {len(tried)} configurations tried</summary>{_table(heads, tried)}</details>"
    )


def _runs(comparison: Comparison, number: int) -> str:
    metric = comparison.dataset.metric
    scores = "; ".join(f"{model} {percent(summary, metric)}" for model, summary in comparison.summary().items())
    alt = f"Dot plot of the test score of every run, one row per model. {scores}."
    caption = "Each dot is a run; the line above is the mean with its 95% interval."
    return "<h3>All runs</h3>\n" + _figure(runs_figure(comparison, f"runs-{number}"), alt, caption)


# --- gates ------------------------------------------------------------------------------------------------------------


def _gates(comparison: Comparison, number: int) -> str:
    models, features = [model for model in comparison.models if is_gfgn(model)], comparison.dataset.num_features
    if not models and comparison.gates is None:
        return ""
    sections = ["<h3>What the gates learned</h3>", _gates_of_models(comparison, models)]
    if comparison.gates is not None:
        sections.append(_gates_of_dimensions(comparison.gates, number))
    elif features > MAX_DIMENSIONS:
        limit = f"up to {MAX_DIMENSIONS:,} dimensions; this graph has {features:,}."
        sections.append(_soft(f"Gates of single feature dimensions are computed for {limit}"))
    return "\n".join(filter(None, sections))


def _gates_of_models(comparison: Comparison, models: Sequence[str]) -> str:
    """The first-layer gates of the trained models, from the summaries in the runs."""
    rows = []
    for model in models:
        gates = [row.gates for row in comparison.rows[model] if row.gates is not None]
        if gates:
            *means, below = (float(np.mean([each[name] for each in gates])) for name in GATES)
            rows.append([model, *(f"{mean:.2f}" for mean in means), f"{100 * below:.0f}"])
    note = (
        "First-layer gates at the best epoch over all hidden units (and nodes or edges), averaged over runs. At 0 a "
        "node keeps its own value, at 1 it takes its neighbors'; no gate exceeds λ."
    )
    return _table(["model", *GATES.values()], rows, note) if rows else ""


def _gates_of_dimensions(gates: dict[str, Any], number: int) -> str:
    if gates["smooth"] is None:
        alt = "Scatter plots of the mean gate of each feature dimension against its smoothness, one panel per level."
    else:
        smooth = np.array(gates["smooth"])
        means = [
            f"{level} level {np.mean(values[smooth]):.2f} where the dimension follows the graph, "
            f"{np.mean(values[~smooth]):.2f} where it does not"
            for level, values in ((level, np.array(values)) for level, values in gates["levels"].items())
        ]
        alt = f"Dot plot of the mean gate of each feature dimension. Averages: {'; '.join(means)}."
    caption = (
        "Each dot is one feature dimension. First-layer gates of a GFGN whose weight matrix is fixed to the identity, "
        "so that each gate belongs to one input dimension; mean over nodes or edges."
    )
    return _figure(gates_figure(gates, f"gates-{number}"), alt, caption)


# --- HTML -------------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """A table whose first column is the model; rows of a GFGN are tinted."""
    header = "".join(f'<th scope="col"{_kind(head)}>{escape(head)}</th>' for head in heads)
    lines = []
    for row in rows:
        cells = "".join(f"<td{_kind(cell)}>{escape(cell)}</td>" for cell in row)
        lines.append(f'<tr class="gfgn">{cells}</tr>' if is_gfgn(row[0]) else f"<tr>{cells}</tr>")
    body = "\n".join(lines)
    table = f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide">{table}</div>' + (f"\n{_soft(note)}" if note else "")


def _kind(cell: str) -> str:
    return f' class="{type(cell).__name__.lower()}"' if isinstance(cell, Bold | Prose) else ""


def _soft(text: str) -> str:
    return f'<p class="soft">{escape(text)}</p>'


def _figure(svg: str, alt: str, caption: str) -> str:
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt, quote=True)}"', 1)
    return f'<figure><div class="wide">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'
