"""`gfgn compare`: trains models on graphs over splits and seeds, prints the tables and writes the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli import options
from gfgn.cli.app import app, echo, fail, notes, stdout, user_errors
from gfgn.cli.reading import Reader, takes_graph

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import NodeDataset
    from gfgn.runs import Comparison, Store, Tracker
    from gfgn.runs.engine import Engine
    from gfgn.runs.study import Study

STORE, TABLE, REPORT = "runs.sqlite", "runs.csv", "report.html"
MODELS = ("majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
OUT = Path("gfgn-report")
Grid = StrEnum("Grid", ["none", "paper"])
Out = Annotated[Path, typer.Option(help=f"Folder for {STORE}, {TABLE} and {REPORT}.")]


@app.command()
@takes_graph()
def compare(
    context: typer.Context,
    *,
    reader: Reader,
    data: Annotated[
        list[str] | None, typer.Argument(help="Datasets (see `gfgn datasets`) or paths: a folder, a zip or npz file.")
    ] = None,
    models: Annotated[
        str, typer.Option(help="Models (see `gfgn models`) or package.module:Class of your own, separated by commas.")
    ] = ",".join(MODELS),
    splits: Annotated[int | None, typer.Option(help="Number of splits.", show_default="4, or all if fewer")] = None,
    seeds: options.Seeds = 1,
    grid: Annotated[Grid, typer.Option(help="paper: tune every model on the paper's grid.")] = Grid.none,
    trials: options.Trials = None,
    minutes: options.Minutes = None,
    epochs: options.Epochs = 400,
    class_weights: options.ClassWeights = False,
    set_: options.Set = None,
    track: options.Track = None,
    on: options.On = None,
    out: Out = OUT,
    device: options.Device = "auto",
    json: options.Json = False,
    quiet: options.Quiet = False,
    open_: options.Open = False,
    check: options.Check = False,
) -> None:
    """Train models on graphs over splits and seeds; print the tables and write the report.

    Without DATA: a generated graph, no download, well under a minute. Run again, it trains only what is missing.
    """
    start, console = time.perf_counter(), notes(quiet)
    with user_errors():
        names = options.model_names(models)
        settings: dict[str, Any] = {"max_epochs": epochs, "class_weights": class_weights}
        settings |= options.parse_settings(set_, names)
        datasets = [reader.open(source, console, check).dataset for source in data or ["dimensions"]]
        if check:
            return
        settings |= {"models": names, "seeds": seeds, "grid": _configurations(grid), "trials": trials}
        requests = [settings | {"splits": default_splits(dataset, splits, 4)} for dataset in datasets]
        trackers = context.with_resource(options.trackers(track))  # until results have been printed
        if on is not None and minutes is not None:
            raise ValueError("--minutes must not be given together with --on, whose workers it cannot measure")
        engine = context.with_resource(options.engine(on, device))
        own = device if on is None else "auto"  # what this process itself computes on
        outcome = train_and_report(datasets, requests, out, own, console, minutes, trackers, engine)
    if json:
        options.print_json(_to_json(outcome, time.perf_counter() - start))
    else:
        _print(outcome, time.perf_counter() - start)
    if open_:
        options.open_in_browser(outcome.report)


@dataclass(frozen=True)
class Outcome:
    """The comparisons of a call, the files it wrote, and how many runs it trained and found in the store."""

    comparisons: list[Comparison]
    report: Path
    table: Path
    trained: int
    kept: int

    def files(self) -> dict[str, Any]:
        """What `--json` says about the runs and files."""
        files = {"report": str(self.report), "runs": str(self.table)}
        return {"trained": self.trained, "kept": self.kept, "files": files}


def train_and_report(
    datasets: Sequence[NodeDataset],
    requests: Sequence[dict[str, Any]],
    out: Path,
    device: str,
    console: Console,
    minutes: float | None = None,
    trackers: Sequence[Tracker] = (),
    engine: Engine | None = None,
) -> Outcome:
    """Trains what the store in `out` lacks and writes the report.

    `requests` are the arguments of `comparison_study`, one per dataset; with `minutes`, the number of trials is chosen.
    """
    from gfgn.report import write_report
    from gfgn.report.files import check_page
    from gfgn.runs import Store, read_comparisons
    from gfgn.runs.comparison import comparison_study, read_comparison
    from gfgn.runs.record import DatasetRecord
    from gfgn.train.settings import choose_device

    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"DATA must be graphs with different names, got {', '.join(names)}")
    if minutes is not None and any(
        request.get(name) is not None for request in requests for name in ("grid", "trials")
    ):
        raise ValueError("--minutes must not be given together with --grid or --trials")
    studies = [comparison_study(dataset, **request) for dataset, request in zip(datasets, requests, strict=True)]
    device = choose_device(device)
    check_table(out / TABLE)
    check_page(out / REPORT)
    with Store(out / STORE) as store:
        try:
            if minutes is not None:
                studies = _studies_in_time(store, datasets, requests, minutes, device, console)
            trained, kept = _train(store, datasets, studies, device, console, trackers, engine)
        finally:
            store.to_csv(out / TABLE)
        records = map(DatasetRecord.of, datasets)
        comparisons = [read_comparison(store, *each) for each in zip(studies, records, strict=True)]
        stored = read_comparisons(store)
    report = write_report(stored, out / REPORT)  # of everything in the store
    return Outcome(comparisons, report, out / TABLE, trained, kept)


def _studies_in_time(
    store: Store,
    datasets: Sequence[NodeDataset],
    requests: Sequence[dict[str, Any]],
    minutes: float,
    device: str,
    console: Console,
) -> list[Study]:
    """The comparisons with as many trials as fit; every dataset gets the same time."""
    from gfgn.literal import literal
    from gfgn.runs.budget import plan_in_time
    from gfgn.runs.text import count, duration

    studies, each = [], minutes / len(datasets)
    for dataset, request in zip(datasets, requests, strict=True):
        own = {name: value for name, value in request.items() if name not in ("grid", "trials")}
        with console.status(literal(f"{dataset.name}: measuring the cost of an epoch of every model")):
            study, budget = plan_in_time(store, dataset, each, device, **own)
        studies.append(study)
        chosen = f"{count(budget.trials, 'configuration')} per model, at most {duration(sum(budget.seconds.values()))}"
        limit = "" if budget.fits else f", more than the {duration(60 * each)} that --minutes allows"
        console.print(literal(f"{dataset.name}: {chosen}{limit}"), soft_wrap=True)
    return studies


def _train(
    store: Store,
    datasets: Sequence[NodeDataset],
    studies: Sequence[Study],
    device: str,
    console: Console,
    trackers: Sequence[Tracker],
    engine: Engine | None,
) -> tuple[int, int]:
    """Trains what the store lacks, dataset by dataset; the number of runs trained, and of those that were there."""
    from gfgn.literal import literal
    from gfgn.report.progress import RunProgress
    from gfgn.runs import CallbackList, explain
    from gfgn.runs.comparison import run_comparison
    from gfgn.runs.engine import Job
    from gfgn.train import keep_freed_memory

    total = sum(study.plan(cell).count for study in studies for cell in study.all_cells())
    progress, comparisons = RunProgress(console, total), []
    try:
        with progress.bars, keep_freed_memory():
            callback = CallbackList(progress, *trackers)
            for each in zip(datasets, studies, strict=True):
                comparisons.append(run_comparison(store, *each, device, callback, engine or Job.run))
    except KeyboardInterrupt:
        runs = f"{progress.trained} finished runs are kept in {store.path}"
        fail(f"interrupted; {runs if progress.trained else 'no run had finished'}", 130)
    for dataset, comparison in zip(datasets, comparisons, strict=True):
        with console.status(literal(f"explaining {dataset.name}")):
            explain(store, dataset, comparison, device)
    return progress.trained, progress.kept


def print_files(outcome: Outcome, seconds: float) -> None:
    """Prints the number of runs, the time and the files."""
    kept = f", {outcome.kept:,} more from the store" if outcome.kept else ""
    echo(f"{outcome.trained:,} runs{kept}, {seconds:.1f} s in all")
    echo(f"report: {outcome.report}    all runs: {outcome.table}")


def check_table(path: Path) -> None:
    """Refuses to overwrite a table that is not one of ours."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith("key,dataset,"):
        raise ValueError(f"--out must be a folder whose {TABLE} gfgn may overwrite, but {path} is something else")


def _print(outcome: Outcome, seconds: float) -> None:
    from gfgn.report.terminal import print_comparisons

    print_comparisons(stdout(), outcome.comparisons)
    print_files(outcome, seconds)


def _to_json(outcome: Outcome, seconds: float) -> dict[str, Any]:
    from gfgn.runs.verdict import headline

    comparisons = [comparison.to_json() | {"headline": headline(comparison)} for comparison in outcome.comparisons]
    return {"comparisons": comparisons, **outcome.files(), "seconds": round(seconds, 3)}


def _configurations(grid: Grid) -> Any:
    from gfgn.runs import PAPER_GRID

    return PAPER_GRID if grid is Grid.paper else None


def default_splits(dataset: NodeDataset, splits: int | None, default: int) -> int:
    """The number of splits: as given, or the default, or all if there are fewer."""
    return min(default, max(len(dataset.splits), 1)) if splits is None else splits
