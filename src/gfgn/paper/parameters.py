"""Number of parameters that gating adds, by the formulas of the paper's section on multi-head gating and in modules.

A layer of width `D` over an input of width `D'` with `K` heads has `D·D'` weights, as GCN has, and gates with `D²/K`
parameters; twice as many if the gate reads two representations (neighbor and pair level).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from gfgn.nn import GFGN, GFGNConv
from gfgn.nn.levels import LEVELS
from gfgn.paper.outputs import markdown_table, write_csv, write_text

WIDTHS = (16, 64, 256, 1024)  # of single layers: squares, so that `√D` is a number of heads


class Shape(NamedTuple):
    """The shape of a network: number of layers, heads of a hidden layer, and hidden units per head."""

    layers: int
    heads: int
    units: int


USUAL = Shape(2, 8, 8)
SHAPES = {"ogbn-arxiv": Shape(4, 16, 16), "ppi": Shape(6, 32, 64)}  # where the paper's networks are not `USUAL`
DISASSORTATIVE = ("blogcatalog", "flickr", "actor", "cornell", "texas", "wisconsin")
DATASETS = (*DISASSORTATIVE, "cora", "citeseer", "pubmed", "ogbn-arxiv", "ppi")


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


def gcn_layer(inputs: int, width: int, bias: bool = True) -> int:
    """Returns the number of parameters of a GCN layer: `D·D'`, and a bias of `D`."""
    return inputs * width + (width if bias else 0)


def gate_parameters(level: str, width: int, heads: int = 1) -> int:
    """Returns the number of parameters of a layer's gates: `D²/K`, doubled if they read two representations."""
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    if heads < 1 or width % heads:
        raise ValueError(f"heads must divide width ({width}), got {heads}")
    return LEVELS[level].gate_inputs * width * width // heads


def widths(features: int, classes: int, shape: Shape) -> list[tuple[int, int, int]]:
    """Returns `(inputs, width, heads)` of every layer of a network; the last has one head and one unit per class."""
    hidden = shape.heads * shape.units
    inputs = [features, *[hidden] * (shape.layers - 1)]
    return [*((size, hidden, shape.heads) for size in inputs[:-1]), (inputs[-1], classes, 1)]


def count_network(dataset: str, level: str, features: int, classes: int, shape: Shape) -> Count:
    """Counts the parameters of a network by formula and in modules on the meta device."""
    from torch_geometric.nn import GCNConv

    layers = widths(features, classes, shape)
    gcn = sum(gcn_layer(inputs, width) for inputs, width, _ in layers)
    gates = sum(gate_parameters(level, width, heads) for _, width, heads in layers)
    with torch.device("meta"):
        network = GFGN(features, shape.heads * shape.units, shape.layers, classes, level=level, heads=shape.heads)
        gcn_module = sum(size_of(GCNConv(inputs, width)) for inputs, width, _ in layers)
    if gcn != gcn_module:
        raise RuntimeError(f"the formula gives {gcn} parameters of GCN on {dataset}, its modules have {gcn_module}")
    return Count(dataset, level, shape, gcn + gates, size_of(network), gcn)


def count_layer(level: str, inputs: int, width: int, heads: int) -> tuple[int, int]:
    """Returns the number of parameters of one layer without bias, by formula and in the module."""
    formula = gcn_layer(inputs, width, bias=False) + gate_parameters(level, width, heads)
    with torch.device("meta"):
        layer = GFGNConv(inputs, width // heads, level=level, heads=heads, bias=False)
    return formula, size_of(layer)


def size_of(module: nn.Module) -> int:
    """Returns the number of learned values of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def count_all() -> list[Count]:
    """Counts the networks of the paper: every dataset at every level."""
    from gfgn.data.named.catalog import DATASETS as REGISTRY

    counts = []
    for dataset in DATASETS:
        sizes = REGISTRY[dataset].paper or REGISTRY[dataset].statistics
        shape = SHAPES.get(dataset, USUAL)
        counts += [count_network(dataset, level, sizes.features, sizes.classes, shape) for level in LEVELS]
    return counts


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the counts of layers and networks, the figure and a page."""
    from gfgn.paper.figures.parameters import parameters_figure
    from gfgn.report.style import save_svg

    progress("parameters: counting")
    counts = count_all()
    layers = [
        (level, width, heads, *count_layer(level, width, width, heads))
        for level in LEVELS
        for width in WIDTHS
        for heads in (1, math.isqrt(width))
    ]
    disagree = [row for row in layers if row[3] != row[4]] + [row for row in counts if row.formula != row.module]
    if disagree:
        raise RuntimeError(f"formula and module must agree on the number of parameters, got {disagree[0]}")
    networks = [(c.dataset, c.level, *c.shape, c.gcn, c.formula, c.module, c.added) for c in counts]
    header = ["dataset", "level", "layers", "heads", "units", "gcn", "formula", "module", "added fraction"]
    added = {level: {c.dataset: c.added for c in counts if c.level == level} for level in LEVELS}
    figure = parameters_figure([(level, width, real) for level, width, _, _, real in layers], added)
    return [
        write_csv(out / "layers.csv", ["level", "width", "heads", "formula", "module"], layers),
        write_csv(out / "networks.csv", header, networks),
        save_svg(figure, out / "parameters.svg"),
        write_text(out / "README.md", _page(counts)),
    ]


def _page(counts: Sequence[Count]) -> str:
    rows = []
    for graph, neighbor in zip(counts[0::3], counts[1::3], strict=True):  # a pair-level gate is as large
        layers, heads, units = graph.shape
        sizes = (f"{count.formula:,} (+{100 * count.added:.2f}%)" for count in (graph, neighbor))
        rows.append((graph.dataset, f"{layers} layers, {heads} × {units}", f"{graph.gcn:,}", *sizes))
    table = markdown_table(["dataset", "network", "GCN", "GFGN-graph", "GFGN-neighbor, GFGN-pair"], rows)
    usual = max((count for count in counts if count.shape == USUAL), key=lambda count: count.added)
    deep = max(counts, key=lambda count: count.added)
    return f"""# Parameters that gating adds

Written by `gfgn reproduce parameters`. A layer with `D` outputs, `D'` inputs and `K` gating heads has

| layer | parameters | with K = √D |
| :-- | :-- | :-- |
| GCN | `D·D'` | |
| GFGN-graph | `D·D' + D²/K` | `D·D' + D^1.5` |
| GFGN-neighbor, GFGN-pair | `D·D' + 2D²/K` | `D·D' + 2D^1.5` |

and a bias of `D`. The paper counts `D²/K` for all levels, in big-O notation. If the gate reads two representations,
`W_s` has `2D/K` rows per head, which doubles the number. Formulas and modules agree on every layer of
[layers.csv](layers.csv) and on every network of [networks.csv](networks.csv).

![Parameters that gating adds](parameters.svg)

The networks of the paper, and a GCN with the same layers and widths:

{table}

In the paper's networks of two layers and 8 heads of 8 units, gates add at most {100 * usual.added:.2f}%
({usual.dataset}, {usual.level} level), which the paper calls negligible. In deeper networks, where most layers are as
wide as their input, they add up to {100 * deep.added:.1f}% ({deep.dataset}, {deep.level} level).
"""
