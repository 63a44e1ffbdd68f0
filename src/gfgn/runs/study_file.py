"""Studies as YAML files: `StudyFile` says what one may hold, `read_study` reads and checks it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
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
from gfgn.data.raw import ReadOptions
from gfgn.nn.custom import is_import_name
from gfgn.nn.entry import SHARED
from gfgn.nn.registry import MODELS, find_model
from gfgn.runs.grid import (
    COMMON_PARAMS,
    OPTIONAL_PARAMS,
    Choice,
    Configuration,
    LogUniform,
    Space,
    Uniform,
    grid,
    make_replicas,
    sample,
)
from gfgn.runs.study import AXES, MEASURES, At, Axis, GraphFile, Published, Search, Study, StudyError, Variant, View
from gfgn.train.catalog import CLASSICAL
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING

NUMBERS = (*COMMON_PARAMS, *OPTIONAL_PARAMS)
SHARED_AXES = (*NUMBERS, *SHARED)  # what all models may share
EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def _number(value: object) -> object:
    """YAML reads `5e-4` as text, because it has no point."""
    return float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value


Number = Annotated[FiniteFloat, Field(strict=True), BeforeValidator(_number)]
Count = Annotated[StrictInt, Field(ge=1)]
Scalar = Annotated[StrictBool | StrictInt | FiniteFloat | StrictStr | None, BeforeValidator(_number)]
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


class GraphPath(BaseModel):
    """A graph in files; further entries are those of `gfgn.data.read`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    path: StrictStr


class SearchPart(Part):
    """Random configurations, the same number for every model, from a space that all models share."""

    configurations: Count
    space: dict[StrictStr, Range] = {}
    seed: Annotated[StrictInt, Field(ge=0)] = 0
    rungs: list[Count] | Literal["default"] = []


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
        given, numbers = ", ".join(self.model_fields_set), self.noise or self.lam or []
        if len(self.model_fields_set) != 1:
            raise ValueError(f"vary must name one of {', '.join(AXES)}, got {given or 'none'}")
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"vary must be of distinct values, got {numbers}")
        return self


