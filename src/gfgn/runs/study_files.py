"""The files of a study's folder: its runs, the chosen configurations and the wall-clock times."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gfgn.data.files import replace_text
from gfgn.runs.grid import make_replica
from gfgn.runs.results import Results
from gfgn.runs.table import options_text, write_runs

RUNS, CHOSEN, TIMES, STORE = "runs.csv.gz", "chosen.csv", "times.csv", "runs.sqlite"


class Time(NamedTuple):
    """Wall-clock time of new runs of a model on a dataset, compilation included."""

    dataset: str
    model: str
    runs: int
    seconds: float
    device: str
    date: str


def write_study_files(results: Results, out: Path) -> list[Path]:
    """Writes the runs and the chosen configurations of a study and returns the paths of its files."""
    paths = [write_runs(out / RUNS, results.runs), out / CHOSEN]
    replace_text(paths[1], chosen_csv(results))
    return paths + [out / TIMES] * (out / TIMES).is_file()


def chosen_csv(results: Results) -> str:
    """The text of `chosen.csv`: every configuration of every cell that has been tuned, best first."""
    vary = results.study.vary
    axis = [] if vary is None else [vary.name if vary.name != "lam" else "at_lam"]
    header = ["dataset", "model", *axis, "lr", "weight_decay", "dropout", "lam", "own", "val", "std", "runs", "chosen"]
    halved = results.study.search is not None and bool(results.study.search.rungs)
    lines: list[list[object]] = []
    for cell in results.study.all_cells():
        selection = results[cell].selection
        for rank, candidate in enumerate(selection.candidates if selection else ()):
            replica = make_replica(candidate.configuration)
            at: list[object] = ["" if cell.at is None else cell.at] if axis else []
            hyper = [replica.lr, replica.weight_decay, replica.dropout, replica.lam]
            scores = [f"{candidate.val:.6f}", f"{candidate.std:.6f}", candidate.runs, int(rank == 0)]
            scores += [int(candidate.dropped)] * halved
            own = options_text((*replica.given.items(), *replica.options))
            lines.append([cell.dataset, cell.model, *at, *hyper, own, *scores])
    return _csv([*header, *["dropped"] * halved], lines)


def read_times(path: Path) -> list[Time]:
    """The times of a file; empty if there is none."""
    if not path.is_file():
        return []
    try:
        header, *lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        if tuple(header) != Time._fields:
            raise ValueError(f"columns {', '.join(header)}")
        times = [Time(a, b, int(runs), float(seconds), *rest) for a, b, runs, seconds, *rest in lines]
        if not all(math.isfinite(time.seconds) for time in times):
            raise ValueError("seconds that are not finite")
    except (ValueError, TypeError, LookupError, csv.Error) as error:
        raise ValueError(f"{path} must be a table of times, got a file that cannot be read as one: {error}") from None
    return times


def add_time(path: Path, time: Time) -> None:
    """Appends one line to a file of times; several processes may do so at once."""
    text = _csv(Time._fields, [time._replace(seconds=round(time.seconds, 2))])
    with path.open("a", encoding="utf-8") as file:
        file.write(text if file.tell() == 0 else text.partition("\n")[2])


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
