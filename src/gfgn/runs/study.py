"""`Study`: a table of experiments, datasets by models by what is varied, with published values to compare with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from pydantic import ConfigDict

from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import connected_components
from gfgn.data.generators.noise import add_random_edges
from gfgn.data.named.catalog import DATASETS
from gfgn.data.named.registry import load
from gfgn.data.raw import ReadOptions
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph
from gfgn.nn.registry import find_model
from gfgn.runs.grid import Configuration, Space
from gfgn.runs.plan import Plan
from gfgn.runs.record import measure_test_share
from gfgn.train.catalog import CLASSICAL
from gfgn.train.config import TrainConfig
from gfgn.train.statistics import TEST_SHARE

# What a study can vary besides datasets and models: random edges added to the graph, as a fraction of its edges; λ; or
# named variants of anything.
AXES = {"noise": "added edges", "lam": "λ", "variant": "variant"}
MEASURES = {  # what a published fact can measure
    "gain_over_gcn": "the best GFGN level over gcn, points",
    "relative_gain_over_gcn": "the best GFGN level over gcn, % of gcn",
    "gate_min": "smallest smoothing score of the first layer",
    "gate_max": "largest smoothing score of the first layer",
    "gate_below_055": "smoothing scores of the first layer below 0.55, %",
}
CHOICES = {
    "features": ("normalized", "raw"),
    "edges": ("undirected", "directed", "reversed"),
    "nodes": ("all", "largest part"),
}
# Where other than 20% of the nodes are test nodes. Those of the Open Graph Benchmark and PPI have a single split.
TEST_SHARES = {
    **dict.fromkeys(("minesweeper", "tolokers", "roman-empire", "amazon-ratings", "questions"), 1 / 3),
    **dict.fromkeys(("ogbn-arxiv", "ogbn-arxiv-structure"), 0.4025),
    "ogbn-products": 9.38,
    **dict.fromkeys(("ppi", "ppi-relabelled"), 0.1074),
}
At: TypeAlias = float | str  # a value of what is varied: a number, or the name of a variant


# --- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """How a study uses a dataset; by default as `load` returns it. `CHOICES` lists the values of text settings."""

    noise: float = 0.0  # number of random edges to add, as a fraction of the number of edges
    features: str = "normalized"  # rows of bag-of-words features, or "raw"
    edges: str = "undirected"  # or "directed" as in the files, or "reversed"
    fractions: tuple[float, float] | None = None  # of training and validation nodes, for random splits within classes
    nodes: str = "all"  # which nodes the splits cover: or the "largest part", the largest connected component
    draw: int = 0  # which random edges: the seed of the noise

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {getattr(self, name)!r}")
        if isinstance(self.noise, bool) or not isinstance(self.noise, int | float) or not 0 <= self.noise < math.inf:
            raise ValueError(f"noise must be a finite number, 0 or larger, got {self.noise!r}")
        if self.noise and self.edges != "undirected":
            raise ValueError(f"noise must be 0 where edges are {self.edges}, got {self.noise}")
        parts = self.fractions
        if parts is not None and not (len(parts) == 2 and min(parts) > 0 and sum(parts) < 1):
            raise ValueError(f"fractions must be two positive numbers with a sum below 1, got {parts}")


@dataclass(frozen=True)
class GraphFile:
    """A graph in files: where it is, and how it is read."""

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions, hash=False)

    def read(self, name: str) -> NodeDataset:
        """The graph, under its name in the study."""
        from gfgn.data.assemble import assemble
        from gfgn.data.reading import read_raw

        return replace(assemble(read_raw(self.path, self.options), self.options).dataset, name=name)


def data_name(dataset: str, view: View | None = None) -> str:
    """The name of a dataset in results: it marks stand-ins and ends with what `view` changes."""
    view, entry = view or View(), DATASETS.get(dataset)
    name = f"{dataset} (stand-in)" if entry is not None and entry.standin else dataset
    name += f"+{100 * view.noise:g}%" if view.noise else ""
    name += f" draw {view.draw}" if view.draw else ""
    changes = [getattr(view, part) for part, known in CHOICES.items() if getattr(view, part) != known[0]]
    if view.fractions is not None:
        changes.append("/".join(f"{100 * part:.0f}" for part in (*view.fractions, 1 - sum(view.fractions))))
    return " ".join([name, *changes])


def known_test_share(dataset: str, view: View | None = None, graph: GraphFile | None = None) -> float:
    """The number of test nodes of a split over that of its other nodes, see `gfgn.train.statistics.standard_error`.

    Known without loading the data, so that the tables of a study follow from its runs alone; only a graph in files is
    read. Nodes that a view leaves out are missing from all parts alike.
    """
    if view is not None and view.fractions is not None:
        return 1 / sum(view.fractions) - 1
    return TEST_SHARES.get(dataset, TEST_SHARE) if graph is None else _measured_test_share(graph)


@cache
def _measured_test_share(graph: GraphFile) -> float:
    share = measure_test_share(graph.read("").splits) if graph.path.exists() else None
    return TEST_SHARE if share is None else share


def load_view(name: str, view: View, root: Path | None = None, file: GraphFile | None = None) -> NodeDataset:
    """Loads a view of a dataset of the registry, or of the graph in a `file`.

    `root` is the folder of all datasets, see `gfgn.data.load`.
    """
    if file is not None:
        data = file.read(name)
    else:
        data = load(name, root, normalize=view.features != "raw", directed=view.edges != "undirected")
    if view == View():
        return data
    graph = data.graph
    if view.edges == "reversed":
        graph = Graph.from_edge_index(graph.edge_index.flip(0), graph.num_nodes, dtype=graph.dtype)
    if view.noise:
        graph = add_random_edges(graph, view.noise, view.draw)
    return replace(data, name=data_name(name, view), graph=graph, splits=_splits(data, view))


def _splits(data: NodeDataset, view: View) -> list[Split]:
    """The splits of the dataset, or the same number of random ones, restricted to the nodes of the view."""
    kept = torch.ones(data.num_nodes, dtype=torch.bool)
    if view.nodes == "largest part":
        component = connected_components(data.graph)
        kept = torch.from_numpy(component == np.bincount(component).argmax())
    if view.fractions is None:
        return [Split(*(mask & kept for mask in split)) for split in data.splits]
    classes = torch.where(kept, data.y, -1)
    return random_splits(data.num_nodes, len(data.splits), 0, *view.fractions, stratify=classes)


# --- the study --------------------------------------------------------------------------------------------------------


class StudyError(ValueError):
    """Raised for a study that cannot be read, or that names something unknown."""


class Axis(NamedTuple):
    """What a study varies, and its values."""

    name: str
    values: tuple[At, ...]


class Variant(NamedTuple):
    """One value of what is varied: the view of the data, each model's configurations, and how runs are trained."""

    view: View
    models: Mapping[str, tuple[Configuration, ...]]
    config: TrainConfig
    about: str = ""


