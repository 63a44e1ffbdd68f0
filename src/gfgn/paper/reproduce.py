"""`reproduce`: runs a study of the paper into a folder, part by part, and checks what a folder has.

The folder gets `runs.csv` (one line a run), `chosen.csv` (the grid's means and what was chosen), `README.md` (published
beside measured) and `times.csv`; `runs.sqlite`, where runs are kept as they finish, can be made again from `runs.csv`.
It needs nothing but PyTorch, PyTorch Geometric, NumPy, SciPy and PyYAML.
"""

from __future__ import annotations

import csv
import difflib
import io
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import torch

from gfgn.data.dataset import Dataset
from gfgn.paper.analyses import ANALYSES, redraw
from gfgn.paper.page import Time, make_page
from gfgn.runs.plan import make_replicas, run_study, select
from gfgn.runs.record import Row, device_name
from gfgn.runs.results import Results, chosen_table
from gfgn.runs.store import Store
from gfgn.runs.study import Cell, Study, load_study, study_names
from gfgn.runs.table import read_runs, write_runs
from gfgn.runs.views import load_view
from gfgn.train.config import TrainConfig
from gfgn.train.device import choose_device
from gfgn.train.replica import Replica, Status

RUNS, CHOSEN, PAGE, TIMES, STORE = "runs.csv", "chosen.csv", "README.md", "times.csv", "runs.sqlite"
LINE_EVERY = 20.0
"""Seconds between two lines on how far training is."""
WRITE_EVERY = 60.0
"""Seconds between two times that the files are written while a study runs."""
NEARLY_DONE = 60.0
"""Seconds that training may go on beyond the limit if it is about to end."""

Say = Callable[[str], None]


class TimeUp(Exception):
    """The limit of time has passed."""


@dataclass
class Outcome:
    """What came of a call.

    Attributes:
        made: Number of runs trained.
        missing: Cells of what was asked for that have not all their runs.
        left_out: Why datasets or models were left out, a line each.
        stopped: Whether the limit of time ended it.
        files: What was written.
    """

    made: int = 0
    missing: list[Cell] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    stopped: bool = False
    files: list[Path] = field(default_factory=list)


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
    say: Say = print,
) -> Outcome:
    """Runs a study, or the part of it that is asked for, and writes its files; then the analysis of that name, if there
    is one. What the folder has already is not trained again, and neither is what a study in a neighbouring folder has.

    Args:
        name: One of `names()`, or the path of a YAML file with a study.
        out: Folder for the files; `results/NAME` by default.
        device: Where to train; `"auto"`: on a GPU if there is one.
        models: Names of models, to train those only.
        datasets: Names of datasets, to train on those only.
        limit_minutes: Minutes after which it stops; what has finished by then is kept.
        batch_size: Largest number of runs that train together; by default as many as memory allows.
        train: Whether to train what is missing; if not, a study's files are written again from the runs there are.
        root: Folder of all datasets, see `gfgn.data.load`.
        say: Is told, in lines, what is being done.
    """
    out = out or Path("results") / Path(name).stem
    device, outcome = choose_device(device), Outcome()
    if limit_minutes is not None and not limit_minutes > 0:
        raise ValueError(f"limit_minutes must be above 0, got {limit_minutes}")
    if str(name) not in names() and Path(name).suffix not in (".yaml", ".yml"):
        close = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(names())} or a YAML file, got {str(name)!r}{hint}")
    is_study = str(name) in study_names() or str(name) not in ANALYSES
    if is_study:
        study = load_study(name)
        part = Part(study, models, datasets)
        _run_study(study, part, out, device, _Clock(limit_minutes, say), batch_size, train, root, outcome)
    if str(name) in ANALYSES and not outcome.stopped:
        if is_study and not train:
            outcome.files += redraw(str(name), out)
        else:
            outcome.files += ANALYSES[str(name)](out, root=root, device=device, progress=say)
        if is_study:  # its page shows what the analysis has drawn
            write_tables(study, out)
    return outcome


