"""Figures of comparisons and datasets in the common style; for the HTML report as SVG in the page's text color."""

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
from gfgn.report.style import BLUE, INK, ORANGE, STYLE
from gfgn.runs import Comparison
from gfgn.runs.record import is_gfgn
from gfgn.runs.text import bounds, heading, scale

Floats = NDArray[np.float64]
WIDTH = 6.0
DOTS: Any = {"s": 30, "alpha": 0.75, "linewidths": 0}
SMOOTHNESS = "fᵀLf / fᵀf of a feature dimension (0: smooth, 1: noise)"
ON_SCREEN: Any = STYLE | {  # the text sizes and typeface of a page
    "svg.fonttype": "none",  # text stays text, in the page's typeface
    "font.family": "sans-serif",
    "axes.spines.left": False,
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), 9.0),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 9.0),
}


def runs_figure(comparison: Comparison, name: str = "runs") -> str:
    """Every run as a dot, one row per model, with the mean and its 95% interval above."""
    with mpl.rc_context(ON_SCREEN):
        figure = Figure(figsize=(WIDTH, 0.7 + 0.5 * len(comparison.models)), layout="constrained")
        axes, metric = figure.add_subplot(), comparison.dataset.metric
        factor = scale(metric)
        for row, (model, summary) in enumerate(comparison.summary().items()):
            scores = [factor * run.test for run in comparison.rows[model]]
            axes.scatter(scores, row + stack(scores), color=BLUE if is_gfgn(model) else ORANGE, **DOTS)
            axes.plot([factor * bound for bound in bounds(summary, metric)], [row - 0.28] * 2, color=INK, linewidth=1.6)
            axes.plot(factor * summary.mean, row - 0.28, "o", color=INK, markersize=4.5)
        _label_rows(axes, comparison.models)
        axes.set_xlabel(f"test {heading(metric)}")
        return to_svg(figure, name)


def stack(scores: Sequence[float], step: float = 0.09, height: int = 5) -> Floats:
    """Vertical offsets that keep runs with the same score, frequent with few test nodes, from hiding each other; after
    `height` of them the offsets start again."""
    rounded = [round(score, 1) for score in scores]
    return np.array([step * (rounded[:k].count(score) % height) for k, score in enumerate(rounded)])


def gates_figure(gates: Mapping[str, Any], name: str = "gates") -> str:
    """The gates of `gates_note` of every feature dimension, grouped by whether the dimension follows the graph, or
    against its smoothness where that is not known."""
    levels = {level: np.array(values) for level, values in gates["levels"].items()}
    with mpl.rc_context(ON_SCREEN):
        if gates["smooth"] is None:
            return to_svg(gates_by_smoothness(levels, np.array(gates["roughness"])), name)
        return to_svg(gates_by_truth(levels, np.array(gates["smooth"])), name)


def gates_by_truth(gates: Mapping[str, Floats], smooth: NDArray[np.bool_]) -> Figure:
    """The gates of all dimensions, one row per level, grouped by whether the dimension follows the graph."""
    figure = Figure(figsize=(WIDTH, 1.0 + 0.8 * len(gates)), layout="constrained")
    axes = figure.add_subplot()
    groups = ((smooth, BLUE, "follows the graph", -0.17), (~smooth, ORANGE, "does not", 0.17))
    for row, values in enumerate(gates.values()):
        for mask, color, label, offset in groups:
            height = row + offset + 0.05 * ((np.arange(mask.sum()) % 3) - 1)
            axes.scatter(values[mask], height, color=color, label=label if row == 0 else None, **DOTS)
    _label_rows(axes, [f"{level} level" for level in gates])
    axes.set_xlim(-0.03, max(1.0, *(float(values.max()) for values in gates.values())) + 0.03)
    axes.set_xlabel("mean gate (0: keeps its own value, 1: takes its neighbors')")
    figure.legend(loc="outside upper left", ncols=2, handletextpad=0.2, columnspacing=1.2)
    return figure


def gates_by_smoothness(gates: Mapping[str, Floats], smoothness: Floats) -> Figure:
    """The gates of all dimensions against the smoothness of the dimension, one panel per level."""
    figure = Figure(figsize=(WIDTH, 0.6 + 1.5 * len(gates)), layout="constrained")
    panels = np.atleast_1d(figure.subplots(len(gates), 1, sharex=True, sharey=True))
    for axes, (level, values) in zip(panels, gates.items(), strict=True):
        axes.scatter(smoothness, values, color=BLUE, **DOTS)
        axes.grid(axis="y")
        axes.set_ylabel(f"{level} level")
    panels[-1].set_xlabel(f"smoothness {SMOOTHNESS}")
    return figure


def description_figure(description: Description) -> Figure:
    """Histograms of the node degrees and of the smoothness of the feature dimensions."""
    with mpl.rc_context(ON_SCREEN):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1)
        bins = description.degrees.bins
        above.bar(range(len(bins)), [count for _, _, count in bins], color=ORANGE, width=0.85)
        above.set_xticks(range(len(bins)), [str(low) for low, _, _ in bins])
        above.set(xlabel="degree of a node (each bar reaches to the next label)", ylabel="nodes")
        above.set_title(f"{description.name}: {description.num_nodes:,} nodes, {description.num_edges:,} edges")
        counts, edges = description.smoothness_histogram(24)
        below.bar(edges[:-1].numpy(), counts.numpy(), width=0.92 * edges.diff().numpy(), align="edge", color=BLUE)
        below.set(xlabel=f"smoothness {SMOOTHNESS}", ylabel="dimensions")
        return figure


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element of a page: no background, text in the page's color and typeface. `name` is the
    prefix of ids, so that no two figures of a page share one."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK.lower(), "currentColor").replace(BLUE.lower(), f"var(--blue, {BLUE})")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[^"]*"', "", svg, count=2)  # of the <svg> element
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit; fill: currentColor", svg)
    return svg.strip()
