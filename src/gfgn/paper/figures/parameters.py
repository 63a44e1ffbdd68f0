"""Figure of the parameters that gating adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gfgn.paper.titles import title_of
from gfgn.report.style import BLACK, FAINT, MODEL_STYLES, PAGE_WIDTH, label_panels, styled


def parameters_figure(layers: Sequence[tuple[str, int, int]], added: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws the parameters of a layer's gates by its width, and what gates add to the networks of the paper.

    Args:
        layers: `(level, width, parameters)` of modules with as many inputs as outputs, without bias.
        added: By level and dataset, the parameters of the gates as a fraction of those of GCN.
    """
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.05))
        _layers(left, layers)
        _networks(right, added)
        label_panels([left, right])
        return figure


def _layers(axes: Axes, layers: Sequence[tuple[str, int, int]]) -> None:
    """Draws the formulas as lines and the modules' counts as markers."""
    sizes = sorted({width for _, width, _ in layers})
    width = np.geomspace(sizes[0], sizes[-1], 50)
    for level, factor, label in (("neighbor", 2, "neighbor, pair"), ("graph", 1, "graph")):
        style = MODEL_STYLES[f"gfgn-{level}"]
        for heads, values, dash in (("one head", width**2, ":"), ("√D heads", width**1.5, "-")):
            axes.plot(width, factor * values, color=style["color"], linestyle=dash, label=f"{label}, {heads}")
        points = [(size, total - size**2) for name, size, total in layers if name == level]
        axes.plot(*zip(*points, strict=True), style["marker"], color=style["color"], markersize=3.5)
    axes.plot(width, width**2, color=BLACK, linestyle=(0, (4, 4)), linewidth=0.9, label="weights of GCN, D²")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(xlabel="width D of a layer with D inputs", ylabel="parameters of the gates")
    axes.set_title("one layer: formulas and modules (markers)", loc="left")
    axes.legend(fontsize=6, handlelength=2.4)
    axes.grid()


def _networks(axes: Axes, added: Mapping[str, Mapping[str, float]]) -> None:
    datasets = list(added["graph"])
    rows = np.arange(len(datasets))
    percent = {level: np.array([100 * added[level][name] for name in datasets]) for level in ("graph", "neighbor")}
    axes.hlines(rows, percent["graph"], percent["neighbor"], color=FAINT, linewidth=0.8, zorder=1)
    for level, label, shift in (("graph", "GFGN-graph", -5), ("neighbor", "GFGN-neighbor, GFGN-pair", 5)):
        style, side = MODEL_STYLES[f"gfgn-{level}"], "right" if shift < 0 else "left"
        offset: Any = {"xytext": (shift, 0), "textcoords": "offset points", "ha": side, "va": "center"}
        axes.plot(percent[level], rows, style["marker"], color=style["color"], markersize=4, label=label)
        for row, value in zip(rows, percent[level], strict=True):
            text = f"{value:.2f}" if value < 1 else f"{value:.1f}"
            axes.annotate(text, (value, float(row)), fontsize=5.5, **offset)
    axes.set_yticks(rows, [title_of(name) for name in datasets])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.5 * percent["graph"].min(), 2.2 * percent["neighbor"].max())
    ticks = [tick for tick in (0.1, 1, 10, 100) if axes.get_xlim()[0] < tick < axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}%" for tick in ticks])
    axes.set_xlabel("parameters of the gates, % of those of GCN")
    axes.set_title("the networks of the paper", loc="left")
    axes.legend(fontsize=6, loc="upper right", handletextpad=0.2)
    axes.grid(axis="x")