class StudyFile(Part):
    """A study: models by datasets, each model with the configurations to choose from: a grid, the axes of a search, or
    a list of configurations.

    `StudyFile.model_json_schema()` is the JSON Schema of these files.
    """

    title: StrictStr
    about: StrictStr = ""
    datasets: Annotated[list[StrictStr | GraphPath], Field(min_length=1)]
    models: Annotated[dict[StrictStr, dict[StrictStr, Range] | list[Settings]], Field(min_length=1)]
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
        listed = any(isinstance(given, list) for given in self.models.values())
        if not listed and (self.grid is None) == (self.search is None):
            raise ValueError(f"the study must have grid or search, got {'neither' if self.grid is None else 'both'}")
        if self.training_of and self.vary is not None:
            raise ValueError(f"training_of must not be given with vary, got it for {', '.join(self.training_of)}")
        if self.draws > 1 and (self.vary is None or self.vary.noise is None):
            raise ValueError(f"draws must be 1 unless the study varies noise, got {self.draws}")
        return self

    def resolve(self, name: str, folder: Path = Path()) -> Study:
        """The study, after checking that everything it names exists; paths of graphs are relative to `folder`."""
        graphs = _graphs(self.datasets, folder)
        config = _changed("training", TrainConfig(), self.training)
        search = None if self.search is None else self._search(self.search, config)
        models = self._configurations(search, {})
        for model in (*self.training_of, *self.only, *filter(None, [self.baseline])):
            known_name("training_of, only and baseline", models, model)
        for model, names in self.only.items():
            for each in names:
                known_name(f"only.{model}", graphs, each)
        _check_published(self.published, [*models, *MODELS, *CLASSICAL], [*DATASETS, *graphs])
        standard = Variant(_view("data", View(), self.data, graphs), models, config)
        variants = self._variants(standard, graphs)
        return Study(
            name=name,
            title=" ".join(self.title.split()),
            about=" ".join(self.about.split()),
            datasets=tuple(graphs),
            models=models,
            config=config,
            configs={name: _changed(f"training_of.{name}", config, own) for name, own in self.training_of.items()},
            vary=None if self.vary is None else Axis(next(iter(self.vary.model_fields_set)), tuple(variants)),
            variants=variants,
            only={model: tuple(names) for model, names in self.only.items()},
            graphs={name: graph for name, graph in graphs.items() if graph is not None},
            search=search,
            view=standard.view,
            **{name: getattr(self, name) for name in ("splits", "seeds", "published", "draws", "baseline")},
        )

    def _configurations(
        self, search: Search | None, changes: Grid, where: str = ""
    ) -> dict[str, tuple[Configuration, ...]]:
        """Each model's configurations: those of its list, drawn ones, or a grid, where a model's values override the
        shared ones, and a variant's override both."""
        models = {}
        for axis in self.grid or {}:
            known_name("grid", SHARED_AXES, axis)
        for model, given in self.models.items():
            what = f"{where}models.{model}"
            with _at("models"):
                ignored = find_model(model).ignored if model not in CLASSICAL else set(NUMBERS)
            if isinstance(given, list):
                if changes:
                    raise StudyError(f"{where}grid must not be given for listed configurations, got it for {model}")
                with _at(what):
                    listed = [_with_floats(each) for each in given]
                models[model] = _checked(what, model, listed)
            elif search is not None:
                models[model] = self._drawn(search, model, ignored)
            else:
                own: Grid = {}
                for name, values in given.items():
                    if not isinstance(values, list):
                        raise StudyError(f"{what}.{name} must be a list of values in a study with grid, got a range")
                    own[name] = values
                own |= changes
                for name in own:
                    _check_axis(model, what, name)
                choices = {name: values for name, values in (self.grid or {}).items() if name not in ignored} | own
                with _at(what):
                    floats = {name: list(map(_float, values)) for name, values in choices.items() if name in NUMBERS}
                    models[model] = _checked(what, model, grid(**choices | floats))
        return models

    def _search(self, part: SearchPart, config: TrainConfig) -> Search:
        """The search of a study: what all models share, and what each has in addition."""
        rungs = None if part.rungs == "default" else tuple(part.rungs)
        if rungs and (list(rungs) != sorted(set(rungs)) or rungs[-1] >= config.max_epochs):
            got = f"{config.max_epochs}, got {list(rungs)}"
            raise ValueError(f"search.rungs must be increasing and below max_epochs, {got}")
        space = {
            known_name("search.space", SHARED_AXES, name): _drawn_from(f"search.space.{name}", values)
            for name, values in part.space.items()
        }
        per_model: dict[str, Space] = {}
        for model, axes in self.models.items():
            for name in axes if isinstance(axes, dict) else ():
                _check_axis(model, f"models.{model}", name)
                if name in space:
                    raise ValueError(f"models.{model} must not have {name}, which all models share in search.space")
            if isinstance(axes, dict):
                per_model[model] = {n: _drawn_from(f"models.{model}.{n}", values) for n, values in axes.items()}
        return Search(part.configurations, part.seed, space, rungs, per_model)

    def _drawn(self, search: Search, model: str, ignored: set[str]) -> tuple[Configuration, ...]:
        """The configurations of a model: the same number, and the same values on the axes that all models share."""
        space = {name: axis for name, axis in search.space.items() if name not in ignored}
        with _at(f"models.{model}"):
            drawn = sample({**space, **search.per_model[model]}, search.configurations, search.seed)
        checked = _checked(f"models.{model}", model, drawn)
        if (count := len(make_replicas(model, checked, [0]))) < search.configurations:
            raise StudyError(
                f"search.configurations must be at most the number of different ones that are drawn for {model}, "
                f"{count}, got {search.configurations}"
            )
        return checked

    def _variants(self, standard: Variant, graphs: Iterable[str]) -> dict[At, Variant]:
        """The variant of each value of what is varied: the standard with one change."""
        variants: dict[At, Variant] = {}
        if self.vary is None:
            return variants
        for noise in self.vary.noise or ():
            variants[noise] = standard._replace(view=replace(standard.view, noise=noise))
        for lam in self.vary.lam or ():
            models = {name: tuple(each | {"lam": lam} for each in own) for name, own in standard.models.items()}
            variants[lam] = standard._replace(models=models)
        for name, part in (self.vary.variant or {}).items():
            what = f"vary.variant.{name}"
            if part.grid and self.search is not None:
                raise StudyError(f"{what}.grid must not be given in a study with search, got {shown(part.grid)}")
            variants[name] = Variant(
                _view(f"{what}.data", standard.view, part.data, graphs),
                self._configurations(None, part.grid, f"{what}.") if part.grid else standard.models,
                _changed(f"{what}.training", standard.config, part.training),
                " ".join(part.about.split()),
            )
        return variants


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
        file = StudyFile.model_validate(content)
        code = [model for model in file.models if is_import_name(model)]
        if code and not trust_code:  # a study that somebody sends must not import code by itself
            cure = "--trust-code, or read_study(path, trust_code=True), imports it"
            raise StudyError(f"models must be models of gfgn, got {shown(code[0])}, which is code; {cure}")
        return file.resolve(name, folder)


