"""`gfgn train`: trains a classifier of nodes to keep, and says how good it is."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli import options
from gfgn.cli.app import Device, app, echo, notes, print_table, user_errors
from gfgn.cli.reading import ReadOptions, open_data, takes_graph

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import NodeDataset, Reading
    from gfgn.estimator import GFGNClassifier
    from gfgn.estimator.evaluation import Evaluation
    from gfgn.runs import Tracker

Level = StrEnum("Level", ["auto", "graph", "neighbor", "pair"])
Kind = StrEnum("Kind", {"gfgn": "gfgn", "plus": "gfgn-plus"})
CHECKPOINTS = "checkpoints"  # in the folder of the model, until it is finished


@app.command()
@takes_graph
def train(
    context: typer.Context,
    data: Annotated[str, typer.Argument(help="The path of a graph of your own, or a dataset (see `gfgn datasets`).")],
    *,
    reading: ReadOptions,
    model: Annotated[Kind, typer.Option(help="gfgn-plus: GFGN+, its depth by validation.")] = Kind.gfgn,
    level: Annotated[Level, typer.Option(help="Level of the gates; auto: the best on validation.")] = Level.auto,
    replicas: Annotated[int, typer.Option(help="Number of networks, whose probabilities are averaged.")] = 5,
    test: Annotated[
        float, typer.Option(help="Fraction of the labelled nodes to test on, unless the files have splits; 0: none.")
    ] = 0.2,
    trials: options.Trials = None,
    minutes: options.Minutes = None,
    epochs: options.Epochs = 400,
    class_weights: options.ClassWeights = False,
    set_: options.Set = None,
    track: options.Track = None,
    config: options.Config = None,
    write_config: options.WriteConfig = None,
    seed: Annotated[int, typer.Option(help="Seed of initial parameters and dropout.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the model, its card and its report.")] = Path("gfgn-model"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that the folder has.")] = False,
    device: Device = "auto",
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
        given = options.all_settings(context, set_)
        parameters = _parameters(given) | {"level": str(level), "replicas": replicas, "trials": trials}
        parameters |= {"model": str(model)}
        parameters |= {"class_weights": class_weights, "device": device, "random_state": seed}
        parameters |= {"directed": reading.directed, "scale": reading.arguments().scale, "metric": reading.metric}
        parameters.setdefault("max_epochs", epochs)
        if write_config is not None:
            options.write_config(context, write_config, given)
            return
        found = open_data(data, reading, console, check, num_splits=1, fractions=(1 - test, 0.0))
        if check:
            return
        if (out / "model.json").exists() and not overwrite:
            raise ValueError(f"--out must be a new folder, but {out} has a model: --overwrite replaces it")
        trackers = context.with_resource(options.trackers(track if first else None))  # until all is printed
        classifier = _train(found, parameters, minutes, console, trackers, out / CHECKPOINTS)
        if not first:
            return
        from gfgn.report.model import write_model

        result, evaluation = write_model(classifier, found, out, reading.columns())
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    seconds = time.perf_counter() - start
    if json:
        options.print_json(result | {"seconds": round(seconds, 3)})
    else:
        _print(result, evaluation, data, seconds)
    if open_:
        options.open_in_browser(out / "report.html")


def _parameters(given: list[str]) -> dict[str, Any]:
    """The parameters of `GFGNClassifier` that `--set` names, such as `lr=0.01` or `hidden_channels=128`."""
    import typing

    from gfgn.estimator import GFGNClassifier

    own = (
        "level",
        "model",
        "replicas",
        "trials",
        "class_weights",
        "device",
        "random_state",
        "scale",
        "directed",
        "metric",
    )
    hints = typing.get_type_hints(GFGNClassifier.__init__)
    known = {name: kind for name, kind in hints.items() if name not in ("return", "val_fraction", *own)}
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name.strip() not in known:
            raise ValueError(f"--set must be NAME=VALUE with one of {', '.join(known)}, got {text!r}")
        values[name.strip()] = options.parse_value(text, value.strip(), known[name.strip()])
    return values


def _train(
    reading: Reading,
    parameters: dict[str, Any],
    minutes: float | None,
    console: Console,
    trackers: Sequence[Tracker],
    checkpoints: Path,
) -> GFGNClassifier:
    from gfgn.estimator import GFGNClassifier
    from gfgn.report.progress import RunProgress
    from gfgn.runs import CallbackList
    from gfgn.train import keep_freed_memory, processes

    if not reading.dataset.splits:
        raise ValueError(f"DATA must have labels to train on, {reading.dataset.name!r} has none")
    if minutes is not None and parameters["trials"] is not None:
        raise ValueError("--minutes must not be given together with --trials")
    if minutes is not None:
        parameters["trials"] = _trials_in_time(reading.dataset, minutes, parameters, console)
    classifier = GFGNClassifier(**parameters)
    progress = RunProgress(console)
    with processes(parameters["device"]) as own, progress.bars, keep_freed_memory():
        callback = CallbackList(progress, *trackers)
        classifier.fit(reading, callback=callback, checkpoint_dir=checkpoints, processes=own)
    return classifier


def _trials_in_time(dataset: NodeDataset, minutes: float, parameters: dict[str, Any], console: Console) -> int | None:
    """The number of trials per level that fits."""
    from gfgn.data.splits import labelled_splits
    from gfgn.estimator.training import LEVELS, model_name
    from gfgn.literal import literal
    from gfgn.runs import Store
    from gfgn.runs.budget import plan_in_time
    from gfgn.runs.text import count
    from gfgn.train.settings import choose_device

    if not dataset.splits[0].val.any():
        dataset = replace(dataset, splits=labelled_splits(dataset.y, 1, (0.8, 0.2)))
    levels = LEVELS if parameters["level"] == "auto" else (parameters["level"],)
    models = [model_name(parameters["model"], level) for level in levels]
    request = {"models": models, "splits": 1, "max_epochs": parameters["max_epochs"]}
    with Store(":memory:") as store, console.status("measuring the cost of an epoch of every level"):
        device = choose_device(parameters["device"])
        _, budget = plan_in_time(store, dataset, minutes, device, seeds=1 + parameters["replicas"], **request)
    console.print(literal(f"{dataset.name}: {count(budget.trials, 'configuration')} per level"))
    return budget.trials if budget.trials > 1 else None


def _print(result: dict[str, Any], evaluation: Evaluation, data: str, seconds: float) -> None:
    from gfgn.data.named.catalog import DATASETS

    echo(evaluation.headline)
    heads = ("class", "precision", "recall", "F1", "nodes")
    print_table(heads, evaluation.classes.rows(), right=heads[1:])
    files = result["files"]
    echo(f"{seconds:.1f} s in all; model: {files['model']}    card: {files['card']}    report: {files['report']}")
    if data.lower() not in DATASETS:
        echo(f"next: gfgn predict {files['model']} {data} --out predictions.csv")
