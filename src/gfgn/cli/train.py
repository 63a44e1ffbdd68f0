"""`gfgn train`: trains a classifier of nodes to keep, and says how good it is."""

from __future__ import annotations

import os
import shutil
import time
import typing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import Settings, app, echo, notes, print_table, user_errors
from gfgn.cli.reading import Reader, takes_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gfgn.data import Reading
    from gfgn.estimator import GFGNClassifier
    from gfgn.runs import Tracker

Level = StrEnum("Level", ["auto", "graph", "neighbor", "pair"])
Kind = StrEnum("Kind", {"gfgn": "gfgn", "plus": "gfgn-plus"})
CHECKPOINTS = "checkpoints"  # in the folder of the model, until it is finished
NOT_SET = {"return", "val_fraction"}  # parameters of the classifier that no option sets, nor `--set`


@app.command()
@takes_graph()
def train(
    context: typer.Context,
    data: options.Data,
    *,
    reader: Reader,
    model: Annotated[Kind, typer.Option(help="gfgn-plus: GFGN+, its depth by validation.")] = Kind.gfgn,
    level: Annotated[Level, typer.Option(help="Level of the gates; auto: the best on validation.")] = Level.auto,
    replicas: Annotated[int, typer.Option(help="Number of networks, whose probabilities are averaged.")] = 5,
    test: Annotated[
        float, typer.Option(help="Fraction of the labeled nodes to test on, unless the files have splits; 0: none.")
    ] = 0.2,
    trials: options.Trials = None,
    minutes: options.Minutes = None,
    epochs: options.Epochs = 400,
    class_weights: options.ClassWeights = False,
    set_: options.Set = None,
    track: options.Track = None,
    seed: Annotated[int, typer.Option(help="Seed of validation nodes, initial parameters and dropout.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the model, its card and its report.")] = Path("gfgn-model"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model that the folder has.")] = False,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
    open_: options.Open = False,
    check: options.Check = False,
) -> None:
    """Train a classifier of nodes to keep: a folder with the model, a model card and a report.

    Nodes without a label take part through their features and edges; `gfgn predict` then predicts their labels.
    """
    first = int(os.environ.get("RANK", "0")) == 0  # of the processes that torchrun has started
    start, console = time.perf_counter(), notes(quiet or not first)
    with user_errors():
        if not 0 <= test < 1:
            raise ValueError(f"--test must be at least 0 and below 1, got {test}")
        if minutes is not None and trials is not None:
            raise ValueError("--minutes must not be given together with --trials")
        if (out / "model.json").exists() and not (overwrite or check):
            raise ValueError(f"--out must be a new folder, but {out} has a model: --overwrite replaces it")
        from gfgn.report.model import write_model

        parameters = {
            "level": str(level), "replicas": replicas, "trials": trials, "model": str(model), "device": device,
            "class_weights": class_weights, "random_state": seed, "directed": not reader.options.undirected,
            "scale": reader.options.scale, "metric": reader.options.metric,
        }  # fmt: skip
        parameters |= {"max_epochs": epochs} | _parse_parameters(set_ or (), parameters)
        found = reader.open(data, console, check, num_splits=1, fractions=(1 - test, 0.0))
        if check:
            return
        if not found.dataset.splits:
            raise ValueError(f"DATA must have labels to train on, {found.dataset.name!r} has none")
        if minutes is not None:
            parameters["trials"] = _trials_in_time(found, minutes, parameters, console)
        trackers = context.with_resource(options.trackers(track if first else None))  # until all is printed
        classifier = _fit(found, parameters, console, trackers, out / CHECKPOINTS)
        if not first:
            return
        result, evaluation = write_model(classifier, found, out, reader.columns)
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    seconds = time.perf_counter() - start
    if json:
        options.print_json(result | {"seconds": round(seconds, 3)})
    else:
        echo(evaluation.headline)
        heads = ("class", "precision", "recall", "F1", "nodes")
        print_table(heads, evaluation.classes.rows(), right=heads[1:])
        card, report = out / "README.md", out / "report.html"
        echo(f"{seconds:.1f} s in all; model: {out}    card: {card}    report: {report}")
        if Path(data).exists():
            echo(f"next: gfgn predict {out} {data} --out predictions.csv")
    if open_:
        options.open_in_browser(out / "report.html")


def _parse_parameters(given: Sequence[str], options_: Settings) -> Settings:
    """The parameters of `GFGNClassifier` that `--set` names, such as `lr=0.01`, and that are no options."""
    from gfgn.estimator import GFGNClassifier

    hints = typing.get_type_hints(GFGNClassifier.__init__)
    known = {name: kind for name, kind in hints.items() if name not in (*NOT_SET, *options_)}
    values = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in known:
            raise ValueError(f"--set must be NAME=VALUE with one of {', '.join(known)}, got {text!r}")
        values[name] = options.parse_value(text, value, known[name])
    return values


def _fit(
    found: Reading, parameters: Settings, console: Console, trackers: Sequence[Tracker], checkpoints: Path
) -> GFGNClassifier:
    from gfgn.estimator import GFGNClassifier
    from gfgn.report.progress import RunProgress
    from gfgn.runs import CallbackList
    from gfgn.train import keep_freed_memory, processes

    progress = RunProgress(console)
    with processes(parameters["device"]) as own, progress.bars, keep_freed_memory():
        callback = CallbackList(progress, *trackers)
        return GFGNClassifier(**parameters).fit(found, callback=callback, checkpoint_dir=checkpoints, processes=own)


def _trials_in_time(found: Reading, minutes: float, parameters: Settings, console: Console) -> int | None:
    """The number of trials per level that fits."""
    from gfgn.data.splits import labelled_splits
    from gfgn.estimator.training import LEVELS, model_name
    from gfgn.literal import literal
    from gfgn.runs import Store
    from gfgn.runs.budget import plan_in_time
    from gfgn.runs.text import count
    from gfgn.train.settings import choose_device

    dataset = found.dataset
    if not dataset.splits[0].val.any():
        dataset = replace(dataset, splits=labelled_splits(dataset.y, 1, (0.8, 0.2)))
    levels = LEVELS if parameters["level"] == "auto" else (parameters["level"],)
    with Store(":memory:") as store, console.status("measuring the cost of an epoch of every level"):
        _, budget = plan_in_time(
            store, dataset, minutes, choose_device(parameters["device"]), splits=1, seeds=1 + parameters["replicas"],
            models=[model_name(parameters["model"], level) for level in levels], max_epochs=parameters["max_epochs"],
        )  # fmt: skip
    console.print(literal(f"{dataset.name}: {count(budget.trials, 'configuration')} per level"))
    return budget.trials if budget.trials > 1 else None
