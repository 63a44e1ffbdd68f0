"""`reproduce`: runs a study or an analysis of the paper and writes its tables, figures and page into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gfgn.data.files import replace_text
from gfgn.paper.studies import ANALYSES, DRAWN, FOLDERS, load_study, study_names
from gfgn.paper.study_page import make_page
from gfgn.report.comparisons import write_report
from gfgn.runs.engine import Engine, Job, ProgressCallback
from gfgn.runs.results import Results
from gfgn.runs.study_files import CHOSEN, RUNS, SPEC, STORE, TIMES, chosen_csv, keep_spec, read_times, write_tables
from gfgn.runs.study_runner import LOG, Log, Outcome, run_study
from gfgn.runs.table import read_runs, write_runs
from gfgn.train.settings import choose_device

PAGE = "README.md"
RESULTS = Path("results")


def reproduce(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    device: str = "auto",
    train: bool = True,
    limit_minutes: float | None = None,
    batch_size: int | None = None,
    reuse: Sequence[Path] = (),
    root: Path | None = None,
    callback: ProgressCallback | None = None,
    engine: Engine = Job.run,
    trust_code: bool = False,
    log: Log = LOG,
) -> Outcome:
    """Runs a study, or a part of it, and the analysis with the same name if there is one, and writes the files.

    Runs that the folder already has are not trained again. A study of the paper in its own folder, `results/NAME`, also
    takes runs from those of the other studies in `results`; anything else takes them from the folders in `reuse` only.

    Args:
        name: One of `gfgn.paper.studies.names()`, or the path of a YAML file with a study.
        out: Folder for the files; `results/NAME` by default.
        reuse: Folders of studies whose runs are taken where this one lacks them.
        device: The device to train on; `"auto"` is a GPU if there is one.
        trust_code: Whether a YAML file may name custom models, see `read_study`.

    The other arguments are those of `gfgn.runs.study_runner.run_study`.
    """
    in_results, device = out is None and str(name) in study_names(), choose_device(device)
    out = out or RESULTS / FOLDERS.get(str(name), Path(name).stem)
    if str(name) in ANALYSES and str(name) not in study_names():
        part = {key: names for key, names in (("models", models), ("datasets", datasets)) if names}
        if part and (str(name) not in FOLDERS or models):
            raise ValueError(f"{', '.join(part)} must not be given for {str(name)!r}")
        if engine is not Job.run:
            raise ValueError(f"engine must be that of this process for {str(name)!r}, an analysis without a study")
        files = ANALYSES[str(name)](out, root=root, device=device, progress=log, **part)
        if str(name) in FOLDERS and (out / RUNS).is_file():
            files += write_derived(Results(load_study(FOLDERS[str(name)]), read_runs(out / RUNS)), out)
        return Outcome(files=files)
    study = load_study(name, trust_code)
    if str(name) not in study_names():
        keep_spec(Path(name), out)
    if not train and not reuse and (out / RUNS).is_file() and not (out / STORE).is_file():
        results = Results(study, read_runs(out / RUNS))
        return Outcome(missing=results.missing(), files=write_derived(results, out))
    others = [RESULTS / other for other in study_names() if (RESULTS / other / RUNS).is_file()] if in_results else []
    outcome = run_study(
        study, out, models=models, datasets=datasets, device=device, limit_minutes=limit_minutes, batch_size=batch_size,
        train=train, reuse=[*reuse, *others], root=root,
        callback=callback, engine=engine, log=log, write=_write,
    )  # fmt: skip
    if study.name in ANALYSES and train and not outcome.stopped:
        outcome.files += ANALYSES[study.name](out, root=root, device=device, progress=log)
        outcome.files += write_derived(Results(study, read_runs(out / RUNS)), out)  # shows the figures of the analysis
    return outcome


def write_derived(results: Results, out: Path, ended: bool = True) -> list[Path]:
    """Writes everything in a study's folder that follows from its runs, and returns the paths; figures once the study
    has ended."""
    from gfgn.paper.figures import draw_study  # imports matplotlib

    paths, study = [replace_text(out / CHOSEN, chosen_csv(results, ignored=not (out / SPEC).is_file()))], results.study
    if ended:
        paths += draw_study(results, out)
    if ended and study.name in DRAWN and load_study(study.name) == study:
        paths += DRAWN[study.name](out)
    page = make_page(results, read_times(out / TIMES), sorted(out.glob("*.svg")))
    if study.name == "thesis" and study.vary is not None:
        from gfgn.paper.thesis import sections

        page += sections(results, out)
    if (out / SPEC).is_file() and (parts := results.comparisons()):
        paths += [*write_tables(results, out), write_report(parts, out / "report.html", study)]
    return [*paths, replace_text(out / PAGE, page)]


def _write(results: Results, out: Path, ended: bool) -> list[Path]:
    """Writes the files of a study while it runs, and when it has ended."""
    times = [out / TIMES] * (out / TIMES).is_file()
    return [write_runs(out / RUNS, results.runs), *times, *write_derived(results, out, ended)]
