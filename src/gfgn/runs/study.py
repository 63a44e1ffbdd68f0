"""`Study`: a table of experiments, datasets by models by what is varied, with published values to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from pydantic import ConfigDict

from gfgn.data.dataset import NodeDataset
from gfgn.nn.registry import find_model
from gfgn.runs.grid import Configuration
from gfgn.runs.plan import Plan
from gfgn.runs.search import Space
from gfgn.runs.views import GraphFile, View, data_name, known_test_share, load_view
from gfgn.train.config import TrainConfig

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
At: TypeAlias = float | str  # a value of what is varied: a number, or the name of a variant


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
            for those of `gfgn.runs.search.default_rungs`.
        own: By model, the further axes.
    """

    configurations: int
    seed: int
    space: Space
    rungs: tuple[int, ...] | None = ()
    own: Mapping[str, Space] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study: models, each with the configurations to choose from, on the first splits of datasets, with seeds from 0
    on."""

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
    graphs: Mapping[str, GraphFile] = field(default_factory=dict)  # the datasets that are graphs of the user's own
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
        if self.vary is None or (self.vary.name == "lam" and not find_model(model).gated):
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
        """The study of one dataset and one value of what is varied."""
        cells = [cell for model in self.models for cell in self.cells(dataset, model) if cell.at in (None, at)]
        if not cells:
            return replace(self, datasets=(), models={})
        variant = self.variant(Cell(dataset, cells[0].model, at))
        title = data_name(dataset, variant.view)
        return replace(
            self,
            title=title if self.vary is None or self.vary.name == "noise" else f"{title}, {AXES[self.vary.name]} {at}",
            datasets=(dataset,),
            models={cell.model: variant.models[cell.model] for cell in cells},
            config=variant.config,
            vary=None,
            at=at,
            variants={},
            only={},
            view=variant.view,
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
