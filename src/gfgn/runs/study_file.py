"""Studies as YAML files: `StudyFile` says what one may hold, `read_study` reads and checks it.

Numbers with an exponent need a point (`5.0e-4`), because YAML reads `5e-4` as text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from gfgn.data.files import read_yaml
from gfgn.data.messages import shown
from gfgn.data.named.catalog import DATASETS
from gfgn.nn.custom import is_import_name
from gfgn.nn.entry import SHARED
from gfgn.nn.registry import MODELS, find_model
from gfgn.runs.grid import COMMON_PARAMS, OPTIONAL_PARAMS, Configuration, grid, make_replicas
from gfgn.runs.search import Choice, LogUniform, Space, Uniform, sample
from gfgn.runs.study import AXES, MEASURES, At, Axis, Published, Search, Study, StudyError, Variant
from gfgn.runs.views import GraphFile, View
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING

NUMBERS = (*COMMON_PARAMS, *OPTIONAL_PARAMS)
SHARED_AXES = (*NUMBERS, *SHARED)  # what all models may share

Number = Annotated[FiniteFloat, Field(strict=True)]
Count = Annotated[StrictInt, Field(ge=1)]
Scalar = StrictBool | StrictInt | Number | StrictStr | None
Values = Annotated[list[Scalar], Field(min_length=1)]
Settings = dict[StrictStr, Scalar]
Grid = dict[StrictStr, Values]


class Part(BaseModel):
    """A part of a study file: unknown entries are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UniformRange(Part):
    """Numbers drawn uniformly between two."""

    uniform: tuple[Number, Number]


class LogUniformRange(Part):
    """Numbers whose logarithms are drawn uniformly between those of two."""

    log_uniform: tuple[Number, Number]


Range = Values | UniformRange | LogUniformRange


class GraphPath(Part):
    """A graph in files, and how `gfgn.data.read` reads it."""

    path: StrictStr
    id: StrictStr | None = None
    label: StrictStr | None = None
    split: StrictStr | None = None
    drop: list[StrictStr] | None = None
    undirected: StrictBool | None = None
    scale: StrictStr | None = None
    stratify: StrictBool | None = None
    metric: StrictStr | None = None
    num_splits: Count | None = None


class SearchPart(Part):
    """Random configurations, the same number for every model, from a space that all models share."""

    configurations: Count
    space: dict[StrictStr, Range]
    seed: Annotated[StrictInt, Field(ge=0)] = 0
    rungs: list[Count] = []


class VariantPart(Part):
    """One change to the study: to its data, to its grid or to its training."""

    about: StrictStr = ""
    data: dict[StrictStr, Scalar | list[Number]] = {}
    grid: Grid = {}
    training: Settings = {}


class Vary(Part):
    """What a study varies: one of random edges as a fraction of the edges, λ, and named variants."""

    noise: Annotated[list[Annotated[Number, Field(ge=0)]], Field(min_length=1)] | None = None
    lam: Annotated[list[Annotated[Number, Field(ge=0)]], Field(min_length=1)] | None = None
    variant: Annotated[dict[StrictStr, VariantPart], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Vary:
        if len(self.model_fields_set) != 1:
            raise ValueError(
                f"vary must name one of {', '.join(AXES)}, got {', '.join(self.model_fields_set) or 'none'}"
            )
        numbers = self.noise or self.lam or []
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"vary must be of distinct values, got {numbers}")
        return self


