"""`gfgn datasets`: lists the named datasets; `gfgn datasets describe` shows statistics of one, or of a user's graph."""

from pathlib import Path
from typing import Annotated

import typer

from gfgn.cli.app import app, echo, print_table, user_errors
from gfgn.cli.reading import ReadOptions, open_data, takes_graph

datasets = typer.Typer(help="List the named datasets, or describe one of them or a graph of your own.")
app.add_typer(datasets, name="datasets")


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the named datasets."""
    if context.invoked_subcommand is not None:
        return
    from gfgn.data.datasets.catalog import DATASETS

    rows = [
        (name, entry.description, f"{entry.statistics.nodes:,}", str(entry.statistics.classes), entry.kind)
        for name, entry in DATASETS.items()
    ]
    print_table(("name", "description", "nodes", "classes", "kind"), rows, right=("nodes", "classes"))


@datasets.command()
@takes_graph
def describe(
    data: Annotated[str, typer.Argument(help="A dataset (see `gfgn datasets`) or the path of a graph of your own.")],
    *,
    reading: ReadOptions,
    png: Annotated[Path | None, typer.Option(help="Draw the histograms to this file instead.")] = None,
) -> None:
    """Show the source, sizes, homophily, degrees and feature smoothness of a dataset or of a graph of your own."""
    from rich.console import Console

    from gfgn.data import DATASETS
    from gfgn.data.diagnosis import describe as describe_dataset
    from gfgn.data.files import atomic_write
    from gfgn.report.figures import description_figure
    from gfgn.report.terminal import histograms, statistics

    with user_errors():
        description = describe_dataset(open_data(data, reading, Console(stderr=True)))
        if png is not None:
            with atomic_write(png) as unfinished:
                description_figure(description).savefig(unfinished, format="png", dpi=160)
    lines = [f"histograms: {png}"] if png is not None else histograms(description)
    echo("\n".join([*statistics(description, DATASETS.get(data.lower())), "", *lines]))
