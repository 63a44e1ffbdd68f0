"""Studies as YAML files: `read_study` reads and checks one.

Numbers with an exponent need a point (`5.0e-4`), because YAML reads `5e-4` as text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from gfgn.data.files import read_yaml
from gfgn.data.messages import shown
from gfgn.data.named.catalog import DATASETS
from gfgn.nn.entry import SHARED
from gfgn.nn.own import entry_points, is_import_name
from gfgn.nn.registry import MODELS, find_model
from gfgn.runs.grid import Configuration, grid, make_replicas
from gfgn.runs.record import GIVEN, HYPER
from gfgn.runs.search import Choice, LogUniform, Space, Uniform, sample
from gfgn.runs.study import AXES, MEASURES, At, Axis, Fact, Published, Search, Study, StudyError, Variant
from gfgn.runs.views import GraphFile, View
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING

Check = Callable[[str, Any], Any]  # of the name of a part of a study in messages, and its content
REQUIRED = ("title", "datasets", "models", "splits", "seeds", "training")
READING = ("id", "label", "split", "drop", "undirected", "scale", "stratify", "metric", "num_splits")  # of a graph
OPTIONAL = ("grid", "search", "about", "data", "training_of", "vary", "draws", "only", "published")
NUMBERS = (*HYPER, *GIVEN)
SHARED_AXES = (*NUMBERS, *SHARED)  # what all models may share
RANGES = {"uniform": Uniform, "log_uniform": LogUniform}


def read_study(path: Path, trust_code: bool = False) -> Study:
    """Reads a study from a YAML file and checks that everything it names exists.

    Args:
        trust_code: Whether the study may name models of one's own, `package.module:Class`, which are imported.
    """
    try:
        content = read_yaml(path)
    except ValueError as error:
        raise StudyError(str(error)) from None
    return make_study(content, path.stem, path.parent, trust_code)


def make_study(content: Any, name: str, folder: Path = Path(), trust_code: bool = False) -> Study:
    """Makes a study from the content of a YAML file and checks it; paths of graphs are relative to `folder`."""
    with _named(f"study {name}"):
        _check_keys("the study", content, REQUIRED, OPTIONAL)
        if ("grid" in content) == ("search" in content):
            raise StudyError(f"the study must have grid or search, got {'both' if 'grid' in content else 'neither'}")
        graphs = _graphs(content["datasets"], folder)
        datasets = tuple(graphs)
        own_graphs = {name: graph for name, graph in graphs.items() if graph is not None}
        if not trust_code:
            _refuse_code(content["models"])
        config = _config({}, "training", content["training"])
        search = _search(content, config) if "search" in content else None
        models = _models(content) if search is None else _drawn(search)
        view = _view("data", content.get("data", {}), datasets)
        vary = _axis(content.get("vary"))
        own = _table(models, partial(_config, asdict(config)), "training_of", content.get("training_of", {}))
        if own and vary is not None:
            raise StudyError(f"training_of must not be given with vary, got it for {', '.join(own)}")
        return Study(
            name=name,
            title=_text("title", content["title"]),
            about=_text("about", content.get("about", "")),
            datasets=datasets,
            models=models,
            splits=_of_kind("a whole number, 1 or larger", "splits", content["splits"]),
            seeds=_of_kind("a whole number, 1 or larger", "seeds", content["seeds"]),
            config=config,
            configs=own,
            vary=vary,
            variants={} if vary is None else _variants(vary, content, Variant(view, models, config), datasets),
            only=_table(models, partial(_names, datasets), "only", content.get("only", {})),
            published=_published(own_graphs, models, content.get("published", {})),
            graphs=own_graphs,
            search=search,
            view=view,
            draws=_draws(vary, content.get("draws", 1)),
        )


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Puts a name before the message of an error."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StudyError(f"{what}: {error}") from None


# --- kinds of values --------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "a finite number": lambda value: type(value) in (int, float) and abs(value) < math.inf,
    "a whole number, 1 or larger": lambda value: type(value) is int and value >= 1,
    "a whole number, 0 or larger": lambda value: type(value) is int and value >= 0,
    "a mapping": lambda value: isinstance(value, dict),
    "a list": lambda value: isinstance(value, list),
    "a list of one or more values": lambda value: isinstance(value, list) and len(value) > 0,
    "a list of one or more distinct names": lambda value: isinstance(value, list) and 0 < len(value) == len(set(value)),
}


def _of_kind(kind: str, what: str, value: Any) -> Any:
    if not KINDS[kind](value):
        exponent = kind == "a finite number" and isinstance(value, str)
        hint = "; YAML needs a point in numbers with an exponent: 5.0e-4" if exponent else ""
        raise StudyError(f"{what} must be {kind}, got {shown(value)}{hint}")
    return value


def _text(what: str, value: Any) -> str:
    return " ".join(_of_kind("text", what, value).split())


def _number(what: str, value: Any) -> float:
    return float(_of_kind("a finite number", what, value))


def _known(names: Iterable[str], what: str, name: Any) -> str:
    names = list(names)
    if name not in names:
        raise StudyError(f"{what} must be one of {', '.join(names)}, got {shown(name)}{did_you_mean(name, names)}")
    return str(name)


def _names(known: Iterable[str], what: str, names: Any) -> tuple[str, ...]:
    return tuple(_known(known, what, name) for name in _of_kind("a list of one or more distinct names", what, names))


def _each(check: Check, what: str, values: Any) -> tuple[Any, ...]:
    return tuple(check(what, value) for value in _of_kind("a list", what, values))


def _table(names: Iterable[str] | Check, check: Check, what: str, content: Any) -> dict[str, Any]:
    """A mapping from known names to values."""
    pairs = _of_kind("a mapping", what, content).items()
    known = names if callable(names) else partial(_known, names)
    return {known(what, name): check(f"{what}.{name}", value) for name, value in pairs}


def _record(kind: Any, checks: Mapping[str, Check], required: Sequence[str], what: str, content: Any) -> Any:
    """A mapping with the fields of a class."""
    _check_keys(what, content, required, checks.keys() - set(required))
    return kind(**{key: checks[key](f"{what}.{key}", value) for key, value in content.items()})


def _check_keys(what: str, content: Any, required: Iterable[str], optional: Iterable[str]) -> None:
    """Checks for a mapping with all required keys and no unknown ones."""
    required, known = set(required), [*sorted(required), *sorted(optional)]
    if not isinstance(content, dict):
        raise StudyError(f"{what} must be a mapping with {', '.join(known)}, got {shown(content)}")
    for key in content:
        if key not in known:
            raise StudyError(f"{what} must have keys among {', '.join(known)}, got {shown(key)}")
    if missing := sorted(required - content.keys()):
        raise StudyError(f"{what} must have {', '.join(missing)}, got {', '.join(map(str, content)) or 'nothing'}")


def _model(what: str, name: Any) -> str:
    """The name of a model: of the registry, or of one's own that can be imported."""
    if isinstance(name, str) and (is_import_name(name) or name in entry_points()):
        with _named(what):
            find_model(name)
        return name
    return _known(MODELS, what, name)


