"""How many parameters gating adds: the counts of the paper's section on multi-head gating, from its formulas and from
real modules, which have to agree.

A layer of width `D` over an input of width `D'` with `K` heads has `D·D'` weights, as GCN's has, and gates of
`D²/K` further ones; twice as many where the gate reads two representations (neighbour and pair level).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from gfgn.nn import GFGNConv
from gfgn.nn.levels import LEVELS
from gfgn.paper.outputs import markdown_table, write_csv, write_text

WIDTHS = (16, 64, 256, 1024)
"""Widths of the layers that are counted: squares, so that `√D` is a number of heads."""


class Shape(NamedTuple):
    """The shape of a network: number of layers, heads of a hidden layer and hidden units of a head."""

    layers: int
    heads: int
    units: int


SHAPES = {"ogbn-arxiv": Shape(4, 16, 16), "ppi": Shape(6, 32, 64)}
"""Networks of the paper that are not as `USUAL`."""
USUAL = Shape(2, 8, 8)
DATASETS = (
    *("blogcatalog", "flickr", "actor", "cornell", "texas", "wisconsin"),
    *("cora", "citeseer", "pubmed", "ogbn-arxiv", "ppi"),
)


class Count(NamedTuple):
    """Parameters of a network: by formula and in the module, and those of GCN with the same widths."""

    dataset: str
    level: str
    shape: Shape
    formula: int
    module: int
    gcn: int

    @property
    def added(self) -> float:
        """The share of GCN's parameters that gating adds."""
        return (self.formula - self.gcn) / self.gcn


# --- formulas ---------------------------------------------------------------------------------------------------------


def gcn_layer(inputs: int, width: int, bias: bool = True) -> int:
    """Parameters of a GCN layer: `D·D'` and a bias.

    Args:
        inputs: `D'`.
        width: `D`.
        bias: Whether there is a bias.
    """
    return inputs * width + (width if bias else 0)


def gate_parameters(level: str, width: int, heads: int = 1) -> int:
    """Parameters of a layer's gates, `D²/K`, or twice as many where they read two representations.

    Args:
        level: `"graph"`, `"neighbor"` or `"pair"`.
        width: `D`, a multiple of `heads`.
        heads: `K`.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    if heads < 1 or width % heads:
        raise ValueError(f"heads must divide width ({width}), got {heads}")
    return LEVELS[level].gate_inputs * width * width // heads


def widths(features: int, classes: int, shape: Shape) -> list[tuple[int, int, int]]:
    """`(inputs, width, heads)` of every layer of a network; the last has one head and a unit a class."""
    hidden = shape.heads * shape.units
    sizes = [features, *[hidden] * (shape.layers - 1)]
    heads = [*[(hidden, shape.heads)] * (shape.layers - 1), (classes, 1)]
    return [(inputs, width, count) for inputs, (width, count) in zip(sizes, heads, strict=True)]


def count_network(dataset: str, level: str, features: int, classes: int, shape: Shape) -> Count:
    """Counts a network by formula and in modules.

    Args:
        dataset: What it is for.
        level: `"graph"`, `"neighbor"` or `"pair"`.
        features: Number of input features.
        classes: Number of classes or labels.
        shape: The network's shape.
    """
    layers = widths(features, classes, shape)
    gcn = sum(gcn_layer(inputs, width) for inputs, width, _ in layers)
    gates = sum(gate_parameters(level, width, heads) for _, width, heads in layers)
    real, real_gcn = _modules(level, features, classes, shape)
    if gcn != real_gcn:
        raise RuntimeError(f"the formula gives {gcn} parameters of GCN on {dataset}, its modules have {real_gcn}")
    return Count(dataset, level, shape, gcn + gates, real, gcn)


# --- modules ----------------------------------------------------------------------------------------------------------


def _modules(level: str, features: int, classes: int, shape: Shape) -> tuple[int, int]:
    """Parameters of the real networks, of GFGN and of GCN; nothing is allocated."""
    import torch
    from torch_geometric.nn import GCNConv

    from gfgn.nn import GFGN

    with torch.device("meta"):
        network = GFGN(features, shape.heads * shape.units, shape.layers, classes, level=level, heads=shape.heads)
        gcn = [GCNConv(inputs, width) for inputs, width, _ in widths(features, classes, shape)]
    return size_of(network), sum(size_of(layer) for layer in gcn)


def count_layer(level: str, inputs: int, width: int, heads: int) -> tuple[int, int]:
    """Parameters of one layer without bias, by formula and in the module.

    Args:
        level: `"graph"`, `"neighbor"` or `"pair"`.
        inputs: `D'`.
        width: `D`.
        heads: `K`.
    """
    import torch

    formula = gcn_layer(inputs, width, bias=False) + gate_parameters(level, width, heads)
    with torch.device("meta"):
        layer = GFGNConv(inputs, width // heads, level=level, heads=heads, bias=False)
    return formula, size_of(layer)


def size_of(module: nn.Module) -> int:
    """Number of learned values."""
    return sum(parameter.numel() for parameter in module.parameters())


# --- files ------------------------------------------------------------------------------------------------------------


def count_all() -> list[Count]:
    """The networks of the paper: every dataset at every level."""
    from gfgn.data.datasets.registry import DATASETS as REGISTRY

    found = []
    for dataset in DATASETS:
        entry = REGISTRY[dataset]
        sizes = entry.paper or entry.statistics
        shape = SHAPES.get(dataset, USUAL)
        found += [count_network(dataset, level, sizes.features, sizes.classes, shape) for level in LEVELS]
    return found


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the counts of layers and networks, the figure and a page; see `gfgn.paper.analyses` for the
    arguments."""
    from gfgn.paper.figures.parameters import parameters_figure
    from gfgn.report.style import save

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
    header = ["dataset", "level", "layers", "heads", "units", "gcn", "formula", "module", "added share"]
    added = {level: {c.dataset: c.added for c in counts if c.level == level} for level in LEVELS}
    figure = parameters_figure([(level, width, heads, real) for level, width, heads, _, real in layers], added)
    return [
        write_csv(out / "layers.csv", ["level", "width", "heads", "formula", "module"], layers),
        write_csv(out / "networks.csv", header, networks),
        *save(figure, out, "parameters"),
        write_text(out / "README.md", _page(counts)),
    ]


