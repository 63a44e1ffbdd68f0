"""`write_report`: comparisons as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gfgn.report.figures import METRICS, gates_figure, runs_figure
from gfgn.runs.comparison import Comparison, in_words, rank_models
from gfgn.runs.gates import MAX_DIMENSIONS
from gfgn.runs.record import is_gfgn
from gfgn.train.statistics import Summary, in_percent

STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --soft: #5b6470; --line: #dfe3e8; --paper: #fff; --tint: #f2f6fb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #9aa4b1; --line: #343a42; --paper: #14171b; --tint: #1c232c; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; font-weight: 650; }
h3 { font-size: 1.05rem; margin: 2.25rem 0 .5rem; font-weight: 650; }
p { margin: .5rem 0; }
a { color: inherit; }
nav { margin: .75rem 0 0; font-size: .925rem; }
nav a { margin-right: 1rem; }
.soft, figcaption, footer, summary { color: var(--soft); font-size: .875rem; }
.warn { border-left: 3px solid #E69F00; padding-left: .75rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; margin-top: .75rem; font-size: .925rem; }
th, td { padding: .45rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-size: .8rem; font-weight: 600; color: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: .4rem; }
tr.gfgn td { background: var(--tint); }
td.strong { font-weight: 600; }
details { margin-top: .75rem; }
summary { cursor: pointer; }
@media (max-width: 40rem) { table { font-size: .85rem; } th, td { padding: .4rem .35rem; } }
figure { margin: .75rem 0 0; }
figure svg { display: block; width: 100%; min-width: 21rem; height: auto; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .75rem; }
"""
GATES = {"min": "lowest", "mean": "mean", "max": "highest", "std": "spread", "below_055": "below 0.55, %"}


def write_report(comparisons: Sequence[Comparison], path: str | Path) -> Path:
    """Writes the page and returns its path.

    Args:
        comparisons: What to report, one section each.
        path: The file to write; its folder is made if need be.
    """
    if not comparisons:
        raise ValueError("comparisons must hold at least one, got none")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(comparisons), encoding="utf-8")
    return path


def _page(comparisons: Sequence[Comparison]) -> str:
    title = _title(comparisons)
    sections = [f"<h1>{escape(title)}</h1>"]
    shared = len(comparisons) > 1 and len({comparison.settings for comparison in comparisons}) == 1
    if len(comparisons) > 1:
        sections += [_contents(comparisons), _overview(comparisons)]
    if shared:
        sections.append(f'<p class="soft">{_training(comparisons[0])}</p>')
    for number, comparison in enumerate(comparisons):
        if len(comparisons) > 1:
            sections.append(f'<h2 id="data-{number}">{escape(comparison.dataset.name)}</h2>')
        sections += [_introduction(comparison, training=not shared), *_dataset(comparison, number)]
    sections.append(_footer(comparisons))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + "\n</main>\n</body>\n</html>\n"
    )


def _title(comparisons: Sequence[Comparison]) -> str:
    models = _count(len(dict.fromkeys(model for each in comparisons for model in each.plan.models)), "model")
    if len(comparisons) == 1:
        return f"{models} on {comparisons[0].dataset.name}"
    return f"{models} on {_count(len(comparisons), 'dataset')}"


def _contents(comparisons: Sequence[Comparison]) -> str:
    links = (f'<a href="#data-{k}">{escape(each.dataset.name)}</a>' for k, each in enumerate(comparisons))
    return f"<nav>{''.join(links)}</nav>"


def _footer(comparisons: Sequence[Comparison]) -> str:
    rows = [row for comparison in comparisons for row in comparison.runs]
    tried = sum(each.plan.count(model) for each in comparisons for model in each.models)
    made = sorted({f"gfgn {row.versions['gfgn']}, torch {row.versions['torch']}, {row.device}" for row in rows})
    return (
        f"<footer>{_count(tried, 'run')}, each a row of the store and of runs.csv. "
        f"Made with {escape('; '.join(made)) or 'nothing yet'}.</footer>"
    )


# --- several datasets -------------------------------------------------------------------------------------------------


