"""Tables in files, CSV, Parquet and Excel, as data frames, and the roles of their columns.

Messages count rows from 1, without the header.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from numpy.typing import NDArray

from gfgn.data.columns import MISSING, Array, loose_numbers
from gfgn.data.messages import DataError, counted, listed, reading

if TYPE_CHECKING:
    import pandas as pd

    from gfgn.data.columns import Series

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx")
ENDS = [  # pairs of names for the ends of an edge, in the order in which they are tried
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("src_id", "dst_id")),
    *(("from_id", "to_id"), ("u", "v"), ("head", "tail"), ("start", "end"), ("node1", "node2"), ("id1", "id2")),
    *(("id_1", "id_2"), ("node_1", "node_2"), ("sender", "receiver"), ("citing", "cited"), ("i", "j")),
]
IDS = ("id", "node", "node_id", "nodeid")
BATCH = 2**20  # rows of a chunk of a Parquet file
BLOCK = 2**24  # bytes of a chunk of a CSV file
SAMPLE = 2**16  # bytes that the separator is guessed from


class Table:
    """A table in a file, of which only the header has been read.

    Attributes:
        names: The names of the columns.
        typed: Whether the file says which columns are text.
        notes: What was guessed.
    """

    def __init__(self, path: Path, label: str = "", sep: str | None = None, encoding: str | None = None) -> None:
        self.path, self.label, self.notes = path, label or path.name, list[str]()
        self.kind = {".parquet": "Parquet", ".xlsx": "Excel"}.get(path.suffix, "CSV")
        self.typed = self.kind != "CSV"
        if path.stat().st_size == 0:
            raise DataError(f"{self.label} is empty, expected a table with a header")
        with reading(self.label, self.kind):
            if not self.typed:
                self._guess(sep, encoding)
                self._raw = list(pyarrow.csv.open_csv(self._bytes(), **self._options()).schema.names)
            elif self.kind == "Parquet":
                self._raw = list(pyarrow.parquet.read_schema(path).names)
            else:
                self._raw = list(self._sheet.columns)
        self.names = [str(name).strip() for name in self._raw]
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise DataError(f"{self.label} has the column {twice[0]!r} more than once, expected every name once")

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.names:
                raise DataError(f"{self.label} has no column {name!r}, only {listed(self.names, 12)}")

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        """Some columns as a data frame; of a CSV file, those in `texts` stay text as it is written."""
        raw = [self._raw[self.names.index(name)] for name in names]
        with reading(self.label, self.kind):
            if self.kind == "Excel":
                return self._sheet[raw].set_axis(list(names), axis=1)
            if self.kind == "Parquet":
                table = pyarrow.parquet.read_table(self.path, columns=raw)
            else:
                types = {self._raw[self.names.index(name)]: pa.string() for name in texts}
                table = pyarrow.csv.read_csv(self._bytes(), **self._options(types, raw))
                odd = [field.name for field in table.schema if not _is_simple(field.type)]
                if odd:  # dates, times and booleans, which are read as those of a data frame
                    types |= dict.fromkeys(odd, pa.string())
                    table = pyarrow.csv.read_csv(self._bytes(), **self._options(types, raw))
            return self._to_frame(table, names)

    def chunks(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Some columns in chunks of rows; all columns of a CSV file are text."""
        raw = [self._raw[self.names.index(name)] for name in names]
        with reading(self.label, self.kind):
            if self.kind == "Excel":
                yield self.frame(names)
            elif self.kind == "Parquet":  # pre-buffered row groups would stay in memory until the end
                file = pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)
                for batch in file.iter_batches(BATCH, columns=raw, use_threads=False):
                    yield self._to_frame(pa.Table.from_batches([batch]), names)
            else:
                options = self._options(dict.fromkeys(self._raw, pa.string()), raw)
                for batch in pyarrow.csv.open_csv(self._bytes(), **options):
                    if batch.num_rows:
                        yield self._to_frame(pa.Table.from_batches([batch]), names)

    def count(self) -> int:
        """The number of rows, at most."""
        if self.kind == "Excel":
            return len(self._sheet)
        if self.kind == "Parquet":
            return int(pyarrow.parquet.read_metadata(self.path).num_rows)
        with self._bytes() as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b""))

    def _to_frame(self, table: pa.Table, names: Sequence[str]) -> pd.DataFrame:
        if self.typed:
            table.validate(full=True)  # a damaged file may decode to invalid UTF-8
        options = {"date_as_object": False, "ignore_metadata": True, "self_destruct": True}
        frame: pd.DataFrame = table.rename_columns(list(names)).to_pandas(**options)
        return frame

    @cached_property
    def _sheet(self) -> pd.DataFrame:
        import pandas as pd

        try:
            return pd.read_excel(self.path)
        except ImportError:
            cure = "pip install 'gfgn[excel]', or save the sheet as CSV"
            raise DataError(f"{self.label} needs openpyxl to be read: {cure}") from None

    def _bytes(self) -> BinaryIO:
        """The bytes of the file, decompressed."""
        stream: BinaryIO = pa.input_stream(str(self.path), compression="detect")
        return stream

    def _options(self, types: dict[str, pa.DataType] | None = None, names: Sequence[str] = ()) -> dict[str, object]:
        missing = {"null_values": list(MISSING), "strings_can_be_null": False}
        return {
            "read_options": pyarrow.csv.ReadOptions(block_size=BLOCK, encoding=self.encoding),
            "parse_options": pyarrow.csv.ParseOptions(delimiter=self.sep, newlines_in_values=True),
            "convert_options": pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(names), **missing),
        }

    def _guess(self, sep: str | None, encoding: str | None) -> None:
        self.encoding = encoding or guess_encoding(self._bytes)
        with self._bytes() as file:
            text = codecs.getincrementaldecoder(self.encoding)().decode(file.read(SAMPLE)).lstrip("\ufeff")
        lines = text.splitlines()
        tabs = ".tsv" in self.path.suffixes
        self.sep = sep or ("\t" if tabs else guess_separator(lines[:-1] if len(lines) > 100 else lines))
        if sep is None and not tabs and self.sep != ",":
            self.notes.append(f"{self.label}: columns are separated by {self.sep!r}")
        if encoding is None and self.encoding != "utf-8":
            self.notes.append(f"{self.label}: read as {self.encoding}")


