"""Options that several commands share: what to train, `--set`, `--config`, and where output goes."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli.app import echo, fail, find_modules_here, split_names, user_errors
from gfgn.literal import INVISIBLE

if TYPE_CHECKING:
    from gfgn.runs import Tracker
    from gfgn.runs.engine import Engine

NOT_SAVED = (
    "config",
    "write_config",
    "check",
    "trust_code",
    "on",
)  # parameters of commands that a config file does not hold
META = "settings"  # key of the settings of the config file in the context


def _load_config(context: typer.Context, path: Path | None) -> Path | None:
    """Makes the options of a YAML file the defaults of the command."""
    if path is None:
        return None
    from gfgn.data.files import read_yaml
    from gfgn.data.messages import shown

    try:
        content = read_yaml(path) or {}
    except (OSError, ValueError) as error:
        fail(f"--config must be a YAML file, got {path}: {error}")
    if not isinstance(content, dict):
        fail(f"--config must map options to values, got {path} with {type(content).__name__}")
    known = {_option(name): name for name in (part.name for part in context.command.params) if _saved(name)}
    settings = content.pop("set", None) or {}
    unknown = [name[:100] if isinstance(name, str) else shown(name) for name in content if name not in known]
    if unknown:
        fail(f"options in {path} must be among {', '.join(known)}, got {', '.join(unknown)}")
    if not isinstance(settings, dict):
        fail(f"set in {path} must map names to values, got {shown(settings)}")
    context.meta[META] = [f"{name}={_text(value)}" for name, value in _flat(settings)]
    several = {part.name for part in context.command.params if getattr(part, "multiple", False) or part.nargs == -1}
    context.default_map = {
        known[name]: _given(value, known[name] in several) for name, value in content.items() if value is not None
    }
    return path


Trials = Annotated[int | None, typer.Option(help="Tune every model by halving N random configurations.")]
Minutes = Annotated[
    float | None, typer.Option(help="Tune every model on as many random configurations as fit into this time.")
]
Epochs = Annotated[int, typer.Option(help="Largest number of epochs of a run.")]
Check = Annotated[bool, typer.Option("--check", help="Show how a graph of your own was read; no training.")]
ClassWeights = Annotated[bool, typer.Option("--class-weights", help="Every class counts the same in the loss.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="lr=0.01, max_epochs=200, gfgn-pair.heads=16, …; may be given repeatedly."
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Also send runs to tensorboard[:DIR], mlflow[:URI] or wandb[:PROJECT]; may be given repeatedly.",
    ),
]
On = Annotated[
    str | None, typer.Option("--on", metavar="ray[:ADDRESS]", help="Train on the machines of a Ray cluster.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", is_eager=True, callback=_load_config, help="YAML file with options of this command."),
]
WriteConfig = Annotated[
    Path | None, typer.Option("--write-config", help="Write the options of this call to a YAML file; no training.")
]
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Import models of your own, package.module:Class, that the YAML file names."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
Open = Annotated[bool, typer.Option("--open", help="Open the report in the browser.")]


@dataclass(frozen=True)
class Settings:
    """What `--set` gave: hyperparameters of all models, fields of `TrainConfig`, and options by model."""

    hyper: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def arguments(self, **training: Any) -> dict[str, Any]:
        """The keyword arguments of `gfgn.runs.comparison.comparison_study`; `--set` wins over `training`."""
        return {**self.hyper, **training, **self.training, "options": self.options}


def parse_settings(given: Sequence[str], models: Iterable[str]) -> Settings:
    """Parses `NAME=VALUE` and `MODEL.NAME=VALUE`; the last value of a name counts."""
    from gfgn.nn.entry import SHARED
    from gfgn.runs.grid import COMMON_PARAMS, OPTIONAL_PARAMS
    from gfgn.train.catalog import CLASSICAL
    from gfgn.train.classical import find_network
    from gfgn.train.config import TrainConfig
    from gfgn.train.minibatch import SAMPLING

    hyper: dict[str, Any] = dict.fromkeys((*COMMON_PARAMS, *OPTIONAL_PARAMS), float)
    networks = [model for model in models if model not in CLASSICAL]
    types_of = typing.get_type_hints(TrainConfig)
    training = {part.name: types_of[part.name] for part in fields(TrainConfig)}
    settings = Settings()
    for text in given:
        name, equals, value = text.partition("=")
        model, dot, option = name.strip().rpartition(".")
        if not equals or not option:
            raise ValueError(f"--set must be NAME=VALUE or MODEL.NAME=VALUE, got {text!r}")
        if dot and model not in networks:
            raise ValueError(f"--set must name one of the networks {', '.join(networks) or '(none)'}, got {text!r}")
        if dot:
            entry = find_network(model)
            known: dict[str, Any] = {key: parameter.kind for key, parameter in entry.options.items()}
            known |= dict.fromkeys(SAMPLING.get(model, ())) | hyper
            known |= {option: None} if entry.accepts_kwargs and option not in known else {}
            target: dict[str, Any] = settings.options.setdefault(model, {})
        else:
            known = hyper | dict.fromkeys(SHARED, str) | training
            target = settings.training if option in training else settings.hyper
        if option not in known:
            hint = "" if dot else ", or MODEL.OPTION"
            raise ValueError(f"--set must name one of {', '.join(known)}{hint}, got {text!r}")
        target[option] = parse_value(text, value.strip(), known[option])
    return settings


def model_names(context: typer.Context, models: str, trust_code: bool) -> list[str]:
    """The names in `--models`. Those of code are imported, from the current folder too, if they were given on the
    command line; the file of `--config` may come from somebody else."""
    names = split_names(models)
    code = [name for name in names if ":" in name]
    source = context.get_parameter_source("models")
    if code and not trust_code and source is not None and source.name == "DEFAULT_MAP":
        raise ValueError(f"models in {context.params['config']} name code, {code[0]!r}; --trust-code imports it")
    if code:
        find_modules_here()
    return names


@contextmanager
def trackers(track: Sequence[str] | None) -> Iterator[list[Tracker]]:
    """The trackers that `--track` names; they are closed at the end."""
    from gfgn.runs.tracking import make_tracker

    with user_errors(ImportError):
        made = [make_tracker(each) for each in track or ()]
    with ExitStack() as stack:
        yield [stack.enter_context(tracker) for tracker in made]


def write_config(context: typer.Context, path: Path, given: Sequence[str]) -> None:
    """Writes the options of the call to a YAML file that `--config` reads."""
    import yaml

    from gfgn.data.files import replace_text

    names = [part.name for part in context.command.params if _saved(part.name) and part.name != "set_"]
    values = {_option(name): context.params[name] for name in names if name is not None}
    content = {name: _plain(value) for name, value in values.items() if value not in (None, (), [])}
    if given:
        content["set"] = {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in given)}
    with user_errors():
        replace_text(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    echo(f"options: {path}")


def all_settings(context: typer.Context, given: Sequence[str] | None) -> list[str]:
    """The settings of the config file, then those of the command line, which win."""
    return [*context.meta.get(META, []), *(given or [])]


def print_json(content: Mapping[str, Any]) -> None:
    """Prints JSON on stdout; NaN and infinity become null."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False)
    typer.echo(INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def open_in_browser(path: Path) -> None:
    """Opens a file in the browser; says so if there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        echo(f"gfgn: no browser could be opened for {path}", err=True)


@contextmanager
def engine(on: str | None, device: str) -> Iterator[Engine]:
    """What `--on` names to train runs: this process by default, or a Ray cluster, whose workers train on `device`."""
    from gfgn.runs.engine import Job

    if on is None:
        yield Job.run
        return
    name, _, address = on.partition(":")
    if name != "ray":
        raise ValueError(f"--on must be ray or ray:ADDRESS, got {on!r}")
    from gfgn.runs.cluster import Cluster

    try:
        cluster = Cluster(address or None, device)
    except (ImportError, ConnectionError) as error:
        fail(str(error))
    with cluster:
        yield cluster


def _saved(name: str | None) -> bool:
    return name is not None and name not in NOT_SAVED and not name.endswith("_completion") and name != "help"


def _option(name: str | None) -> str:
    return (name or "").rstrip("_").replace("_", "-")


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """`{"gfgn-pair": {"heads": 16}}` as `gfgn-pair.heads`."""
    pairs: list[tuple[str, Any]] = []
    for name, value in settings.items():
        pairs += (
            [(f"{name}.{key}", each) for key, each in value.items()] if isinstance(value, dict) else [(name, value)]
        )
    return pairs


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


def _given(value: Any, several: bool) -> Any:
    """A value of the file as the command line has it: a list only for what can be given repeatedly."""
    if several:
        return value if isinstance(value, list) else [value]
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return value if type(value) in (bool, int, float) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


def parse_value(text: str, value: str, kind: Any) -> Any:
    """The value of a setting as `kind`: a type, a union with `None`, or `None` for whatever the text looks like."""
    kinds = [each for each in typing.get_args(kind) if each is not types.NoneType] or [kind]
    optional = types.NoneType in typing.get_args(kind)
    if value.lower() == "none" and (optional or kind is None):
        return None
    for each in (int, float, str) if kind is None else kinds:
        try:
            return {"true": True, "false": False}[value.lower()] if each is bool else each(value)
        except (ValueError, KeyError):
            continue
    expected = {"int": "an integer", "float": "a number", "bool": "true or false"}[kinds[0].__name__]
    raise ValueError(f"--set must have {expected}{' or none' if optional else ''} there, got {text!r}")