def _page(counts: Sequence[Count]) -> str:
    by_dataset: dict[str, list[Count]] = {}
    for count in counts:
        by_dataset.setdefault(count.dataset, []).append(count)
    rows = []
    for dataset, (graph, neighbor, _pair) in by_dataset.items():
        shape = graph.shape
        both = (f"{each.formula:,} (+{100 * each.added:.2f}%)" for each in (graph, neighbor))
        rows.append((dataset, f"{shape.layers} layers, {shape.heads} × {shape.units}", f"{graph.gcn:,}", *both))
    table = markdown_table(["dataset", "network", "GCN", "GFGN-graph", "GFGN-neighbor, GFGN-pair"], rows)
    usual = [count for count in counts if count.shape == USUAL]
    most, deep = max(usual, key=lambda c: c.added), max(counts, key=lambda c: c.added)
    return f"""# What gating costs in parameters

Written by `gfgn reproduce parameters`. A layer with `D` outputs, `D'` inputs and `K` gating heads has

| layer | parameters | with K = √D |
| :-- | :-- | :-- |
| GCN | `D·D'` | |
| GFGN-graph | `D·D' + D²/K` | `D·D' + D^1.5` |
| GFGN-neighbor, GFGN-pair | `D·D' + 2D²/K` | `D·D' + 2D^1.5` |

and a bias of `D`. The paper counts `D²/K` for all levels, in big-O; where the gate reads two representations, `W_s` has
`2D/K` rows a head, so that it is twice that. Formulas and modules agree on every layer of [layers.csv](layers.csv) and
on every network of [networks.csv](networks.csv).

![Parameters that gating adds](parameters.svg)

The networks of the paper; GCN has the same layers and widths:

{table}

With the paper's two layers and 8 heads of 8 units, gates add at most {100 * most.added:.2f}% ({most.dataset},
{most.level} level), which the paper calls negligible. In deeper networks, where most layers are as wide as their input,
it is up to {100 * deep.added:.1f}% ({deep.dataset}, {deep.level} level).
"""
