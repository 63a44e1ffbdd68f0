"""`gfgn report`: writes the report of a store again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import app, echo, fail, find_modules_here, user_errors


@app.command()
def report(
    source: Annotated[
        Path, typer.Argument(help="A store (runs.sqlite), a folder with a store, or results/NAME of a study.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write.", show_default="report.html next to the store")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="Also write all runs to this .csv or .parquet file.")] = None,
    trust_code: options.TrustCode = False,
    open_: options.Open = False,
) -> None:
    """Write the HTML report of a store or of a study again; for a study of the paper, its tables and figures.

    Nothing is trained.
    """
    from gfgn.cli.compare import STORE
    from gfgn.report import write_report
    from gfgn.runs import Store, read_comparisons

    if runs is not None and runs.suffix not in (".csv", ".parquet"):
        fail(f"--runs must end in .csv or .parquet, got {runs}")
    if trust_code:
        find_modules_here()
    if (source / "study.yaml").is_file():
        _report_own_study(source, out, runs, trust_code, open_)
        return
    if (source / "chosen.csv").exists():  # only the folder of a study has it
        from gfgn.cli.reproduce import report_study

        if out is not None or runs is not None:
            fail(f"--out and --runs are for a comparison; {source} is the folder of a study with its runs.csv.gz")
        report_study(source)
        return
    path = source / STORE if source.is_dir() else source
    with user_errors():
        with Store(path, read_only=True) as store:
            if runs is not None:
                (store.to_csv if runs.suffix == ".csv" else store.to_parquet)(runs)
            comparisons, count = read_comparisons(store), len(store)
        if not comparisons and runs is not None:
            echo(f"runs: {runs}")
            return
        if not comparisons:
            raise ValueError(f"{path} has {count} runs but no comparison to report; `gfgn compare --out` writes one")
        written = write_report(comparisons, out or path.parent / "report.html")
    for comparison in comparisons:
        for model, (have, need) in comparison.incomplete.items():
            echo(f"left out: {model} on {comparison.dataset.name}, which has {have:,} of {need:,} runs so far")
    echo(f"report: {written}")
    if open_:
        options.open_in_browser(written)


def _report_own_study(folder: Path, out: Path | None, runs: Path | None, trust_code: bool, open_: bool) -> None:
    """Writes the report of a study from the files in its folder: one section per dataset and variant."""
    from gfgn.report import write_report
    from gfgn.runs import Store, read_runs
    from gfgn.runs.results import Results
    from gfgn.runs.study_file import read_study
    from gfgn.runs.study_files import RUNS, SPEC, write_tables

    with user_errors():
        rows = read_runs(folder / RUNS)
        results = Results(read_study(folder / SPEC, trust_code), rows)
        if runs is not None:
            with Store(":memory:") as store:
                store.add(rows)
                (store.to_csv if runs.suffix == ".csv" else store.to_parquet)(runs, dropped=True)
        written = write_report(results.comparisons(), out or folder / "report.html", study=results.study)
        tables = write_tables(results, folder)
    echo(f"report: {written}    tables: {', '.join(map(str, tables))}")
    if open_:
        options.open_in_browser(written)
