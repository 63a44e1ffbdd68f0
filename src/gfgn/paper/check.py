"""`check`: whether the files of a study or an analysis follow from its runs, and whether these can be made again.

Four steps, each of which finds what the ones before cannot: files are made again from the runs (`check_files`), runs
must satisfy what training guarantees (`gfgn.paper.consistency`), the verdicts on the paper's claims must follow
(`check_analysis`), and a random sample of the runs is trained again (`gfgn.paper.retrain`). A run that the same code
made on the same kind of device, with the same versions, is repeated bit for bit, whatever trains beside it. Others are
judged by bounds (`gfgn.paper.bounds`).
"""

from __future__ import annotations

import difflib
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.paper.analyses import ANALYSES, FOLDERS, redraw
from gfgn.paper.bounds import FALSE_ALARM
from gfgn.paper.consistency import Facts, check_consistency
from gfgn.paper.reproduce import RESULTS, render
from gfgn.paper.retrain import compare, draw_further, draw_sample, find_cells, train_again
from gfgn.paper.studies import load_study, study_names
from gfgn.runs.record import count_codes
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, Study
from gfgn.runs.study_files import RUNS
from gfgn.runs.study_runner import LOG, Log, select_cells
from gfgn.runs.table import read_runs
from gfgn.runs.text import count, other_code
from gfgn.train.settings import choose_device

CLAIMS = "claims"


@dataclass
class Checked:
    """One line per problem, and one per kind of check that says what was checked."""

    problems: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)

    def add(self, what: str, problems: Sequence[str]) -> None:
        """Adds the outcome of a kind of check."""
        self.problems += problems
        self.summary.append(f"{what}: {count(len(problems), 'problem') if problems else 'passed'}")


def check(
    name: str | Path,
    out: Path | None = None,
    *,
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    full: bool = False,
    seed: int | None = None,
    train: bool = True,
    root: Path | None = None,
    trust_code: bool = False,
    device: str = "cpu",
    log: Log = LOG,
) -> Checked:
    """Checks the folder of a study or an analysis.

    Args:
        name: The study, see `load_study`, or the analysis.
        out: Its folder; `results/NAME` by default.
        models: Names of models to train; all by default.
        datasets: Names of datasets to load and to train on; all that can be loaded by default.
        full: Whether to train runs of every model on every graph, also where that takes long, instead of a sample that
            takes minutes.
        seed: Of the sample; drawn and logged by default, so that nobody knows the sample beforehand.
        train: Whether to train.
        root: Folder of all datasets, see `gfgn.data.load`.
        trust_code: Whether a YAML file may name models of one's own, see `read_study`.
        device: Where to train, see `choose_device`.
    """
    out, checked, device = out or RESULTS / Path(name).stem, Checked(), choose_device(device)
    if str(name) in ANALYSES and str(name) not in study_names():
        checked.add(f"files of {out}", check_analysis(str(name), out, root, device, log))
        return checked
    study = load_study(name, trust_code)
    if not (out / RUNS).is_file():
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, got {out}")
    cells, results = select_cells(study, models, datasets), Results(study, read_runs(out / RUNS))
    log(f"{out}: making tables and figures of {count(len(results.rows), 'run')} again")
    checked.add(f"tables and figures of {out}", check_files(study, out))
    data, missing = _load(study, results, cells, root)
    facts = {name: Facts.of(each) for name, each in data.items()}
    required = full or bool(datasets)
    checked.add(f"consistency of {count(len(results.rows), 'run')}", check_consistency(results, facts, out))
    if missing:
        checked.problems += missing.values() if required else []
        checked.summary.append(f"data of {', '.join(missing)} (not loaded): not checked")
    if str(name) in study_names() and (out.parent / CLAIMS).is_dir():
        log(f"{out.parent / CLAIMS}: judging the claims again")
        checked.add("claims", check_analysis(CLAIMS, out.parent / CLAIMS, root, device, log))
    if other := other_code(count_codes(results.rows)):
        log(f"{out}: {other}")
    if train:
        _check_runs(
            checked, results, cells, data, facts, full, secrets.randbits(32) if seed is None else seed, device, log
        )
    return checked


def _load(
    study: Study, results: Results, cells: Iterable[Cell], root: Path | None
) -> tuple[dict[str, NodeDataset], dict[str, str]]:
    """The data of cells that have runs, by name; and for datasets that cannot be loaded, why."""
    recorded, data, missing = {row.dataset for row in results.rows}, dict[str, NodeDataset](), dict[str, str]()
    views = {
        name: (cell.dataset, view)
        for cell in cells
        for name, view in zip(study.data_names(cell), study.views(cell), strict=True)
    }
    for name, (dataset, view) in views.items():
        if name in recorded and dataset not in missing:
            try:
                data[name] = study.load(dataset, view, root)
            except (OSError, ImportError) as error:
                missing[dataset] = f"{dataset}: {' '.join(str(error).split())}"
    return data, missing


