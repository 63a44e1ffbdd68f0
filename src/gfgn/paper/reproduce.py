"""`reproduce`: runs a study or an analysis of the paper and writes its tables, figures and page into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gfgn.data.files import replace_text
from gfgn.paper.analyses import ANALYSES, FOLDERS, PARTS, SECTIONS, names, redraw
from gfgn.paper.page import make_page
from gfgn.paper.studies import load_study, study_names
from gfgn.runs.results import Results
from gfgn.runs.study import Study
from gfgn.runs.study_file import did_you_mean
from gfgn.runs.study_files import CHOSEN, RUNS, TIMES, chosen_csv, read_times, write_study_files
from gfgn.runs.study_runner import LOG, Log, Outcome, run_study
from gfgn.runs.table import RunsError, read_runs
from gfgn.runs.training import Job
from gfgn.train.settings import choose_device

PAGE = "README.md"
RESULTS = Path("results")


def reproduce(
    name: str | Path,
    out: Path | None = None,
    *,
    device: str = "auto",
    train: bool = True,
    reuse: Sequence[Path] = (),
    root: Path | None = None,
    trust_code: bool = False,
    log: Log = LOG,
    **settings: Any,
) -> Outcome:
    """Runs a study, or a part of it, and the analysis with the same name if there is one, and writes the files.

    Runs that the folder already has are not trained again. A study of the paper in its own folder, `results/NAME`, also
    takes runs from those of the other studies in `results`; anything else takes them from the folders in `reuse` only.

    Args:
        name: One of `names()`, or the path of a YAML file with a study.
        out: Folder for the files; `results/NAME` by default.
        reuse: Folders of studies whose runs are taken where this one lacks them.
        device: The device to train on; `"auto"` is a GPU if there is one.
        trust_code: Whether a YAML file may name models of one's own, see `read_study`.
        **settings: See `run_study`.
    """
    own = out is None and str(name) in study_names()
    out, device = out or RESULTS / FOLDERS.get(str(name), Path(name).stem), choose_device(device)
    if str(name) not in names() and Path(name).suffix not in (".yaml", ".yml"):
        hint = did_you_mean(name, names())
        raise ValueError(f"name must be one of {', '.join(names())} or a YAML file, got {str(name)!r}{hint}")
    analysis = ANALYSES.get(str(name))
    if analysis is not None and str(name) not in study_names():
        if settings.pop("engine", Job.run) is not Job.run:
            raise ValueError(f"engine must be that of this process for {str(name)!r}, an analysis without a study")
        part = _part(str(name), **settings)
        files = analysis(out, root=root, device=device, progress=log, **part)
        if str(name) in FOLDERS and (out / RUNS).is_file():
            files.append(replace_text(out / PAGE, render(load_study(FOLDERS[str(name)]), out)[PAGE]))
        return Outcome(files=files)
    study = load_study(name, trust_code)
    reuse = [*reuse, *(_other_studies(str(name), log) if own else ())]
    options: dict[str, Any] = {
        "device": device,
        "train": train,
        "reuse": reuse,
        "root": root,
        "log": log,
        "write": _write,
    }
    outcome = run_study(study, out, **options, **settings)
    if analysis is not None and not outcome.stopped:
        outcome.files += analysis(out, root=root, device=device, progress=log) if train else redraw(str(name), out)
        replace_text(out / PAGE, render(study, out)[PAGE])  # shows the figures of the analysis
    return outcome


def _part(analysis: str, models: Sequence[str] = (), datasets: Sequence[str] = (), **_: Any) -> dict[str, Any]:
    """The part of an analysis to run."""
    part = {name: names for name, names in (("models", models), ("datasets", datasets)) if names}
    if part and analysis not in PARTS:
        raise ValueError(f"{', '.join(part)} must not be given for {analysis!r}, which has no parts")
    return part


def _other_studies(name: str, log: Log) -> list[Path]:
    """The folders of the other studies of the paper in `results`; one that cannot be read is left out."""
    folders = []
    for folder in (RESULTS / other for other in study_names() if other != name):
        if (folder / RUNS).is_file():
            try:
                read_runs(folder / RUNS)
            except RunsError as error:
                log(f"not reused: {error}")
            else:
                folders.append(folder)
    return folders


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
    return [*paths, replace_text(out / PAGE, _page(results, out))]


def _page(results: Results, out: Path) -> str:
    page = make_page(results, read_times(out / TIMES), sorted(out.glob("*.svg")))
    sections = SECTIONS.get(results.study.name)
    return page if sections is None else page + sections(results, out)