def _overview(comparisons: Sequence[Comparison]) -> str:
    """One row a model, one column a dataset, and the average rank."""
    summaries = [comparison.summary() for comparison in comparisons]
    models = list(dict.fromkeys(model for comparison in comparisons for model in comparison.models))
    ranks = rank_models(comparisons) if len(models) > 1 else {}
    best = [max((found.mean for found in summary.values()), default=0.0) for summary in summaries]
    rows = []
    for model in models:
        cells = [_cell(escape(model))]
        for summary, most in zip(summaries, best, strict=True):
            found = summary.get(model)
            cells.append(_cell("") if found is None else _cell(percent(found), strong=found.mean == most))
        if ranks:
            cells.append(_cell(f"{ranks[model]:.2f}" if model in ranks else ""))
        rows.append(_row(model, cells))
    heads = ["model", *(comparison.dataset.name for comparison in comparisons), *(["rank"] if ranks else [])]
    note = "Test score in percent, mean ± standard deviation over runs; the best of each dataset in bold."
    if ranks:
        note += " Rank: the place of a model among those run on every dataset, averaged over datasets, ties averaged."
    return _table(heads, rows, note)


# --- one dataset ------------------------------------------------------------------------------------------------------


def _dataset(comparison: Comparison, number: int) -> list[str]:
    sections = [_incomplete(comparison)]
    if comparison.models:
        sections += [_results(comparison), _chosen(comparison), _runs(comparison, number), _gates(comparison, number)]
    return sections


def _introduction(comparison: Comparison, training: bool) -> str:
    data, plan = comparison.dataset, comparison.plan
    standin = (
        '<p class="warn">This is a stand-in with the structure of a published dataset; its scores are not comparable '
        "with published ones.</p>\n"
        if data.standin
        else ""
    )
    return (
        f"<p>{escape(_sentence(data.description))}</p>\n{standin}"
        f'<p class="soft">{data.num_nodes:,} nodes, {data.num_edges:,} directed edges, '
        f"{data.num_features:,} feature dimensions, {data.num_classes} classes. {_count(plan.splits, 'split')}, "
        f"{_count(plan.seeds, 'seed')} each.{' ' + _training(comparison) if training else ''}</p>"
    )


def _training(comparison: Comparison) -> str:
    return (
        f"Every model: {escape(comparison.settings)}. The best epoch is chosen on validation nodes; the test score is "
        "read once, there."
    )


def _incomplete(comparison: Comparison) -> str:
    if not comparison.incomplete:
        return ""
    words = "; ".join(f"{model}, {have:,} of {need:,} runs" for model, (have, need) in comparison.incomplete.items())
    return f'<p class="warn">Left out, as not all runs are there yet: {escape(words)}.</p>'


def _results(comparison: Comparison) -> str:
    baseline = comparison.best_baseline
    paired = baseline is not None and any(map(is_gfgn, comparison.models))
    heads = ["model", f"test {METRICS[comparison.dataset.metric]}, %", "95% interval", "parameters", "s / run"]
    note = "Mean ± standard deviation over runs; bootstrap interval of the mean over splits."
    if paired:
        heads[3:3] = [f"against {baseline}", "p"]
        note += (
            f" {baseline} is the baseline with the best test score; differences are paired by split and seed, and p is "
            "of a paired t-test over splits."
        )
    rows = []
    for model, summary in comparison.summary().items():
        runs = comparison.of(model)
        cells = [_cell(escape(model)), _cell(percent(summary), strong=True), _cell(interval(summary))]
        if paired:
            cells += _against(comparison, model)
        cells += [_cell(f"{runs[0].num_parameters:,}"), _cell(f"{np.mean([run.seconds for run in runs]):.2f}")]
        rows.append(_row(model, cells))
    return "<h3>Results</h3>\n" + _table(heads, rows, note)


def _against(comparison: Comparison, model: str) -> list[str]:
    gain, tested = comparison.gain(model), comparison.significance(model)
    if gain is None or tested is None:
        return [_cell(""), _cell("")]
    p = "" if np.isnan(tested.t_p) else "&lt; 0.001" if tested.t_p < 0.001 else f"{tested.t_p:.3f}"
    return [_cell(f"{signed(gain.mean)} {interval(gain, sign=True)}"), _cell(p)]


def _chosen(comparison: Comparison) -> str:
    """For each model the configuration that was chosen, and on request all that were tried."""
    if not comparison.selections:
        return ""
    rows, everything = [], []
    for model, selection in comparison.selections.items():
        for candidate in selection.candidates:
            place = [_cell(escape(model)), _cell(in_percent(candidate.val, candidate.std, candidate.runs))]
            line = _row(model, [*place, _cell(escape(in_words(candidate.configuration, model)))])
            everything.append(line)
            if candidate is selection.candidates[0]:
                rows.append(line)
    heads = ["model", "validation score, %", "configuration"]
    note = "Mean best validation score over splits ± standard deviation. Test scores had no part in the choice."
    return (
        f"<h3>Chosen configurations</h3>\n{_table(heads, rows, note)}\n"
        f"<details><summary>All {len(everything)} that were tried</summary>{_table(heads, everything, '')}</details>"
    )


