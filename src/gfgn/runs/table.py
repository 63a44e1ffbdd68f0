"""Tables of runs that can be committed: small files from which every run can be traced, and read back into a store.

A table is a gzipped CSV file with one line per run. The first line is a comment with a JSON object: `constants` holds
the columns that have one value in the whole file, and `fingerprints` the fingerprint of each dataset, followed by those
of its splits. The same rows give the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gfgn.data.files import atomic_write
from gfgn.runs.grid import COMMON_PARAMS, Configuration, Value
from gfgn.runs.record import NESTED, RunRecord, identify_row
from gfgn.train.code import UNKNOWN

COLUMNS = (
    *("dataset", "model", "split", "seed", *COMMON_PARAMS, "epoch", "val", "test", "seconds", "epochs"),
    *("num_parameters", "max_epochs", "patience", "metric", "standin", "search", "gfgn_version", "torch_version"),
    *("torch_geometric_version", "python_version", "device", "date"),
)
CODE = "code_version"  # a column that earlier tables lack; empty or left out for runs whose code is not known
INTEGERS = ("split", "seed", "epoch", "epochs", "num_parameters", "max_epochs", "patience")
NUMBERS = (*COMMON_PARAMS, "val", "test", "seconds")
TEXT = {*COLUMNS, CODE} - {*INTEGERS, *NUMBERS, "standin"}
Fingerprints = Mapping[str, tuple[str, Mapping[str, str]]]  # by dataset, its own and those of its splits


class RunsError(ValueError):
    """Raised for a file that is not a table of runs."""


def write_runs(path: Path, rows: Sequence[RunRecord]) -> Path:
    """Writes one line per run and returns the path. All numbers are written in full."""
    cells = [_cells(row) for row in rows]
    columns = [*COLUMNS, *sorted({name for row in cells for name in row} - set(COLUMNS))]
    values = {name: {row.get(name, "") for row in cells} for name in columns[1:]}
    constants = {name: values[name].pop() for name in columns[1:] if len(values[name]) == 1}
    header = {"constants": constants, "fingerprints": _fingerprints(rows)}
    text = io.StringIO(newline="")
    text.write(f"# {json.dumps(header)}\n")
    writer = csv.writer(text, lineterminator="\n")
    varying = [name for name in columns if name not in constants]
    writer.writerow(varying)
    writer.writerows([row.get(name, "") for name in varying] for row in cells)
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0))
    return path


def read_runs(path: Path) -> list[RunRecord]:
    """The runs of a file that `write_runs` wrote, in order."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as content:
            comment, lines = content.readline(), list(csv.reader(content))
        header = json.loads(comment.removeprefix("# "))
        constants, fingerprints = dict(header["constants"]), dict(header["fingerprints"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, TypeError, EOFError, zlib.error, csv.Error) as error:
        raise RunsError(f"{path} must be a table of runs, got a file that cannot be read as one: {error}") from None
    rows = []
    for number, line in enumerate(lines[1:], 3):
        try:
            rows.append(_row(constants | dict(zip(lines[0], line, strict=True)), fingerprints))
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise RunsError(f"{path}, line {number}: {error}") from None
    return rows


def options_text(options: Iterable[tuple[str, Value]]) -> str:
    """A model's options in one cell: `alpha=0.5 steps=10`."""
    return " ".join(f"{name}={_text(value)}" for name, value in options)


def _fingerprints(rows: Sequence[RunRecord]) -> Fingerprints:
    fingerprints: dict[str, tuple[str, dict[str, str]]] = {}
    for row in rows:
        dataset, splits = fingerprints.setdefault(row.dataset, (row.dataset_fingerprint, {}))
        split = splits.setdefault(str(row.split), row.split_fingerprint)
        if (dataset, split) != (row.dataset_fingerprint, row.split_fingerprint):
            raise RunsError(f"rows must be of one graph and one split per name, got two of {row.dataset!r}")
    return fingerprints


def _cells(row: RunRecord) -> dict[str, str]:
    """The cells of a row: text as it is, numbers in full, one column per value of a nested entry."""
    cells = row.cells() | {"standin": int(row.standin)}
    for name in ("key", "dataset_fingerprint", "split_fingerprint", *([CODE] if row.code_version == UNKNOWN else [])):
        del cells[name]
    nested = tuple(f"{prefix}_" for prefix in NESTED.values())
    return {
        name: value if isinstance(value, str) and not name.startswith(nested) else _text(value)
        for name, value in cells.items()
    }


def _row(cells: dict[str, str], fingerprints: Fingerprints) -> RunRecord:
    record: Configuration = {name: float(cells[name] or "nan") for name in NUMBERS}
    record |= {
        name: {
            column.removeprefix(f"{prefix}_"): _value(text)
            for column, text in cells.items()
            if text and column.startswith(f"{prefix}_")
        }
        for name, prefix in NESTED.items()
    }
    record["gates"] = {name: float(value) for name, value in record["gates"].items()} or None
    infinite = [name for name, value in (record | (record["gates"] or {})).items() if value in (math.inf, -math.inf)]
    if infinite:
        raise ValueError(f"{', '.join(infinite)} must be finite")
    record |= {name: text for name, text in cells.items() if name in TEXT}
    record |= {name: int(cells[name]) for name in INTEGERS}
    record |= {"key": "", "standin": cells["standin"] == "1", CODE: cells.get(CODE) or UNKNOWN}
    record["dataset_fingerprint"], splits = fingerprints[cells["dataset"]]
    row = RunRecord(**record, split_fingerprint=splits[cells["split"]])
    return replace(row, key=identify_row(row))


def _text(value: Value) -> str:
    """A cell that `_value` turns back into `value`: text as it is unless it reads as JSON; NaN is an empty cell."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return value if isinstance(value, str) and value and _value(value) == value else json.dumps(value)


def _value(text: str) -> Value:
    try:
        value: Value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value