# --- running ----------------------------------------------------------------------------------------------------------


class Part:
    """The datasets and models of a study that are asked for, in the study's order; all where none is named.

    Args:
        study: The study.
        models: Names of models.
        datasets: Names of datasets.
    """

    def __init__(self, study: Study, models: Sequence[str], datasets: Sequence[str]) -> None:
        self.models = _chosen("--models", models, list(study.models))
        self.datasets = _chosen("--datasets", datasets, list(study.datasets))
        self.named = set(datasets)

    def cells(self, study: Study) -> list[Cell]:
        """The cells that are asked for."""
        return [cell for cell in study.all_cells() if cell.dataset in self.datasets and cell.model in self.models]


def _chosen(option: str, asked: Sequence[str], known: list[str]) -> list[str]:
    for name in asked:
        if name not in known:
            raise ValueError(f"{option} must be among {', '.join(known)}, got {name!r}")
    return [name for name in known if not asked or name in asked]


class _Clock:
    """Says how far training is, and ends it when the limit of time has passed.

    Args:
        minutes: The limit, or `None`.
        say: Is told how far training is.
    """

    def __init__(self, minutes: float | None, say: Say) -> None:
        self.say = say
        self.label = ""
        self._said = self._written = time.monotonic()
        self._end = None if minutes is None else self._said + 60 * minutes

    def check(self, grace: float = 0.0) -> None:
        """Raises `TimeUp` when the limit has passed, by more than `grace` seconds."""
        if self._end is not None and time.monotonic() > self._end + grace:
            raise TimeUp

    def is_time_to_write(self) -> bool:
        """Whether it is `WRITE_EVERY` seconds since this was last so."""
        due = time.monotonic() - self._written >= WRITE_EVERY
        self._written = time.monotonic() if due else self._written
        return due

    def watch(self, status: Status) -> None:
        """Within training: what is nearly done may go on."""
        now = time.monotonic()
        nearly = status.seconds_left is not None and status.seconds_left <= NEARLY_DONE
        self.check(NEARLY_DONE if nearly else 0.0)
        if now - self._said >= LINE_EVERY:
            self._said = now
            left = "" if status.seconds_left is None else f", about {status.seconds_left:.0f} s left"
            self.say(
                f"{self.label}: {status.finished:,} of {status.replicas:,} runs, {status.alive:,} training at epoch "
                f"{status.epoch:,}{left}"
            )


def _run_study(
    study: Study,
    part: Part,
    out: Path,
    device: str,
    clock: _Clock,
    batch_size: int | None,
    train: bool,
    root: Path | None,
    outcome: Outcome,
) -> None:
    if not train and not (out / STORE).is_file() and not any(out.resolve().parent.glob(f"*/{RUNS}")):
        raise FileNotFoundError(f"out must be the folder of a study with {RUNS}, or beside such, got {out}")
    with Store(out / STORE) as store:
        _fill(store, study, out, clock.say)
        runner = _Runner(store, study, device, clock, batch_size, out / TIMES, outcome)
        try:
            for data, cells in _datasets(study, part, root, device, clock, outcome) if train else ():
                _check_graph(store, data, out)
                for model, some in _alike(study, cells):
                    runner.run(data, model, some)
                    if clock.is_time_to_write():
                        write_files(study, _own_rows(store, study), out)
        except TimeUp:
            outcome.stopped = True
        finally:
            rows = _own_rows(store, study)
            outcome.files = write_files(study, rows, out, figures=True)
    wanted, lacking = set(part.cells(study)), Results(study, rows).missing()
    outcome.missing = [cell for cell in lacking if cell in wanted]


