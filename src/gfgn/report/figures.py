"""Figures of datasets and gates in the common style; the charts of the HTML report are in `charts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.data.diagnosis import Description
from gfgn.report.style import BLUE, ORANGE, STYLE

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


def description_figure(description: Description) -> Figure:
    """Histograms of the node degrees and of the smoothness of the feature dimensions."""
    with mpl.rc_context(ON_SCREEN):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1)
        bins = description.degrees.bins
        above.bar(range(len(bins)), [count for _, _, count in bins], color=ORANGE, width=0.85)
        above.set_xticks(range(len(bins)), [str(low) for low, _, _ in bins])
        above.set(xlabel="degree of a node (each bar reaches to the next label)", ylabel="nodes")
        title = f"{description.name}: {description.num_nodes:,} nodes, {description.num_edges:,} edges"
        above.set_title(title, parse_math=False)
        counts, edges = description.smoothness_histogram(24)
        below.bar(edges[:-1].numpy(), counts.numpy(), width=0.92 * edges.diff().numpy(), align="edge", color=BLUE)
        below.set(xlabel=f"smoothness {SMOOTHNESS}", ylabel="dimensions")
        return figure


def _label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