class StudyFile(Part):
    """A study: models by datasets, each model with the configurations to choose from.

    `StudyFile.model_json_schema()` is the JSON Schema of these files.
    """

    title: StrictStr
    about: StrictStr = ""
    datasets: Annotated[list[StrictStr | GraphPath], Field(min_length=1)]
    models: Annotated[dict[StrictStr, dict[StrictStr, Range]], Field(min_length=1)]
    splits: Count
    seeds: Count
    training: Settings
    grid: Grid | None = None
    search: SearchPart | None = None
    data: dict[StrictStr, Scalar | list[Number]] = {}
    training_of: dict[StrictStr, Settings] = {}
    vary: Vary | None = None
    draws: Count = 1
    only: dict[StrictStr, Annotated[list[StrictStr], Field(min_length=1)]] = {}
    baseline: StrictStr | None = None
    published: Published = Published()

    @model_validator(mode="after")
    def _consistent(self) -> StudyFile:
        if (self.grid is None) == (self.search is None):
            got = "neither" if self.grid is None else "both"
            raise ValueError(f"the study must have grid or search, got {got}")
        if self.training_of and self.vary is not None:
            raise ValueError(f"training_of must not be given with vary, got it for {', '.join(self.training_of)}")
        if self.draws > 1 and (self.vary is None or self.vary.noise is None):
            raise ValueError(f"draws must be 1 unless the study varies noise, got {self.draws}")
        return self

    def resolve(self, name: str, folder: Path = Path()) -> Study:
        """The study, after checking that everything it names exists; paths of graphs are relative to `folder`."""
        graphs = _graphs(self.datasets, folder)
        files = {name: graph for name, graph in graphs.items() if graph is not None}
        config = _config("training", TrainConfig(), self.training)
        search = None if self.search is None else self._search(config)
        models = self._drawn(search) if search else self._grids({})
        view = _view("data", View(), self.data, graphs)
        known = list(dict.fromkeys([*models, *MODELS]))
        configs = {
            known_name("training_of", models, model): _config(f"training_of.{model}", config, changes)
            for model, changes in self.training_of.items()
        }
        only = {
            known_name("only", models, model): tuple(known_name(f"only.{model}", graphs, each) for each in names)
            for model, names in self.only.items()
        }
        if self.baseline is not None:
            known_name("baseline", models, self.baseline)
        self._check_published(known, [*DATASETS, *graphs])
        standard = Variant(view, models, config)
        variants = self._variants(standard, graphs)
        return Study(
            name=name,
            title=" ".join(self.title.split()),
            about=" ".join(self.about.split()),
            datasets=tuple(graphs),
            models=models,
            splits=self.splits,
            seeds=self.seeds,
            config=config,
            configs=configs,
            vary=None if self.vary is None else Axis(next(iter(self.vary.model_fields_set)), tuple(variants)),
            variants=variants,
            only=only,
            published=self.published,
            graphs=files,
            search=search,
            view=view,
            draws=self.draws,
            baseline=self.baseline,
        )

    def _grids(self, changes: Grid, where: str = "") -> dict[str, tuple[Configuration, ...]]:
        """Each model's configurations: a model's values override the shared grid, a variant's override both."""
        shared = self.grid or {}
        for axis in shared:
            known_name("grid", SHARED_AXES, axis)
        models = {}
        for model, given in self.models.items():
            what = f"{where}models.{model}"
            with _at("models"):
                entry = find_model(model)
            own = {name: _listed(f"{what}.{name}", values) for name, values in given.items()} | changes
            choices = {name: values for name, values in shared.items() if name not in entry.ignored} | own
            for name, values in choices.items():
                _check_axis(model, what, name)
                choices[name] = [_number(f"{what}.{name}", each) if name in NUMBERS else each for each in values]
            with _at(what):
                models[model] = _checked(model, grid(**choices))
        return models

    def _search(self, config: TrainConfig) -> Search:
        """The search of a study: what all models share, and what each has in addition."""
        assert self.search is not None
        rungs = self.search.rungs
        if rungs != sorted(set(rungs)) or (rungs and rungs[-1] >= config.max_epochs):
            raise ValueError(f"search.rungs must be increasing and below max_epochs, {config.max_epochs}, got {rungs}")
        space = {
            known_name("search.space", SHARED_AXES, name): _drawn_from(f"search.space.{name}", values)
            for name, values in self.search.space.items()
        }
        own: dict[str, Space] = {}
        for model, axes in self.models.items():
            for name in axes:
                _check_axis(model, f"models.{model}", name)
                if name in space:
                    raise ValueError(f"models.{model} must not have {name}, which all models share in search.space")
            own[model] = {name: _drawn_from(f"models.{model}.{name}", values) for name, values in axes.items()}
        return Search(self.search.configurations, self.search.seed, space, tuple(rungs), own)

    def _drawn(self, search: Search) -> dict[str, tuple[Configuration, ...]]:
        """Each model's configurations: the same number, and the same values on the axes that all models share."""
        models = {}
        for model, own in search.own.items():
            space = {name: axis for name, axis in search.space.items() if name not in find_model(model).ignored}
            with _at(f"models.{model}"):
                models[model] = _checked(model, sample({**space, **own}, search.configurations, search.seed))
            distinct = len(make_replicas(model, models[model], [0]))
            if distinct < search.configurations:
                raise StudyError(
                    f"search.configurations must be at most the number of different ones that are drawn for {model}, "
                    f"{distinct}, got {search.configurations}"
                )
        return models

    def _variants(self, standard: Variant, graphs: Iterable[str]) -> dict[At, Variant]:
        """The variant of each value of what is varied: the standard with one change."""
        if self.vary is None:
            return {}
        if self.vary.noise is not None:
            return {value: standard._replace(view=replace(standard.view, noise=value)) for value in self.vary.noise}
        if self.vary.lam is not None:
            return {
                lam: standard._replace(
                    models={name: tuple({**each, "lam": lam} for each in own) for name, own in standard.models.items()}
                )
                for lam in self.vary.lam
            }
        variants: dict[At, Variant] = {}
        for name, part in (self.vary.variant or {}).items():
            what = f"vary.variant.{name}"
            if part.grid and self.search is not None:
                raise StudyError(f"{what}.grid must not be given in a study with search, got {shown(part.grid)}")
            variants[name] = Variant(
                _view(f"{what}.data", standard.view, part.data, graphs),
                self._grids(part.grid, f"{what}.") if part.grid else standard.models,
                _config(f"{what}.training", standard.config, part.training),
                " ".join(part.about.split()),
            )
        return variants

    def _check_published(self, models: Sequence[str], datasets: Sequence[str]) -> None:
        for what, table in (("scores", self.published.scores), ("spreads", self.published.spreads)):
            for model, scores in table.items():
                known_name(f"published.{what}", models, model)
                for dataset in scores:
                    known_name(f"published.{what}.{model}", datasets, dataset)
        for model in self.published.ranks:
            known_name("published.ranks", models, model)
        for fact in self.published.facts:
            known_name("published.facts.measure", MEASURES, fact.measure)
            known_name("published.facts.dataset", datasets, fact.dataset)
            if fact.model is not None:
                known_name("published.facts.model", models, fact.model)


