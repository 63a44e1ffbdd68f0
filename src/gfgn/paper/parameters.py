"""Number of parameters that gating adds, by the formulas of the paper's section on multi-head gating and in modules.

A layer of width `D` over an input of width `D'` with `K` heads has `D·D'` weights, as GCN has, and gates with `D²/K`
parameters; twice as many if the gate reads two representations (neighbor and pair level).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn
from torch_geometric.nn import GCNConv

from gfgn.data.named.catalog import DATASETS as CATALOG
from gfgn.nn import GFGN, GFGNConv
from gfgn.nn.levels import LEVELS
from gfgn.paper.pages import title_of, write_csv, write_page
from gfgn.report.style import BLACK, FAINT, MODEL_STYLES, PAGE_WIDTH, label_panels, save_svg, styled

WIDTHS = (16, 64, 256, 1024)  # of single layers: squares, so that `√D` is a number of heads


class Shape(NamedTuple):
    """The shape of a network: number of layers, heads of a hidden layer, and hidden units per head."""

    layers: int
    heads: int
    units: int


USUAL = Shape(2, 8, 8)
SHAPES = {"ogbn-arxiv": Shape(4, 16, 16), "ppi": Shape(6, 32, 64)}  # where the paper's networks are not `USUAL`
DATASETS = (
    *("blogcatalog", "flickr", "actor", "cornell", "texas", "wisconsin"),
    *("cora", "citeseer", "pubmed", "ogbn-arxiv", "ppi"),
)


class Count(NamedTuple):
    """Parameters of a network by formula and in the module, and those of a GCN with the same widths."""

    dataset: str
    level: str
    shape: Shape
    formula: int
    module: int
    gcn: int

    @property
    def added(self) -> float:
        """Parameters of the gates as a fraction of those of GCN."""
        return (self.formula - self.gcn) / self.gcn


def gate_parameters(level: str, width: int, heads: int = 1) -> int:
    """The number of parameters of a layer's gates: `D²/K`, doubled if they read two representations."""
    if heads < 1 or width % heads:
        raise ValueError(f"heads must divide width ({width}), got {heads}")
    return LEVELS[level].gate_inputs * width * width // heads


def count_network(dataset: str, level: str, features: int, classes: int, shape: Shape) -> Count:
    """Counts the parameters of a network by formula and in modules on the meta device."""
    hidden = shape.heads * shape.units
    inputs = [features, *[hidden] * (shape.layers - 1)]
    layers = [*((size, hidden, shape.heads) for size in inputs[:-1]), (inputs[-1], classes, 1)]  # the last has one head
    gates = sum(gate_parameters(level, width, heads) for _, width, heads in layers)
    with torch.device("meta"):
        network = GFGN(features, hidden, shape.layers, classes, level=level, heads=shape.heads)
        gcn = sum(size_of(GCNConv(size, width)) for size, width, _ in layers)
    formula = sum(size * width + width for size, width, _ in layers) + gates
    return Count(dataset, level, shape, formula, size_of(network), gcn)


def size_of(module: nn.Module) -> int:
    """The number of learned values of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_all() -> list[Count]:
    """Counts the networks of the paper: every dataset at every level."""
    sizes = {name: CATALOG[name].paper or CATALOG[name].statistics for name in DATASETS}
    return [
        count_network(name, level, sizes[name].features, sizes[name].classes, SHAPES.get(name, USUAL))
        for name in DATASETS
        for level in LEVELS
    ]


def count_layers() -> list[tuple[str, int, int, int, int]]:
    """Level, width, heads and the parameters by formula and in the module of layers with as many inputs as outputs."""
    rows = []
    for level in LEVELS:
        for width in WIDTHS:
            for heads in (1, math.isqrt(width)):
                with torch.device("meta"):
                    layer = GFGNConv(width, width // heads, level=level, heads=heads, bias=False)
                formula = width * width + gate_parameters(level, width, heads)
                rows.append((level, width, heads, formula, size_of(layer)))
    return rows


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the counts of layers and networks, the figure and a page."""
    progress("parameters: counting")
    counts, layers = count_all(), count_layers()
    if wrong := [row for row in layers if row[3] != row[4]] + [row for row in counts if row.formula != row.module]:
        raise RuntimeError(f"formula and module must agree on the number of parameters, got {wrong[0]}")
    networks = [(c.dataset, c.level, *c.shape, c.gcn, c.formula, c.module, c.added) for c in counts]
    header = ["dataset", "level", "layers", "heads", "units", "gcn", "formula", "module", "added fraction"]
    usual = max((count for count in counts if count.shape == USUAL), key=lambda count: count.added)
    deep = max(counts, key=lambda count: count.added)
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 2.7), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.05))
        _draw_layers(left, layers)
        _draw_networks(right, counts)
        label_panels([left, right])
    return [
        write_csv(out / "layers.csv", ["level", "width", "heads", "formula", "module"], layers),
        write_csv(out / "networks.csv", header, networks),
        save_svg(figure, out / "parameters.svg"),
        write_page(out / "README.md", "parameters", counts=counts, usual=usual, deep=deep),
    ]


def _draw_layers(axes: Axes, layers: Sequence[tuple[str, int, int, int, int]]) -> None:
    """The formulas as lines and the modules' counts as markers."""
    width = np.geomspace(WIDTHS[0], WIDTHS[-1], 50)
    for level, factor, label in (("neighbor", 2, "neighbor, pair"), ("graph", 1, "graph")):
        style = MODEL_STYLES[f"gfgn-{level}"]
        for heads, values, dash in (("one head", width**2, ":"), ("√D heads", width**1.5, "-")):
            axes.plot(width, factor * values, color=style["color"], linestyle=dash, label=f"{label}, {heads}")
        points = [(size, total - size**2) for name, size, _, _, total in layers if name == level]
        axes.plot(*zip(*points, strict=True), style["marker"], color=style["color"], markersize=3.5)
    axes.plot(width, width**2, color=BLACK, linestyle=(0, (4, 4)), linewidth=0.9, label="weights of GCN, D²")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(WIDTHS, [str(size) for size in WIDTHS])
    axes.set(xlabel="width D of a layer with D inputs", ylabel="parameters of the gates")
    axes.set_title("one layer: formulas and modules (markers)", loc="left")
    axes.legend(fontsize=6, handlelength=2.4)
    axes.grid()


def _draw_networks(axes: Axes, counts: Sequence[Count]) -> None:
    """What gates add to the networks of the paper."""
    rows = np.arange(len(DATASETS))
    percent = {level: np.array([100 * c.added for c in counts if c.level == level]) for level in ("graph", "neighbor")}
    axes.hlines(rows, percent["graph"], percent["neighbor"], color=FAINT, linewidth=0.8, zorder=1)
    for level, label, shift in (("graph", "GFGN-graph", -5), ("neighbor", "GFGN-neighbor, GFGN-pair", 5)):
        style, side = MODEL_STYLES[f"gfgn-{level}"], "right" if shift < 0 else "left"
        offset: Any = {"xytext": (shift, 0), "textcoords": "offset points", "ha": side, "va": "center"}
        axes.plot(percent[level], rows, style["marker"], color=style["color"], markersize=4, label=label)
        for row, value in zip(rows, percent[level], strict=True):
            axes.annotate(f"{value:.2f}" if value < 1 else f"{value:.1f}", (value, float(row)), fontsize=5.5, **offset)
    axes.set_yticks(rows, [title_of(name) for name in DATASETS])
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
