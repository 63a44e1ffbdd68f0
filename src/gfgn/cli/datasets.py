"""`gfgn datasets`: lists the named datasets; `gfgn datasets describe` shows the statistics of one."""

from pathlib import Path
from typing import Annotated

import typer

from gfgn.cli.app import app, print_table, user_errors

datasets = typer.Typer(help="List the named datasets, or describe one of them.")
app.add_typer(datasets, name="datasets")


@datasets.callback(invoke_without_command=True)
def list_datasets(context: typer.Context) -> None:
    """List the named datasets."""
    if context.invoked_subcommand is not None:
        return
    from gfgn.data import DATASETS

    rows = [
        (name, entry.description, f"{entry.statistics.nodes:,}", str(entry.statistics.classes), entry.kind)
        for name, entry in DATASETS.items()
    ]
    print_table(("name", "description", "nodes", "classes", "kind"), rows, right=("nodes", "classes"))


@datasets.command()
def describe(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    png: Annotated[Path | None, typer.Option(help="Draw the histograms to this file instead.")] = None,
) -> None:
    """Show a dataset's source, sizes, homophily, degrees and feature smoothness."""
    from gfgn.data import DATASETS, load
    from gfgn.data.diagnosis import describe as describe_dataset
    from gfgn.report.figures import description_figure
    from gfgn.report.terminal import histograms, statistics

    with user_errors():
        description = describe_dataset(load(name))
        if png is not None:
            description_figure(description).savefig(png, format="png", dpi=160)
    lines = [f"histograms: {png}"] if png is not None else histograms(description)
    typer.echo("\n".join([*statistics(description, DATASETS[name.lower()]), "", *lines]))