class _Runner:
    """Trains the cells of one model on one graph that train alike, all configurations and values of λ in one call."""

    def __init__(
        self,
        store: Store,
        study: Study,
        device: str,
        clock: _Clock,
        batch_size: int | None,
        times: Path,
        outcome: Outcome,
    ) -> None:
        self.store, self.study, self.device, self.clock = store, study, device, clock
        self.batch_size, self.times, self.outcome = batch_size, times, outcome

    def run(self, data: Dataset, model: str, cells: Sequence[Cell]) -> None:
        """The grid of every cell, then what it chose with every seed; what the store has is not trained again."""
        self.clock.check()
        self.clock.label = f"{data.name} {model}"
        start, before = time.perf_counter(), self.outcome.made
        config = self.study.variant(cells[0]).config
        try:
            self._train(data, model, _distinct(self.study.tuning(cell) for cell in cells), config)
            final = [self.study.final(cell, self._choice(data, cell, config)) for cell in cells]
            self._train(data, model, _distinct(final), config)
        except (ImportError, torch.OutOfMemoryError) as error:
            self.outcome.left_out.append(f"{self.clock.label}: {' '.join(str(error).split())}")
            self.clock.say(f"left out: {self.outcome.left_out[-1]}")
        finally:
            made, seconds = self.outcome.made - before, time.perf_counter() - start
            if made:
                self._note(data.name, model, made, seconds)
        need = sum(self.study.count(cell) for cell in cells)
        self.clock.say(f"{self.clock.label}: {need:,} runs, {made:,} of them new, {seconds:.1f} s")

    def _train(self, data: Dataset, model: str, replicas: list[Replica], config: TrainConfig) -> None:
        if replicas:
            run_study(
                *(self.store, data, model, replicas, config, self.device),
                progress=self._count,
                status=self.clock.watch,
                batch_size=self.batch_size,
            )

    def _choice(self, data: Dataset, cell: Cell, config: TrainConfig) -> dict[str, object]:
        tuning = self.study.tuning(cell)
        rows = [row for row in self.store.find(data, cell.model, tuning, config) if row is not None]
        return select(rows).best if rows else self.study.configurations(cell)[0]

    def _count(self, row: Row) -> None:
        self.outcome.made += 1

    def _note(self, dataset: str, model: str, made: int, seconds: float) -> None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        add_time(self.times, Time(dataset, model, made, seconds, device_name(self.device), date))


def _datasets(
    study: Study, part: Part, root: Path | None, device: str, clock: _Clock, outcome: Outcome
) -> Iterator[tuple[Dataset, list[Cell]]]:
    """Every graph that is asked for, on the device, with its cells. One that cannot be had is left out, unless it was
    named."""
    cells = part.cells(study)
    for name, view in dict.fromkeys((cell.dataset, study.variant(cell).view) for cell in cells):
        clock.check()
        try:
            data = load_view(name, view, root)
        except (OSError, ImportError) as error:
            if name in part.named:
                raise
            line = f"{name}: {' '.join(str(error).split())}"
            if line not in outcome.left_out:  # once for all that is made of a dataset
                outcome.left_out.append(line)
                clock.say(f"left out: {line}")
            continue
        yield _moved(data, device), [cell for cell in cells if (cell.dataset, study.variant(cell).view) == (name, view)]


def _alike(study: Study, cells: Iterable[Cell]) -> list[tuple[str, list[Cell]]]:
    """Models with those of their cells that train in the same way."""
    groups: dict[tuple[str, TrainConfig], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, study.variant(cell).config), []).append(cell)
    return [(model, some) for (model, _), some in groups.items()]


def _check_graph(store: Store, data: Dataset, out: Path) -> None:
    """Refuses to add to runs of another graph or of other splits of the same name."""
    for row in store.rows(dataset=data.name, seed=0):
        split = row.replica.split
        there = (row.dataset_fingerprint, row.split_fingerprint)
        if split < len(data.splits) and there != (data.fingerprint, data.split_fingerprint(split)):
            raise ValueError(
                f"out must be a folder without runs, or with runs of the same data, got {out}, whose {data.name!r}, "
                f"split {split}, is not the one that is loaded"
            )


