"""`gfgn compare`: trains models on graphs over splits and seeds, prints the tables and writes the report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import Settings, app, echo, fail, find_modules_here, notes, stdout, user_errors
from gfgn.cli.reading import OPTIONS, Reader, is_store, is_tables, takes_graph

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import NodeDataset
    from gfgn.runs import Comparison, Tracker
    from gfgn.runs.engine import Engine
    from gfgn.runs.study import Study

STORE, TABLE, REPORT = "runs.sqlite", "runs.csv", "report.html"
MODELS = ("majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
IN_STUDY = (
    "data",
    "write_config",
    "models",
    "grid",
    "trials",
    "minutes",
    "epochs",
    "class_weights",
    "set_",
    "check",
    *OPTIONS,
)
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
    seeds: Annotated[int | None, typer.Option(help="Number of seeds per split.", show_default="1")] = None,
    grid: Annotated[Grid, typer.Option(help="paper: tune every model on the paper's grid.")] = Grid.none,
    trials: options.Trials = None,
    minutes: options.Minutes = None,
    epochs: options.Epochs = 400,
    class_weights: options.ClassWeights = False,
    set_: options.Set = None,
    track: options.Track = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file of a study, as for `gfgn reproduce`, to compare.")
    ] = None,
    write_config: Annotated[
        Path | None, typer.Option("--write-config", help="Write the study of this call to a YAML file; no training.")
    ] = None,
    trust_code: options.TrustCode = False,
    on: options.On = None,
    out: Out = Path("gfgn-report"),
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
        if config is not None:
            for name in IN_STUDY:
                if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE":
                    raise ValueError(f"{name.rstrip('_')} must not be given with --config, whose study says it")
            if trust_code:
                find_modules_here()
            datasets, studies = _read_studies(config, trust_code, splits, seeds)
        else:
            from gfgn.runs import PAPER_GRID

            names = options.model_names(models)
            settings: Settings = {"max_epochs": epochs, "class_weights": class_weights}
            settings |= options.parse_settings(set_, names)
            datasets = [reader.open(source, console, check).dataset for source in data or ["dimensions"]]
            if check:
                return
            if on is not None and minutes is not None:
                raise ValueError("--minutes must not be given together with --on, whose workers it cannot measure")
            settings |= {
                "models": names,
                "seeds": 1 if seeds is None else seeds,
                "grid": PAPER_GRID if grid is Grid.paper else None,
                "trials": trials,
            }
            requests = [settings | {"splits": default_splits(dataset, splits, 4)} for dataset in datasets]
            studies = make_studies(datasets, requests, minutes, out, device, console)
        if write_config is not None:
            _write_study(write_config, data or ["dimensions"], studies, reader)
            return
        trackers = context.with_resource(options.trackers(track))  # until results have been printed
        engine = context.with_resource(options.engine(on, device))
        own = device if on is None else "auto"  # what this process itself computes on
        outcome = train_and_report(datasets, studies, out, own, console, trackers, engine)
    seconds = time.perf_counter() - start
    if json:
        from gfgn.runs.verdict import headline

        comparisons = [each.to_json() | {"headline": headline(each)} for each in outcome.comparisons]
        options.print_json({"comparisons": comparisons, **outcome.files(), "seconds": round(seconds, 3)})
    else:
        from gfgn.report.terminal import print_comparisons

        print_comparisons(stdout(), outcome.comparisons)
        print_files(outcome, seconds)
    if open_:
        options.open_in_browser(outcome.report)


@dataclass(frozen=True)
class Outcome:
    """The comparisons of a call, all those of the store, which the report shows with the models of earlier calls, the
    files written, and how many runs the call trained and found in the store."""

    comparisons: list[Comparison]
    stored: list[Comparison]
    report: Path
    table: Path
    trained: int
    kept: int

    def files(self) -> dict[str, object]:
        """What `--json` says about the runs and files."""
        files = {"report": str(self.report), "runs": str(self.table)}
        return {"trained": self.trained, "kept": self.kept, "files": files}


def _read_studies(
    path: Path, trust_code: bool, splits: int | None, seeds: int | None
) -> tuple[list[NodeDataset], list[Study]]:
    """The datasets of a study in a file, each with a study of its own."""
    from gfgn.runs.comparison import check_request
    from gfgn.runs.study_file import read_study

    study = read_study(path, trust_code)
    if study.vary is not None or study.only:
        raise ValueError(f"--config must be a study of all models on all datasets; run `gfgn reproduce {path}`")
    study = replace(
        study,
        splits=study.splits if splits is None else splits,
        seeds=study.seeds if seeds is None else seeds,
    )
    studies = [replace(study, name=name, datasets=(name,)) for name in study.datasets]
    datasets = [study.load(name, study.view) for name in study.datasets]
    for dataset in datasets:
        check_request(dataset, tuple(study.models), study.splits, study.seeds, study.config)
    return datasets, studies


def _write_study(path: Path, sources: Sequence[str], studies: Sequence[Study], reader: Reader) -> None:
    from gfgn.data.files import replace_text
    from gfgn.runs.study import GraphFile
    from gfgn.runs.study_file import study_yaml

    if len(studies) > 1 or is_store(sources[0]):
        got = f"the graph store {sources[0]!r}" if len(studies) == 1 else f"{len(studies)} of them"
        raise ValueError(f"--write-config must be for one named dataset or one folder of tables, got {got}")
    (study,) = studies
    graphs = {study.name: GraphFile(Path(sources[0]), reader.options)} if is_tables(sources[0]) else {}
    echo(f"study: {replace_text(path, study_yaml(replace(study, graphs=graphs)))}")


def make_studies(
    datasets: Sequence[NodeDataset],
    requests: Sequence[Settings],
    minutes: float | None,
    out: Path,
    device: str,
    console: Console,
) -> list[Study]:
    """The comparisons of datasets; `requests` are arguments of `comparison_study`. With `minutes`, every dataset gets
    the same time and as many trials as fit."""
    from gfgn.literal import literal
    from gfgn.runs import Store
    from gfgn.runs.budget import plan_in_time
    from gfgn.runs.comparison import comparison_study
    from gfgn.runs.text import count, duration
    from gfgn.train.settings import choose_device

    studies = [comparison_study(dataset, **request) for dataset, request in zip(datasets, requests, strict=True)]
    if minutes is None:
        return studies
    if any(request.get(name) is not None for request in requests for name in ("grid", "trials")):
        raise ValueError("--minutes must not be given together with --grid or --trials")
    device, each = choose_device(device), minutes / len(datasets)
    _check_folder(out)
    with Store(out / STORE) as store:
        for k, (dataset, request) in enumerate(zip(datasets, requests, strict=True)):
            own = {name: value for name, value in request.items() if name not in ("grid", "trials")}
            with console.status(literal(f"{dataset.name}: measuring the cost of an epoch of every model")):
                studies[k], budget = plan_in_time(store, dataset, each, device, **own)
            longest = duration(sum(budget.seconds.values()))
            chosen = f"{count(budget.trials, 'configuration')} per model, at most {longest}"
            limit = "" if budget.fits else f", more than the {duration(60 * each)} that --minutes allows"
            console.print(literal(f"{dataset.name}: {chosen}{limit}"), soft_wrap=True)
    return studies


def train_and_report(
    datasets: Sequence[NodeDataset],
    studies: Sequence[Study],
    out: Path,
    device: str,
    console: Console,
    trackers: Sequence[Tracker] = (),
    engine: Engine | None = None,
) -> Outcome:
    """Trains what the store in `out` lacks, dataset by dataset, explains the best run of each and writes the report."""
    from gfgn.literal import literal
    from gfgn.report import write_report
    from gfgn.report.progress import RunProgress
    from gfgn.runs import CallbackList, Store, explain, read_comparisons
    from gfgn.runs.comparison import read_comparison, run_comparison
    from gfgn.runs.engine import Job
    from gfgn.runs.record import DatasetRecord
    from gfgn.train import keep_freed_memory
    from gfgn.train.settings import choose_device

    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"DATA must be graphs with different names, got {', '.join(names)}")
    device, pairs = choose_device(device), list(zip(datasets, studies, strict=True))
    _check_folder(out)
    progress = RunProgress(console, sum(study.plan(cell).count for study in studies for cell in study.all_cells()))
    with Store(out / STORE) as store:
        try:
            with progress.bars, keep_freed_memory():
                callback = CallbackList(progress, *trackers)
                for dataset, study in pairs:
                    run_comparison(store, dataset, study, device, callback, engine or Job.run)
            for dataset, study in pairs:
                with console.status(literal(f"explaining {dataset.name}")):
                    explain(store, dataset, read_comparison(store, study, DatasetRecord.of(dataset)), device)
        except KeyboardInterrupt:
            runs = f"{progress.trained} finished runs are kept in {store.path}"
            fail(f"interrupted; {runs if progress.trained else 'no run had finished'}", 130)
        finally:
            store.to_csv(out / TABLE)
        comparisons = [read_comparison(store, study, DatasetRecord.of(dataset)) for dataset, study in pairs]
        stored = read_comparisons(store)
    report = write_report(stored, out / REPORT)  # of everything in the store
    return Outcome(comparisons, stored, report, out / TABLE, progress.trained, progress.kept)


def print_files(outcome: Outcome, seconds: float) -> None:
    """Prints the number of runs, the time and the files."""
    kept = f", {outcome.kept:,} more from the store" if outcome.kept else ""
    echo(f"{outcome.trained:,} runs{kept}, {seconds:.1f} s in all")
    echo(f"report: {outcome.report}    all runs: {outcome.table}")


def _check_folder(out: Path) -> None:
    """Refuses to overwrite files that are not ours."""
    from gfgn.report.files import check_page

    table = out / TABLE
    if table.exists() and not table.read_text(encoding="utf-8", errors="replace").startswith("key,dataset,"):
        raise ValueError(f"--out must be a folder whose {TABLE} gfgn may overwrite, but {table} is something else")
    check_page(out / REPORT)


def default_splits(dataset: NodeDataset, splits: int | None, default: int) -> int:
    """The number of splits: as given, or the default, or all if there are fewer."""
    return min(default, max(len(dataset.splits), 1)) if splits is None else splits