def study_yaml(study: Study) -> str:
    """The study of one dataset, such as that of a comparison, as the text of a study file."""

    def changes(
        settings: TrainConfig | ReadOptions | View, standard: TrainConfig | ReadOptions | View
    ) -> Configuration:
        values = {part.name: getattr(settings, part.name) for part in fields(settings)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {name: value for name, value in plain.items() if values[name] != getattr(standard, name)}

    datasets = [
        {"path": str(study.graphs[name].path.resolve())} | changes(study.graphs[name].options, ReadOptions())
        if name in study.graphs
        else name
        for name in study.datasets
    ]
    content: Configuration = {"title": study.title, "about": study.about, "datasets": datasets}
    content |= {
        "data": changes(study.view, View()),
        "models": {model: [dict(each) for each in own] for model, own in study.models.items()},
    }
    if study.search is not None:
        rungs = "default" if study.search.rungs is None else list(study.search.rungs)
        content["search"] = {"configurations": study.search.configurations, "seed": study.search.seed, "rungs": rungs}
    content |= {"splits": study.splits, "seeds": study.seeds, "training": changes(study.config, TrainConfig())}
    content["training_of"] = {model: changes(config, study.config) for model, config in study.configs.items()}
    content["baseline"] = study.baseline
    kept = {name: value for name, value in content.items() if value or name == "training"}
    return str(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))


# --- checks -----------------------------------------------------------------------------------------------------------


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
    except ValidationError as error:
        raise StudyError(f"{where}: {_described(error)}") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise StudyError(f"{where}: {error}") from None


