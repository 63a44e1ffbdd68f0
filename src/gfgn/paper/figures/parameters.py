"""Figure of the parameters that gating adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gfgn.paper.titles import title_of
from gfgn.report.style import BLACK, FAINT, LOOKS, PAGE, letter, styled


def parameters_figure(layers: Sequence[tuple[str, int, int, int]], added: Mapping[str, Mapping[str, float]]) -> Figure:
    """Parameters of a layer's gates by its width, and the share that gates add to the networks of the paper.

    Args:
        layers: `(level, width, heads, parameters)` of modules with as many inputs as outputs, without bias.
        added: By level and dataset, gates' parameters as a share of GCN's.
    """
    with styled():
        figure = Figure(figsize=(PAGE, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.05))
        _layers(left, layers)
        _networks(right, added)
        letter([left, right])
        return figure


def _layers(axes: Axes, layers: Sequence[tuple[str, int, int, int]]) -> None:
    """Gates' parameters alone: lines from the formulas, markers from modules."""
    sizes = sorted({width for _, width, _, _ in layers})
    width = np.geomspace(sizes[0], sizes[-1], 50)
    for level, factor, label in (("neighbor", 2, "neighbor, pair"), ("graph", 1, "graph")):
        look = LOOKS[f"gfgn-{level}"]
        for heads, values, dash in (("one head", width**2, ":"), ("√D heads", width**1.5, "-")):
            axes.plot(width, factor * values, color=look["color"], linestyle=dash, label=f"{label}, {heads}")
        places = [(size, total - size**2) for name, size, _, total in layers if name == level]
        axes.plot(*zip(*places, strict=True), look["marker"], color=look["color"], markersize=3.5)
    axes.plot(width, width**2, color=BLACK, linestyle=(0, (4, 4)), linewidth=0.9, label="GCN's weights, D²")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("width D of a layer with D inputs")
    axes.set_ylabel("parameters of the gates")
    axes.set_title("one layer: formulas and modules (markers)", loc="left")
    axes.legend(fontsize=6, handlelength=2.4)
    axes.grid()


def _networks(axes: Axes, added: Mapping[str, Mapping[str, float]]) -> None:
    datasets = list(added["graph"])
    places = np.arange(len(datasets))
    shares = {level: np.array([100 * added[level][name] for name in datasets]) for level in ("graph", "neighbor")}
    axes.hlines(places, shares["graph"], shares["neighbor"], color=FAINT, linewidth=0.8, zorder=1)
    for level, label, shift in (("graph", "GFGN-graph", -5), ("neighbor", "GFGN-neighbor, GFGN-pair", 5)):
        look, side = LOOKS[f"gfgn-{level}"], "right" if shift < 0 else "left"
        axes.plot(shares[level], places, look["marker"], color=look["color"], markersize=4, label=label)
        for place, share in zip(places, shares[level], strict=True):
            axes.annotate(
                f"{share:.2f}" if share < 1 else f"{share:.1f}",
                (share, float(place)),
                xytext=(shift, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=5.5,
            )
    axes.set_yticks(places, [title_of(name) for name in datasets])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(0.5 * shares["graph"].min(), 2.2 * shares["neighbor"].max())
    ticks = [tick for tick in (0.1, 1, 10, 100) if axes.get_xlim()[0] < tick < axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}%" for tick in ticks])
    axes.set_xlabel("parameters of the gates, % of GCN's")
    axes.set_title("the networks of the paper", loc="left")
    axes.legend(fontsize=6, loc="upper right", handletextpad=0.2)
    axes.grid(axis="x")
