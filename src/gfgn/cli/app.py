"""The command `gfgn`. What is heavy is imported inside the commands, so that `gfgn --help` answers at
once."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import gfgn

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import Dataset
    from gfgn.data.diagnosis import Description
    from gfgn.report.terminal import Counter
    from gfgn.runs import Comparison
    from gfgn.runs.study_runner import Outcome

STORE, TABLE = "runs.sqlite", "runs.csv"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Graph Feature Gating Networks: how much of each feature dimension a node takes from its neighbours.",
)

datasets = typer.Typer(help="The named datasets: what there is, and what one of them is like.")
app.add_typer(datasets, name="datasets")


def main() -> None:
    """Entry point: bad usage is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        # Errors of the command line can say what they mean; anything else is a fault of ours and shows itself.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        message = " ".join(format_message().split())
        if message:
            print(f"gfgn: {message}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gfgn {gfgn.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


class Grid(StrEnum):
    """What configurations a comparison tries."""

    none = "none"
    paper = "paper"


@app.command()
def compare(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of datasets (see `gfgn datasets`), or folders, zips or npz files with a graph.",
            show_default="dimensions",
        ),
    ] = None,
    models: Annotated[str, typer.Option(help="Names of models (see `gfgn models`), separated by commas.")] = (
        "mlp,gcn,gfgn-graph,gfgn-neighbor,gfgn-pair"
    ),
    splits: Annotated[
        int | None, typer.Option(help="Number of splits.", show_default="4, or all if there are fewer")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each split.")] = 1,
    grid: Annotated[
        Grid,
        typer.Option(help="paper: tune every model on the grid of the paper; none: one configuration for all."),
    ] = Grid.none,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs of a run.")] = 400,
    out: Annotated[Path, typer.Option(help="Folder for runs.sqlite, runs.csv and report.html.")] = Path("gfgn-report"),
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: cuda if there is one.")] = "auto",
    check: Annotated[
        bool, typer.Option("--check", help="Say what was understood of a graph of your own; no training.")
    ] = False,
) -> None:
    """Train models on graphs over splits and seeds; print the tables, write the report.

    Without DATA: a generated graph, no download, well under a minute. Run again, it trains only what is missing.
    """
    from rich.console import Console

    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")  # says nothing to a user of ours
    start = time.perf_counter()
    console = Console(stderr=True)
    names = [name.strip() for name in models.split(",") if name.strip()]
    counts: list[Counter] = []
    try:
        opened = [_open(each, check, console) for each in data or ["dimensions"]]
        if check:
            return
        settings: dict[str, Any] = {"models": names, "seeds": seeds, "max_epochs": epochs, "grid": _grid(grid)}
        found = [dataset for dataset in opened if dataset is not None]
        comparisons, written = _compare(found, settings, splits, out, device, console, counts)
    except (ValueError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        made = sum(count.made for count in counts)
        kept = f"{made} finished runs are kept in {out / STORE}" if made else "no run had finished"
        typer.echo(f"gfgn: interrupted; {kept}", err=True)
        raise typer.Exit(130) from None
    from gfgn.report.terminal import show_comparisons

    show_comparisons(_stdout(), comparisons)
    there = f", {counts[0].kept:,} more were there already" if counts[0].kept else ""
    typer.echo(f"{counts[0].made:,} runs{there}, {time.perf_counter() - start:.1f} s in all")
    typer.echo(f"report: {written}    every run: {out / TABLE}")


@app.command()
def report(
    source: Annotated[
        Path, typer.Argument(help="A store (runs.sqlite), the folder that has one, or results/NAME of a study.")
    ],
    out: Annotated[Path | None, typer.Option(help="The file to write.", show_default="report.html beside it")] = None,
    runs: Annotated[Path | None, typer.Option(help="Also write every run to this .csv or .parquet file.")] = None,
) -> None:
    """Write the HTML report again, from a store alone; for a study, its tables and figures, from its runs alone."""
    from gfgn.report import write_report
    from gfgn.runs import Store, read_comparisons
    from gfgn.runs.study_files import CHOSEN

    if (source / CHOSEN).exists():
        _report_study(source, out, runs)
        return
    path = source / STORE if source.is_dir() else source
    if runs is not None and runs.suffix not in (".csv", ".parquet"):
        _fail(f"--runs must end in .csv or .parquet, got {runs}")
    try:
        with Store(path, read_only=True) as store:
            if runs is not None:
                (store.to_csv if runs.suffix == ".csv" else store.to_parquet)(runs)
            comparisons, count = read_comparisons(store), len(store)
        if not comparisons:
            raise ValueError(f"{path} holds {count} runs but no comparison to report; `gfgn compare --out` makes one")
        written = write_report(comparisons, out or path.parent / "report.html")
    except (ValueError, OSError, ImportError) as error:
        _fail(str(error))
    for comparison in comparisons:
        for model, (have, need) in comparison.incomplete.items():
            typer.echo(f"left out: {model} on {comparison.dataset.name}, which has {have:,} of {need:,} runs so far")
    typer.echo(f"report: {written}")


def _report_study(folder: Path, out: Path | None, runs: Path | None) -> None:
    from gfgn.paper.studies import study_names

    name = folder.resolve().name
    if out is not None or runs is not None:
        _fail(f"--out and --runs are for a comparison; {folder} has the runs of a study, with runs.csv.gz beside them")
    if name not in study_names():
        _fail(
            f"source must be results/NAME of a study of the paper, got {folder}; for a study of your own, "
            f"`gfgn reproduce STUDY.yaml --tables --out {folder}`"
        )
    reproduce_study(name, tables=True, out=folder)


@app.command(name="reproduce")
def reproduce_study(
    name: Annotated[
        str | None,
        typer.Argument(help="A study or an analysis of the paper, or a YAML file; without it, what there is."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Make the tables again from runs.csv.gz and some runs on the CPU; compare."),
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write tables and figures again from runs.csv.gz; no training.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: cuda if there is one.")] = "auto",
    models: Annotated[str, typer.Option(help="Only these models, separated by commas.", show_default="all")] = "",
    datasets: Annotated[str, typer.Option(help="Only these datasets, separated by commas.", show_default="all")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for the files.", show_default="results/NAME")] = None,
    limit_minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes; run it again to go on.", show_default="none")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Largest number of runs that train together.", show_default="what fits")
    ] = None,
) -> None:
    """Run a study of the paper, in parts if need be, or check what is committed of it.

    What the folder has already is not trained again. Exit code 1: something was left out, or differs.
    """
    from gfgn.paper.check import check as check_study
    from gfgn.paper.reproduce import reproduce

    if name is None:
        _list_studies()
        return
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    part: dict[str, Any] = {"models": _names(models), "datasets": _names(datasets), "log": _say}
    try:
        if check:
            raise typer.Exit(_show_check(check_study(name, out, **part)))
        settings: dict[str, Any] = {"device": device, "limit_minutes": limit_minutes, "batch_size": batch_size}
        raise typer.Exit(_show_outcome(reproduce(name, out, **part, **settings, train=not tables)))
    except (ValueError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        typer.echo("gfgn: interrupted; finished runs are kept, run it again to go on", err=True)
        raise typer.Exit(130) from None


def _show_outcome(outcome: Outcome) -> int:
    """Prints the outcome and returns the exit code: 1 if something was left out, else 0."""
    for line in outcome.left_out:
        typer.echo(f"left out: {line}")
    if outcome.missing:
        cells = "1 cell lacks" if len(outcome.missing) == 1 else f"{len(outcome.missing):,} cells lack"
        typer.echo(f"{cells} runs; run it again to continue")
    stopped = "stopped at the time limit; " if outcome.stopped else ""
    typer.echo(f"{stopped}{outcome.made:,} new runs; " + ", ".join(map(str, outcome.files)))
    return 1 if outcome.left_out else 0


def _show_check(problems: Sequence[str]) -> int:
    """Prints the problems and returns the exit code: 1 if there are any, else 0."""
    for line in problems:
        typer.echo(f"differs: {line}")
    typer.echo("differs from what is committed" if problems else "all as committed")
    return 1 if problems else 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _list_studies() -> None:
    from gfgn.paper.reproduce import names
    from gfgn.paper.studies import load_study, study_names

    studies = study_names()
    width = max(map(len, names())) + 2
    for name in names():
        typer.echo(f"{name:<{width}}{load_study(name).title if name in studies else 'an analysis'}")


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _grid(grid: Grid) -> list[dict[str, Any]] | None:
    from gfgn.runs import PAPER_GRID

    return PAPER_GRID if grid is Grid.paper else None


def _open(data: str, check: bool, console: Console) -> Dataset | None:
    """The dataset of that name, or the graph at that path; with `check`, what was understood of it is said instead."""
    from gfgn.data import DATASETS, describe_reading, load, read_with_notes

    if data.lower() not in DATASETS and not Path(data).exists() and Path(data).name != data:
        raise ValueError(f"there is no folder or file {data!r} to read a graph from")
    if data.lower() in DATASETS or not Path(data).exists():
        if check:
            raise ValueError(f"--check is for a graph of your own, and there is none at {data!r}")
        return load(data)
    with console.status(f"reading {data}") if console.is_terminal else nullcontext():
        reading = read_with_notes(data)
    if check:
        typer.echo(describe_reading(reading))
        return None
    for note in reading.notes:
        console.print(f"{data}: {note}", highlight=False, soft_wrap=True)
    return reading.dataset


def _compare(
    datasets: Sequence[Dataset],
    settings: dict[str, Any],
    splits: int | None,
    out: Path,
    device: str,
    console: Console,
    counts: list[Counter],
) -> tuple[list[Comparison], Path]:
    """Trains what is missing, dataset by dataset, and writes the files. The report is of all that the store has."""
    from gfgn.report import write_report
    from gfgn.report.terminal import watching
    from gfgn.runs import Store, read_comparisons
    from gfgn.runs.comparison import make_plan, run_comparison
    from gfgn.runs.gates import gates_note
    from gfgn.runs.training import choose_device

    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ValueError(f"DATA must be graphs of different names, got {', '.join(names)}")
    device = choose_device(device)
    plans = [
        make_plan(dataset, splits=min(4, max(len(dataset.splits), 1)) if splits is None else splits, **settings)
        for dataset in datasets
    ]
    _check_table(out / TABLE)
    with Store(out / STORE) as store:
        try:
            with watching(console, sum(plan.count(model) for plan in plans for model in plan.models)) as callback:
                counts.append(callback)
                for dataset, plan in zip(datasets, plans, strict=True):
                    run_comparison(store, dataset, plan, device, callback)
            for dataset in datasets:
                with console.status(f"gates of {dataset.name}") if console.is_terminal else nullcontext():
                    gates_note(store, dataset)
        finally:
            store.to_csv(out / TABLE)
        found = {comparison.dataset.name: comparison for comparison in read_comparisons(store)}
    return [found[name] for name in names], write_report(list(found.values()), out / "report.html")


def _check_table(path: Path) -> None:
    """The table is written anew: what is there must be one of ours."""
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith("key,dataset,"):
        raise ValueError(f"--out must be a folder whose {TABLE} gfgn may write, and {path} is something else")


@app.command(name="models")
def list_models() -> None:
    """List the models by name: where each comes from, and its own options with their defaults."""
    from rich.table import Table

    from gfgn.nn.registry import MODELS

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "paper", "options"):
        table.add_column(heading, no_wrap=heading == "name")
    for name, entry in MODELS.items():
        options = ", ".join(f"{option} {parameter.default}" for option, parameter in entry.parameters.items())
        table.add_row(name, entry.reference, options)
    _stdout().print(table, highlight=False)


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the named datasets."""
    if context.invoked_subcommand is not None:
        return
    from rich.table import Table

    from gfgn.data.datasets.registry import DATASETS

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("name", "what"):
        table.add_column(heading, no_wrap=heading == "name")
    for heading in ("nodes", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("kind", no_wrap=True)
    for name, entry in DATASETS.items():
        sizes = entry.statistics
        table.add_row(name, entry.description, f"{sizes.nodes:,}", str(sizes.classes), entry.kind)
    _stdout().print(table, highlight=False)


@datasets.command()
def describe(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    png: Annotated[Path | None, typer.Option(help="Draw the histograms into this file instead.")] = None,
) -> None:
    """Show where a dataset comes from, its statistics, homophily, degrees and smoothness."""
    from gfgn.data import load
    from gfgn.data.diagnosis import describe as diagnose

    try:
        found = diagnose(load(name))
        if png is not None:
            from gfgn.report.figures import description_figure

            description_figure(found).savefig(png, format="png", dpi=160)
    except (ValueError, OSError) as error:
        _fail(str(error))
    lines = [*_facts(name.lower(), found), ""]
    lines += [f"histograms: {png}"] if png is not None else _histograms(found)
    for line in lines:
        typer.echo(line)


def _facts(name: str, found: Description) -> list[str]:
    from gfgn.data.datasets.registry import DATASETS

    entry, degrees = DATASETS[name], found.degrees
    smallest, lower, median, upper, largest = degrees.quantiles
    of = " labels, on" if found.metric == "micro_f1" else ", of"
    graphs = f" in {found.num_graphs:,} graphs" if found.num_graphs > 1 else ""
    unlabelled = f", {found.unlabelled:,} without a label" if found.unlabelled else ""
    adjusted = "" if math.isnan(found.adjusted_homophily) else f", adjusted {found.adjusted_homophily:.3f}"
    smooth = found.smoothness.double().sort().values
    quartiles = [f"{smooth[round(share * (len(smooth) - 1))]:.2f}" for share in (0.25, 0.5, 0.75)]
    facts = {
        "source": entry.source,
        "cite": entry.citation,
        "licence": entry.licence,
        "nodes": f"{found.num_nodes:,}{graphs}{unlabelled}",
        "edges": f"{found.num_edges:,}",
        "features": f"{found.num_features:,}, {100 * found.nonzero:.1f}% not zero",
        "classes": f"{len(found.classes)}{of} {min(found.classes):,} to {max(found.classes):,} nodes",
        "splits": f"{found.splits}, measured by {found.metric}",
        "homophily": f"edge {found.edge_homophily:.3f}, node {found.node_homophily:.3f}{adjusted}",
        "degree": f"mean {degrees.mean:.1f}, quartiles {lower:g}, {median:g} and {upper:g}, "
        f"from {smallest:g} to {largest:g}; {degrees.isolated:,} nodes without neighbours",
        "smoothness": f"quartiles {', '.join(quartiles)} (fᵀLf / fᵀf of a dimension; 0: smooth, 1: noise)"
        + (f"; {found.constant:,} constant dimensions count as 0" if found.constant else ""),
    }
    if entry.paper is not None:
        nodes, edges, features, count = entry.paper
        facts["in the paper"] = f"{nodes:,} nodes, {edges:,} edges, {features:,} features, {count} classes"
    return [f"{found.name}: {found.description}", *(f"  {key:<13}{value}" for key, value in facts.items())]


def _histograms(found: Description) -> list[str]:
    counts, edges = found.smoothness_histogram(12)
    degrees = {(f"{low}–{high}" if low < high else f"{low}"): count for low, high, count in found.degrees.bins}
    bounds = edges.tolist()
    smooth = {
        f"{low:.2f}–{high:.2f}": count
        for low, high, count in zip(bounds[:-1], bounds[1:], counts.tolist(), strict=True)
    }
    return ["nodes by degree", *_bars(degrees), "", "feature dimensions by smoothness", *_bars(smooth)]


def _bars(counts: dict[str, int], width: int = 50) -> list[str]:
    """A line of text a row; what is there at all shows at least a sliver."""
    most, label = max(1, *counts.values()), max(map(len, counts))
    eighths = {key: -(-count * 8 * width // most) for key, count in counts.items()}
    bars = {key: "█" * (size // 8) + " ▏▎▍▌▋▊▉"[size % 8].strip() for key, size in eighths.items()}
    return [f"  {key:>{label}} {bars[key]}{' ' if count else ''}{count:,}" for key, count in counts.items()]


def _stdout() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=100)


def _fail(message: str) -> NoReturn:
    typer.echo(f"gfgn: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)