def _described(error: ValidationError) -> str:
    """What is wrong, in one line: where, what is expected, and what it is."""
    errors = error.errors(include_url=False)
    alike = [each for each in errors if each["loc"][:1] == errors[0]["loc"][:1]]
    first = max(alike, key=lambda each: len(each["loc"]))  # of several kinds of content, the one that fits the furthest
    parts: list[type[BaseModel]] = [GraphPath, *Part.__subclasses__()]
    kinds = (*(kind.__name__ for kind in parts), "list", "dict", "str", "bool", "int", "float", "literal", "function")
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(kinds)) or "the study"
    match first["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            known = {name for part in parts for name in part.model_fields}
            hint = "" if first["loc"][-1] in known else did_you_mean(first["loc"][-1], known)
            return f"{where} is not an entry of a study{hint}"
        case "value_error":
            return first["msg"].removeprefix("Value error, ")
        case "missing":
            return f"{where} is missing"
    expected = re.sub(r"^\w+ should", "must", first["msg"]).partition(" after validation")[0]
    return f"{where} {expected}, got {shown(first['input'])}"


def _graphs(datasets: Sequence[str | GraphPath], folder: Path) -> dict[str, GraphFile | None]:
    """The datasets by name: of the catalog, or graphs in files, relative to `folder`."""
    graphs: dict[str, GraphFile | None] = {}
    for each in datasets:
        given, further = (each, {}) if isinstance(each, str) else (each.path, each.model_extra or {})
        known, path = isinstance(each, str) and each in DATASETS, folder / given
        if not known and ("\0" in given or not path.exists()):
            expected = f"one of {', '.join(DATASETS)}, or the path of a graph"
            raise StudyError(f"datasets must be {expected}, got {shown(given)}{did_you_mean(given, DATASETS)}")
        name = given if known else path.resolve().stem if path.is_file() else path.resolve().name
        if not known and name in DATASETS:
            raise StudyError(f"datasets must be graphs whose names are not those of known datasets, got {name!r}")
        if name in graphs:
            raise StudyError(f"datasets must be distinct, got {name!r} twice")
        for option in further:
            known_name(f"datasets.{name}", [part.name for part in fields(ReadOptions)], option)
        graphs[name] = None if known else GraphFile(path, ReadOptions(**further))
    return graphs


def _check_published(published: Published, models: Sequence[str], datasets: Sequence[str]) -> None:
    """Refuses published values of what does not exist."""
    for scores in (published.scores, published.spreads):
        for dataset in {dataset for own in scores.values() for dataset in own}:
            known_name("published datasets", datasets, dataset)
    for model in {*published.scores, *published.spreads, *published.ranks}:
        known_name("published models", models, model)
    for fact in published.facts:
        known_name("published.facts.measure", MEASURES, fact.measure)
        known_name("published.facts.dataset", datasets, fact.dataset)
        known_name("published.facts.model", [*models, ""], fact.model or "")


def _check_axis(model: str, where: str, name: str) -> None:
    """Refuses a hyperparameter or option that a model does not have."""
    entry = find_model(model)
    hyper = [each for each in NUMBERS if each not in entry.ignored]
    if not entry.accepts_kwargs or name in NUMBERS:
        known_name(where, [*hyper, *entry.options, *SAMPLING.get(model, ())], name)


def _checked(what: str, model: str, configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The configurations of a model, after checking that they can be trained."""
    if model in CLASSICAL:
        return tuple(configurations) or ({},)
    if not configurations:
        raise StudyError(f"{what} must hold at least one configuration, got none")
    entry, sampling = find_model(model), SAMPLING.get(model, ())
    with _at(what):
        for options in dict.fromkeys(replica.options for replica in make_replicas(model, configurations, [0])):
            given = tuple((name, value) for name, value in options if name not in sampling)
            entry.check(model, 1, 2, entry.settings(model, given, dict.fromkeys(entry.needs, 1)))
    return tuple(configuration | entry.fixed for configuration in configurations)


def _float(value: Scalar) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"values of {', '.join(NUMBERS)} must be finite numbers, got {shown(value)}")
    return float(value)


def _with_floats(configuration: Settings) -> Configuration:
    return {name: _float(value) if name in NUMBERS else value for name, value in configuration.items()}


def _drawn_from(what: str, values: Range) -> Uniform | Choice:
    """What one axis is drawn from: a list of values, or a range of numbers."""
    with _at(what):
        if isinstance(values, UniformRange):
            return Uniform(*values.uniform)
        return LogUniform(*values.log_uniform) if isinstance(values, LogUniformRange) else Choice(tuple(values))


def _changed(what: str, standard: TrainConfig, given: Mapping[str, Scalar]) -> TrainConfig:
    """How runs are trained: the standard with changes."""
    changes: Configuration = dict(given)
    with _at(what):
        for name in changes:
            known_name("an entry", asdict(standard), name)
        return replace(standard, **changes)


def _view(what: str, standard: View, changes: Mapping[str, Scalar | list[float]], datasets: Iterable[str]) -> View:
    """A view: the standard with changes."""
    tuples: Configuration = {name: tuple(v) if isinstance(v, list) else v for name, v in changes.items()}
    with _at(what):
        for name in changes:
            known_name("an entry", asdict(standard), name)
        view = replace(standard, **tuples)
    files = [name for name in datasets if name not in DATASETS]
    if view.features != "normalized" and files:
        raise StudyError(f"{what}: features must be normalized for {', '.join(files)}, got {view.features}")
    names = ", ".join(name for name in datasets if name in files or not DATASETS[name].directed)
    if view.edges != "undirected" and names:
        message = f"{what}: edges must be undirected for {names}, whose files have no directions"
        raise StudyError(f"{message}, got {view.edges}")
    return view
