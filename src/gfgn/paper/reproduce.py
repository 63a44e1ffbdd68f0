"""`reproduce`: runs a study or an analysis of the paper and writes its tables, figures and page into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gfgn.paper.analyses import ANALYSES, redraw
from gfgn.paper.page import make_page
from gfgn.paper.studies import load_study, study_names
from gfgn.runs.results import Results
from gfgn.runs.study import Study
from gfgn.runs.study_file import did_you_mean
from gfgn.runs.study_files import CHOSEN, RUNS, TIMES, chosen_csv, read_times, write_study_files
from gfgn.runs.study_runner import LOG, Log, Outcome, run_study
from gfgn.runs.table import read_runs
from gfgn.train.settings import choose_device

PAGE = "README.md"


def names() -> list[str]:
    """Everything that can be reproduced: the studies and the analyses."""
    return list(dict.fromkeys([*study_names(), *ANALYSES]))


def reproduce(
    name: str | Path,
    out: Path | None = None,
    *,
    device: str = "auto",
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    limit_minutes: float | None = None,
    batch_size: int | None = None,
    train: bool = True,
    root: Path | None = None,
    log: Log = LOG,
) -> Outcome:
    """Runs a study, or a part of it, and the analysis with the same name if there is one, and writes the files.

    Runs that the folder, or a study in a sibling folder, already has are not trained again.

    Args:
        name: One of `names()`, or the path of a YAML file with a study.
        out: Folder for the files; `results/NAME` by default.
        device: The device to train on; `"auto"` is a GPU if there is one.
        models: Names of models to train; all by default.
        datasets: Names of datasets to train on; all by default.
        limit_minutes: Minutes after which training stops; finished runs are kept.
        batch_size: Largest number of runs that train together; by default as many as fit into memory.
        train: Whether to train; if not, the files of a study are written from the runs there are.
        root: Folder of all datasets, see `gfgn.data.load`.
        log: Receives progress messages.
    """
    out, device = out or Path("results") / Path(name).stem, choose_device(device)
    if str(name) not in names() and Path(name).suffix not in (".yaml", ".yml"):
        hint = did_you_mean(name, names())
        raise ValueError(f"name must be one of {', '.join(names())} or a YAML file, got {str(name)!r}{hint}")
    analysis = ANALYSES.get(str(name))
    if analysis is not None and str(name) not in study_names():
        return Outcome(files=analysis(out, root=root, device=device, progress=log))
    study = load_study(name)
    part = {"models": models, "datasets": datasets}
    settings = {"device": device, "limit_minutes": limit_minutes, "batch_size": batch_size, "train": train}
    outcome = run_study(study, out, **part, **settings, root=root, log=log, write=_write)  # type: ignore[arg-type]
    if analysis is not None and not outcome.stopped:
        outcome.files += analysis(out, root=root, device=device, progress=log) if train else redraw(str(name), out)
        (out / PAGE).write_text(render(study, out)[PAGE], encoding="utf-8")  # shows the figures of the analysis
    return outcome


def render(study: Study, out: Path) -> dict[str, str]:
    """The texts of `chosen.csv` and `README.md` from the runs of a folder."""
    results = Results(study, read_runs(out / RUNS))
    return {CHOSEN: chosen_csv(results), PAGE: _page(results, out)}


def _write(results: Results, out: Path, ended: bool) -> list[Path]:
    """Writes the files of a study; figures when it has ended."""
    paths = write_study_files(results, out)
    if ended:
        from gfgn.paper.figures.studies import draw_study  # imports matplotlib

        paths += draw_study(results, out)
    (out / PAGE).write_text(_page(results, out), encoding="utf-8")
    return [*paths, out / PAGE]


def _page(results: Results, out: Path) -> str:
    return make_page(results, read_times(out / TIMES), sorted(out.glob("*.svg")))
