"""`gfgn datasets`: lists the named datasets; `describe` describes one, or a user's graph; `pack` stores it."""

from pathlib import Path
from typing import Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import app, echo, print_table, requires, stdout, user_errors
from gfgn.cli.reading import Reader, print_notes, takes_graph

datasets = typer.Typer(help="List the named datasets; describe or pack one of them, or a graph of your own.")
app.add_typer(datasets, name="datasets")


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the named datasets."""
    if context.invoked_subcommand is not None:
        return
    from gfgn.data.named.catalog import DATASETS

    rows = [
        (name, entry.description, f"{entry.statistics.nodes:,}", str(entry.statistics.classes), entry.kind)
        for name, entry in DATASETS.items()
    ]
    print_table(("name", "description", "nodes", "classes", "kind"), rows, right=("nodes", "classes"))


@datasets.command()
@takes_graph()
def describe(
    data: options.Data,
    *,
    reader: Reader,
    png: Annotated[Path | None, typer.Option(help="Draw the histograms to this file instead.")] = None,
) -> None:
    """Show the source, sizes, homophily, degrees and feature smoothness of a dataset or of a graph of your own."""
    from rich.console import Console

    from gfgn.data import DATASETS
    from gfgn.data.diagnosis import describe as describe_dataset
    from gfgn.data.files import atomic_write
    from gfgn.report.terminal import print_histograms, statistics

    with user_errors():
        description = describe_dataset(reader.open(data, Console(stderr=True)).dataset)
        if png is not None:
            with requires("paper", "matplotlib"):
                from gfgn.report.figures import description_figure
            with atomic_write(png) as unfinished:
                description_figure(description).savefig(unfinished, format="png", dpi=160)
    echo("\n".join(statistics(description, DATASETS.get(data.lower()))))
    if png is None:
        print_histograms(stdout(), description)
    else:
        echo(f"\nhistograms: {png}")


@datasets.command()
@takes_graph()
def pack(
    data: options.Data,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write; new or empty.")],
    *,
    reader: Reader,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read the tables in batches: numeric features only, not scaled.")
    ] = False,
    memory: Annotated[str, typer.Option(help="With --stream: memory for sorting edges.")] = "1GB",
) -> None:
    """Write a graph into a folder of memory-mapped arrays, for training on samples of graphs larger than memory."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with user_errors(ImportError):
        if stream:
            from gfgn.data import pack_tables

            notes: list[str] = []
            with Progress(console=console, transient=True) as bar:
                task = bar.add_task("reading edges", total=None)
                store = pack_tables(
                    data,
                    folder,
                    reader.options,
                    memory=memory,
                    progress=lambda done: bar.update(task, description=f"{done:,} edges read"),
                    notes=notes,
                )
            print_notes(data, notes, console)
        else:
            from gfgn.data.on_disk import pack as pack_dataset

            dataset = reader.open(data, console).dataset
            with console.status(f"writing {folder}"):
                store = pack_dataset(dataset, folder)
    echo(f"{folder}: {store}")