def guess_encoding(open_bytes: Callable[[], BinaryIO]) -> str:
    """UTF-16 by its mark or its zeros, else the first encoding that decodes all bytes."""
    with open_bytes() as file:
        start = file.read(SAMPLE)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start.count(0) > len(start) // 4:
        return "utf-16-le" if start[1:2] == b"\0" else "utf-16-be"
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            with open_bytes() as file:
                while block := file.read(BLOCK):
                    decoder.decode(block)
                decoder.decode(b"", True)
            return encoding
        except UnicodeDecodeError:
            continue
    return "latin-1"


def guess_separator(lines: Sequence[str]) -> str:
    """The separator that gives every line the same number of cells, and the most cells; a space only if no other
    does."""
    best, most = ",", 1
    for sep in (",", ";", "\t", "|", " "):
        try:
            widths = {len(row) for row in csv.reader(io.StringIO("\n".join(lines[:100])), delimiter=sep) if row}
        except csv.Error:
            continue
        if len(widths) == 1 and (width := widths.pop()) > most and (sep != " " or most == 1):
            best, most = sep, width
    return best


def _is_simple(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_null, types.is_string))


# --- roles of columns -------------------------------------------------------------------------------------------------


class Roles(NamedTuple):
    """The columns of the node table by their use; `label` and `split` are empty if there is none."""

    id: str
    label: str
    split: str
    features: list[str]


def find_roles(
    table: Table, given: dict[str, str | None], drop: Sequence[str], lenient: bool, notes: list[str]
) -> Roles:
    """The roles of the columns; `given` has the names for id, label and split. A `lenient` table may lack what is
    dropped, its label and its split, because a graph to predict on does not need them."""
    if not given["id"] and "id" not in table.names:
        guess = next((name for wanted in IDS for name in table.names if name.lower() == wanted), None)
        if guess is not None:
            given = given | {"id": guess}
            notes.append(f"{table.label}: column {guess!r} has the ids")
    needed = [given["id"] or "id"]
    table.require(*needed, *([] if lenient else [*drop, *(name for name in given.values() if name)]))
    names = [name for name in table.names if name not in drop]
    found = {role: name if (name := column or role) in names else "" for role, column in given.items()}
    used = [name for name in found.values() if name]
    if len(set(used)) < len(used):
        raise DataError(f"{table.label}: id, label and split are {', '.join(used)}, expected different columns")
    if not found["id"]:
        raise DataError(f"{table.label}: column {needed[0]!r} is dropped, expected it for the ids of the nodes")
    dropped = [name for name in table.names if name in drop]
    if dropped:
        notes.append(f"{table.label}: {counted(len(dropped), 'column')} dropped: {listed(dropped)}")
    features = [name for name in names if name not in used]
    for role in (role for role in given if role in features):
        notes.append(f"{table.label}: column {role!r} is a feature, because {role} is {given[role]!r}")
    return Roles(**found, features=features)


