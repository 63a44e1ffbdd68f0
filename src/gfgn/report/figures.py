"""Figures, drawn with Matplotlib's object interface and returned as SVG that takes its text colour from the
page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.data.diagnosis import Description
from gfgn.runs.comparison import Comparison
from gfgn.runs.record import is_gfgn

Floats = NDArray[np.float64]
METRICS = {"accuracy": "accuracy", "roc_auc": "ROC AUC", "micro_f1": "micro-F1"}
# Blue and orange after Okabe and Ito: told apart by colour-blind readers, on a white page and on a dark one.
BLUE, ORANGE = "#2C8FD1", "#E69F00"
INK = "#010203"  # stands for the page's text colour, see `to_svg`
FAINT = "#8C8C8C"
WIDTH = 6.0
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gfgn",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


def runs_figure(comparison: Comparison, name: str = "runs") -> str:
    """Every run as a dot, one row a model, with the mean and its 95% interval above."""
    models = comparison.models
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 0.7 + 0.5 * len(models)), layout="constrained")
        axes = figure.add_subplot()
        for row, (model, summary) in enumerate(comparison.summary().items()):
            color = BLUE if is_gfgn(model) else ORANGE
            scores = [100 * run.test for run in comparison.of(model)]
            heights = [row + shift for shift in stack(scores)]
            axes.scatter(scores, heights, s=30, color=color, alpha=0.75, linewidths=0)
            axes.plot([100 * summary.low, 100 * summary.high], [row - 0.28] * 2, color=INK, linewidth=1.6)
            axes.plot(100 * summary.mean, row - 0.28, "o", color=INK, markersize=4.5)
        _rows(axes, list(models))
        axes.set_xlabel(f"test {METRICS[comparison.dataset.metric]}, %")
        return to_svg(figure, name)


def stack(scores: Sequence[float], step: float = 0.09, most: int = 5) -> list[float]:
    """How far to move each dot down so that runs with the same score, frequent where there are few test nodes, do not
    hide each other; after `most` of them they begin again."""
    seen: dict[float, int] = {}
    shifts = []
    for score in scores:
        place = seen.setdefault(round(score, 1), 0)
        shifts.append(step * (place % most))
        seen[round(score, 1)] += 1
    return shifts


def gates_figure(gates: Mapping[str, Any], name: str = "gates") -> str:
    """The gate of every feature dimension: by whether it follows the graph, or against its smoothness if that is not
    known; see `gfgn.runs.gates.gates_note`."""
    levels = {level: np.array(values) for level, values in gates["levels"].items()}
    with mpl.rc_context(STYLE):
        if gates["smooth"] is None:
            return to_svg(gates_by_smoothness(levels, np.array(gates["roughness"])), name)
        return to_svg(gates_by_truth(levels, np.array(gates["smooth"])), name)


def gates_by_truth(gates: Mapping[str, Floats], smooth: NDArray[np.bool_]) -> Figure:
    """The gate of every dimension in one row a level, by whether the dimension follows the graph."""
    figure = Figure(figsize=(WIDTH, 1.0 + 0.8 * len(gates)), layout="constrained")
    axes = figure.add_subplot()
    kinds = ((smooth, BLUE, "follows the graph", -0.17), (~smooth, ORANGE, "does not", 0.17))
    for row, gate in enumerate(gates.values()):
        for mask, color, label, shift in kinds:
            height = row + shift + 0.05 * ((np.arange(mask.sum()) % 3) - 1)
            name = label if row == 0 else None
            axes.scatter(gate[mask], height, s=30, color=color, alpha=0.75, linewidths=0, label=name)
    _rows(axes, [f"{level} level" for level in gates])
    axes.set_xlim(-0.03, max(1.0, *(float(values.max()) for values in gates.values())) + 0.03)
    axes.set_xlabel("mean gate (0: keeps its own value, 1: takes its neighbours')")
    figure.legend(loc="outside upper left", ncols=2, frameon=False, handletextpad=0.2, columnspacing=1.2)
    return figure


def gates_by_smoothness(gates: Mapping[str, Floats], rough: Floats) -> Figure:
    """The gate of every dimension against its roughness, one panel a level."""
    figure = Figure(figsize=(WIDTH, 0.6 + 1.5 * len(gates)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(len(gates), 1, sharex=True, sharey=True))
    for axes, (level, values) in zip(panels, gates.items(), strict=True):
        axes.scatter(rough, values, s=22, color=BLUE, alpha=0.75, linewidths=0)
        axes.grid(axis="y", color=FAINT, alpha=0.25, linewidth=0.6)
        axes.set_ylabel(f"{level} level")
    panels[-1].set_xlabel("roughness fᵀLf / fᵀf of a feature dimension (0: smooth, 1: noise)")
    return figure


def description_figure(description: Description) -> Figure:
    """Histograms of the nodes' degrees and of the feature dimensions' smoothness."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1)
        bins = description.degrees.bins
        above.bar(range(len(bins)), [count for _, _, count in bins], color=ORANGE, width=0.85)
        above.set_xticks(range(len(bins)), [str(low) for low, _, _ in bins])
        above.set_xlabel("degree of a node (a bar reaches to the next)")
        above.set_ylabel("nodes")
        counts, edges = description.smoothness_histogram(24)
        below.bar(edges[:-1].numpy(), counts.numpy(), width=0.92 * edges.diff().numpy(), align="edge", color=BLUE)
        below.set_xlabel("smoothness fᵀLf / fᵀf of a feature dimension (0: smooth, 1: noise)")
        below.set_ylabel("dimensions")
        above.set_title(f"{description.name}: {description.num_nodes:,} nodes, {description.num_edges:,} edges")
        return figure


def _rows(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element to put into a page: no background, text in the page's colour and typeface, and
    ids that begin with `name`, so that two figures of a page share none."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    # Text that follows the page must name neither a typeface nor a default fill of its own.
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit; fill: currentColor", svg)
    return svg.strip()