def _runs(comparison: Comparison, number: int) -> str:
    words = "; ".join(f"{model} {percent(summary)}" for model, summary in comparison.summary().items())
    return "<h3>Every run</h3>\n" + _figure(
        runs_figure(comparison, f"runs-{number}"),
        f"Dot plot of the test score of every run, one row a model. {words}.",
        "Each dot is a run; the line above is the mean with its 95% interval.",
    )


# --- gates ------------------------------------------------------------------------------------------------------------


def _gates(comparison: Comparison, number: int) -> str:
    levels = [model for model in comparison.models if is_gfgn(model)]
    parts = [_gates_of_models(comparison, levels)]
    if comparison.gates is not None:
        parts.append(_gates_of_dimensions(comparison.gates, number))
    elif comparison.dataset.num_features > MAX_DIMENSIONS:
        parts.append(
            f'<p class="soft">Gates of single feature dimensions are left out: they are worked out for up to '
            f"{MAX_DIMENSIONS:,} dimensions, and this graph has {comparison.dataset.num_features:,}.</p>"
        )
    text = "\n".join(part for part in parts if part)
    return f"<h3>What the gates learned</h3>\n{text}" if levels or comparison.gates is not None else ""


def _gates_of_models(comparison: Comparison, models: Sequence[str]) -> str:
    """What the first layers' gates of the trained models are like, from the summaries that runs keep."""
    rows = []
    for model in models:
        found = [row.gates for row in comparison.of(model) if row.gates is not None]
        if found:
            means = {name: float(np.mean([gates[name] for gates in found])) for name in GATES}
            numbers = [f"{100 * means[name]:.0f}" if name == "below_055" else f"{means[name]:.2f}" for name in GATES]
            rows.append(_row(model, [_cell(escape(model)), *map(_cell, numbers)]))
    if not rows:
        return ""
    note = (
        "First-layer gates at the best epoch over all hidden units (and nodes or edges), averaged over runs. At 0 a "
        "node keeps its own value, at 1 it takes its neighbours'; no gate exceeds λ."
    )
    return _table(["model", *GATES.values()], rows, note)


def _gates_of_dimensions(gates: dict[str, Any], number: int) -> str:
    if gates["smooth"] is None:
        alt = "Scatter plots of the mean gate of each feature dimension against its roughness, one panel a level."
    else:
        smooth = np.array(gates["smooth"])
        means = {
            level: (np.mean(np.array(of)[smooth]), np.mean(np.array(of)[~smooth]))
            for level, of in gates["levels"].items()
        }
        words = "; ".join(
            f"{level} level {follows:.2f} where the dimension follows the graph, {other:.2f} where it does not"
            for level, (follows, other) in means.items()
        )
        alt = f"Dot plot of the mean gate of each feature dimension. Averages: {words}."
    caption = (
        "Each dot is one feature dimension. First-layer gates of a GFGN whose weight matrix is held at the identity, "
        "so that a gate speaks of one input dimension; mean over nodes or edges."
    )
    return _figure(gates_figure(gates, f"gates-{number}"), alt, caption)


# --- pieces -----------------------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[str], note: str) -> str:
    header = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return (
        f'<div class="wide"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>"
        + (f'\n<p class="soft">{escape(note)}</p>' if note else "")
    )


def _row(model: str, cells: Sequence[str]) -> str:
    kind = ' class="gfgn"' if is_gfgn(model) else ""
    return f"<tr{kind}>{''.join(cells)}</tr>"


def _cell(text: str, strong: bool = False) -> str:
    return f'<td class="strong">{text}</td>' if strong else f"<td>{text}</td>"


def _figure(svg: str, alt: str, caption: str) -> str:
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt, quote=True)}"', 1)
    return f'<figure><div class="wide">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def percent(summary: Summary) -> str:
    """Mean ± standard deviation, in percent."""
    return in_percent(summary.mean, summary.std, summary.runs)


def interval(summary: Summary, sign: bool = False) -> str:
    """The interval, in percent."""
    show = signed if sign else (lambda value: f"{100 * value:.1f}")
    return f"[{show(summary.low)}, {show(summary.high)}]"


def signed(value: float) -> str:
    """A difference in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def _sentence(text: str) -> str:
    """A description as a sentence of its own."""
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
