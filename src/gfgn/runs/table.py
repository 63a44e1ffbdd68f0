"""Runs as a CSV file that can be committed: everything that the store has of them, and the way back into a store."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gfgn.data.files import atomic_write
from gfgn.runs.record import DatasetRecord, Row, beyond, identify
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica

FIRST = ("dataset", "model", "split", "seed", "lr", "weight_decay", "dropout", "lam")
THEN = ("epoch", "val", "test", "seconds", "epochs", "num_parameters")
LAST = (
    *("max_epochs", "patience", "metric", "standin", "dataset_fingerprint", "split_fingerprint"),
    *("gfgn_version", "torch_version", "torch_geometric_version", "python_version", "device", "date"),
)
OPTION, PROTOCOL, GATE = "option_", "protocol_", "gate_"
"""What the columns begin with that hold a model's own parameters, further settings of training, and gate summaries."""


class RunsError(ValueError):
    """A table of runs that cannot be read."""


def write_runs(path: Path, rows: Sequence[Row]) -> Path:
    """Writes one line a run and returns the path. Scores are written in full, times and gates to six digits."""
    cells = [_cells(row) for row in rows]
    spread = {
        prefix: sorted({name for cell in cells for name in cell if name.startswith(prefix)}) for prefix in _SPREAD
    }
    header = [*FIRST, *spread[OPTION], *THEN, *spread[GATE], *LAST, *spread[PROTOCOL]]
    with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)
    return path


def read_runs(path: Path) -> list[Row]:
    """The runs of a file that `write_runs` wrote, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [name for name in (*FIRST, *THEN, *LAST) if name not in (reader.fieldnames or ())]
        if missing:
            raise RunsError(f"{path} must be a table of runs, got one without the column {missing[0]!r}")
        rows = []
        for line, cells in enumerate(reader, 2):
            try:
                rows.append(_row(cells))
            except (ValueError, TypeError) as error:
                raise RunsError(f"{path}, line {line}: {error}") from None
    return rows


_SPREAD = (OPTION, GATE, PROTOCOL)


def _cells(row: Row) -> dict[str, Any]:
    replica, gates = row.replica, row.gates or {}
    return {
        **{name: getattr(replica, name) for name in FIRST[2:]},
        **{name: getattr(row, name) for name in ("dataset", "model", "epoch", "epochs", "num_parameters", "metric")},
        **{name: getattr(row, name) for name in ("dataset_fingerprint", "split_fingerprint", "device", "date")},
        **{name: "" if math.isnan(getattr(row, name)) else getattr(row, name) for name in ("val", "test")},
        **{f"{OPTION}{name}": _text(value) for name, value in replica.options},
        **{f"{GATE}{name}": f"{value:.6g}" for name, value in gates.items()},
        **{f"{PROTOCOL}{name}": _text(value) for name, value in beyond(row.config).items()},
        **{f"{name}_version": version for name, version in row.versions.items()},
        "seconds": f"{row.seconds:.6g}",
        "max_epochs": row.config.max_epochs,
        "patience": row.config.patience,
        "standin": int(row.standin),
    }


def _row(cells: Mapping[str, str]) -> Row:
    split, options = int(cells["split"]), tuple(_with(cells, OPTION).items())
    hyper = {name: float(cells[name]) for name in ("lr", "weight_decay", "dropout", "lam")}
    replica = Replica(split, int(cells["seed"]), **hyper, options=options)
    config = TrainConfig(int(cells["max_epochs"]), int(cells["patience"]), **_with(cells, PROTOCOL))
    gates = {name: float(value) for name, value in _with(cells, GATE).items()}
    same = ("dataset", "model", "dataset_fingerprint", "split_fingerprint", "metric", "device", "date")
    return Row(
        **{name: cells[name] for name in same},
        key=identify(_record(cells, split), cells["model"], replica, config),
        standin=cells["standin"] == "1",
        replica=replica,
        config=config,
        search="",
        val=_number(cells["val"]),
        test=_number(cells["test"]),
        epoch=int(cells["epoch"]),
        epochs=int(cells["epochs"]),
        seconds=float(cells["seconds"]),
        num_parameters=int(cells["num_parameters"]),
        gates=gates or None,
        versions={name: cells[f"{name}_version"] for name in ("gfgn", "torch", "torch_geometric", "python")},
    )


def _record(cells: Mapping[str, str], split: int) -> DatasetRecord:
    """As much of the dataset's record as identifies a run."""
    fingerprints = ("",) * split + (cells["split_fingerprint"],)
    name, fingerprint, metric = cells["dataset"], cells["dataset_fingerprint"], cells["metric"]
    return DatasetRecord(name, fingerprint, fingerprints, cells["standin"] == "1", metric, "", 0, 0, 0, 0)


def _with(cells: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """The values of the columns that begin with a prefix, where there are any."""
    return {name.removeprefix(prefix): _value(text) for name, text in cells.items() if name.startswith(prefix) and text}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _number(text: str) -> float:
    return float(text) if text else math.nan


def own_parameters(options: Iterable[tuple[str, Any]]) -> str:
    """A model's own parameters in one cell: `alpha=0.5 steps=10`."""
    return " ".join(f"{name}={_text(value)}" for name, value in options)
