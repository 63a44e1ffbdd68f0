"""The files of a study's folder: its runs, choices and times, and for a study of one's own the tables of results."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from gfgn.data.files import read_yaml, replace_text
from gfgn.data.named.catalog import DATASETS
from gfgn.runs.grid import COMMON_PARAMS, ignored_params, make_replica
from gfgn.runs.results import Results
from gfgn.runs.table import options_text, write_runs
from gfgn.runs.text import NONE, gain, heading, p_value, percent

RUNS, CHOSEN, TIMES, STORE, SPEC = "runs.csv.gz", "chosen.csv", "times.csv", "runs.sqlite", "study.yaml"


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
    paths = [write_runs(out / RUNS, results.runs), replace_text(out / CHOSEN, chosen_csv(results))]
    return paths + [out / TIMES] * (out / TIMES).is_file()


def chosen_csv(results: Results, ignored: bool = False) -> str:
    """The text of `chosen.csv`: the configurations of every cell that have been tuned to the end, best first.

    `ignored` hyperparameters, which a model does not have, are left empty unless asked for, as in those of the paper.
    """
    vary = results.study.vary
    axis = [] if vary is None else [vary.name if vary.name != "lam" else "at_lam"]
    header = ["dataset", "model", *axis, "lr", "weight_decay", "dropout", "lam", "own", "val", "std", "runs", "chosen"]
    lines: list[list[object]] = []
    for cell in results.study.all_cells():
        selection = results[cell].selection
        candidates = selection.candidates if selection else ()
        for rank, candidate in enumerate(each for each in candidates if not each.dropped):
            replica = make_replica(candidate.configuration)
            at: list[object] = ["" if cell.at is None else cell.at] if axis else []
            without = set() if ignored else ignored_params(cell.model)
            hyper = ["" if name in without else getattr(replica, name) for name in COMMON_PARAMS]
            scores = [f"{candidate.val:.6f}", f"{candidate.std:.6f}", candidate.runs, int(rank == 0)]
            options = options_text((*replica.given.items(), *replica.options))
            lines.append([cell.dataset, cell.model, *at, *hyper, options, *scores])
    return _csv(header, lines)


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


def keep_spec(study: Path, out: Path) -> None:
    """Keeps a study file in the folder of its results, with the paths of its graphs relative to that folder."""
    content = read_yaml(study)

    def moved(path: str) -> str:
        return path if path in DATASETS else os.path.relpath(study.parent / path, out)

    content["datasets"] = [
        moved(each) if isinstance(each, str) else each | {"path": moved(each["path"])} for each in content["datasets"]
    ]
    replace_text(out / SPEC, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def write_tables(results: Results, out: Path) -> list[Path]:
    """Writes the scores of a study, and differences to the baseline, as CSV, Markdown and LaTeX; returns the paths."""
    scores, gaps = _tables(results)
    markdown = "\n\n".join(_markdown(*table) for table in (scores, gaps) if len(table[1]))
    latex = "\n\n".join(_latex(*table) for table in (scores, gaps) if len(table[1]))
    texts = {"csv": results.frame().to_csv(index=False), "md": f"{markdown}\n", "tex": f"{latex}\n"}
    return [replace_text(out / f"results.{kind}", text) for kind, text in texts.items()]


Table = tuple[list[str], list[list[str]]]  # the header, and lines


def _tables(results: Results) -> tuple[Table, Table]:
    """Scores by model, one column per dataset and value of what is varied; and differences to the baseline."""
    parts, models = results.comparisons(), results.study.models
    titles = [f"{part.dataset.name}, {heading(part.dataset.metric)}" for part in parts]
    baselines = [f"{title} − {part.baseline}" for title, part in zip(titles, parts, strict=True)]
    scores, gaps = [], []
    for model in models:
        cells, differences = [model], [model]
        for part in parts:
            summary, gap, metric = part.summary().get(model), part.gap_to_baseline(model), part.dataset.metric
            cells.append(percent(summary, metric) if summary else NONE)
            p = f" (p {p_value(gap.p)})" if gap and p_value(gap.p) and gap.low != gap.high else ""
            differences.append(gain(gap, metric) + p if gap else NONE)
        scores.append(cells)
        gaps += [differences] if set(differences[1:]) != {NONE} else []
    return (["model", *titles], scores), (["model", *baselines], gaps)


def _markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def _latex(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for the package booktabs."""
    import pandas as pd

    columns = "l" + "r" * (len(header) - 1)
    text = str(pd.DataFrame(lines, columns=list(header)).to_latex(index=False, escape=True, column_format=columns))
    for sign, command in {"±": r"$\pm$", "−": "$-$", "–": "--", "λ": r"$\lambda$"}.items():
        text = text.replace(sign, command)
    return text