def _check_runs(
    checked: Checked,
    results: Results,
    cells: Sequence[Cell],
    data: Mapping[str, NodeDataset],
    facts: Mapping[str, Facts],
    full: bool,
    seed: int,
    device: str,
    log: Log,
) -> None:
    """Trains a sample of runs again."""
    found = find_cells(results, cells, facts)
    sizes = {name: max(_size(data[runs.data]) for runs in own) for name, own in found.items()}
    picks = draw_sample(found, sizes, seed, full)
    log(f"the sample has the seed {seed}; --seed {seed} draws it again")
    # A run on other data cannot be made again; that is a problem of consistency already.
    picks = [pick for pick in picks if facts[pick.runs.data].is_of(pick.row)]
    made = train_again(picks, data, sizes, device, log)
    compared = compare(made, len(results.rows), device)
    if further := draw_further(compared, sizes, seed):
        log(f"{count(len(compared.suspicious), 'cell')} may differ; more of their runs decide")
        made += train_again(further, data, sizes, device, log)
        compared = compare(made, len(results.rows), device)
    graphs = count(len({pick.runs.data for pick in picks}), "graph")
    trained = f"{count(len(made), 'run')} on {graphs} trained again (sample {seed})"
    by_bits = f"{compared.by_bits} by bits, {compared.by_bound} by bounds, also in {compared.groups} groups"
    checked.add(f"{trained}, {by_bits}", compared.problems)
    if compared.by_bound:
        checked.summary.append(f"honest results fail the bounds with a probability of at most {FALSE_ALARM:g} in all")


def _size(data: NodeDataset) -> int:
    """Number of edges and of nonzero features."""
    x = data.x
    return data.graph.num_edges + int(x.values().numel() if x.layout != torch.strided else x.count_nonzero())


# --- files ------------------------------------------------------------------------------------------------------------


def check_files(study: Study, out: Path) -> list[str]:
    """For each table and figure of a folder that does not follow from its runs, what differs."""
    from gfgn.paper.figures.studies import draw_study  # imports matplotlib

    problems = [_difference(out / name, text.encode()) for name, text in render(study, out).items()]
    with TemporaryDirectory() as folder:
        drawn = draw_study(Results(study, read_runs(out / RUNS)), Path(folder))
        for table in [*out.glob("*.csv"), *out.glob("*.md")]:
            shutil.copy(table, folder)
        for name in ANALYSES:
            if FOLDERS.get(name, name) == study.name:
                drawn += redraw(name, Path(folder))
        problems += [_difference(out / path.name, path.read_bytes()) for path in drawn]
        made = {path.name for path in drawn}
    problems += [f"{path}: is not drawn from the runs" for path in sorted(out.glob("*.svg")) if path.name not in made]
    return [problem for problem in problems if problem]


def check_analysis(name: str, out: Path, root: Path | None, device: str, log: Log) -> list[str]:
    """For each file of an analysis that does not follow from the folders next to it, what differs."""
    if not out.is_dir():
        raise FileNotFoundError(f"out must be the folder of the analysis {name}, got {out}")
    with TemporaryDirectory() as folder:
        for sibling in out.resolve().parent.iterdir():
            if sibling.is_dir() and sibling != out.resolve():
                (Path(folder) / sibling.name).symlink_to(sibling)
        own = Path(folder) / name
        own.mkdir(exist_ok=True)
        made = ANALYSES[name](own, root=root, device=device, progress=log)
        problems = [_difference(out / path.relative_to(own), path.read_bytes()) for path in made]
    return [problem for problem in problems if problem]


def _difference(path: Path, made: bytes) -> str:
    """How a file differs from what its runs give: the first line; empty if it does not."""
    if not path.is_file():
        return f"{path}: does not exist"
    committed = path.read_bytes()
    if committed == made:
        return ""
    if path.suffix == ".svg":
        return f"{path}: differs from the figure that its runs give"
    old, new = (content.decode(errors="replace").splitlines() for content in (committed, made))
    lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:]
    has = next((line[1:] for line in lines if line.startswith("-")), "nothing")
    should = next((line[1:] for line in lines if line.startswith("+")), "nothing")
    cut = [repr(line if len(line) <= 200 else f"{line[:200]}…") for line in (has, should)]
    return f"{path}: has {cut[0]}, but its runs give {cut[1]}"
