"""`Store`: runs in an SQLite file, one row per run; several processes may write to it at once."""

from __future__ import annotations

import csv
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gfgn.data.files import atomic_write
from gfgn.data.messages import reason, shown
from gfgn.literal import csv_cell
from gfgn.runs.record import NESTED, DatasetRecord, Row, canonical, identify, identify_row
from gfgn.train.code import UNKNOWN
from gfgn.train.config import TrainConfig
from gfgn.train.metrics import SCORES
from gfgn.train.replica import Replica

if TYPE_CHECKING:
    import pandas as pd

APPLICATION_ID = 0x6766676E  # "gfgn" in ASCII; distinguishes a store from other SQLite files
SCHEMA_VERSION = 2
SCHEMA = {("table", "runs"), ("table", "notes"), ("index", "runs_by_dataset_and_model")}
LOCK_TIMEOUT = 60.0  # seconds to wait for another process that writes
COLUMNS = (
    *("key", "dataset", "dataset_fingerprint", "standin", "metric", "model", "split", "split_fingerprint", "seed"),
    *("lr", "weight_decay", "dropout", "lam", "options", "max_epochs", "patience", "protocol"),
    *("search", "val", "test", "epoch", "epochs", "seconds", "num_parameters", "gates"),
    *("gfgn_version", "code_version", "torch_version", "torch_geometric_version", "python_version", "device", "date"),
)
ADDED = f"code_version TEXT NOT NULL DEFAULT '{UNKNOWN}'"  # the column that version 1 lacks
NUMBERS = {"standin", "split", "seed", "max_epochs", "patience", "epoch", "epochs", "num_parameters"}
REALS = {"lr", "weight_decay", "dropout", "lam", "val", "test", "seconds"}
ORDER = (
    "dataset, dataset_fingerprint, model, max_epochs, patience, lr, weight_decay, dropout, lam, options, "
    "protocol, split, seed, search, key"
)


