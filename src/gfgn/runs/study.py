"""Studies as files: what the paper's tables and figures consist of, with the values it publishes beside.

A study is a YAML file in this folder, or one of your own: `load_study` reads and checks it. Numbers with an exponent
need a point (`5.0e-4`), as YAML takes `5e-4` for text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch

from gfgn.data.datasets.registry import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.runs.plan import HYPER, Configuration, grid, make_replicas
from gfgn.runs.views import View, data_name
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING
from gfgn.train.replica import Replica

FOLDER = Path(__file__).parent.parent / "paper" / "studies"
TUNING_SEED = 0
"""The seed of the runs that a configuration is chosen by."""
AXES = {"noise": "added edges", "lam": "λ", "variant": "variant"}
"""What a study can vary beside datasets and models: random edges added to the graph, as a share of those there are;
λ; or anything, each variant having a name."""
MEASURES = {
    "gain_over_gcn": "the best GFGN level over gcn, points",
    "relative_gain_over_gcn": "the best GFGN level over gcn, % of gcn",
    "gate_min": "smallest smoothing score of the first layer",
    "gate_max": "largest smoothing score of the first layer",
    "gate_below_055": "smoothing scores of the first layer below 0.55, %",
}
"""What a published fact can be about."""


class StudyError(ValueError):
    """A study that cannot be read, or that asks for what there is not."""


At: TypeAlias = float | str
"""A value of what is varied: a number, or the name of a variant."""


class Axis(NamedTuple):
    """What a study varies, and the values it takes."""

    name: str
    values: tuple[At, ...]


class Variant(NamedTuple):
    """How the cells at a value of what is varied are made: how their data is used, what each model's configuration is
    chosen from, and how runs are trained."""

    view: View
    models: Mapping[str, tuple[Configuration, ...]]
    config: TrainConfig
    about: str = ""


class Cell(NamedTuple):
    """A place in a study's table: a dataset, a model, and the value of what is varied, if it concerns the model."""

    dataset: str
    model: str
    at: At | None = None


class Fact(NamedTuple):
    """A published number that is not a score of one model: what it measures (see `MEASURES`), where, and its value."""

    measure: str
    dataset: str
    value: float
    model: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class Published:
    """What the paper publishes.

    Attributes:
        source: Where.
        scores: By model and dataset, in %. Datasets may be more than the study has.
        spreads: By model and dataset, what the paper gives after a ±.
        ranks: Average ranks by model.
        facts: Further numbers.
        notes: Remarks on models, and sentences that go without a number.
    """

    source: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spreads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()

    def score(self, dataset: str, model: str) -> float | None:
        """The published score, or `None` where there is none."""
        return self.scores.get(model, {}).get(dataset)


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes:
        name: Short name, also of its folder of results.
        title: What it is, in a few words.
        about: What it is, in a few sentences.
        datasets: Names of datasets, as the registry has them.
        models: By name of the model, the configurations to choose from.
        splits: Number of splits, the first ones of each dataset.
        seeds: Number of seeds, from 0 on.
        config: How runs are trained.
        configs: By name of a model that is trained in another way, how; of a study that varies nothing.
        vary: What is varied beside, or `None`.
        variants: By value of what is varied, what it stands for.
        only: By name of a model that runs on some of the datasets only, which.
        published: What the paper has.
    """

    name: str
    title: str
    about: str
    datasets: tuple[str, ...]
    models: Mapping[str, tuple[Configuration, ...]]
    splits: int
    seeds: int
    config: TrainConfig
    configs: Mapping[str, TrainConfig] = field(default_factory=dict)
    vary: Axis | None = None
    variants: Mapping[At, Variant] = field(default_factory=dict)
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    published: Published = field(default_factory=Published)

    def cells(self, dataset: str, model: str) -> list[Cell]:
        """The cells of a model on a dataset: one a value of what is varied. λ concerns models with gates only."""
        if dataset not in self.only.get(model, self.datasets):
            return []
        if self.vary is None or (self.vary.name == "lam" and not MODELS[model].gated):
            return [Cell(dataset, model)]
        return [Cell(dataset, model, value) for value in self.vary.values]

    def all_cells(self) -> list[Cell]:
        """Every cell, dataset by dataset."""
        return [cell for dataset in self.datasets for model in self.models for cell in self.cells(dataset, model)]

    def variant(self, cell: Cell) -> Variant:
        """How a cell is made."""
        if cell.at is not None:
            return self.variants[cell.at]
        return Variant(View(), self.models, self.configs.get(cell.model, self.config))

    def data_name(self, cell: Cell) -> str:
        """The name of a cell's data, as its runs have it."""
        return data_name(cell.dataset, self.variant(cell).view)

    def configurations(self, cell: Cell) -> list[Configuration]:
        """What a cell's configuration is chosen from."""
        return list(self.variant(cell).models[cell.model])

    def tuning(self, cell: Cell) -> list[Replica]:
        """The runs that a cell's configuration is chosen by; none where there is nothing to choose."""
        configurations = self.configurations(cell)
        replicas = make_replicas(cell.model, configurations, range(self.splits), [TUNING_SEED])
        return replicas if len(replicas) > self.splits else []

    def final(self, cell: Cell, configuration: Configuration) -> list[Replica]:
        """The runs that a cell's score is made of: every split with every seed."""
        return make_replicas(cell.model, [configuration], range(self.splits), range(self.seeds))

    def count(self, cell: Cell) -> int:
        """Number of different runs of a cell; the chosen configuration has some of its runs from tuning."""
        tuning = len(self.tuning(cell))
        return self.splits * self.seeds + (tuning - self.splits if tuning else 0)