def _moved(data: Dataset, device: str) -> Dataset:
    """The dataset on the device, once for all models: what they work out about its graph is then kept."""
    assert data.fingerprint  # hashed before it is moved, which keeps the hash
    return data.to(device)


def _distinct(replicas: Iterable[Iterable[Replica]]) -> list[Replica]:
    return list(dict.fromkeys(replica for some in replicas for replica in some))


def _fill(store: Store, study: Study, out: Path, say: Say) -> None:
    """Puts into the store what its folder's table has, and of the neighbours' tables what belongs to the study."""
    if (out / RUNS).is_file():
        added = store.add(read_runs(out / RUNS))
        if added:
            say(f"{added:,} runs from {out / RUNS}")
    wanted: set[tuple[str, str, Replica, TrainConfig]] = set()
    for cell in study.all_cells():
        replicas = make_replicas(cell.model, study.configurations(cell), range(study.splits), range(study.seeds))
        name, config = study.data_name(cell), study.variant(cell).config
        wanted |= {(name, cell.model, replica, config) for replica in replicas}
    for path in sorted(out.resolve().parent.glob(f"*/{RUNS}")):
        if path.parent == out.resolve():
            continue
        try:
            rows = read_runs(path)
        except ValueError:  # a table of something else
            continue
        added = store.add(row for row in rows if (row.dataset, row.model, row.replica, row.config) in wanted)
        if added:
            say(f"{added:,} runs from {path.parent.name}/{RUNS}")


def _own_rows(store: Store, study: Study) -> list[Row]:
    """The runs of the study's datasets and models that were trained as the study trains."""
    cells = study.all_cells()
    wanted = {(study.data_name(cell), cell.model, study.variant(cell).config) for cell in cells}
    rows = store.rows(dataset=sorted({name for name, _, _ in wanted}), model=list(study.models))
    return [row for row in rows if (row.dataset, row.model, row.config) in wanted]


# --- files ------------------------------------------------------------------------------------------------------------


def write_files(study: Study, rows: Sequence[Row], out: Path, figures: bool = False) -> list[Path]:
    """Writes the runs, and all that is made of them.

    Args:
        study: The study.
        rows: Its runs.
        out: Folder for the files.
        figures: Whether to draw figures too, which needs matplotlib; without it they stay as they are.
    """
    paths = [write_runs(out / RUNS, rows)]
    if (out / TIMES).is_file():
        paths.append(out / TIMES)
    if figures and find_spec("matplotlib") is not None:
        from gfgn.paper.figures.studies import draw_study

        paths += draw_study(Results(study, rows), out)
    return paths + write_tables(study, out)


def write_tables(study: Study, out: Path) -> list[Path]:
    """Writes `chosen.csv` and `README.md` from what else there is in a folder."""
    texts = render(study, out)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in texts]


def render(study: Study, out: Path) -> dict[str, str]:
    """The texts of `chosen.csv` and `README.md`, from the runs of a folder."""
    results = Results(study, read_runs(out / RUNS))
    figures = sorted(out.glob("*.svg"))
    page = make_page(results, read_times(out / TIMES), figures)
    return {CHOSEN: _csv(*chosen_table(results)), PAGE: page}


def read_times(path: Path) -> list[Time]:
    """What `times.csv` has; nothing where there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Time(row["dataset"], row["model"], int(row["runs"]), float(row["seconds"]), row["device"], row["date"])
            for row in csv.DictReader(file)
        ]


def add_time(path: Path, time: Time) -> None:
    """Adds a line to `times.csv`; several processes may do so at once."""
    text = _csv(Time._fields, [time._replace(seconds=round(time.seconds, 2))])
    with path.open("a", encoding="utf-8") as file:
        file.write(text if file.tell() == 0 else text.partition("\n")[2])


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