MOST_SPLITS = 1_000_000
PLAIN = (str, int, float, bool, type(None))  # what options, further settings and gates are


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

    Rows are in the file when `add` returns and survive any end of the process. A run that is already there is not
    overwritten: the first one stays. Several processes may read and write at once.

    Args:
        path: The file, created if it does not exist; `":memory:"` for a store in memory.
        read_only: Whether to open an existing file without changing it.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._runs = "runs"
        if read_only and not self.path.is_file():
            raise StoreError(f"path must be a store of gfgn, got {self.path}, where there is no file")
        with _explained(self.path):
            if not read_only and str(path) != ":memory:":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _connect(self.path, read_only)
            self._database.row_factory = sqlite3.Row
        try:
            with _explained(self.path):
                self._open()
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
        with _explained(self.path):
            return int(self._database.execute("SELECT count(*) FROM runs").fetchone()[0])

    def add(self, rows: Iterable[Row]) -> int:
        """Adds rows, all or none of them, and returns the number of new ones."""
        names, marks = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        insert = f"INSERT INTO runs ({names}) VALUES ({marks}) ON CONFLICT (key) DO NOTHING"
        values = [_pack(row) for row in rows]
        with self._transaction():
            before = self._database.total_changes
            self._database.executemany(insert, values)
            return self._database.total_changes - before

    def rows(self, *, dropped: bool = False, **filters: Any) -> list[Row]:
        """The rows that match every filter, ordered by dataset, model, hyperparameters, split and seed.

        Args:
            dropped: Whether to include runs that a search stopped early.
            **filters: For a column, a value or several allowed values: `dataset="cora", split=[0, 1]`.
        """
        return [self._unpack(record) for record in self._select(dropped, filters)]

    def find(
        self, record: DatasetRecord, model: str, replicas: Sequence[Replica], config: TrainConfig, search: str = ""
    ) -> list[Row | None]:
        """The row of each replica, in order; `None` where there is none.

        With the hash of a search, the row of a run that this search stopped early comes first.
        """
        searches = dict.fromkeys((search, ""))
        keys = [[identify(record, model, replica, config, each) for each in searches] for replica in replicas]
        rows = self._by_key([key for own in keys for key in own])
        return [next((rows[key] for key in own if key in rows), None) for own in keys]

    def missing(
        self, record: DatasetRecord, model: str, replicas: Sequence[Replica], config: TrainConfig
    ) -> list[Replica]:
        """The replicas that have no row, in order and without duplicates; λ is 1 for a model without gates."""
        rows = self.find(record, model, replicas, config)
        missing = (canonical(model, replica) for replica, row in zip(replicas, rows, strict=True) if row is None)
        return list(dict.fromkeys(missing))

    def note(self, kind: str, name: str, content: Mapping[str, Any]) -> None:
        """Keeps a note, such as the plan of a comparison; it replaces a note of the same kind and name."""
        text = json.dumps(content, sort_keys=True)
        with self._transaction():  # a changed note moves to the end, an unchanged one stays where it is
            self._database.execute("DELETE FROM notes WHERE kind = ? AND name = ? AND content <> ?", (kind, name, text))
            self._database.execute(
                "INSERT INTO notes (kind, name, content) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (kind, name, text)
            )

    def notes(self, kind: str) -> dict[str, dict[str, Any]]:
        """The notes of a kind by name, in the order in which they were written."""
        with _explained(self.path):
            notes = self._database.execute("SELECT name, content FROM notes WHERE kind = ? ORDER BY number", (kind,))
            return {str(name): self._parse(f"{kind} {name!r}", content) for name, content in notes}

    def _parse(self, what: str, text: Any) -> dict[str, Any]:
        """A JSON object that the store keeps."""
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise TypeError(f"it is {type(content).__name__}, not an object")
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path, what, error) from error
        return content

    def _unpack(self, record: dict[str, Any]) -> Row:
        """The row of a record of the database."""
        try:
            return _unpack(record)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise damaged(self.path, f"the run with the key {record.get('key')!r:.50}", error) from error

    def to_csv(self, path: str | Path, *, dropped: bool = False, **filters: Any) -> Path:
        """Writes the rows that `rows` returns to a CSV file, with columns such as `gate_mean` or `option_hidden` for
        gate summaries and options, and returns its path."""
        path, (header, table) = Path(path), self._table(dropped, filters)
        with atomic_write(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(map(csv_cell, row) for row in table)
        return path

    def to_pandas(self, *, dropped: bool = False, **filters: Any) -> pd.DataFrame:
        """The rows as a data frame with the columns of `to_csv`."""
        import pandas as pd

        header, table = self._table(dropped, filters)
        frame = pd.DataFrame.from_records(table, columns=header)
        kinds = dict.fromkeys(NUMBERS, "int64") | dict.fromkeys(REALS, "float64") | {"standin": "bool"}
        return frame.astype({name: kind for name, kind in kinds.items() if name in header})

    def to_parquet(self, path: str | Path, *, dropped: bool = False, **filters: Any) -> Path:
        """Writes the rows to a Parquet file with the columns of `to_csv` and returns its path."""
        path, frame = Path(path), self.to_pandas(dropped=dropped, **filters)
        with atomic_write(path) as unfinished:
            frame.to_parquet(unfinished, engine="pyarrow", index=False)
        return path

    def _open(self) -> None:
        """Checks that the file is a store of this version; makes an empty file one."""
        if not self.read_only and self._is_new():
            _retry(lambda: self._database.execute("PRAGMA journal_mode = WAL"))
            with self._transaction():
                if self._is_new():  # another process may have created it meanwhile
                    self._create()
        application, version = (self._pragma(name) for name in ("application_id", "user_version"))
        if application != APPLICATION_ID:
            raise StoreError(f"path must be a store of gfgn, got {self.path}, which is another SQLite file")
        if version not in (1, SCHEMA_VERSION):
            advice = "update gfgn to read it" if version > SCHEMA_VERSION else "no gfgn wrote that version"
            got = f"{self.path} of version {version}: {advice}"
            raise StoreError(f"path must be a store of version {SCHEMA_VERSION}, got {got}")
        self._check_schema()
        self._upgrade()
        # In WAL mode, NORMAL keeps the file whole after a loss of power, which may cost the runs of the last seconds;
        # FULL would wait for the disk after every run.
        self._database.execute("PRAGMA synchronous = NORMAL")

    def _upgrade(self) -> None:
        """Adds what a store of version 1 lacks; one that is opened read-only is read as if it had it."""
        if "code_version" in self._columns():
            return
        if self.read_only:
            self._runs = f"(SELECT *, '{UNKNOWN}' AS code_version FROM runs)"
            return
        with self._transaction():
            if "code_version" not in self._columns():  # another process may have added it meanwhile
                self._database.execute(f"ALTER TABLE runs ADD COLUMN {ADDED}")
                self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _columns(self) -> set[str]:
        return {record["name"] for record in self._database.execute("PRAGMA table_info(runs)")}

    def _check_schema(self) -> None:
        """Refuses a file with other tables: a view or a trigger could compute anything whenever the store is used."""
        objects = self._database.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        if {tuple(each) for each in objects} != SCHEMA:
            raise damaged(self.path, "its schema", ValueError("other tables, views or triggers"))
        others = (self._columns() | {"code_version"}) ^ set(COLUMNS)
        if others:
            raise damaged(self.path, "the table of runs", ValueError(f"columns {', '.join(sorted(others))}"))

    def _is_new(self) -> bool:
        tables = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return tables == 0 and self._pragma("application_id") == 0

    def _create(self) -> None:
        kinds = dict.fromkeys(NUMBERS, "INTEGER") | dict.fromkeys(REALS, "REAL")
        limits = {"key": " PRIMARY KEY", "val": "", "test": "", "gates": ""}
        columns = [
            ADDED if name == "code_version" else f"{name} {kinds.get(name, 'TEXT')}{limits.get(name, ' NOT NULL')}"
            for name in COLUMNS
        ]
        run = self._database.execute
        run(f"CREATE TABLE runs ({', '.join(columns)})")
        run("CREATE INDEX runs_by_dataset_and_model ON runs (dataset, model)")
        run(
            "CREATE TABLE notes (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL, "
            "content TEXT NOT NULL, UNIQUE (kind, name))"
        )
        run(f"PRAGMA application_id = {APPLICATION_ID}")
        run(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _select(self, dropped: bool, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
        conditions = [] if dropped else ["search = ''"]
        values: list[Any] = []
        for name, allowed in filters.items():
            if name not in COLUMNS or name in NESTED:
                known = ", ".join(column for column in COLUMNS if column not in NESTED)
                raise ValueError(f"filters must be of {known}, got {name!r}")
            several = list(allowed) if isinstance(allowed, list | tuple | set | frozenset | range) else [allowed]
            conditions.append(f"{name} IN ({', '.join('?' * len(several))})")
            values += several
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        with _explained(self.path):
            records = self._database.execute(f"SELECT * FROM {self._runs}{where} ORDER BY {ORDER}", values)
            return [dict(record) for record in records]

    def _by_key(self, keys: Sequence[str], at_once: int = 500) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        with _explained(self.path):
            for start in range(0, len(keys), at_once):
                chunk = keys[start : start + at_once]
                query = f"SELECT * FROM {self._runs} WHERE key IN ({', '.join('?' * len(chunk))})"
                rows |= {record["key"]: self._unpack(dict(record)) for record in self._database.execute(query, chunk)}
        return rows

    def _table(self, dropped: bool, filters: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
        """Header and cells, with nested columns expanded in place."""
        records = self._select(dropped, filters)
        header = {name: [name] for name in COLUMNS}
        for name, prefix in NESTED.items():
            inner = [self._parse(name, record.pop(name) or "{}") for record in records]
            header[name] = list(dict.fromkeys(f"{prefix}_{key}" for content in inner for key in content))
            for record, content in zip(records, inner, strict=True):
                record.update((f"{prefix}_{key}", value) for key, value in content.items())
        columns = [column for own in header.values() for column in own]
        return columns, [[record.get(column) for column in columns] for record in records]


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        return sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None)
    # To read a file in WAL mode, SQLite writes into its folder, unless the file is declared immutable.
    closed = not Path(f"{path}-wal").exists() and not os.access(path.parent, os.W_OK)
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if closed else ''}"
    return sqlite3.connect(address, timeout=LOCK_TIMEOUT, isolation_level=None, uri=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns errors of SQLite into a `StoreError` that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise damaged(path, "a text in it", error) from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise StoreError(f"path must be a store of gfgn, got {path}: {error}") from None
        raise StoreError(f"the store {path} cannot be used: {error}") from error


def _retry(action: Callable[[], object]) -> None:
    """Repeats an action while the file is locked: switching to WAL mode does not wait for other processes by itself."""
    end = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _pack(row: Row) -> tuple[Any, ...]:
    record = row.to_record()
    for name in NESTED:
        record[name] = None if record[name] is None else json.dumps(record[name], sort_keys=name != "gates")
    return tuple(int(record[name]) if name == "standin" else record[name] for name in COLUMNS)


def _unpack(record: dict[str, Any]) -> Row:
    for name, value in record.items():
        kind: Any = int if name in NUMBERS else (float, int) if name in REALS else str
        if not isinstance(value, kind) and not (value is None and name in ("val", "test", "gates")):
            raise TypeError(f"{name} is {shown(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}")
    nested = {name: None if record[name] is None else json.loads(record[name]) for name in NESTED}
    for name, content in nested.items():
        if not isinstance(content, dict | None) or not all(isinstance(x, PLAIN) for x in (content or {}).values()):
            raise TypeError(f"{name} is {shown(content)}")
    if not all(type(value) in (int, float) for value in (nested["gates"] or {}).values()):
        raise TypeError(f"gates is {shown(nested['gates'])}")
    if record["metric"] not in SCORES:
        raise ValueError(f"metric is {shown(record['metric'])}")
    scores = {name: math.nan if record[name] is None else record[name] for name in ("val", "test")}  # NaN is NULL
    row = Row.from_record(record | nested | scores | {"standin": bool(record["standin"])})
    if (
        row.replica.split > MOST_SPLITS
        or row.key != identify_row(row)
        or row.replica != canonical(row.model, row.replica)
    ):
        raise ValueError("its key is not that of its content")
    return row
