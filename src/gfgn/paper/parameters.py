"""Number of parameters that gating adds, by the formulas of the paper's section on multi-head gating and in modules.

A layer of width `D` over an input of width `D'` with `K` heads has `D·D'` weights, as GCN has, and gates with `D²/K`
parameters; twice as many if the gate reads two representations (neighbor and pair level).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn
from torch_geometric.nn import GCNConv

from gfgn.data.named.catalog import DATASETS as CATALOG
from gfgn.nn import GFGN
from gfgn.nn.levels import LEVELS
from gfgn.paper.pages import title_of, write_csv, write_page
from gfgn.report.style import FAINT, MODEL_STYLES, PAGE_WIDTH, save_svg, styled


class Shape(NamedTuple):
    """The shape of a network: number of layers, heads of a hidden layer, and hidden units per head."""

    layers: int
    heads: int
    units: int


USUAL = Shape(2, 8, 8)
SHAPES = dict.fromkeys(("blogcatalog", "flickr", "actor", "cornell", "texas", "wisconsin"), USUAL)
SHAPES |= dict.fromkeys(("cora", "citeseer", "pubmed"), USUAL)
SHAPES |= {"ogbn-arxiv": Shape(4, 16, 16), "ppi": Shape(6, 32, 64)}


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


def count_network(dataset: str, level: str) -> Count:
    """Counts the parameters of a network of the paper by formula and in modules on the meta device."""
    shape, sizes = SHAPES[dataset], CATALOG[dataset].paper or CATALOG[dataset].statistics
    hidden, classes = shape.heads * shape.units, sizes.classes
    inputs = [sizes.features, *[hidden] * (shape.layers - 1)]
    layers = [*((size, hidden, shape.heads) for size in inputs[:-1]), (inputs[-1], classes, 1)]  # the last has one head
    with torch.device("meta"):
        network = GFGN(sizes.features, hidden, shape.layers, classes, level=level, heads=shape.heads)
        gcns = nn.ModuleList(GCNConv(size, width) for size, width, _ in layers)
    gates = (LEVELS[level].gate_inputs * width * width // heads for _, width, heads in layers)
    formula = sum(size * width + width for size, width, _ in layers) + sum(gates)
    module, gcn = (sum(parameter.numel() for parameter in each.parameters()) for each in (network, gcns))
    return Count(dataset, level, shape, formula, module, gcn)


def count_all() -> list[Count]:
    """Counts the networks of the paper: every dataset at every level."""
    return [count_network(name, level) for name in SHAPES for level in LEVELS]


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the counts of the networks, the figure and a page."""
    progress("parameters: counting")
    counts = count_all()
    if wrong := [row for row in counts if row.formula != row.module]:
        raise RuntimeError(f"formula and module must agree on the number of parameters, got {wrong[0]}")
    networks = [(c.dataset, c.level, *c.shape, c.gcn, c.formula, c.module, c.added) for c in counts]
    header = ["dataset", "level", "layers", "heads", "units", "gcn", "formula", "module", "added fraction"]
    usual, deep = (max(own, key=lambda c: c.added) for own in ([c for c in counts if c.shape == USUAL], counts))
    with styled():
        figure = draw(counts)
    return [
        write_csv(out / "networks.csv", header, networks),
        save_svg(figure, out / "parameters.svg"),
        write_page(out / "README.md", "parameters", counts=counts, usual=usual, deep=deep),
    ]


def draw(counts: Sequence[Count]) -> Figure:
    """What gates add to the networks of the paper."""
    figure, rows = Figure(figsize=(0.6 * PAGE_WIDTH, 2.7), layout="constrained"), np.arange(len(SHAPES))
    axes = figure.subplots()
    percent = {level: np.array([100 * c.added for c in counts if c.level == level]) for level in ("graph", "neighbor")}
    axes.hlines(rows, percent["graph"], percent["neighbor"], color=FAINT, linewidth=0.8, zorder=1)
    for level, label, side, shift in (("graph", "graph", "right", -5), ("neighbor", "neighbor, GFGN-pair", "left", 5)):
        style = MODEL_STYLES[f"gfgn-{level}"]
        axes.plot(percent[level], rows, style["marker"], color=style["color"], markersize=4, label=f"GFGN-{label}")
        for row, value in enumerate(percent[level]):
            axes.annotate(
                f"{value:.2f}" if value < 1 else f"{value:.1f}", (value, row), (shift, 0), textcoords="offset points",
                fontsize=5.5, ha=side, va="center",
            )  # fmt: skip
    axes.set_yticks(rows, [title_of(name) for name in SHAPES])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set(xscale="log", xlim=(0.5 * percent["graph"].min(), 2.2 * percent["neighbor"].max()))
    axes.set_xticks([0.1, 1, 10], ["0.1%", "1%", "10%"])
    axes.set_xlabel("parameters of the gates, % of those of GCN")
    axes.legend(fontsize=6, loc="upper right", handletextpad=0.2)
    axes.grid(axis="x")
    return figure