def _refuse_code(models: Any) -> None:
    """Refuses models of one's own: a study that somebody sends must not import code by itself."""
    for name in models if isinstance(models, dict) else ():
        if isinstance(name, str) and is_import_name(name):
            cure = "--trust-code, or read_study(path, trust_code=True), imports it"
            raise StudyError(f"models must be models of gfgn, got {shown(name)}, which is code; {cure}")


def _published(datasets: Iterable[str], models: Iterable[str], content: Any) -> Published:
    """Published results; the study's own `datasets` and `models` are known besides those of the registries."""
    known, model = [*DATASETS, *datasets], partial(_known, dict.fromkeys([*MODELS, *models]))
    fact: dict[str, Check] = {
        "measure": partial(_known, MEASURES),
        "dataset": partial(_known, known),
        "value": _number,
        "model": model,
        "at": _number,
    }
    scores: Check = partial(_table, model, partial(_table, known, _number))
    checks: dict[str, Check] = {
        "source": _text,
        "scores": scores,
        "spreads": scores,
        "ranks": partial(_table, model, _number),
        "facts": partial(_each, partial(_record, Fact, fact, ("measure", "dataset", "value"))),
        "notes": partial(_each, _text),
    }
    made: Published = _record(Published, checks, (), "published", content)
    return made


# --- parts of a study -------------------------------------------------------------------------------------------------


def _graphs(content: Any, folder: Path) -> dict[str, GraphFile | None]:
    """The datasets by name: of the registry, or paths of graphs, relative to `folder`, with arguments of `read`."""
    graphs: dict[str, GraphFile | None] = {}
    if not isinstance(content, list) or not content:
        raise StudyError(f"datasets must be a list of one or more distinct names, got {shown(content)}")
    for each in content:
        name, graph = (each, None) if isinstance(each, str) and each in DATASETS else _graph(each, folder)
        if name in graphs:
            raise StudyError(f"datasets must be a list of one or more distinct names, got {name!r} twice")
        graphs[name] = graph
    return graphs


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no name of a file
        return False


