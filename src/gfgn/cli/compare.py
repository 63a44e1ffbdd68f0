"""`gfgn compare`: trains models on graphs over splits and seeds, prints the tables and writes the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gfgn.cli.app import Device, app, fail, split_names, stdout, user_errors

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import Dataset
    from gfgn.report.progress import RunProgress
    from gfgn.runs import Store

STORE, TABLE, REPORT = "runs.sqlite", "runs.csv", "report.html"
MODELS = ("majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
Grid = StrEnum("Grid", ["none", "paper"])


@app.command()
def compare(
    data: Annotated[
        list[str] | None, typer.Argument(help="Datasets (see `gfgn datasets`) or paths: a folder, a zip or npz file.")
    ] = None,
    models: Annotated[str, typer.Option(help="Models (see `gfgn models`), separated by commas.")] = ",".join(MODELS),
    splits: Annotated[int | None, typer.Option(help="Number of splits.", show_default="4, or all if fewer")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds per split.")] = 1,
    grid: Annotated[Grid, typer.Option(help="paper: tune every model on the paper's grid.")] = Grid.none,
    trials: Annotated[int | None, typer.Option(help="Tune every model by halving N random configurations.")] = None,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs of a run.")] = 400,
    out: Annotated[Path, typer.Option(help=f"Folder for {STORE}, {TABLE} and {REPORT}.")] = Path("gfgn-report"),
    device: Device = "auto",
    check: Annotated[bool, typer.Option("--check", help="Show how a graph of your own was read; no training.")] = False,
) -> None:
    """Train models on graphs over splits and seeds; print the tables and write the report.

    Without DATA: a generated graph, no download, well under a minute. Run again, it trains only what is missing.
    """
    from rich.console import Console

    from gfgn.report import write_report
    from gfgn.report.terminal import print_comparisons
    from gfgn.runs import Store, read_comparisons
    from gfgn.train.settings import choose_device

    start, console = time.perf_counter(), Console(stderr=True)
    with user_errors():
        datasets = [_open(source, check, console) for source in data or ["dimensions"]]
        if check:
            return
        plans = _plans(
            datasets, splits, grid, trials=trials, models=split_names(models), seeds=seeds, max_epochs=epochs
        )
        device = choose_device(device)
        _check_table(out / TABLE)
        with Store(out / STORE) as store:
            try:
                progress = _train(store, datasets, plans, device, console)
            finally:
                store.to_csv(out / TABLE)
            stored = {comparison.dataset.name: comparison for comparison in read_comparisons(store)}
        report = write_report(list(stored.values()), out / REPORT)  # of everything in the store
    print_comparisons(stdout(), [stored[dataset.name] for dataset in datasets])
    kept = f", {progress.kept:,} more from the store" if progress.kept else ""
    typer.echo(f"{progress.trained:,} runs{kept}, {time.perf_counter() - start:.1f} s in all")
    typer.echo(f"report: {report}    all runs: {out / TABLE}")


def _open(source: str, check: bool, console: Console) -> Dataset:
    """Loads the dataset of that name or reads the graph at that path; with `check`, prints how it was read."""
    from gfgn.data import DATASETS, describe_reading, load, read_with_notes

    path = Path(source)
    if source.lower() in DATASETS or not path.exists():
        if path.name != source:
            raise ValueError(f"DATA must be the name of a dataset or the path of a graph, got {source!r}: no such file")
        if check:
            raise ValueError(f"--check is for a graph of your own, got the name {source!r}")
        return load(source)
    with console.status(f"reading {source}"):
        reading = read_with_notes(source)
    if check:
        typer.echo(describe_reading(reading))
    else:
        for note in reading.notes:
            console.print(f"{source}: {note}", highlight=False, soft_wrap=True)
    return reading.dataset


def _plans(datasets: Sequence[Dataset], splits: int | None, grid: Grid, **settings: Any) -> list[Any]:
    from gfgn.runs import PAPER_GRID
    from gfgn.runs.comparison import make_plan

    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"DATA must be graphs with different names, got {', '.join(names)}")
    settings["grid"] = PAPER_GRID if grid is Grid.paper else None
    counts = [min(4, max(len(dataset.splits), 1)) if splits is None else splits for dataset in datasets]
    return [make_plan(dataset, splits=count, **settings) for dataset, count in zip(datasets, counts, strict=True)]


def _check_table(path: Path) -> None:
    """Refuses to overwrite a table that is not one of ours."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith("key,dataset,"):
        raise ValueError(f"--out must be a folder whose {TABLE} gfgn may overwrite, but {path} is something else")


def _train(store: Store, datasets: Sequence[Dataset], plans: list[Any], device: str, console: Console) -> RunProgress:
    """Trains what the store lacks, dataset by dataset."""
    from gfgn.report.progress import RunProgress
    from gfgn.runs.comparison import run_comparison
    from gfgn.runs.gates import gates_note
    from gfgn.runs.record import is_gfgn
    from gfgn.train import keep_freed_memory

    progress = RunProgress(console, sum(plan.plan(model).count for plan in plans for model in plan.models))
    try:
        with progress.bars, keep_freed_memory():
            for dataset, plan in zip(datasets, plans, strict=True):
                run_comparison(store, dataset, plan, device, progress)
    except KeyboardInterrupt:
        runs = f"{progress.trained} finished runs are kept in {store.path}"
        fail(f"interrupted; {runs if progress.trained else 'no run had finished'}", 130)
    for dataset, plan in zip(datasets, plans, strict=True):
        if any(map(is_gfgn, plan.models)):
            with console.status(f"gates of {dataset.name}"):
                gates_note(store, dataset)
    return progress
