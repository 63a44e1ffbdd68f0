"""Tables in files, CSV, Parquet and Excel, as data frames, and the roles of their columns.

Messages count rows from 1, without the header.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from numpy.typing import NDArray

from gfgn.data.columns import MISSING, NUMBERS, Array, loose_numbers, refuse_repeated, to_float32
from gfgn.data.messages import DataError, counted, listed, reading

if TYPE_CHECKING:
    import pandas as pd

    from gfgn.data.columns import Series
    from gfgn.data.raw import ReadOptions

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx")
ENDS = [  # pairs of names for the ends of an edge, in the order in which they are tried
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("src_id", "dst_id")),
    *(("from_id", "to_id"), ("u", "v"), ("head", "tail"), ("start", "end"), ("node1", "node2"), ("id1", "id2")),
    *(("id_1", "id_2"), ("node_1", "node_2"), ("sender", "receiver"), ("citing", "cited"), ("i", "j")),
]
IDS = ("id", "node", "node_id", "nodeid")
BATCH = 2**20  # rows of a chunk of a Parquet file
BLOCK = 2**24  # bytes of a chunk of a CSV file
PLAIN = ("null", "int64", "double", "string")  # types of PyArrow that pandas infers as well
SAMPLE = 2**16  # bytes that the separator is guessed from


class Table:
    """A table in a file, of which only the header has been read.

    Attributes:
        names: The names of the columns.
        typed: Whether the file says which columns are text.
    """

    def __init__(self, path: Path, label: str, options: ReadOptions, notes: list[str]) -> None:
        """Messages call the file `label`; `notes` gets what was guessed."""
        self.path, self.label = path, label
        self.kind = {".parquet": "Parquet", ".xlsx": "Excel"}.get(path.suffix, "CSV")
        self.typed = self.kind != "CSV"
        if path.stat().st_size == 0:
            raise DataError(f"{self.label} is empty, expected a table with a header")
        with reading(self.label, self.kind):
            if self.kind == "CSV":
                self._guess(options.sep, options.encoding, notes)
                self._raw = list(pyarrow.csv.open_csv(self._bytes(), **self._options()).schema.names)
            elif self.kind == "Parquet":
                self._raw = list(pyarrow.parquet.read_schema(path).names)
            else:
                self._raw = list(self._sheet(nrows=0).columns)
        self.names = [str(name).strip() for name in self._raw]
        refuse_repeated(self.names, self.label)

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        """Some columns as a data frame; of CSV and Excel files, those in `texts` stay as they are written."""
        raw = [self._raw[self.names.index(name)] for name in names]
        with reading(self.label, self.kind):
            kept = [self._raw[self.names.index(name)] for name in texts]
            if self.kind == "Excel":
                return self._sheet(dtype=dict.fromkeys(kept, object))[raw].set_axis(list(names), axis=1)
            if self.kind == "Parquet":
                return self._to_frame(pyarrow.parquet.read_table(self.path, columns=raw), names)
            types = dict.fromkeys(kept, pa.string())
            table = pyarrow.csv.read_csv(self._bytes(), **self._options(types, raw))
            odd = {field.name: pa.string() for field in table.schema if str(field.type) not in PLAIN}
            if odd:  # dates, times and booleans, which are read as those of a data frame
                table = pyarrow.csv.read_csv(self._bytes(), **self._options(types | odd, raw))
            return self._to_frame(table, names)

    def chunks(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        """Some columns in chunks of rows; all columns of a CSV file are text."""
        raw = [self._raw[self.names.index(name)] for name in names]
        with reading(self.label, self.kind):
            if self.kind == "Excel":
                yield self.frame(names, names)
                return
            if self.kind == "Parquet":  # pre-buffered row groups would stay in memory until the end
                file = pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)
                batches = file.iter_batches(BATCH, columns=raw, use_threads=False)
            else:
                batches = pyarrow.csv.open_csv(
                    self._bytes(), **self._options(dict.fromkeys(self._raw, pa.string()), raw)
                )
            for batch in batches:
                if batch.num_rows:
                    yield self._to_frame(pa.Table.from_batches([batch]), names)

    def _to_frame(self, table: pa.Table, names: Sequence[str]) -> pd.DataFrame:
        if self.typed:
            table.validate(full=True)  # a damaged file may decode to invalid UTF-8
        options = {"date_as_object": False, "ignore_metadata": True, "self_destruct": True}
        frame: pd.DataFrame = table.rename_columns(list(names)).to_pandas(**options)
        return frame

    def _sheet(self, **options: Any) -> pd.DataFrame:
        import pandas as pd

        try:
            sheet: pd.DataFrame = pd.read_excel(self.path, **options)
        except ImportError:
            cure = "pip install 'gfgn[excel]', or save the sheet as CSV"
            raise DataError(f"{self.label} needs openpyxl to be read: {cure}") from None
        return sheet

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

    def _guess(self, sep: str | None, encoding: str | None, notes: list[str]) -> None:
        self.encoding = encoding or self._guess_encoding()
        with self._bytes() as file:
            text = codecs.getincrementaldecoder(self.encoding)().decode(file.read(SAMPLE)).lstrip("\ufeff")
        lines = text.splitlines()
        tabs = ".tsv" in self.path.suffixes
        self.sep = sep or ("\t" if tabs else guess_separator(lines[:-1] if len(lines) > 100 else lines))
        if sep is None and not tabs and self.sep != ",":
            notes.append(f"{self.label}: columns are separated by {self.sep!r}")
        if encoding is None and self.encoding != "utf-8":
            notes.append(f"{self.label}: read as {self.encoding}")

    def _guess_encoding(self) -> str:
        """UTF-16 by its mark or its zeros, UTF-8 if all bytes are, else that of Windows."""
        with self._bytes() as file:
            start = file.read(SAMPLE)
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if start.count(0) > len(start) // 4:
                return "utf-16-le" if start[1:2] == b"\0" else "utf-16-be"
            decoder, block = codecs.getincrementaldecoder("utf-8")(), start
            try:
                while block:
                    decoder.decode(block)
                    block = file.read(BLOCK)
                decoder.decode(b"", True)
            except UnicodeDecodeError:
                return "cp1252"
        return "utf-8"


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


# --- roles of columns -------------------------------------------------------------------------------------------------


class Roles(NamedTuple):
    """The columns of the node table by their use; `label` and `split` are empty if there is none."""

    id: str
    label: str
    split: str
    features: list[str]


def find_roles(table: Table, options: ReadOptions, notes: list[str]) -> Roles:
    """The roles of the columns. For a model, the table may lack what is dropped, its label and its split."""
    label, drop = table.label, options.drop
    usual = [name for wanted in IDS for name in table.names if name.lower() == wanted]
    id = options.id or (usual[0] if usual and "id" not in table.names else "id")
    if not options.id and id != "id" and id in table.names:
        notes.append(f"{label}: column {id!r} has the ids")
    given = [*drop, *filter(None, (options.label, options.split))]
    for name in [id, *(given if options.encoder is None else ())]:
        if name not in table.names:
            raise DataError(f"{label} has no column {name!r}, only {listed(table.names, 12)}")
    names = [name for name in table.names if name not in drop]
    if id not in names:
        raise DataError(f"{label}: column {id!r} is dropped, expected it for the ids of the nodes")
    if len(names) < len(table.names):
        dropped = [name for name in table.names if name in drop]
        notes.append(f"{label}: {counted(len(dropped), 'column')} dropped: {listed(dropped)}")
    found = {"id": id, "label": options.label or "label", "split": options.split or "split"}
    found = {role: name if name in names else "" for role, name in found.items()}
    used = [name for name in found.values() if name]
    if len(set(used)) < len(used):
        raise DataError(f"{label}: id, label and split are {', '.join(used)}, expected different columns")
    features = [name for name in names if name not in used]
    for role in (role for role in found if role in features):
        notes.append(f"{label}: column {role!r} is a feature, because {role} is {getattr(options, role)!r}")
    return Roles(**found, features=features)


def find_ends(
    names: Sequence[str], label: str, source: str | None, target: str | None, notes: list[str]
) -> tuple[str, str]:
    """The columns of sources and targets: those that were named, or those with usual names, or the only two."""
    lower = {name.lower(): name for name in reversed(names)}
    usual = [(lower[one], lower[two]) for one, two in ENDS if one in lower and two in lower]
    given = bool(source or target)
    one, two = "source", "target"
    if given:
        one, two = source or one, target or two
    elif usual or len(names) == 2:
        one, two = usual[0] if usual else names
    for name in (one, two):
        if name not in names:
            hint = "" if given else "; name the columns with --source and --target"
            raise DataError(f"{label} has no column {name!r}, only {listed(names, 12)}{hint}")
    if one == two:
        raise DataError(f"{label}: source and target are both {one!r}, expected different columns")
    if (one, two) != ("source", "target") and not given:
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
            got = f"{label} row {row + 1}: {name} {self.values[row].as_py()!r} is also in row {first[row] + 1}"
            raise DataError(f"{got}, expected every id once")

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


def _normal_ids(texts: pa.Array) -> pa.Array:
    """Ids without spaces around them, and numbers without `.0` at their end."""
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^(-?\d+)\.0+$", r"\1")


def _id_values(column: Series, label: str, name: str, row: int) -> pa.Array:
    """Ids as 64-bit integers or as text; none may be missing. `row` is the number of rows before."""
    try:
        values = pa.array(column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a mixed column of an Excel sheet
        values = pa.array(column.map(str, na_action="ignore"), from_pandas=True)
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    types, empty = pa.types, pc.is_null(values)
    text = types.is_string(values.type) or types.is_large_string(values.type) or types.is_string_view(values.type)
    if text:
        values = values.cast(pa.large_string())
        empty = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), True)
    index = pc.index(empty, True).as_py()
    if index >= 0:
        raise DataError(f"{label} row {row + index + 1}: {name} is empty, expected an id")
    if text or values.type == pa.uint64():
        return values.cast(pa.large_string())
    try:
        if types.is_integer(values.type) or types.is_floating(values.type) or types.is_null(values.type):
            return values.cast(pa.int64())
    except pa.ArrowInvalid:  # fractions
        pass
    raise DataError(f"{label}: column {name!r} is of type {values.type}, expected strings or integers")


def label_codes(series: Series, what: str, typed: bool) -> tuple[NDArray[np.int64], list[str]]:
    """The classes in the order of their numbers if all are numbers, else of their names, −1 where the label is missing
    or −1; and their names. Equal numbers that are written differently ("1", "01") are separate classes, ordered by
    their text."""
    import pandas as pd

    kind = series.dtype
    if pd.api.types.is_float_dtype(kind):  # pandas writes integers with missing values as floats
        if np.isinf(series.dropna().to_numpy()).any():
            raise DataError(f"{what} holds infinity, expected class names or integers")
        series = series.map(lambda value: str(value).removesuffix(".0"), na_action="ignore")
    elif not all(map(np.isscalar, series.dropna().iloc[:1])) or kind.kind in "cmM":
        raise DataError(f"{what} is of type {kind}, expected class names or integers")
    elif pd.api.types.is_bool_dtype(kind):
        series = series.map({True: "true", False: "false"})
    missing = {"", "-1"} if typed else MISSING | {"-1"}
    codes, unique = pd.factorize(series)
    names = [str(value).strip() for value in unique]
    classes = sorted(set(names) - missing)
    with suppress(ValueError):
        classes.sort(key=float)
    index = {name: k for k, name in enumerate(classes)}
    return np.array([*(index.get(name, -1) for name in names), -1], dtype=np.int64)[codes], classes


def split_codes(series: Series, label: str, name: str) -> NDArray[np.int64]:
    """0, 1 and 2 for train, val and test, −1 for a missing value."""
    words = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": -1}
    codes = series.where(series.notna(), "").astype(str).str.strip().str.lower().map(words)
    bad = np.flatnonzero(codes.isna())
    if bad.size:
        got = f"{label} row {bad[0] + 1}: {name} is {shown_value(series, bad[0])}"
        raise DataError(f"{got}, expected train, val, test or nothing")
    return np.asarray(codes, dtype=np.int64)


# --- edges ------------------------------------------------------------------------------------------------------------


class EdgeReader:
    """Reads edges from the rows of a table: indices of sources and targets, and weights if there are any."""

    def __init__(self, table: Table, ids: Ids, ends: tuple[str, str], skip_unknown: bool = False) -> None:
        self.label, self.ids, self.ends, self.skip_unknown = table.label, ids, ends, skip_unknown
        self.weighted = "weight" in table.names and "weight" not in ends
        self.columns = [*ends, *(["weight"] if self.weighted else [])]
        self._ignored = [name for name in table.names if name not in (*ends, "weight")]
        self._row, self._skipped, self._example, self._formats = 0, 0, "", tuple(NUMBERS)
        if (ids.find([pa.array(list(ends), pa.string())]) >= 0).all():
            first = f"its first row, {', '.join(ends)}, is an edge"
            raise DataError(f"{self.label} has no header: {first}; expected source, target")

    def read(self, frame: pd.DataFrame) -> tuple[Array, Array | None]:
        """`[2, E]` and the weights of the next rows."""
        ends = [_id_values(frame[name], self.label, name, self._row) for name in self.ends]
        index = self.ids.find(ends).astype(np.int32)
        weight = None
        if self.weighted:
            numbers, format = loose_numbers(frame["weight"], self._formats)
            weight, self._formats = to_float32(numbers), (format,)
            bad = bad_weight(weight)
            if bad is not None:
                got = f"{self.label} row {self._row + bad + 1}: weight is {shown_value(frame['weight'], bad)}"
                raise DataError(f"{got}, expected a finite number, 0 or larger")
        unknown = np.flatnonzero((index < 0).any(0))
        if unknown.size:
            end = int(index[0, unknown[0]] >= 0)
            got = f"row {self._row + unknown[0] + 1}: {self.ends[end]} {ends[end][unknown[0]].as_py()!r}"
            if not self.skip_unknown:
                rows = listed((unknown[1:] + self._row + 1).tolist())
                others = f"; unknown ids also in rows {rows}" if rows else ""
                cure = "--skip-unknown leaves such edges out"
                raise DataError(f"{self.label} {got} is unknown, expected an id of {self.ids.label}{others}; {cure}")
            self._example = self._example or got
            self._skipped += unknown.size
            index, weight = np.delete(index, unknown, 1), None if weight is None else np.delete(weight, unknown)
        self._row += len(frame)
        return index, weight

    def notes(self) -> list[str]:
        notes = [f"{self.label}: unknown columns ignored: {listed(self._ignored)}"] if self._ignored else []
        if not self._row:
            notes.append(f"{self.label} has no rows: a graph without edges")
        if self._skipped:
            skipped = f"{counted(self._skipped, 'edge')} with an unknown id skipped, first {self._example}"
            notes.append(f"{self.label}: {skipped}")
        return notes


def shown_value(column: Series, row: int) -> str:
    """A value for a message, as Python shows it."""
    value = column.iloc[row]
    return repr(value.item() if isinstance(value, np.generic) else value)


def bad_weight(values: NDArray[np.float32]) -> int | None:
    """The index of the first weight that is not finite or negative."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    return int(bad[0]) if bad.size else None