def _graph(content: Any, folder: Path) -> tuple[str, GraphFile]:
    options = dict(content) if isinstance(content, dict) else {"path": content}
    given = options.pop("path", None)
    path = folder / given if isinstance(given, str) else None
    if path is None or not _exists(path):
        names = ", ".join(DATASETS)
        hint = did_you_mean(given, DATASETS)
        raise StudyError(f"datasets must be one of {names}, or the path of a graph, got {shown(given)}{hint}")
    _check_keys(f"datasets.{given}", options, (), READING)
    name = path.resolve().stem if path.is_file() else path.resolve().name
    if name in DATASETS:
        raise StudyError(f"datasets must be graphs whose names are not those of known datasets, got {name!r}")
    return name, GraphFile(path, options)


def _models(
    content: dict[str, Any], changes: Mapping[str, Any] | None = None, where: str = ""
) -> dict[str, tuple[Configuration, ...]]:
    """Each model's configurations: a model's own choices override the shared grid, a variant's override both."""
    shared = _table(SHARED_AXES, lambda what, values: values, "grid", content["grid"])
    own = _own_axes(content)
    return {model: _grid(f"{where}models.{model}", model, own[model] | dict(changes or {}), shared) for model in own}


def _grid(where: str, model: str, own: dict[str, Any], shared: dict[str, Any]) -> tuple[Configuration, ...]:
    entry = find_model(model)
    choices = {name: values for name, values in shared.items() if name not in entry.ignored} | own
    for name, values in choices.items():
        _check_axis(model, where, name)
        _of_kind("a list of one or more values", f"{where}.{name}", values)
        if name in NUMBERS:
            choices[name] = [_number(f"{where}.{name}", value) for value in values]
    with _named(where):
        return _checked(model, grid(**choices))