def study_names() -> list[str]:
    """The studies of the paper."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_study(name: str | Path) -> Study:
    """Reads a study and checks that everything it names exists.

    Args:
        name: One of `study_names()`, or the path of a YAML file.
    """
    path = Path(name) if str(name).endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = study_names()
        close = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise StudyError(f"name must be one of {', '.join(known)} or a YAML file, got {str(name)!r}{hint}")
    return make_study(_read(path), path.stem)


def make_study(content: Any, name: str) -> Study:
    """The study that a file's content describes, checked.

    Args:
        content: What the YAML file holds.
        name: Of the study, for messages and for its folder.
    """
    reader = _Reader(name)
    required = {"title", "datasets", "models", "grid", "splits", "seeds", "training"}
    reader.keys("the study", content, required, {"about", "training_of", "vary", "only", "published"})
    datasets = reader.datasets("datasets", content["datasets"])
    models = reader.models(content["models"], content["grid"])
    config = reader.config("training", content["training"])
    vary = reader.axis(content.get("vary"))
    return Study(
        name=name,
        title=reader.text("title", content["title"]),
        about=reader.text("about", content.get("about", "")),
        datasets=datasets,
        models=models,
        splits=reader.count("splits", content["splits"]),
        seeds=reader.count("seeds", content["seeds"]),
        config=config,
        configs=reader.configs(content.get("training_of", {}), models, config, vary),
        vary=vary,
        variants={} if vary is None else reader.variants(vary, content, Variant(View(), models, config)),
        only=reader.only(content.get("only", {}), models, datasets),
        published=reader.published(content.get("published", {})),
    )


def _read(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} must be a YAML file, got one that cannot be read: {error}") from None


class _Reader:
    """Checks the parts of a study; `name` is the study's, for messages."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, message: str) -> NoReturn:
        raise StudyError(f"study {self.name}: {message}")

    def keys(self, what: str, content: Any, required: Iterable[str], optional: Iterable[str] = ()) -> None:
        """Refuses anything but a mapping with the required keys and no unknown ones."""
        required, known = set(required), [*sorted(required), *sorted(optional)]
        if not isinstance(content, dict):
            self.fail(f"{what} must be a mapping with {', '.join(known)}, got {content!r}")
        for key in content:
            if key not in known:
                self.fail(f"{what} must have keys among {', '.join(known)}, got {key!r}")
        missing = sorted(required - content.keys())
        if missing:
            self.fail(f"{what} must have {', '.join(missing)}, got {', '.join(content) or 'nothing'}")

    def text(self, what: str, value: Any) -> str:
        if not isinstance(value, str):
            self.fail(f"{what} must be text, got {value!r}")
        return " ".join(value.split())

    def count(self, what: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.fail(f"{what} must be a whole number, 1 or larger, got {value!r}")
        return value

    def number(self, what: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            hint = "; YAML needs a point in numbers with an exponent: 5.0e-4" if isinstance(value, str) else ""
            self.fail(f"{what} must be a finite number, got {value!r}{hint}")
        return float(value)

    def mapping(self, what: str, content: Any) -> dict[str, Any]:
        if not isinstance(content, dict):
            self.fail(f"{what} must be a mapping, got {content!r}")
        return content

    def known(self, what: str, name: Any, names: Iterable[str]) -> str:
        names = list(names)
        if name not in names:
            close = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            self.fail(f"{what} must be one of {', '.join(names)}, got {name!r}{hint}")
        return str(name)

    def datasets(self, what: str, names: Any, among: Iterable[str] = tuple(DATASETS)) -> tuple[str, ...]:
        if not isinstance(names, list) or not names or len(set(names)) < len(names):
            self.fail(f"{what} must be a list of one or more names, each of them once, got {names!r}")
        return tuple(self.known(what, name, among) for name in names)

    def models(
        self, content: Any, shared: Any, changes: Mapping[str, Any] | None = None, where: str = ""
    ) -> dict[str, tuple[Configuration, ...]]:
        """The configurations of each model: those of the shared grid, with the model's own choices in their place, and
        a variant's in the place of both."""
        shared = self.mapping("grid", shared)
        for name in shared:
            self.known("grid", name, HYPER)
        found = self.mapping("models", content)
        if not found:
            self.fail(f"models must name at least one of {', '.join(MODELS)}, got none")
        return {
            self.known("models", model, MODELS): self._grid(
                f"{where}models.{model}", model, self.mapping(f"models.{model}", own) | dict(changes or {}), shared
            )
            for model, own in found.items()
        }

    def _grid(self, where: str, model: str, own: dict[str, Any], shared: dict[str, Any]) -> tuple[Configuration, ...]:
        entry = MODELS[model]
        gated = [name for name in HYPER if name != "lam" or entry.gated]
        choices = {name: values for name, values in shared.items() if name in gated} | own
        for name, values in choices.items():
            what = f"{where}.{name}"
            self.known(where, name, [*gated, *entry.parameters, *SAMPLING.get(model, ())])
            if not isinstance(values, list) or not values:
                self.fail(f"{what} must be a list of one or more values, got {values!r}")
            if name in HYPER:
                choices[name] = [self.number(what, value) for value in values]
        try:
            configurations = grid(**choices)
            for replica in make_replicas(model, configurations, [0]):
                options = tuple((name, value) for name, value in replica.options if name in entry.parameters)
                settings = entry.settings(model, options, dict.fromkeys(entry.needs, 1))
                with torch.device("meta"):
                    entry.build(1, 2, 0.5, 1.0, settings)
        except (ValueError, TypeError) as error:
            self.fail(f"{where}: {error}")
        return tuple(configurations)

    def config(self, what: str, content: Any) -> TrainConfig:
        names = [setting.name for setting in fields(TrainConfig)]
        self.keys(what, content, names[:2], names[2:])
        try:
            return TrainConfig(**content)
        except (ValueError, TypeError) as error:
            self.fail(f"{what}: {error}")

    def configs(
        self, content: Any, models: Mapping[str, Any], standard: TrainConfig, vary: Axis | None
    ) -> dict[str, TrainConfig]:
        """How single models are trained: the standard with some changes."""
        found = self.mapping("training_of", content)
        if found and vary is not None:
            self.fail(f"training_of must not be given with vary, got them for {', '.join(found)}")
        return {
            self.known("training_of", model, models): self.config(
                f"training_of.{model}", asdict(standard) | self.mapping(f"training_of.{model}", changes)
            )
            for model, changes in found.items()
        }

    def axis(self, content: Any) -> Axis | None:
        if content is None:
            return None
        if len(self.mapping("vary", content)) != 1:
            self.fail(f"vary must name one of {', '.join(AXES)}, got {', '.join(content) or 'none'}")
        ((name, values),) = content.items()
        self.known("vary", name, AXES)
        if name == "variant":
            names = list(self.mapping("vary.variant", values))
            if len(names) < 2:
                self.fail(
                    f"vary.variant must be two or more, the first to compare with, got {', '.join(names) or 'none'}"
                )
            return Axis(name, tuple(self.text("vary.variant", each) for each in names))
        if not isinstance(values, list) or not values:
            self.fail(f"vary.{name} must be a list of one or more values, got {values!r}")
        numbers = tuple(self.number(f"vary.{name}", value) for value in values)
        if len(set(numbers)) < len(numbers) or min(numbers) < 0:
            self.fail(f"vary.{name} must be values of 0 or larger, each of them once, got {values}")
        return Axis(name, numbers)

    def variants(self, vary: Axis, content: dict[str, Any], standard: Variant) -> dict[At, Variant]:
        """What the values of what is varied stand for: the standard with one change."""
        if vary.name == "variant":
            found = content["vary"]["variant"].items()
            return {name: self._variant(f"vary.variant.{name}", given, content, standard) for name, given in found}
        if vary.name == "noise":
            return {value: standard._replace(view=View(noise=float(value))) for value in vary.values}
        return {
            value: standard._replace(
                models={
                    model: tuple({**each, "lam": value} for each in some) for model, some in standard.models.items()
                }
            )
            for value in vary.values
        }

    def _variant(self, what: str, changes: Any, content: dict[str, Any], standard: Variant) -> Variant:
        self.keys(what, changes, (), ("about", "data", "grid", "training"))
        grid = self.mapping(f"{what}.grid", changes.get("grid", {}))
        config = self.mapping(f"{what}.training", changes.get("training", {}))
        return Variant(
            self._view(f"{what}.data", changes.get("data", {}), content["datasets"]),
            self.models(content["models"], content["grid"], grid, f"{what}.") if grid else standard.models,
            self.config(f"{what}.training", asdict(standard.config) | config),
            self.text(f"{what}.about", changes.get("about", "")),
        )

    def _view(self, what: str, content: Any, datasets: Iterable[str]) -> View:
        self.keys(what, content, (), [part.name for part in fields(View)])
        shares = content.get("shares")
        try:
            view = View(**{**content, "shares": None if shares is None else tuple(shares)})
        except (ValueError, TypeError) as error:
            self.fail(f"{what}: {error}")
        if view.edges != "undirected" and not all(DATASETS[name].directed for name in datasets):
            without = ", ".join(name for name in datasets if not DATASETS[name].directed)
            self.fail(
                f"{what}: edges must be undirected for {without}, whose files have no directions, got {view.edges}"
            )
        return view

    def only(self, content: Any, models: Mapping[str, Any], datasets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        return {
            self.known("only", model, models): self.datasets(f"only.{model}", names, datasets)
            for model, names in self.mapping("only", content).items()
        }

    def published(self, content: Any) -> Published:
        names = [part.name for part in fields(Published)]
        self.keys("published", content, (), names)
        return Published(
            source=self.text("published.source", content.get("source", "")),
            scores=self._scores("published.scores", content.get("scores", {})),
            spreads=self._scores("published.spreads", content.get("spreads", {})),
            ranks=self._numbers("published.ranks", content.get("ranks", {}), MODELS),
            facts=tuple(self._fact(fact) for fact in content.get("facts", [])),
            notes=tuple(self.text("published.notes", note) for note in content.get("notes", [])),
        )

    def _scores(self, what: str, content: Any) -> dict[str, dict[str, float]]:
        return {
            self.known(what, model, MODELS): self._numbers(f"{what}.{model}", values, DATASETS)
            for model, values in self.mapping(what, content).items()
        }

    def _numbers(self, what: str, content: Any, names: Iterable[str]) -> dict[str, float]:
        return {
            self.known(what, name, names): self.number(f"{what}.{name}", value)
            for name, value in self.mapping(what, content).items()
        }

    def _fact(self, content: Any) -> Fact:
        what = "published.facts"
        self.keys(what, content, ("measure", "dataset", "value"), ("model", "at"))
        model, at = content.get("model"), content.get("at")
        return Fact(
            measure=self.known(f"{what}.measure", content["measure"], MEASURES),
            dataset=self.known(f"{what}.dataset", content["dataset"], DATASETS),
            value=self.number(f"{what}.value", content["value"]),
            model=None if model is None else self.known(f"{what}.model", model, MODELS),
            at=None if at is None else self.number(f"{what}.at", at),
        )
