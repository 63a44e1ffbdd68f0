"""`Store`: runs in an SQLite file, a key and a JSON text per run; several processes may write to it at once."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfgn.data.files import atomic_write
from gfgn.data.messages import reason
from gfgn.literal import csv_cell
from gfgn.runs.grid import Value, canonical
from gfgn.runs.record import COLUMNS, NESTED, DatasetRecord, RunRecord, identify
from gfgn.train.config import TrainConfig
from gfgn.train.replica import Replica

if TYPE_CHECKING:
    import pandas as pd

APPLICATION_ID = 0x6766676E  # "gfgn" in ASCII; distinguishes a store from other SQLite files
VERSION = 3
LOCK_TIMEOUT = 60.0  # seconds to wait for another process that writes
FILTERS = tuple(name for name in COLUMNS if name not in NESTED)
ORDER = (
    *("dataset", "dataset_fingerprint", "model", "max_epochs", "patience", "lr", "weight_decay", "dropout", "lam"),
    *("options", "protocol", "split", "seed", "search", "key"),
)
SCHEMA = (
    "CREATE TABLE runs (key TEXT PRIMARY KEY, dataset TEXT NOT NULL, model TEXT NOT NULL, run TEXT NOT NULL)",
    "CREATE INDEX runs_by_dataset_and_model ON runs (dataset, model)",
    "CREATE TABLE notes (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, "
    "name TEXT NOT NULL, content TEXT NOT NULL, UNIQUE (kind, name))",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


class StoreError(ValueError):
    """Raised for a file that is not a store, or that cannot be read or written."""


def damaged(path: Path, what: str, error: Exception) -> StoreError:
    """The error for content of a store that gfgn has not written."""
    return StoreError(
        f"the store {path} is damaged: {what} cannot be read ({reason(error)}); move the file away to start again, or "
        "restore a copy"
    )


class Store:
    """Runs in an SQLite file.

    Runs are in the file when `add` returns and survive any end of the process. A run that is already there is not
    overwritten: the first one stays. Several processes may read and write at once.

    Args:
        path: The file, created if it does not exist; `":memory:"` for a store in memory.
        read_only: Whether to open an existing file without changing it.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        if read_only and not self.path.is_file():
            raise StoreError(f"path must be a store of gfgn, got {self.path}, where there is no file")
        with self._named_errors():
            if not read_only and str(path) != ":memory:":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _connect(self.path, read_only)
        try:
            with self._named_errors():
                self._open(read_only)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    def __len__(self) -> int:
        return int(self._select("SELECT count(*) FROM runs")[0][0])

    def add(self, rows: Iterable[RunRecord]) -> int:
        """Adds runs, all or none of them, and returns the number of new ones."""
        values = [(row.key, row.dataset, row.model, row.to_json()) for row in rows]
        with self._transaction():
            before = self._database.total_changes
            self._database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING", values)
            return self._database.total_changes - before

    def rows(self, *, dropped: bool = False, **filters: object) -> list[RunRecord]:
        """The runs that match every filter, ordered by dataset, model, hyperparameters, split and seed.

        Args:
            dropped: Whether to include runs that a search stopped early.
            **filters: For a column, a value or several allowed values: `dataset="cora", split=[0, 1]`.
        """
        several = (list, tuple, set, frozenset, range)
        allowed = {name: value if isinstance(value, several) else [value] for name, value in filters.items()}
        if unknown := sorted(allowed.keys() - set(FILTERS)):
            raise ValueError(f"filters must be of {', '.join(FILTERS)}, got {unknown[0]!r}")
        conditions, values = ["TRUE"], list[object]()
        for name in allowed.keys() & {"dataset", "model"}:
            conditions.append(f"{name} IN ({', '.join('?' * len(allowed[name]))})")
            values += allowed[name]
        found = self._runs(f"SELECT key, run FROM runs WHERE {' AND '.join(conditions)}", values)
        kept = [
            row
            for row in found
            if (dropped or not row.dropped) and all(getattr(row, name) in values for name, values in allowed.items())
        ]
        return sorted(kept, key=lambda row: [_sortable(getattr(row, name)) for name in ORDER])

    def find(
        self, record: DatasetRecord, model: str, replicas: Sequence[Replica], config: TrainConfig, search: str = ""
    ) -> list[RunRecord | None]:
        """The run of each replica, in order; `None` where there is none.

        With the hash of a search, a run that this search stopped early comes first.
        """
        searches = dict.fromkeys((search, ""))
        wanted = [[identify(record, model, replica, config, each) for each in searches] for replica in replicas]
        keys, rows, at_once = [key for alternatives in wanted for key in alternatives], dict[str, RunRecord](), 500
        for start in range(0, len(keys), at_once):
            chunk = keys[start : start + at_once]
            query = f"SELECT key, run FROM runs WHERE key IN ({', '.join('?' * len(chunk))})"
            rows |= {row.key: row for row in self._runs(query, chunk)}
        return [next((rows[key] for key in alternatives if key in rows), None) for alternatives in wanted]

    def missing(
        self, record: DatasetRecord, model: str, replicas: Sequence[Replica], config: TrainConfig
    ) -> list[Replica]:
        """The replicas that have no run, in order and without duplicates; λ is 1 for a model without gates."""
        rows = self.find(record, model, replicas, config)
        missing = (canonical(model, replica) for replica, row in zip(replicas, rows, strict=True) if row is None)
        return list(dict.fromkeys(missing))

    def note(self, kind: str, name: str, content: Mapping[str, object]) -> None:
        """Keeps a note, such as the plan of a comparison; it replaces a note of the same kind and name."""
        text = json.dumps(content, sort_keys=True)
        with self._transaction():  # a changed note moves to the end, an unchanged one stays where it is
            self._database.execute("DELETE FROM notes WHERE kind = ? AND name = ? AND content <> ?", (kind, name, text))
            self._database.execute(
                "INSERT INTO notes (kind, name, content) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (kind, name, text)
            )

    def notes(self, kind: str) -> dict[str, dict[str, Any]]:
        """The notes of a kind by name, in the order in which they were written."""
        notes = {}
        for name, text in self._select("SELECT name, content FROM notes WHERE kind = ? ORDER BY number", (kind,)):
            try:
                notes[str(name)] = dict(json.loads(text))
            except (ValueError, TypeError) as error:
                raise damaged(self.path, f"{kind} {name!r}", error) from error
        return notes

    def to_csv(self, path: str | Path, *, dropped: bool = False, **filters: object) -> Path:
        """Writes the runs that `rows` returns to a CSV file, with columns such as `gate_mean` or `option_hidden` for
        gate summaries and options, and returns its path."""
        path, (columns, rows) = Path(path), _table(self.rows(dropped=dropped, **filters))
        with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows([csv_cell(value) for value in row] for row in rows)
        return path

    def to_pandas(self, *, dropped: bool = False, **filters: object) -> pd.DataFrame:
        """The runs as a data frame with the columns of `to_csv`."""
        import pandas as pd

        columns, rows = _table(self.rows(dropped=dropped, **filters))
        return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("val", "test"), "float64"))

    def to_parquet(self, path: str | Path, *, dropped: bool = False, **filters: object) -> Path:
        """Writes the runs to a Parquet file with the columns of `to_csv` and returns its path."""
        path, frame = Path(path), self.to_pandas(dropped=dropped, **filters)
        with atomic_write(path) as unfinished:
            frame.to_parquet(unfinished, engine="pyarrow", index=False)
        return path

    def _open(self, read_only: bool) -> None:
        """Checks that the file is a store of this version; makes an empty file one."""
        run = self._database.execute
        tables = "SELECT count(*) FROM sqlite_master"
        if not read_only and not run(tables).fetchone()[0]:
            self._use_wal()
            with self._transaction():
                if not run(tables).fetchone()[0]:  # another process may have created it meanwhile
                    for statement in SCHEMA:
                        run(statement)
        application, version = (run(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application != APPLICATION_ID:
            raise StoreError(f"path must be a store of gfgn, got {self.path}, which is another SQLite file")
        if version != VERSION:
            older = (
                "gfgn 0.2 or an earlier release wrote it, and can export its runs: gfgn report STORE --runs runs.csv"
            )
            advice = "update gfgn to read it" if version > VERSION else older
            raise StoreError(
                f"path must be a store of version {VERSION}, got {self.path} of version {version}: {advice}"
            )
        # In WAL mode, NORMAL keeps the file whole after a loss of power, which may cost the runs of the last seconds;
        # FULL would wait for the disk after every run.
        run("PRAGMA synchronous = NORMAL")

    def _use_wal(self) -> None:
        """Switches to WAL mode, which does not wait for other processes by itself."""
        end = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _runs(self, query: str, values: Sequence[object]) -> list[RunRecord]:
        rows = []
        for key, text in self._select(query, values):
            try:
                rows.append(RunRecord.from_json(text))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise damaged(self.path, f"the run {key}", error) from error
        return rows

    def _select(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._named_errors():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Turns errors of SQLite into a `StoreError` that names the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error) or "malformed" in str(error):
                raise StoreError(f"path must be a store of gfgn, got {self.path}: {error}") from None
            raise StoreError(f"the store {self.path} cannot be used: {error}") from error


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        return sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None)
    # To read a file in WAL mode, SQLite writes into its folder, unless the file is declared immutable.
    closed = not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK)
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if closed else ''}"
    return sqlite3.connect(address, timeout=LOCK_TIMEOUT, isolation_level=None, uri=True)


def _table(rows: Sequence[RunRecord]) -> tuple[list[str], list[list[Value]]]:
    """Columns and lines; options, settings and gates have a column per entry."""
    columns = []
    for name in COLUMNS:
        inner = dict.fromkeys(key for row in rows for key in getattr(row, name) or ()) if name in NESTED else {}
        columns += [f"{NESTED[name]}_{key}" for key in inner] if name in NESTED else [name]
    cells = [row.cells() for row in rows]
    return columns, [[line.get(name) for name in columns] for line in cells]


def _sortable(value: object) -> object:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
