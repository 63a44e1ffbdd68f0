"""Results and dataset statistics as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.bar import Bar
from rich.console import Console
from rich.table import Column, Table

from gfgn.data.diagnosis import Description
from gfgn.data.named.catalog import Entry
from gfgn.literal import literal
from gfgn.report.panels import results_table
from gfgn.runs.advice import Advice
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Results, rank_models
from gfgn.runs.text import divergence, in_words, score, short_names, unit
from gfgn.runs.verdict import headline


def print_comparisons(console: Console, comparisons: Sequence[Results]) -> None:
    """Prints one table per comparison and, for several datasets, the average ranks."""
    settings = ""
    for comparison in comparisons:
        if settings:
            console.print()
        _print_comparison(console, comparison, with_settings=comparison.settings != settings)
        settings = comparison.settings
    ranks = rank_models(comparisons)
    if len(comparisons) > 1 and len(ranks) > 1:
        ordered, names = sorted(ranks.items(), key=lambda pair: pair[1]), short_names(ranks)
        _print(console, "\naverage rank: " + ", ".join(f"{names[model]} {rank:.2f}" for model, rank in ordered))


def print_advice(console: Console, advice: Advice) -> None:
    """Prints the table of the comparison, homophily and smoothness, and the verdict."""
    found = advice.description
    _print_comparison(console, advice.comparison, with_settings=True, with_headline=False)
    if not math.isnan(found.edge_homophily):
        adjusted = (
            "" if math.isnan(found.adjusted_homophily) else f", adjusted homophily {found.adjusted_homophily:.2f}"
        )
        _print(console, f"\nEdges within a class: {100 * found.edge_homophily:.0f}%{adjusted}.")
    _print(console, f"Smoothness of the features, quartiles: {smoothness_quartiles(found)} (0: smooth, 1: noise).")
    _print(console, f"\n{advice.verdict.sentence}")


def _print_comparison(console: Console, comparison: Results, with_settings: bool, with_headline: bool = True) -> None:
    data, names, metric = comparison.dataset, short_names(comparison.models), comparison.dataset.metric
    standin = " (a stand-in: not comparable with published scores)" if data.standin else ""
    _print(console, f"{data.name}: {data.description}{standin}")
    if with_settings:
        _print(console, f"Every network: {comparison.settings}.")
    heads, rows = results_table(comparison, full=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in heads:
        table.add_column(literal(title), justify="left" if title == "model" else "right")
    for model, cells in rows.items():
        table.add_row(*map(literal, cells), style="bold" if is_gfgn(model) else None)
    console.print(table)
    for model, number in comparison.diverged.items():
        _print(console, divergence(model, number, len(comparison.rows[model])))
    for model, selection in comparison.selections.items():
        best = selection.candidates[0]
        val = f"{score(best.val, metric)}{unit(metric)}"
        _print(console, f"  {names[model]}: {in_words(best.configuration, model)} (validation {val})")
    if with_headline:
        _print(console, headline(comparison))


def _print(console: Console, text: str) -> None:
    """Prints text that wraps between words on a terminal, and is one line elsewhere."""
    console.print(literal(text), soft_wrap=not console.is_terminal)


def smoothness_quartiles(description: Description) -> str:
    """The quartiles of the smoothness of the feature dimensions."""
    smooth = description.smoothness.double().sort().values
    return ", ".join(f"{smooth[round(fraction * (len(smooth) - 1))].item():.2f}" for fraction in (0.25, 0.5, 0.75))


# --- datasets ---------------------------------------------------------------------------------------------------------


def statistics(found: Description, entry: Entry | None = None) -> list[str]:
    """The statistics of a dataset, one line each; with the source, citation and license of one of the registry."""
    degrees, classes = found.degrees, found.classes
    smallest, lower, median, upper, largest = degrees.quantiles
    graphs = f" in {found.num_graphs:,} graphs" if found.num_graphs > 1 else ""
    unlabeled = f", {found.unlabelled:,} without a label" if found.unlabelled else ""
    adjusted = "" if math.isnan(found.adjusted_homophily) else f", adjusted {found.adjusted_homophily:.3f}"
    noun = " labels, on" if found.metric == "micro_f1" else ", of"
    without = f"{degrees.isolated:,} nodes without neighbors"
    if degrees.directed:
        without = f"{degrees.isolated:,} nodes without incoming edges, {degrees.sources:,} of them with outgoing ones"
    values = {} if entry is None else {"source": entry.source, "cite": entry.citation, "license": entry.license}
    values |= {
        "nodes": f"{found.num_nodes:,}{graphs}{unlabeled}",
        "edges": f"{found.num_edges:,}",
        "features": f"{found.num_features:,}, {100 * found.nonzero:.1f}% nonzero",
        "classes": f"{len(classes)}{noun} {min(classes):,} to {max(classes):,} nodes" if classes else "none",
        "splits": f"{found.splits}, measured by {found.metric}",
        "homophily": f"edge {found.edge_homophily:.3f}, node {found.node_homophily:.3f}{adjusted}",
        "in-degree" if degrees.directed else "degree": f"mean {degrees.mean:.1f}, quartiles {lower:g}, {median:g} "
        f"and {upper:g}, from {smallest:g} to {largest:g}; {without}",
        "smoothness": f"quartiles {smoothness_quartiles(found)} (fᵀLf / fᵀf of a dimension; 0: smooth, 1: noise)"
        + (f"; {found.constant:,} constant dimensions count as 0" if found.constant else ""),
    }
    if entry is not None and entry.paper is not None:
        paper = [f"{getattr(entry.paper, name):,} {name}" for name in ("nodes", "edges", "features", "classes")]
        values["in the paper"] = ", ".join(paper)
    return [f"{found.name}: {found.description}", *(f"  {key:<13}{text}" for key, text in values.items())]


def print_histograms(console: Console, description: Description) -> None:
    """Prints nodes by degree and feature dimensions by smoothness as bars."""
    counts, edges = description.smoothness_histogram(12)
    degrees = {(f"{low}–{high}" if low < high else f"{low}"): count for low, high, count in description.degrees.bins}
    ranges = (f"{low:.2f}–{high:.2f}" for low, high in pairwise(edges.tolist()))
    smooth = dict(zip(ranges, counts.tolist(), strict=True))
    kind = "in-degree" if description.degrees.directed else "degree"
    for title, histogram in {f"nodes by {kind}": degrees, "feature dimensions by smoothness": smooth}.items():
        table = Table(Column(justify="right"), Column(), Column(justify="right"), box=None, show_header=False)
        for label, count in histogram.items():
            table.add_row(label, Bar(max(1, *histogram.values()), 0, count, width=50), f"{count:,}")
        console.print(f"\n{title}", table, sep="\n")
