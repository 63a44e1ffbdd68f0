"""`write_report`: a comparison as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import gfgn
from gfgn.experiments.compare import Comparison, is_gfgn
from gfgn.report.figures import gates_figure, runs_figure
from gfgn.train.statistics import Summary

STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --soft: #5b6470; --line: #dfe3e8; --paper: #fff; --tint: #f2f6fb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #9aa4b1; --line: #343a42; --paper: #14171b; --tint: #1c232c; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; font-weight: 650; }
p { margin: .5rem 0; }
.soft, figcaption, footer { color: var(--soft); font-size: .875rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; margin-top: .75rem; font-size: .925rem; }
th, td { padding: .45rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-size: .8rem; font-weight: 600; color: var(--soft); vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: .4rem; }
tr.gfgn td { background: var(--tint); }
td:nth-child(2) { font-weight: 600; }
@media (max-width: 40rem) { table { font-size: .85rem; } th, td { padding: .4rem .35rem; } }
figure { margin: .75rem 0 0; }
figure svg { display: block; width: 100%; min-width: 21rem; height: auto; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .75rem; }
"""


def write_report(comparison: Comparison, path: str | Path, gates: Mapping[str, Tensor] | None = None) -> Path:
    """Writes the page and returns its path.

    Args:
        comparison: What to report.
        path: The file to write; its folder is made if need be.
        gates: For each level the mean gate of every feature dimension, see `gates_by_dimension`; without it
            the page has no section on gates.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(comparison, gates), encoding="utf-8")
    return path


def _page(comparison: Comparison, gates: Mapping[str, Tensor] | None) -> str:
    title = f"{len(comparison.models)} models on {comparison.dataset.name}"
    sections = [_introduction(comparison, title), _results(comparison), _runs(comparison)]
    if gates:
        sections.append(_gates(comparison, gates))
    rows = "" if comparison.path is None else f", each a row of {comparison.path.name}"
    sections.append(
        f"<footer>gfgn {escape(gfgn.__version__)}, torch {escape(torch.__version__)}. "
        f"{len(comparison.runs)} runs in {comparison.seconds:.0f} s{rows}.</footer>"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _introduction(comparison: Comparison, title: str) -> str:
    data = comparison.dataset
    splits = len({run.replica.split for run in comparison.runs})
    seeds = len({run.replica.seed for run in comparison.runs})
    return (
        f"<h1>{escape(title)}</h1>\n<p>{escape(data.description)}</p>\n"
        f'<p class="soft">{data.num_nodes:,} nodes, {data.graph.num_edges:,} directed edges, '
        f"{data.num_features:,} feature dimensions, {data.num_classes} classes. {_count(splits, 'split')}, "
        f"{_count(seeds, 'seed')} each. All models: {escape(comparison.settings)}. The best epoch is chosen on "
        "validation nodes; the test score is read once, there.</p>"
    )


def _results(comparison: Comparison) -> str:
    baseline = comparison.best_baseline
    heads = ["model", f"test {comparison.dataset.metric}, %", "95% interval", "parameters", "s / run"]
    note = "Mean ± standard deviation over runs; bootstrap interval of the mean over splits."
    if baseline is not None:
        heads.insert(3, f"against {baseline}")
        note += f" {baseline} is the baseline with the best test score; differences are paired by split and seed."
    rows = []
    for model, summary in comparison.summary().items():
        runs, gain = comparison.of(model), comparison.gain(model)
        cells = [model, percent(summary), interval(summary)]
        if baseline is not None:
            cells.append("" if gain is None else f"{signed(gain.mean)} {interval(gain, sign=True)}")
        cells += [f"{runs[0].num_parameters:,}", f"{np.mean([run.seconds for run in runs]):.1f}"]
        kind = ' class="gfgn"' if is_gfgn(model) else ""
        rows.append(f"<tr{kind}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    header = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return (
        f'<h2>Results</h2>\n<div class="wide"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + f'\n</tbody></table></div>\n<p class="soft">{escape(note)}</p>'
    )


def _runs(comparison: Comparison) -> str:
    words = "; ".join(f"{model} {percent(summary)}" for model, summary in comparison.summary().items())
    return "<h2>Every run</h2>\n" + _figure(
        runs_figure(comparison),
        f"Dot plot of the test score of every run, one row a model. {words}.",
        "Each dot is a run; the line above is the mean with its 95% interval.",
    )


def _gates(comparison: Comparison, gates: Mapping[str, Tensor]) -> str:
    data = comparison.dataset
    smooth = data.smooth_dimensions
    if smooth is None:
        alt = "Scatter plots of the mean gate of each feature dimension against its roughness, one panel a level."
    else:
        words = "; ".join(
            f"{level} level {float(values[smooth].mean()):.2f} where the dimension follows the graph, "
            f"{float(values[~smooth].mean()):.2f} where it does not"
            for level, values in gates.items()
        )
        alt = f"Dot plot of the mean gate of each feature dimension. Averages: {words}."
    caption = (
        "Each dot is one feature dimension. First-layer gates of a GFGN whose weight matrix is held at the identity, "
        "so that a gate speaks of one input dimension; mean over nodes or edges."
    )
    return "<h2>What the gates learned</h2>\n" + _figure(gates_figure(gates, data), alt, caption)


def _figure(svg: str, alt: str, caption: str) -> str:
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(alt, quote=True)}"', 1)
    return f'<figure><div class="wide">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def percent(summary: Summary) -> str:
    """Mean ± standard deviation, in percent."""
    return f"{100 * summary.mean:.1f} ± {100 * summary.std:.1f}"


def interval(summary: Summary, sign: bool = False) -> str:
    """The interval, in percent."""
    show = signed if sign else (lambda value: f"{100 * value:.1f}")
    return f"[{show(summary.low)}, {show(summary.high)}]"


def signed(value: float) -> str:
    """A difference in percentage points, with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