def read_study(path: Path, trust_code: bool = False) -> Study:
    """Reads a study from a YAML file and checks that everything it names exists.

    Args:
        trust_code: Whether the study may name custom models, `package.module:Class`, which are imported.
    """
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise StudyError(str(error)) from None
    return make_study(content, path.stem, path.parent, trust_code)


def make_study(content: object, name: str, folder: Path = Path(), trust_code: bool = False) -> Study:
    """Makes a study from the content of a YAML file and checks it; paths of graphs are relative to `folder`."""
    with _at(f"study {name}"):
        try:
            file = StudyFile.model_validate(content)
        except ValidationError as error:
            raise StudyError(_described(error)) from None
        code = [model for model in file.models if is_import_name(model)]
        if code and not trust_code:  # a study that somebody sends must not import code by itself
            cure = "--trust-code, or read_study(path, trust_code=True), imports it"
            raise StudyError(f"models must be models of gfgn, got {shown(code[0])}, which is code; {cure}")
        return file.resolve(name, folder)


def known_name(what: str, names: Iterable[str], name: str) -> str:
    """The name, if it is among the known ones."""
    names = list(names)
    if name not in names:
        raise StudyError(f"{what} must be one of {', '.join(names)}, got {shown(name)}{did_you_mean(name, names)}")
    return name


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message that suggests the most similar name; empty if none is similar."""
    close = difflib.get_close_matches(name, list(names), n=1) if isinstance(name, str) and len(name) < 100 else []
    return f"; did you mean {close[0]!r}?" if close else ""


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Puts the place in the file before the message of an error."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise StudyError(f"{where}: {error}") from None


def _described(error: ValidationError) -> str:
    """What is wrong, in one line: where, what is expected, and what it is."""
    errors = error.errors(include_url=False)
    alike = [each for each in errors if each["loc"][:1] == errors[0]["loc"][:1]]
    first = max(alike, key=lambda each: len(each["loc"]))  # of several kinds of content, the one that fits the furthest
    kinds = (*(kind.__name__ for kind in Part.__subclasses__()), "list", "str", "bool", "int", "float")
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(kinds)) or "the study"
    match first["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            parts: list[type[Part]] = Part.__subclasses__()
            known = {name for part in parts for name in part.model_fields}
            hint = "" if first["loc"][-1] in known else did_you_mean(first["loc"][-1], known)
            return f"{where} is not an entry of a study{hint}"
        case "value_error":
            return first["msg"].removeprefix("Value error, ")
        case "missing":
            return f"{where} is missing"
    expected = re.sub(r"^\w+ should", "must", first["msg"]).partition(" after validation")[0]
    got = first["input"]
    hint = (
        "; YAML needs a point in numbers with an exponent: 5.0e-4" if isinstance(got, str) and _is_number(got) else ""
    )
    return f"{where} {expected}, got {shown(got)}{hint}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _graphs(datasets: Sequence[str | GraphPath], folder: Path) -> dict[str, GraphFile | None]:
    """The datasets by name: of the catalog, or graphs in files, relative to `folder`."""
    graphs: dict[str, GraphFile | None] = {}
    for each in datasets:
        name, graph = (each, None) if isinstance(each, str) and each in DATASETS else _graph(each, folder)
        if name in graphs:
            raise StudyError(f"datasets must be distinct, got {name!r} twice")
        graphs[name] = graph
    return graphs


def _graph(content: str | GraphPath, folder: Path) -> tuple[str, GraphFile]:
    given = content if isinstance(content, str) else content.path
    path = folder / given
    try:
        exists = path.exists()
    except (OSError, ValueError):  # no name of a file
        exists = False
    if not exists:
        expected = f"one of {', '.join(DATASETS)}, or the path of a graph"
        raise StudyError(f"datasets must be {expected}, got {shown(given)}{did_you_mean(given, DATASETS)}")
    name = path.resolve().stem if path.is_file() else path.resolve().name
    if name in DATASETS:
        raise StudyError(f"datasets must be graphs whose names are not those of known datasets, got {name!r}")
    options = {} if isinstance(content, str) else content.model_dump(exclude={"path"}, exclude_unset=True)
    return name, GraphFile(path, options)


def _check_axis(model: str, where: str, name: str) -> None:
    """Refuses a hyperparameter or option that a model does not have."""
    entry = find_model(model)
    hyper = [each for each in NUMBERS if each not in entry.ignored]
    if not entry.accepts_kwargs or name in NUMBERS:
        known_name(where, [*hyper, *entry.options, *SAMPLING.get(model, ())], name)


def _checked(model: str, configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The configurations of a model, after checking that they can be trained."""
    entry, sampling = find_model(model), SAMPLING.get(model, ())
    for options in dict.fromkeys(replica.options for replica in make_replicas(model, configurations, [0])):
        given = tuple((name, value) for name, value in options if name not in sampling)
        entry.check(model, 1, 2, entry.settings(model, given, dict.fromkeys(entry.needs, 1)))
    return tuple(configuration | entry.fixed for configuration in configurations)


