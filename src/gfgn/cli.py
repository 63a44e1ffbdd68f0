"""The command `gfgn`. What is heavy is imported inside the commands, so that `gfgn --help` answers at
once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import gfgn

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console
    from torch import Tensor

    from gfgn.data import Dataset
    from gfgn.data.diagnosis import Description
    from gfgn.experiments import Comparison
    from gfgn.train import Run

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


@app.command()
def compare(
    data: Annotated[
        str, typer.Argument(help="Name of a dataset (see `gfgn datasets`), or a folder, zip or npz with a graph.")
    ] = "dimensions",
    models: Annotated[str, typer.Option(help="Names of models, separated by commas.")] = (
        "mlp,gcn,gfgn-graph,gfgn-neighbor,gfgn-pair"
    ),
    splits: Annotated[
        int | None, typer.Option(help="Number of splits.", show_default="4, or all if there are fewer")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds for each split.")] = 1,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs of a run.")] = 400,
    out: Annotated[Path, typer.Option(help="Folder for runs.csv and report.html.")] = Path("gfgn-report"),
    check: Annotated[
        bool, typer.Option("--check", help="Say what was understood of a graph of your own; no training.")
    ] = False,
) -> None:
    """Train models on a graph over splits and seeds; print the table, write the report.

    Without DATA: a generated graph, no download, well under a minute.
    """
    from rich.console import Console

    start = time.perf_counter()
    console = Console(stderr=True)
    names = [name.strip() for name in models.split(",") if name.strip()]
    finished: list[Run] = []
    try:
        dataset = _open(data, check, console)
        comparison = _train(dataset, names, splits, seeds, epochs, out, console, finished)
        with console.status("reading the gates") if console.is_terminal else nullcontext():
            gates = _gates(comparison.dataset)
        from gfgn.report import write_report

        report = write_report(comparison, out / "report.html", gates)
    except (ValueError, OSError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        kept = f"{len(finished)} finished runs are kept in {out / 'runs.csv'}" if finished else "no run had finished"
        typer.echo(f"gfgn: interrupted; {kept}", err=True)
        raise typer.Exit(130) from None
    _print(comparison)
    typer.echo(f"{len(comparison.runs)} runs, {time.perf_counter() - start:.1f} s in all")
    typer.echo(f"report: {report}    every run: {comparison.path}")


def _open(data: str, check: bool, console: Console) -> Dataset:
    """The dataset of that name, or the graph at that path; with `check`, what was understood of it, and the end."""
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
        raise typer.Exit
    for note in reading.notes:
        console.print(f"{data}: {note}", highlight=False, soft_wrap=True)
    return reading.dataset


def _train(
    dataset: Dataset,
    models: list[str],
    splits: int | None,
    seeds: int,
    epochs: int,
    out: Path,
    console: Console,
    finished: list[Run],
) -> Comparison:
    from gfgn.experiments import compare as run_all

    if splits is None:
        splits = min(4, max(len(dataset.splits), 1))
    if dataset.metric != "accuracy":
        raise ValueError(f"gfgn compare measures accuracy; {dataset.name} is measured by {dataset.metric}")
    total = splits * seeds
    with _progress(console, models, total) as show:

        def done(run: Run) -> None:
            finished.append(run)
            show(run)

        return run_all(dataset, models, splits, seeds, out=out, max_epochs=epochs, progress=done)


@contextmanager
def _progress(console: Console, models: list[str], total: int) -> Iterator[Callable[[Run], None]]:
    """A bar a model on a terminal, a plain line a model elsewhere."""
    if not console.is_terminal:
        seen: dict[str, list[Run]] = {}

        def line(run: Run) -> None:
            runs = seen.setdefault(run.model, [])
            runs.append(run)
            if len(runs) == total:
                seconds = sum(each.seconds for each in runs)
                print(f"{run.model}: {total} runs, {seconds:.1f} s", file=sys.stderr, flush=True)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {model: bar.add_task(model, total=total, start=False) for model in models}

        def step(run: Run) -> None:
            bar.start_task(tasks[run.model])
            bar.advance(tasks[run.model])

        yield step


def _gates(dataset: Dataset) -> dict[str, Tensor] | None:
    from gfgn.experiments.gates import LEVELS, MAX_DIMENSIONS, gates_by_dimension

    if dataset.num_features > MAX_DIMENSIONS:
        return None
    return {level: gates_by_dimension(dataset, level) for level in LEVELS}


def _print(comparison: Comparison) -> None:
    from rich.table import Table

    from gfgn.experiments.compare import is_gfgn
    from gfgn.report.html import interval, percent, signed

    baseline = comparison.best_baseline
    table = Table(box=None, pad_edge=False, title=None, header_style="bold")
    table.add_column("model")
    table.add_column(f"test {comparison.dataset.metric}, %", justify="right")
    table.add_column("95% interval", justify="right")
    if baseline is not None:
        table.add_column(f"against {baseline}", justify="right")
    for model, summary in comparison.summary().items():
        cells = [model, percent(summary), interval(summary).replace("[", r"\[")]
        gain = comparison.gain(model)
        if baseline is not None:
            against = "" if gain is None else f"{signed(gain.mean)} {interval(gain, sign=True)}"
            cells.append(against.replace("[", r"\["))
        table.add_row(*cells, style="bold" if is_gfgn(model) else None)
    console = _stdout()
    console.print(f"{comparison.dataset.name}: {comparison.dataset.description}", soft_wrap=True, highlight=False)
    console.print(f"All models: {comparison.settings}.", soft_wrap=True, highlight=False)
    console.print(table)


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the named datasets."""
    if context.invoked_subcommand is not None:
        return
    from rich.table import Table

    from gfgn.data.registry import DATASETS

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
    from gfgn.data.registry import DATASETS

    entry, degrees = DATASETS[name], found.degrees
    smallest, lower, median, upper, largest = degrees.quantiles
    classes = f"{len(found.classes)}, of {min(found.classes):,} to {max(found.classes):,} nodes"
    smooth = found.smoothness.double().sort().values
    quartiles = [f"{smooth[round(share * (len(smooth) - 1))]:.2f}" for share in (0.25, 0.5, 0.75)]
    facts = {
        "source": entry.source,
        "cite": entry.citation,
        "licence": entry.licence,
        "nodes": f"{found.num_nodes:,}" + (f", {found.unlabelled:,} without a label" if found.unlabelled else ""),
        "edges": f"{found.num_edges:,}",
        "features": f"{found.num_features:,}, {100 * found.nonzero:.1f}% not zero",
        "classes": classes,
        "splits": f"{found.splits}, measured by {found.metric}",
        "homophily": f"edge {found.edge_homophily:.3f}, node {found.node_homophily:.3f}, "
        f"adjusted {found.adjusted_homophily:.3f}",
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