def _own_axes(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each model has of its own."""
    own = _table(_model, partial(_of_kind, "a mapping"), "models", content["models"])
    if not own:
        raise StudyError(f"models must name at least one of {', '.join(MODELS)}, got none")
    return own


def _check_axis(model: str, where: str, name: str) -> None:
    """Refuses a hyperparameter or option that a model does not have."""
    entry = find_model(model)
    hyper = [each for each in NUMBERS if each not in entry.ignored]
    if not entry.further or name in NUMBERS:
        _known([*hyper, *entry.options, *SAMPLING.get(model, ())], where, name)


def _checked(model: str, configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The configurations of a model, after checking that they can be trained."""
    entry, sampling = find_model(model), SAMPLING.get(model, ())
    for options in dict.fromkeys(replica.options for replica in make_replicas(model, configurations, [0])):
        given = tuple((name, value) for name, value in options if name not in sampling)
        entry.check(model, 1, 2, entry.settings(model, given, dict.fromkeys(entry.needs, 1)))
    return tuple(configuration | entry.fixed for configuration in configurations)


def _search(content: dict[str, Any], config: TrainConfig) -> Search:
    """The search of a study: what all models share, and what each has of its own."""
    checks: dict[str, Check] = {
        "configurations": partial(_of_kind, "a whole number, 1 or larger"),
        "seed": partial(_of_kind, "a whole number, 0 or larger"),
        "space": partial(_table, SHARED_AXES, _range),
        "rungs": partial(_rungs, config),
    }
    search = content["search"]
    _check_keys("search", search, ("configurations", "space"), ("seed", "rungs"))
    made = {name: checks[name](f"search.{name}", value) for name, value in search.items()}
    own: dict[str, Space] = {}
    for model, axes in _own_axes(content).items():
        for name in axes:
            _check_axis(model, f"models.{model}", name)
            if name in made["space"]:
                raise StudyError(f"models.{model} must not have {name}, which all models share in search.space")
        own[model] = {name: _range(f"models.{model}.{name}", values) for name, values in axes.items()}
    return Search(**{"seed": 0, **made}, own=own)


def _range(what: str, content: Any) -> Uniform | Choice:
    """What one axis is drawn from: a list of values, or a range of numbers."""
    if isinstance(content, list):
        return Choice(tuple(_of_kind("a list of one or more values", what, content)))
    if not isinstance(content, dict) or len(content) != 1:
        known = ", ".join(f"{{{name}: [low, high]}}" for name in RANGES)
        raise StudyError(f"{what} must be a list of values or one of {known}, got {shown(content)}")
    ((name, ends),) = content.items()
    kind = RANGES[_known(RANGES, what, name)]
    numbers = _each(_number, f"{what}.{name}", ends)
    if len(numbers) != 2:
        raise StudyError(f"{what}.{name} must be two numbers, the smaller one first, got {shown(ends)}")
    with _named(f"{what}.{name}"):
        return kind(*numbers)


def _rungs(config: TrainConfig, what: str, content: Any) -> tuple[int, ...]:
    rungs = _each(partial(_of_kind, "a whole number, 1 or larger"), what, content)
    if list(rungs) != sorted(set(rungs)) or (rungs and rungs[-1] >= config.max_epochs):
        raise StudyError(f"{what} must be increasing and below max_epochs, {config.max_epochs}, got {shown(content)}")
    return rungs


def _drawn(search: Search) -> dict[str, tuple[Configuration, ...]]:
    """Each model's configurations: the same number, and the same values on the axes that all models share."""
    models = {}
    for model, own in search.own.items():
        space = {name: axis for name, axis in search.space.items() if name not in find_model(model).ignored}
        with _named(f"models.{model}"):
            models[model] = _checked(model, sample({**space, **own}, search.configurations, search.seed))
        distinct = len(make_replicas(model, models[model], [0]))
        if distinct < search.configurations:
            raise StudyError(
                f"search.configurations must be at most the number of different ones that are drawn for {model}, "
                f"{distinct}, got {search.configurations}"
            )
    return models


def _config(standard: dict[str, Any], what: str, changes: Any) -> TrainConfig:
    """How runs are trained: the standard with changes."""
    content = standard | _of_kind("a mapping", what, changes)
    names = [setting.name for setting in fields(TrainConfig)]
    _check_keys(what, content, names[:2], names[2:])
    with _named(what):
        return TrainConfig(**content)


def _axis(content: Any) -> Axis | None:
    if content is None:
        return None
    if len(_of_kind("a mapping", "vary", content)) != 1:
        raise StudyError(f"vary must name one of {', '.join(AXES)}, got {', '.join(map(str, content)) or 'none'}")
    ((name, values),) = content.items()
    what = f"vary.{_known(AXES, 'vary', name)}"
    if name == "variant":
        names = tuple(_text(what, each) for each in _of_kind("a mapping", what, values))
        if len(names) < 2:
            raise StudyError(f"{what} must be two or more, the first to compare with, got {', '.join(names) or 'none'}")
        return Axis(name, names)
    numbers = tuple(_number(what, value) for value in _of_kind("a list of one or more values", what, values))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise StudyError(f"{what} must be distinct values of 0 or larger, got {shown(values)}")
    return Axis(name, numbers)


def _draws(vary: Axis | None, content: Any) -> int:
    """The number of draws of random edges, which only a study of noise has."""
    draws: int = _of_kind("a whole number, 1 or larger", "draws", content)
    if draws > 1 and (vary is None or vary.name != "noise"):
        raise StudyError(f"draws must be 1 unless the study varies noise, got {draws}")
    return draws


def _variants(vary: Axis, content: dict[str, Any], standard: Variant, datasets: Sequence[str]) -> dict[At, Variant]:
    """The variant of each value of what is varied: the standard with one change."""
    if vary.name == "variant":
        given = content["vary"]["variant"].items()
        what = "vary.variant"
        return {name: _variant(f"{what}.{name}", changes, content, standard, datasets) for name, changes in given}
    if vary.name == "noise":
        return {value: standard._replace(view=replace(standard.view, noise=float(value))) for value in vary.values}
    models = standard.models.items()
    return {
        lam: standard._replace(models={name: tuple({**each, "lam": lam} for each in own) for name, own in models})
        for lam in vary.values
    }


def _variant(what: str, changes: Any, content: dict[str, Any], standard: Variant, datasets: Sequence[str]) -> Variant:
    _check_keys(what, changes, (), ("about", "data", "grid", "training"))
    grid = _of_kind("a mapping", f"{what}.grid", changes.get("grid", {}))
    if grid and "search" in content:
        raise StudyError(f"{what}.grid must not be given in a study with search, got {shown(grid)}")
    return Variant(
        _view(f"{what}.data", changes.get("data", {}), datasets, standard.view),
        _models(content, grid, f"{what}.") if grid else standard.models,
        _config(asdict(standard.config), f"{what}.training", changes.get("training", {})),
        _text(f"{what}.about", changes.get("about", "")),
    )


def _view(what: str, content: Any, datasets: Iterable[str], standard: View | None = None) -> View:
    """A view: the standard with changes."""
    _check_keys(what, content, (), [part.name for part in fields(View)])
    changes: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
    with _named(what):
        view = replace(standard or View(), **changes)
    own = [name for name in datasets if name not in DATASETS]
    if view.features != "normalized" and own:
        raise StudyError(f"{what}: features must be normalized for {', '.join(own)}, got {view.features}")
    names = ", ".join(name for name in datasets if name in own or not DATASETS[name].directed)
    if view.edges != "undirected" and names:
        message = f"{what}: edges must be undirected for {names}, whose files have no directions"
        raise StudyError(f"{message}, got {view.edges}")
    return view


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message that suggests the most similar name; empty if none is similar."""
    close = difflib.get_close_matches(name, list(names), n=1) if isinstance(name, str) and len(name) < 100 else []
    return f"; did you mean {close[0]!r}?" if close else ""