def find_ends(
    names: Sequence[str], label: str, source: str | None, target: str | None, notes: list[str]
) -> tuple[str, str]:
    """The columns of sources and targets: those that were named, or those with usual names, or the only two."""
    lower = {name.lower(): name for name in reversed(names)}
    pairs = [(lower[one], lower[two]) for one, two in ENDS if one in lower and two in lower]
    if source or target:
        one, two = source or "source", target or "target"
    elif pairs:
        one, two = pairs[0]
    elif len(names) == 2:
        one, two = names
    else:
        one, two = "source", "target"
    for name in (one, two):
        if name not in names:
            hint = "" if source or target else "; name the columns with --source and --target"
            raise DataError(f"{label} has no column {name!r}, only {listed(names, 12)}{hint}")
    if one == two:
        raise DataError(f"{label}: source and target are both {one!r}, expected different columns")
    if (one, two) != ("source", "target") and not (source or target):
        notes.append(f"{label}: edges go from column {one!r} to column {two!r}")
    return one, two


# --- ids, labels and splits -------------------------------------------------------------------------------------------


class Ids:
    """The ids of the nodes, in the order of the node table."""

    def __init__(self, column: Series, label: str, name: str) -> None:
        self.label, self.values = label, _id_values(column, label, name, 0)
        if not len(self.values):
            raise DataError(f"{label} has no rows, expected one per node")
        first = pc.index_in(self.values, value_set=self.values).to_numpy()
        repeated = np.flatnonzero(first != np.arange(first.size))
        if repeated.size:
            row = int(repeated[0])
            raise repeated_id(f"{label} row {row + 1}: {name}", self.values[row].as_py(), first[row] + 1)

    def __len__(self) -> int:
        return len(self.values)

    def find(self, columns: Sequence[pa.Array]) -> NDArray[np.int64]:
        """`[columns, rows]`: the nodes with these ids, −1 for an unknown one. `265` and `265.0` are the same id."""
        integers = all(pa.types.is_integer(column.type) for column in (self.values, *columns))
        kind = pa.int64() if integers else pa.large_string()
        both = pa.chunked_array([column.cast(kind) for column in columns])  # every call hashes the ids
        index = pc.fill_null(pc.index_in(both, value_set=self.values.cast(kind)), -1).to_numpy().copy()
        lost = np.flatnonzero(index < 0)
        if lost.size and not integers:
            again = pc.index_in(_normal_ids(both.take(pa.array(lost))), value_set=self._normal)
            index[lost] = pc.fill_null(again, -1).to_numpy()
        found: NDArray[np.int64] = index.reshape(len(columns), -1)
        return found

    @cached_property
    def _normal(self) -> pa.Array:
        return _normal_ids(self.values.cast(pa.large_string()))

    def to_numpy(self) -> Array:
        """The ids as integers or NumPy strings, which take a quarter of the memory of Python strings."""
        if pa.types.is_integer(self.values.type):
            return np.asarray(self.values.to_numpy())
        return np.array(self.values.to_pylist(), dtype=np.dtypes.StringDType())


def repeated_id(where: str, value: object, first: int) -> DataError:
    return DataError(f"{where} {value!r} is also in row {first}, expected every id once")


def _normal_ids(texts: pa.Array) -> pa.Array:
    """Ids without spaces around them, and numbers without `.0` at their end."""
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^(-?\d+)\.0+$", r"\1")


def _id_values(column: Series, label: str, name: str, row: int) -> pa.Array:
    """Ids as 64-bit integers or as text; none may be missing."""
    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a mixed column of an Excel sheet
        values = pa.array(column.map(str, na_action="ignore"), from_pandas=True)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    kind = values.type
    empty = pc.is_null(values)
    if _is_text(kind):
        values = values.cast(pa.large_string())
        empty = pc.or_(empty, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True))
    index = pc.index(empty, True).as_py()
    if index >= 0:
        raise DataError(f"{label} row {row + index + 1}: {name} is empty, expected an id")
    if _is_text(kind) or kind == pa.uint64():
        return values.cast(pa.large_string())
    whole = pa.types.is_floating(kind) and pc.all(pc.equal(values, pc.round(values)), min_count=0).as_py()
    if not pa.types.is_integer(kind) and not whole and not pa.types.is_null(kind):
        raise DataError(f"{label}: column {name!r} is of type {kind}, expected strings or integers")
    return values.cast(pa.int64())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def label_codes(series: Series, table: Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """The classes, numbered in order of appearance, −1 where the label is missing or −1; and their names."""
    import pandas as pd

    label, kind = table.label, series.dtype
    if pd.api.types.is_float_dtype(kind):  # pandas writes integers with missing values as floats
        if np.isinf(series.dropna().to_numpy()).any():
            raise DataError(f"{label}: column {name!r} holds infinity, expected class names or integers")
        series = series.map(lambda value: str(value).removesuffix(".0"), na_action="ignore")
    elif not all(map(np.isscalar, series.dropna().iloc[:1])) or "datetime" in str(kind):
        raise DataError(f"{label}: column {name!r} is of type {kind}, expected class names or integers")
    elif pd.api.types.is_bool_dtype(kind):
        series = series.map({True: "true", False: "false"})
    missing = {"", "-1"} if table.typed else MISSING | {"-1"}
    codes, unique = pd.factorize(series)
    names = [str(value).strip() for value in unique]
    classes: dict[str, int] = {}
    index = [-1 if name in missing else classes.setdefault(name, len(classes)) for name in names]
    return np.array([*index, -1], dtype=np.int64)[codes], list(classes)


def split_codes(series: Series, label: str, name: str) -> NDArray[np.int64]:
    """0, 1 and 2 for train, val and test, −1 for a missing value."""
    texts = [str(value).strip().lower() for value in series.where(series.notna(), "")]
    words = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1}
    for row, text in enumerate(texts, 1):
        if text not in words:
            raise DataError(
                f"{label} row {row}: {name} is {series.iloc[row - 1]!r}, expected train, val, test or nothing"
            )
    return np.array([words[text] for text in texts], dtype=np.int64)