def _listed(what: str, values: Range) -> list[Scalar]:
    if not isinstance(values, list):
        raise StudyError(f"{what} must be a list of values in a study with grid, got a range")
    return values


def _number(what: str, value: Scalar) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = "; YAML needs a point in numbers with an exponent: 5.0e-4" if isinstance(value, str) else ""
        raise StudyError(f"{what} must be a finite number, got {shown(value)}{hint}")
    return float(value)


def _drawn_from(what: str, values: Range) -> Uniform | Choice:
    """What one axis is drawn from: a list of values, or a range of numbers."""
    with _at(what):
        if isinstance(values, UniformRange):
            return Uniform(*values.uniform)
        return LogUniform(*values.log_uniform) if isinstance(values, LogUniformRange) else Choice(tuple(values))


def _config(what: str, standard: TrainConfig, changes: Mapping[str, Scalar]) -> TrainConfig:
    """How runs are trained: the standard with changes."""
    with _at(what):
        known = asdict(standard)
        for name in changes:
            known_name("an entry", known, name)
        return TrainConfig(**(known | dict(changes)))


def _view(what: str, standard: View, changes: Mapping[str, Scalar | list[float]], datasets: Iterable[str]) -> View:
    """A view: the standard with changes."""
    with _at(what):
        known = asdict(standard)
        for name in changes:
            known_name("an entry", known, name)
        tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
        view = View(**(known | tuples))
    own = [name for name in datasets if name not in DATASETS]
    if view.features != "normalized" and own:
        raise StudyError(f"{what}: features must be normalized for {', '.join(own)}, got {view.features}")
    names = ", ".join(name for name in datasets if name in own or not DATASETS[name].directed)
    if view.edges != "undirected" and names:
        message = f"{what}: edges must be undirected for {names}, whose files have no directions"
        raise StudyError(f"{message}, got {view.edges}")
    return view
