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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gfgn.runs.grid import HYPER
from gfgn.runs.record import DatasetRecord, Row, further_settings, identify
from gfgn.runs.store import atomic_file
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica

FIRST = ("dataset", "model", "split", "seed", *HYPER)
SCORES = ("epoch", "val", "test", "seconds", "epochs", "num_parameters")
VERSIONS = ("gfgn", "torch", "torch_geometric", "python")
LAST = (
    *("max_epochs", "patience", "metric", "standin", "search"),
    *(f"{name}_version" for name in VERSIONS),
    *("device", "date"),
)
OPTION, GATE, CONFIG = "option_", "gate_", "protocol_"
"""Prefixes of the columns for a model's options, gate summaries, and further settings of training."""


class RunsError(ValueError):
    """Raised for a file that is not a table of runs."""


def write_runs(path: Path, rows: Sequence[Row]) -> Path:
    """Writes one line per run and returns the path. All numbers are written in full."""
    cells = [_cells(row) for row in rows]
    names = {name for row in cells for name in row}
    further = {prefix: sorted(name for name in names if name.startswith(prefix)) for prefix in (OPTION, GATE, CONFIG)}
    columns = [*FIRST, *further[OPTION], *SCORES, *further[GATE], *LAST, *further[CONFIG]]
    values = {name: {row.get(name, "") for row in cells} for name in columns[1:]}
    constants = {name: values[name].pop() for name in columns[1:] if len(values[name]) == 1}
    header = {"constants": constants, "fingerprints": _fingerprints(rows)}
    text = io.StringIO(newline="")
    text.write(f"# {json.dumps(header)}\n")
    writer = csv.writer(text, lineterminator="\n")
    varying = [name for name in columns if name not in constants]
    writer.writerow(varying)
    writer.writerows([row.get(name, "") for name in varying] for row in cells)
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0))
    return path


def read_runs(path: Path) -> list[Row]:
    """The runs of a file that `write_runs` wrote, in order."""
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            comment, lines = file.readline(), list(csv.reader(file))
        header = json.loads(comment.removeprefix("# "))
        constants, fingerprints = header["constants"], header["fingerprints"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise RunsError(f"{path} must be a table of runs, got a file that cannot be read as one: {error}") from None
    rows = []
    for number, line in enumerate(lines[1:], 3):
        try:
            rows.append(_row(constants | dict(zip(lines[0], line, strict=True)), fingerprints))
        except (ValueError, TypeError, LookupError) as error:
            raise RunsError(f"{path}, line {number}: {error}") from None
    return rows


def own_parameters(options: Iterable[tuple[str, Any]]) -> str:
    """A model's options in one cell: `alpha=0.5 steps=10`."""
    return " ".join(f"{name}={_text(value)}" for name, value in options)


def _fingerprints(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """By dataset, its fingerprint and those of its splits."""
    fingerprints: dict[str, list[Any]] = {}
    for row in rows:
        dataset, splits = fingerprints.setdefault(row.dataset, [row.dataset_fingerprint, {}])
        split = splits.setdefault(str(row.replica.split), row.split_fingerprint)
        if (dataset, split) != (row.dataset_fingerprint, row.split_fingerprint):
            raise RunsError(f"rows must be of one graph and one split per name, got two of {row.dataset!r}")
    return fingerprints


def _cells(row: Row) -> dict[str, str]:
    values = {
        **{name: getattr(row.replica, name) for name in ("split", "seed")},
        **{name: float(getattr(row.replica, name)) for name in HYPER},
        **{name: getattr(row, name) for name in ("dataset", "model", *SCORES, "metric", "search", "device", "date")},
        **{f"{OPTION}{name}": value for name, value in row.replica.options},
        **{f"{GATE}{name}": value for name, value in (row.gates or {}).items()},
        **{f"{CONFIG}{name}": value for name, value in further_settings(row.config).items()},
        **{f"{name}_version": row.versions[name] for name in VERSIONS},
        "max_epochs": row.config.max_epochs,
        "patience": row.config.patience,
        "standin": int(row.standin),
    }
    plain = ("dataset", "model", "metric", "search", "device", "date", *LAST)
    return {name: str(value) if name in plain else _text(value) for name, value in values.items()}


def _row(cells: Mapping[str, str], fingerprints: Mapping[str, Any]) -> Row:
    dataset, model, metric, standin = (cells[name] for name in ("dataset", "model", "metric", "standin"))
    split = int(cells["split"])
    hyper = {name: float(cells[name]) for name in HYPER}
    replica = Replica(split, int(cells["seed"]), **hyper, options=tuple(_with(cells, OPTION).items()))
    config = TrainConfig(int(cells["max_epochs"]), int(cells["patience"]), **_with(cells, CONFIG))
    fingerprint, splits = fingerprints[dataset]
    known = ("",) * split + (splits[str(split)],)  # as much of the record as identifies a run
    record = DatasetRecord(dataset, fingerprint, known, standin == "1", metric, "", 0, 0, 0, 0)
    return Row(
        key=identify(record, model, replica, config, cells["search"]),
        dataset=dataset,
        dataset_fingerprint=fingerprint,
        standin=record.standin,
        metric=metric,
        model=model,
        replica=replica,
        split_fingerprint=known[split],
        config=config,
        search=cells["search"],
        val=float(cells["val"] or "nan"),
        test=float(cells["test"] or "nan"),
        epoch=int(cells["epoch"]),
        epochs=int(cells["epochs"]),
        seconds=float(cells["seconds"]),
        num_parameters=int(cells["num_parameters"]),
        gates={name: float(value) for name, value in _with(cells, GATE).items()} or None,
        versions={name: cells[f"{name}_version"] for name in VERSIONS},
        device=cells["device"],
        date=cells["date"],
    )


def _with(cells: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """The values of the columns with a prefix, where there are any."""
    return {name.removeprefix(prefix): _value(text) for name, text in cells.items() if name.startswith(prefix) and text}


def _text(value: Any) -> str:
    """A cell that `_value` turns back into `value`: text as it is unless it reads as JSON; NaN is an empty cell."""
    if isinstance(value, float) and math.isnan(value):
        return ""
    return value if isinstance(value, str) and value and _value(value) == value else json.dumps(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