# --- edges ------------------------------------------------------------------------------------------------------------


class EdgeReader:
    """Reads edges from the rows of a table: indices of sources and targets, and weights if there are any."""

    def __init__(self, table: Table, ids: Ids, ends: tuple[str, str], skip_unknown: bool = False) -> None:
        self.label, self.ids, self.ends = table.label, ids, ends
        self.weighted = "weight" in table.names and "weight" not in ends
        self.columns = [*ends, *(["weight"] if self.weighted else [])]
        self._skip, self._row, self._skipped, self._example = skip_unknown, 0, 0, ""
        ignored = [name for name in table.names if name not in (*ends, "weight")]
        self._ignored = [f"{self.label}: unknown columns ignored: {listed(ignored)}"] if ignored else []
        if (ids.find([pa.array(list(ends), pa.string())]) >= 0).all():
            first = f"its first row, {', '.join(ends)}, is an edge"
            raise DataError(f"{self.label} has no header: {first}; expected source, target")

    def read(self, frame: pd.DataFrame) -> tuple[Array, Array | None]:
        """`[2, E]` and the weights of the next rows."""
        ends = [_id_values(frame[name], self.label, name, self._row) for name in self.ends]
        index = self.ids.find(ends).astype(np.int32)
        weight = self._weights(frame["weight"]) if self.weighted else None
        known = (index >= 0).all(0)
        if not known.all():
            self._unknown(index, ends)
            index, weight = index[:, known], None if weight is None else weight[known]
        self._row += len(frame)
        return index, weight

    def notes(self) -> list[str]:
        notes = list(self._ignored)
        if not self._row:
            notes.append(f"{self.label} has no rows: a graph without edges")
        if self._skipped:
            skipped = f"{counted(self._skipped, 'edge')} with an unknown id skipped, first {self._example}"
            notes.append(f"{self.label}: {skipped}")
        return notes

    def _unknown(self, index: Array, ends: Sequence[pa.Array]) -> None:
        bad = np.flatnonzero((index < 0).any(0))
        first = int(bad[0])
        end = int(index[0, first] >= 0)
        where = f"row {self._row + first + 1}: {self.ends[end]} {ends[end][first].as_py()!r}"
        if not self._skip:
            others = f"; unknown ids also in rows {listed((bad[1:] + self._row + 1).tolist())}" if bad.size > 1 else ""
            raise DataError(
                f"{self.label} {where} is unknown, expected an id of {self.ids.label}{others}; "
                "--skip-unknown leaves such edges out"
            )
        self._example = self._example or where
        self._skipped += bad.size

    def _weights(self, column: Series) -> NDArray[np.float32]:
        values = to_float32(loose_numbers(column))
        bad = bad_weight(values)
        if bad is not None:
            where = f"{self.label} row {self._row + bad + 1}"
            raise DataError(f"{where}: weight is {shown_value(column, bad)}, expected a finite number, 0 or larger")
        return values


def shown_value(column: Series, row: int) -> str:
    """A value for a message, as Python shows it."""
    value = column.iloc[row]
    return repr(value.item() if isinstance(value, np.generic) else value)


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; too large ones become infinite, which the checks report."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def bad_weight(values: NDArray[np.float32]) -> int | None:
    """The index of the first weight that is not finite or negative."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    return int(bad[0]) if bad.size else None
