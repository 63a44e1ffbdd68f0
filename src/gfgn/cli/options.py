"""Options that several commands share: what to train and how, `--set`, `--track`, `--on`, and where output goes."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli.app import Settings, echo, fail, find_modules_here, split_names, user_errors
from gfgn.literal import INVISIBLE

if TYPE_CHECKING:
    from gfgn.runs import Tracker
    from gfgn.runs.engine import Engine

Data = Annotated[str, typer.Argument(help="A dataset (see `gfgn datasets`) or the path of a graph of your own.")]
Trials = Annotated[int | None, typer.Option(help="Tune every model by halving N random configurations.")]
Minutes = Annotated[
    float | None, typer.Option(help="Tune every model on as many random configurations as fit into this time.")
]
Epochs = Annotated[int, typer.Option(help="Largest number of epochs of a run.")]
Seeds = Annotated[int, typer.Option(help="Number of seeds per split.")]
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
Device = Annotated[str, typer.Option(help="cpu, cuda or mps; auto: cuda if available.")]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import custom models, package.module:Class, that the YAML file names.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]
Open = Annotated[bool, typer.Option("--open", help="Open the report in the browser.")]


def parse_settings(given: Sequence[str] | None, models: Iterable[str]) -> Settings:
    """Parses `NAME=VALUE` and `MODEL.NAME=VALUE` to arguments of `comparison_study`; the last one counts."""
    from gfgn.nn.entry import SHARED
    from gfgn.runs.grid import COMMON_PARAMS, OPTIONAL_PARAMS
    from gfgn.train.catalog import CLASSICAL
    from gfgn.train.classical import find_network
    from gfgn.train.config import TrainConfig
    from gfgn.train.minibatch import SAMPLING

    hyper = dict.fromkeys((*COMMON_PARAMS, *OPTIONAL_PARAMS), float)
    networks = [model for model in models if model not in CLASSICAL]
    kinds = typing.get_type_hints(TrainConfig)
    shared = hyper | dict.fromkeys(SHARED, str) | {part.name: kinds[part.name] for part in fields(TrainConfig)}
    options: dict[str, Settings] = {}
    settings: Settings = {"options": options}
    for text in given or ():
        name, equals, value = text.partition("=")
        model, dot, option = name.strip().rpartition(".")
        if not equals or not option:
            raise ValueError(f"--set must be NAME=VALUE or MODEL.NAME=VALUE, got {text!r}")
        if dot and model not in networks:
            raise ValueError(f"--set must name one of the networks {', '.join(networks) or '(none)'}, got {text!r}")
        known: Settings = shared
        if dot:
            entry = find_network(model)
            known = {key: parameter.kind for key, parameter in entry.options.items()}
            known |= dict.fromkeys(SAMPLING.get(model, ())) | hyper
            known |= {option: None} if entry.accepts_kwargs and option not in known else {}
        if option not in known:
            hint = "" if dot else ", or MODEL.OPTION"
            raise ValueError(f"--set must name one of {', '.join(known)}{hint}, got {text!r}")
        target = options.setdefault(model, {}) if dot else settings
        target[option] = parse_value(text, value.strip(), known[option])
    return settings


def model_names(models: str) -> list[str]:
    """The names in `--models`; custom ones are imported, from the current folder too."""
    names = split_names(models)
    if any(":" in name for name in names):
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


def print_json(content: Mapping[str, object]) -> None:
    """Prints JSON on stdout; NaN and infinity become null."""
    text = json.dumps(_finite(content), indent=2, ensure_ascii=False)
    typer.echo(INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def open_in_browser(path: Path) -> None:
    """Opens a file in the browser; says so if there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        echo(f"gfgn: no browser could be opened for {path}", err=True)


def _finite(value: object) -> object:
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
