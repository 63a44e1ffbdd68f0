"""Resultss and dataset statistics as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.table import Table

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
    quartiles = ", ".join(f"{value:.2f}" for value in smoothness_quartiles(found))
    if not math.isnan(found.edge_homophily):
        adjusted = (
            "" if math.isnan(found.adjusted_homophily) else f", adjusted homophily {found.adjusted_homophily:.2f}"
        )
        _print(console, f"\nEdges within a class: {100 * found.edge_homophily:.0f}%{adjusted}.")
    _print(console, f"Smoothness of the features, quartiles: {quartiles} (0: smooth, 1: noise).")
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


def smoothness_quartiles(description: Description) -> list[float]:
    """The quartiles of the smoothness of the feature dimensions."""
    smooth = description.smoothness.double().sort().values
    return [smooth[round(fraction * (len(smooth) - 1))].item() for fraction in (0.25, 0.5, 0.75)]


# --- datasets ---------------------------------------------------------------------------------------------------------


def statistics(description: Description, entry: Entry | None = None) -> list[str]:
    """The statistics of a dataset, one line each; with the source, citation and license of one of the registry."""
    degrees = description.degrees
    smallest, lower, median, upper, largest = degrees.quantiles
    nodes = " labels, on" if description.metric == "micro_f1" else ", of"
    graphs = f" in {description.num_graphs:,} graphs" if description.num_graphs > 1 else ""
    unlabeled = f", {description.unlabelled:,} without a label" if description.unlabelled else ""
    adjusted = "" if math.isnan(description.adjusted_homophily) else f", adjusted {description.adjusted_homophily:.3f}"
    quartiles = [f"{value:.2f}" for value in smoothness_quartiles(description)]
    sizes = f"{min(description.classes):,} to {max(description.classes):,} nodes" if description.classes else ""
    values = {} if entry is None else {"source": entry.source, "cite": entry.citation, "license": entry.license}
    values |= {
        "nodes": f"{description.num_nodes:,}{graphs}{unlabeled}",
        "edges": f"{description.num_edges:,}",
        "features": f"{description.num_features:,}, {100 * description.nonzero:.1f}% nonzero",
        "classes": f"{len(description.classes)}{nodes} {sizes}" if sizes else "none",
        "splits": f"{description.splits}, measured by {description.metric}",
        "homophily": f"edge {description.edge_homophily:.3f}, node {description.node_homophily:.3f}{adjusted}",
        "degree": f"mean {degrees.mean:.1f}, quartiles {lower:g}, {median:g} and {upper:g}, "
        f"from {smallest:g} to {largest:g}; {degrees.isolated:,} nodes without neighbors",
        "smoothness": f"quartiles {', '.join(quartiles)} (fᵀLf / fᵀf of a dimension; 0: smooth, 1: noise)"
        + (f"; {description.constant:,} constant dimensions count as 0" if description.constant else ""),
    }
    if entry is not None and entry.paper is not None:
        paper = [f"{getattr(entry.paper, name):,} {name}" for name in ("nodes", "edges", "features", "classes")]
        values["in the paper"] = ", ".join(paper)
    return [f"{description.name}: {description.description}", *(f"  {key:<13}{text}" for key, text in values.items())]


def histograms(description: Description) -> list[str]:
    """Nodes by degree and feature dimensions by smoothness, as lines of bars."""
    counts, edges = description.smoothness_histogram(12)
    degrees = {(f"{low}–{high}" if low < high else f"{low}"): count for low, high, count in description.degrees.bins}
    ranges = [f"{low:.2f}–{high:.2f}" for low, high in pairwise(edges.tolist())]
    smooth = dict(zip(ranges, counts.tolist(), strict=True))
    return ["nodes by degree", *_bars(degrees), "", "feature dimensions by smoothness", *_bars(smooth)]


def _bars(counts: dict[str, int], width: int = 50) -> list[str]:
    """One line per count; any count above 0 has at least a sliver of a bar."""
    largest, label_width = max(1, *counts.values()), max(map(len, counts))
    lines = []
    for label, count in counts.items():
        eighths = -(-count * 8 * width // largest)  # rounded up
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        lines.append(f"  {label:>{label_width}} {bar}{' ' if count else ''}{count:,}")
    return lines
