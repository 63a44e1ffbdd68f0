"""`gfgn train`: trains a classifier of nodes to keep, and says how good it is."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli import options
from gfgn.cli.app import Device, app, echo, notes, print_table, user_errors
from gfgn.cli.reading import ReadOptions, open_data, takes_graph

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import NodeDataset
    from gfgn.estimator import GFGNClassifier
    from gfgn.estimator.evaluation import Evaluation
    from gfgn.runs import ProgressCallback, Tracker
    from gfgn.train import Status

Level = StrEnum("Level", ["auto", "graph", "neighbor", "pair"])
Kind = StrEnum("Kind", {"gfgn": "gfgn", "plus": "gfgn-plus"})
CHECKPOINTS = "checkpoints"  # in the folder of the model, until it is finished
VALIDATION = 0.2  # of the labelled nodes that are not for testing


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
        fractions = ((1 - VALIDATION) * (1 - test), VALIDATION * (1 - test))
        dataset = open_data(data, reading, console, check, num_splits=1, fractions=fractions)
        if check:
            return
        trackers = context.with_resource(options.trackers(track if first else None))  # until all is printed
        classifier = _train(dataset, parameters, minutes, console, trackers, out / CHECKPOINTS)
        if not first:
            return
        result, evaluation = _finish(classifier, dataset, reading, out)
    seconds = time.perf_counter() - start
    if json:
        options.print_json(result | {"seconds": round(seconds, 3)})
    else:
        _print(result, evaluation, data, seconds)
    if open_:
        options.open_in_browser(Path(result["files"]["report"]))


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
    dataset: NodeDataset,
    parameters: dict[str, Any],
    minutes: float | None,
    console: Console,
    trackers: Sequence[Tracker],
    checkpoints: Path,
) -> GFGNClassifier:
    import numpy as np

    from gfgn.estimator import GFGNClassifier
    from gfgn.estimator.classifier import LEVELS, as_input
    from gfgn.runs import CallbackList
    from gfgn.train import keep_freed_memory, processes

    if not dataset.splits:
        raise ValueError(f"DATA must have labels to train on, {dataset.name!r} has none")
    if minutes is not None and parameters["trials"] is not None:
        raise ValueError("--minutes must not be given together with --trials")
    levels = LEVELS if parameters["level"] == "auto" else (parameters["level"],)
    if minutes is not None:
        parameters["trials"] = _trials_in_time(dataset, levels, minutes, parameters, console)
    classifier = GFGNClassifier(**parameters)
    classes = np.array(dataset.class_names or [str(k) for k in range(dataset.num_classes)])
    seed = int(parameters["random_state"])
    with processes(parameters["device"]) as own, console.status("training") as spinner, keep_freed_memory():
        callback = CallbackList(_make_progress(console, spinner), *trackers)
        classifier._fit_dataset(as_input(dataset), classes, seed, callback, own, checkpoints)
    if own.rank > 0:
        return classifier
    classifier.feature_names_in_ = np.array([column.name for column in classifier.encoder_.columns], dtype=object)
    return classifier


def _make_progress(console: Console, spinner: Any) -> ProgressCallback:
    """Shows the progress of training: on a terminal beside the spinner, elsewhere as a line now and then."""
    from gfgn.literal import literal
    from gfgn.report.progress import SECONDS_BETWEEN_LINES, describe_status
    from gfgn.runs import ProgressCallback

    class Progress(ProgressCallback):
        model, last = "", time.monotonic()

        def on_model_begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
            self.model = model

        def on_status(self, status: Status) -> None:
            text = f"{self.model}: {describe_status(status)}"
            spinner.update(literal(text))
            if not console.is_terminal and time.monotonic() - self.last > SECONDS_BETWEEN_LINES:
                self.last = time.monotonic()
                console.print(literal(text), soft_wrap=True)

    return Progress()


def _trials_in_time(
    dataset: NodeDataset, levels: tuple[str, ...], minutes: float, parameters: dict[str, Any], console: Console
) -> int | None:
    """The number of trials per level that fits."""
    from gfgn.estimator.classifier import model_name
    from gfgn.literal import literal
    from gfgn.runs import Store
    from gfgn.runs.budget import plan_in_time
    from gfgn.runs.text import count
    from gfgn.train.settings import choose_device

    models = [model_name(parameters["model"], level) for level in levels]
    request = {"models": models, "splits": 1, "max_epochs": parameters["max_epochs"]}
    with Store(":memory:") as store, console.status("measuring the cost of an epoch of every level"):
        device = choose_device(parameters["device"])
        _, budget = plan_in_time(store, dataset, minutes, device, seeds=1 + parameters["replicas"], **request)
    console.print(literal(f"{dataset.name}: {count(budget.trials, 'configuration')} per level"))
    return budget.trials if budget.trials > 1 else None


def _finish(
    classifier: GFGNClassifier, dataset: NodeDataset, reading: ReadOptions, out: Path
) -> tuple[dict[str, Any], Evaluation]:
    """Scores the classifier on the test nodes, writes all files and returns what `--json` prints."""
    from gfgn.estimator.card import natural
    from gfgn.estimator.evaluation import evaluate
    from gfgn.report.model import write_model_report

    columns = {name: value for name, value in reading.columns().items() if value}
    evaluation = evaluate(classifier, dataset)
    classifier._describe(name=dataset.name, reading=columns, **evaluation.facts())
    classifier.save(out)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    report = write_model_report(classifier, dataset, evaluation, out)
    files = {"model": str(out), "card": str(out / "README.md"), "report": str(report)}
    result = {
        "level": classifier.level_,
        "validation": {level: natural(dataset.metric, score) for level, score in classifier.level_scores_.items()},
        "metric": dataset.metric,
        "parameters": classifier.best_params_,
        **evaluation.facts(),
        "files": files,
    }
    return result, evaluation


def _print(result: dict[str, Any], evaluation: Evaluation, data: str, seconds: float) -> None:
    from gfgn.data.named.catalog import DATASETS

    echo(evaluation.headline)
    heads = ("class", "precision", "recall", "F1", "nodes")
    print_table(heads, evaluation.classes.rows(), right=heads[1:])
    files = result["files"]
    echo(f"{seconds:.1f} s in all; model: {files['model']}    card: {files['card']}    report: {files['report']}")
    if data.lower() not in DATASETS:
        echo(f"next: gfgn predict {files['model']} {data} --out predictions.csv")