class Cell(NamedTuple):
    """A cell of a study's table: a dataset, a model, and the value of what is varied, if it applies to the model."""

    dataset: str
    model: str
    at: At | None = None


class Fact(NamedTuple):
    """A published number other than the score of a model: its measure (see `MEASURES`), where it applies, its value."""

    measure: str
    dataset: str
    value: float
    model: str | None = None
    at: float | None = None


class Elsewhere(NamedTuple):
    """Scores that another paper reports, as text, by dataset and model; and what is known to differ in its protocol."""

    paper: str
    source: str
    scores: Mapping[str, Mapping[str, str]]
    mark: str = ""


@dataclass(frozen=True)
class Published:
    """Published results; scores are by model and dataset, in %, and average ranks by model."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    source: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spreads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what is given after a ±
    ranks: Mapping[str, float] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()

    def score(self, dataset: str, model: str) -> float | None:
        """The published score, or `None`."""
        return self.scores.get(model, {}).get(dataset)


@dataclass(frozen=True)
class Search:
    """How the configurations of a study were drawn: the same number for every model.

    Attributes:
        configurations: Number of configurations per model.
        seed: Seed of the draw.
        space: The axes that all models share; every model has the same values on them.
        rungs: Epochs at which successive halving stops the worse half of the configurations; empty without it, `None`
            for those of `gfgn.runs.selection.default_rungs`.
        per_model: By model, the further axes.
    """

    configurations: int
    seed: int
    space: Space
    rungs: tuple[int, ...] | None = ()
    per_model: Mapping[str, Space] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """Models, each with the configurations to choose from, on the first splits of datasets, with seeds from 0 on."""

    name: str  # also of its folder of results
    title: str
    about: str
    datasets: tuple[str, ...]
    models: Mapping[str, tuple[Configuration, ...]]
    splits: int
    seeds: int
    config: TrainConfig
    configs: Mapping[str, TrainConfig] = field(default_factory=dict)  # of single models; not together with `vary`
    vary: Axis | None = None
    variants: Mapping[At, Variant] = field(default_factory=dict)  # by value of what is varied
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the datasets of models that do not run on all
    published: Published = field(default_factory=Published)
    graphs: Mapping[str, GraphFile] = field(default_factory=dict)  # the datasets that are graphs in files
    search: Search | None = None  # where configurations are drawn, not a grid
    view: View = field(default_factory=View)  # of all datasets, unless a variant has another
    draws: int = 1  # of the random edges of a noisy view
    baseline: str | None = None  # the model that the others are compared with
    at: At | None = None  # of a part of a study: the value of what is varied
    shared: tuple[Configuration, ...] = ()  # of a comparison: what the configurations of all models begin with

    def load(self, dataset: str, view: View, root: Path | None = None) -> NodeDataset:
        """A view of one of the datasets; `root` is the folder of those of the registry."""
        return load_view(dataset, view, root, self.graphs.get(dataset))

    def test_share(self, cell: Cell) -> float:
        """The number of test nodes of a split over that of its other nodes."""
        return known_test_share(cell.dataset, self.variant(cell).view, self.graphs.get(cell.dataset))

    def cells(self, dataset: str, model: str) -> list[Cell]:
        """The cells of a model on a dataset: one per value of what is varied. λ applies to models with gates only."""
        if dataset not in self.only.get(model, self.datasets):
            return []
        if self.vary is None or (self.vary.name == "lam" and not _has_gates(model)):
            return [Cell(dataset, model)]
        return [Cell(dataset, model, value) for value in self.vary.values]

    def all_cells(self) -> list[Cell]:
        """Every cell, dataset by dataset."""
        return [cell for dataset in self.datasets for model in self.models for cell in self.cells(dataset, model)]

    def variant(self, cell: Cell) -> Variant:
        """The view, configurations and training of a cell."""
        if cell.at is not None:
            return self.variants[cell.at]
        return Variant(self.view, self.models, self.configs.get(cell.model, self.config))

    def views(self, cell: Cell) -> list[View]:
        """The views of a cell: one per draw of its random edges. Configurations are chosen on the first."""
        view = self.variant(cell).view
        return [replace(view, draw=draw) for draw in range(self.draws)] if view.noise else [view]

    def data_name(self, cell: Cell) -> str:
        """The name of a cell's data in its runs; that of the first draw of a noisy view."""
        return self.data_names(cell)[0]

    def data_names(self, cell: Cell) -> list[str]:
        """The names of a cell's data in its runs, one per draw."""
        return [data_name(cell.dataset, view) for view in self.views(cell)]

    def part(self, dataset: str, at: At | None = None) -> Study:
        """The study of one dataset and one value of what is varied; its title names both."""
        cells = [cell for model in self.models for cell in self.cells(dataset, model) if cell.at in (None, at)]
        if not cells:
            return replace(self, datasets=(), models={})
        variant = self.variant(Cell(dataset, cells[0].model, at))
        title = data_name(dataset, variant.view)
        if self.vary is not None and self.vary.name != "noise":
            title += f", {at}" if self.vary.name == "variant" else f", {AXES[self.vary.name]} {at}"
        return replace(
            self,
            title=title,
            datasets=(dataset,),
            models={cell.model: variant.models[cell.model] for cell in cells},
            config=variant.config,
            view=variant.view,
            at=at,
            vary=None,
            variants={},
            only={},
        )

    def plan(self, cell: Cell) -> Plan:
        """The runs of a cell."""
        variant = self.variant(cell)
        rungs = () if self.search is None else self.search.rungs
        return Plan(
            cell.model,
            variant.models[cell.model],
            self.splits,
            self.seeds,
            variant.config,
            halving=rungs != (),
            rungs=rungs,
            draws=len(self.views(cell)),
        )


def _has_gates(model: str) -> bool:
    return model not in CLASSICAL and find_model(model).gated
