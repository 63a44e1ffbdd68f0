"""`gfgn reproduce`: runs or checks a study of the paper. The only module outside `gfgn.paper` that imports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gfgn.cli import options
from gfgn.cli.app import app, echo, fail, find_modules_here, requires, split_names, user_errors

if TYPE_CHECKING:
    from gfgn.runs.study_runner import Outcome


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="A study or an analysis, or a YAML file; none: list them.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Recompute files and repeat a random sample of runs.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With --check: repeat runs of every cell.")] = False,
    seed: Annotated[int | None, typer.Option(help="With --check: seed of the sample.", show_default="drawn")] = None,
    tables: Annotated[bool, typer.Option("--tables", help="Write tables and figures again; no training.")] = False,
    device: options.Device = "auto",
    models: Annotated[str, typer.Option(help="Only these models, separated by commas.", show_default="all")] = "",
    datasets: Annotated[str, typer.Option(help="Only these datasets, separated by commas.", show_default="all")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder for the files.", show_default="results/NAME")] = None,
    reuse: Annotated[
        list[Path] | None, typer.Option(help="Folder of a study whose runs may be taken; repeat it for several.")
    ] = None,
    limit_minutes: Annotated[float | None, typer.Option(help="Stop after this time; run again to continue.")] = None,
    trust_code: options.TrustCode = False,
    batch_size: Annotated[int | None, typer.Option(help="Largest number of runs that train together.")] = None,
    on: options.On = None,
    track: options.Track = None,
) -> None:
    """Run a study of the paper, whole or in parts, or check the committed results of one.

    Runs that the folder already has are not trained again. Exit code 1: something was left out, or differs.
    """
    if name is None:
        _list_studies()
        return
    with requires("paper", "gfgn.paper", "matplotlib"):
        import matplotlib  # noqa: F401 - figures are drawn at the end, which is late to say that it is missing

        from gfgn.paper.check import check as check_study
        from gfgn.paper.reproduce import reproduce as run_study
    from gfgn.runs import CallbackList
    from gfgn.train import keep_freed_memory

    if not check and (full or seed is not None):
        fail(f"{'--full' if full else '--seed'} is for --check, got it without")
    if on is not None and (check or tables):
        fail(f"--on is for training, got it with {'--check' if check else '--tables'}")
    if trust_code:
        find_modules_here()
    only_models, only_datasets = split_names(models), split_names(datasets)
    try:
        with user_errors(), keep_freed_memory():
            if check:
                checked = check_study(
                    name, out, models=only_models, datasets=only_datasets, full=full, seed=seed,
                    trust_code=trust_code, device=device,
                )  # fmt: skip
                code = print_checked(checked)
            else:
                with options.trackers(track) as trackers, options.engine(on, device) as engine:
                    outcome = run_study(
                        name, out, models=only_models, datasets=only_datasets, train=not tables,
                        device=device if on is None else "auto",  # what this process itself computes on
                        limit_minutes=limit_minutes, batch_size=batch_size, reuse=reuse or [],
                        callback=CallbackList(*trackers), engine=engine, trust_code=trust_code,
                    )  # fmt: skip
                    code = print_outcome(outcome)
    except KeyboardInterrupt:
        fail("interrupted; finished runs are kept, run again to continue", 130)
    raise typer.Exit(code)


def report_study(folder: Path) -> None:
    """Writes the tables and figures of a study of the paper again, from the runs in its folder."""
    with requires("paper", "gfgn.paper"):
        from gfgn.paper.studies import study_names

    name, command = folder.resolve().name, f"gfgn reproduce STUDY.yaml --tables --out {folder}"
    if name not in study_names():
        fail(f"source must be results/NAME of a study of the paper, got {folder}; for your own study, run `{command}`")
    reproduce(name, tables=True, out=folder)


def print_outcome(outcome: Outcome) -> int:
    """Prints what `reproduce` did and returns the exit code: 1 if something was left out, else 0."""
    for line in outcome.reused:
        echo(f"reused: {line}")
    for line in outcome.left_out:
        echo(f"left out: {line}")
    if outcome.missing:
        count = len(outcome.missing)
        echo(f"{count:,} {'cell lacks' if count == 1 else 'cells lack'} runs; run again to continue")
    stopped = "stopped at the time limit; " if outcome.stopped else ""
    echo(f"{stopped}{outcome.made:,} new runs; {', '.join(map(str, outcome.files))}")
    return 1 if outcome.left_out else 0


def print_checked(checked: Mapping[str, Sequence[str]]) -> int:
    """Prints what `check` found, and returns the exit code: 1 if there are problems, else 0."""
    from gfgn.runs.text import count

    for problems in checked.values():
        for line in problems:
            echo(f"differs: {line}")
    for what, problems in checked.items():
        echo(f"{what}: {count(len(problems), 'problem') if problems else 'passed'}")
    differs = any(checked.values())
    echo("differs from the committed results" if differs else "same as the committed results")
    return 1 if differs else 0


def _list_studies() -> None:
    with requires("paper", "gfgn.paper"):
        from gfgn.paper.studies import names, study_names, study_title

    studies, width = study_names(), max(map(len, names())) + 2
    for name in names():
        echo(f"{name:<{width}}{study_title(name) if name in studies else 'an analysis'}")
