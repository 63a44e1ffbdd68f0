"""`gfgn advise`: should a graph model be used on this data?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import Settings, app, notes, stdout, user_errors
from gfgn.cli.compare import Out, default_splits, make_studies, print_files, train_and_report
from gfgn.cli.reading import Reader, takes_graph


@app.command()
@takes_graph()
def advise(
    data: options.Data,
    *,
    reader: Reader,
    models: Annotated[
        str,
        typer.Option(
            help="Graph models (see `gfgn models`) or package.module:Class, separated by commas.",
            show_default="gcn and the three levels of GFGN",
        ),
    ] = "",
    splits: Annotated[int | None, typer.Option(help="Number of splits.", show_default="10, or all if fewer")] = None,
    seeds: options.Seeds = 1,
    trials: options.Trials = None,
    minutes: options.Minutes = None,
    epochs: options.Epochs = 400,
    class_weights: options.ClassWeights = False,
    set_: options.Set = None,
    out: Out = Path("gfgn-advice"),
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
    open_: options.Open = False,
) -> None:
    """Should you use a graph model here? Trivial, tabular and graph models over splits, and a verdict.

    Compares the majority class, logistic regression and gradient boosting on the features, label propagation on the
    edges, an MLP and graph models: by default a GCN and the three levels of GFGN.
    """
    from gfgn.report.terminal import print_advice
    from gfgn.runs.advice import GRAPH_MODELS, SPLITS, make_advice, suited_models

    start, console = time.perf_counter(), notes(quiet)
    with user_errors():
        names = options.model_names(models) or list(GRAPH_MODELS)
        settings: Settings = {"max_epochs": epochs, "class_weights": class_weights}
        settings |= options.parse_settings(set_, ["mlp", *names])
        dataset = reader.open(data, console).dataset
        settings |= {"models": suited_models(dataset, names), "seeds": seeds, "trials": trials}
        settings |= {"splits": default_splits(dataset, splits, SPLITS)}
        studies = make_studies([dataset], [settings], minutes, out, device, console)
        outcome = train_and_report([dataset], studies, out, device, console)
        # With models of earlier calls, so that the report has the same verdict.
        (comparison,) = (each for each in outcome.stored if each.dataset.fingerprint == dataset.fingerprint)
        advice = make_advice(dataset, comparison)
    seconds = time.perf_counter() - start
    if json:
        options.print_json(advice.to_json() | outcome.files() | {"seconds": round(seconds, 3)})
    else:
        print_advice(stdout(), advice)
        print_files(outcome, seconds)
    if open_:
        options.open_in_browser(outcome.report)
