"""Tables in files: CSV, Parquet and Excel as data frames, and the roles of their columns.

Messages count rows from 1, without the header.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from numpy.typing import NDArray

from gfgn.data.columns import Array, Floats, loose_numbers
from gfgn.data.messages import DataError, counted, listed, reading

if TYPE_CHECKING:
    import pandas as pd

Progress: TypeAlias = Callable[[int, int], None]  # called with the number of edge rows read and of all edge rows

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx")
TABLES = ("nodes", "edges")
ENDS = [  # pairs of names for the ends of an edge, in the order in which they are tried
    *(("source", "target"), ("src", "dst"), ("from", "to"), ("source_id", "target_id"), ("src_id", "dst_id")),
    *(("from_id", "to_id"), ("u", "v"), ("head", "tail"), ("start", "end"), ("node1", "node2"), ("id1", "id2")),
    *(("id_1", "id_2"), ("node_1", "node_2"), ("sender", "receiver"), ("citing", "cited"), ("i", "j")),
]
IDS = ("id", "node", "node_id", "nodeid")
BATCH = 2**21  # edges per batch: large, because every batch hashes the node ids again
BLOCK = 2**24  # bytes per batch of a CSV file
SAMPLE = 2**16  # bytes that separator and encoding are guessed from
MISSING = [  # what pandas takes for a missing value
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
]


def open_table(path: Path, label: str = "", sep: str | None = None, encoding: str | None = None) -> Table:
    """A table, of which only the header has been read."""
    label = label or path.name
    if path.stat().st_size == 0:
        raise DataError(f"{label} is empty, expected a table with a header")
    if path.suffix == ".parquet":
        return ParquetTable(path, label)
    return ExcelTable(path, label) if path.suffix == ".xlsx" else CsvTable(path, label, sep, encoding)


class Table:
    """A table in a file.

    Attributes:
        names: The names of the columns.
        typed: Whether the file says which columns are text.
        notes: What was guessed.
    """

    typed = True
    kind = ""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label = path, label
        self.notes: list[str] = []
        self.reading = partial(reading, label, self.kind)
        self.names: list[str] = []

    def name_columns(self, names: Sequence[object]) -> None:
        self.names = [str(name).strip() for name in names]
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise DataError(f"{self.label} has the column {twice[0]!r} more than once, expected every name once")

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.names:
                raise DataError(f"{self.label} has no column {name!r}, only {listed(self.names, 12)}")

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        """Some columns as a data frame; those in `texts` stay text where the file does not say what they are."""
        raise NotImplementedError

    def batches(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Some columns in batches of rows; text is as it is written, `NA` included."""
        raise NotImplementedError

    def count(self) -> int:
        """The number of rows, at most."""
        raise NotImplementedError


class CsvTable(Table):
    """A CSV file, in which everything is text, with any separator and encoding."""

    typed = False
    kind = "CSV"

    def __init__(self, path: Path, label: str, sep: str | None, encoding: str | None) -> None:
        super().__init__(path, label)
        with self.reading():
            self.encoding = encoding or self._guess_encoding()
            codecs.lookup(self.encoding)
            lines = self._sample()
            self.sep = sep or ("\t" if ".tsv" in path.suffixes else guess_separator(lines))
            self._raw = list(self._open([]).schema.names)
        self.name_columns(self._raw)
        if sep is None and self.sep != "," and ".tsv" not in path.suffixes:
            self.notes.append(f"{label}: columns are separated by {self.sep!r}")
        if encoding is None and self.encoding != "utf-8":
            self.notes.append(f"{label}: read as {self.encoding}")

    def _open_bytes(self) -> BinaryIO:
        """The bytes of the file, decompressed."""
        stream: BinaryIO = pa.input_stream(str(self.path), compression="detect")
        return stream

    def _guess_encoding(self) -> str:
        decoder = codecs.getincrementaldecoder("utf-8")()
        with self._open_bytes() as file:
            block = file.read(BLOCK)
            for mark, name in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
                if block.startswith(mark):
                    return name
            if block.count(0) > len(block) // 4:
                return "utf-16-le" if block[1:2] == b"\0" else "utf-16-be"
            try:
                while block:
                    decoder.decode(block)
                    block = file.read(BLOCK)
                decoder.decode(b"", True)
            except UnicodeDecodeError:
                return "cp1252" if self._decodes("cp1252") else "latin-1"
        return "utf-8"

    def _decodes(self, encoding: str) -> bool:
        with self._open_bytes() as file:
            try:
                file.read().decode(encoding)
            except UnicodeDecodeError:
                return False
        return True

    def _sample(self) -> list[str]:
        """The first lines."""
        with self._open_bytes() as file:
            text = codecs.getincrementaldecoder(self.encoding)().decode(file.read(SAMPLE))
        lines = text.lstrip("\ufeff").splitlines()
        return lines[:-1] if len(text) >= SAMPLE // 4 and len(lines) > 1 else lines

    def _options(self, types: dict[str, pa.DataType], missing: Sequence[str]) -> dict[str, object]:
        return {
            "read_options": pyarrow.csv.ReadOptions(block_size=BLOCK, encoding=self.encoding),
            "parse_options": pyarrow.csv.ParseOptions(delimiter=self.sep, newlines_in_values=True),
            "convert_options": pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=list(missing),
                strings_can_be_null=bool(missing),
                quoted_strings_can_be_null=bool(missing),
            ),
        }

    def _open(self, texts: Sequence[str]) -> pa.RecordBatchReader:
        return pyarrow.csv.open_csv(self._open_bytes(), **self._options(dict.fromkeys(texts, pa.string()), []))

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        raw = dict(zip(self.names, self._raw, strict=True))
        types = {raw[name]: pa.string() for name in texts} | {
            raw[name]: pa.null() for name in self.names if name not in names
        }
        with self.reading():
            options = self._options(types, MISSING)
            options["convert_options"].include_columns = [raw[name] for name in names]  # type: ignore[attr-defined]
            table = pyarrow.csv.read_csv(self._open_bytes(), **options)
            odd = [field.name for field in table.schema if not _is_simple(field.type)]
            if odd:  # dates, times and booleans, which `raw_features` reads as pandas would have them
                options["convert_options"].column_types = types | dict.fromkeys(odd, pa.string())  # type: ignore[attr-defined]
                table = pyarrow.csv.read_csv(self._open_bytes(), **options)
            return _to_frame(table.rename_columns(list(names)))

    def batches(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        indices = [self.names.index(name) for name in names]
        with self.reading():
            for batch in self._open(self._raw):
                if batch.num_rows:
                    yield [batch.column(index) for index in indices]

    def count(self) -> int:
        with self._open_bytes() as file:
            return max(sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b"")) - 1, 1)


class ParquetTable(Table):
    """A Parquet file."""

    kind = "Parquet"

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(path, label)
        with self.reading():
            self._raw = list(pyarrow.parquet.read_schema(path).names)
        self.name_columns(self._raw)

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        with self.reading():
            table = pyarrow.parquet.read_table(self.path, columns=[self._raw[self.names.index(name)] for name in names])
            table.validate(full=True)  # a damaged file may decode to invalid UTF-8
            columns = [table.column(k).cast(_value_type(field.type)) for k, field in enumerate(table.schema)]
            return _to_frame(pa.table(columns, names=list(names)))

    def batches(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        raw = [self._raw[self.names.index(name)] for name in names]
        with self.reading():
            # Pre-buffered row groups would stay in memory until the end.
            file = pyarrow.parquet.ParquetFile(self.path, pre_buffer=False)
            for batch in file.iter_batches(BATCH, columns=raw, use_threads=False):
                batch.validate(full=True)
                if batch.num_rows:
                    columns = [batch.column(name) for name in raw]
                    yield [column.cast(_value_type(column.type)) for column in columns]

    def count(self) -> int:
        with self.reading():
            return int(pyarrow.parquet.read_metadata(self.path).num_rows)


class ExcelTable(Table):
    """The first sheet of an Excel file."""

    kind = "Excel"

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(path, label)
        self.name_columns(list(self._content.columns))

    @cached_property
    def _content(self) -> pd.DataFrame:
        import pandas as pd

        try:
            import openpyxl  # type: ignore[import-untyped]  # noqa: F401
        except ImportError:
            hint = "pip install 'gfgn[excel]', or save the sheet as CSV"
            raise DataError(f"{self.label} needs openpyxl to be read: {hint}") from None
        with self.reading():
            return pd.read_excel(self.path)

    def frame(self, names: Sequence[str], texts: Sequence[str] = ()) -> pd.DataFrame:
        return self._content.set_axis(self.names, axis=1)[list(names)]

    def batches(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        if len(self._content):
            columns = [self.frame([name])[name] for name in names]
            yield [
                pa.array([None if v != v or v is None else str(v) for v in column], pa.string()) for column in columns
            ]

    def count(self) -> int:
        return len(self._content)


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


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary-encoded column, the type itself for other columns."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _to_frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(date_as_object=False, ignore_metadata=True, self_destruct=True)
    return frame


def python_value(scalar: pa.Scalar) -> object:
    """The value for a message; the number of days or seconds of a date that Python does not have."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


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

    def __init__(self, table: Table, name: str) -> None:
        self.label, self.name = table.label, name
        chunks, row = [], 0
        for (values,) in table.batches([name]):
            chunks.append(_id_values(values, table.label, name, row))
            row += len(values)
        if not row:
            raise DataError(f"{table.label} has no rows, expected one per node")
        if len({chunk.type for chunk in chunks}) > 1:
            chunks = [chunk.cast(pa.large_string()) for chunk in chunks]
        self.values = pa.chunked_array(chunks).combine_chunks()
        first = pc.index_in(self.values, value_set=self.values).to_numpy()
        repeated = np.flatnonzero(first != np.arange(len(self.values)))
        if repeated.size:
            row, value = int(repeated[0]), python_value(self.values[int(repeated[0])])
            raise repeated_id(f"{table.label} row {row + 1}: {name}", value, first[row] + 1)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def texts(self) -> pa.Array:
        return self.values.cast(pa.large_string())

    @cached_property
    def _normal(self) -> pa.Array:
        return _normal_ids(self.texts)

    def find(self, columns: Sequence[pa.Array]) -> NDArray[np.int64]:
        """`[columns, rows]`: the nodes with these ids, −1 for an unknown one. `265` and `265.0` are the same id."""
        # All columns in one call, because every call hashes the ids.
        if pa.types.is_integer(self.values.type) and all(pa.types.is_integer(column.type) for column in columns):
            both, ids = pa.chunked_array([column.cast(pa.int64()) for column in columns]), self.values
        else:
            both, ids = pa.chunked_array([column.cast(pa.large_string()) for column in columns]), self.texts
        index = pc.fill_null(pc.index_in(both, value_set=ids), -1).to_numpy().copy()
        lost = np.flatnonzero(index < 0)
        if lost.size and pa.types.is_large_string(both.type):
            again = pc.index_in(_normal_ids(both.take(pa.array(lost))), value_set=self._normal)
            index[lost] = pc.fill_null(again, -1).to_numpy()
        found: NDArray[np.int64] = index.reshape(len(columns), -1)
        return found

    def to_numpy(self) -> Array:
        """The ids as integers or NumPy strings, which take a quarter of the memory of Python strings."""
        if pa.types.is_integer(self.values.type):
            return np.asarray(self.values.to_numpy())
        array = np.empty(len(self), dtype=np.dtypes.StringDType())
        for low in range(0, len(self), SAMPLE):
            array[low : low + SAMPLE] = self.values.slice(low, SAMPLE).to_pylist()
        return array


def repeated_id(where: str, value: object, first: int) -> DataError:
    return DataError(f"{where} {value!r} is also in row {first}, expected every id once")


def _normal_ids(texts: pa.Array) -> pa.Array:
    """Ids without spaces around them, and numbers without `.0` at their end."""
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^(-?\d+)\.0+$", r"\1")


def _id_values(column: pa.Array, label: str, name: str, row: int) -> pa.Array:
    """Ids as 64-bit integers or as text; none may be missing."""
    kind = column.type
    empty = pc.is_null(column, nan_is_null=True)
    if _is_text(kind):
        empty = pc.or_(empty, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(column), pa.scalar("", kind)), True))
    index = pc.index(empty, True).as_py()
    if index >= 0:
        raise DataError(f"{label} row {row + index + 1}: {name} is empty, expected an id")
    if _is_text(kind) or kind == pa.uint64():
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind) and pc.all(pc.equal(column, pc.round(column)), min_count=0).as_py():
        return column.cast(pa.int64())
    if not pa.types.is_integer(kind):
        raise DataError(f"{label}: column {name!r} is of type {kind}, expected strings or integers")
    return column.cast(pa.int64())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def label_codes(series: pd.Series[Any], label: str, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """The classes, numbered in order of appearance, −1 where the label is missing or −1; and their names."""
    import pandas as pd

    kind = series.dtype
    if pd.api.types.is_float_dtype(kind):  # pandas writes integers with missing values as floats
        if np.isinf(series.dropna().to_numpy()).any():
            raise DataError(f"{label}: column {name!r} holds infinity, expected class names or integers")
        series = series.map(lambda value: str(value).removesuffix(".0"), na_action="ignore")
    elif not all(map(np.isscalar, series.dropna().iloc[:1])) or "datetime" in str(kind):
        raise DataError(f"{label}: column {name!r} is of type {kind}, expected class names or integers")
    elif pd.api.types.is_bool_dtype(kind):
        series = series.map({True: "true", False: "false"})
    codes, unique = pd.factorize(series)
    names = [str(value).strip() for value in unique]
    classes: dict[str, int] = {}
    index = [-1 if name in ("", "-1") else classes.setdefault(name, len(classes)) for name in names]
    return np.array([*index, -1], dtype=np.int64)[codes], list(classes)


def split_codes(series: pd.Series[Any], label: str, name: str) -> NDArray[np.int64]:
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
    """Edges in batches: indices of sources and targets, and weights if there are any."""

    def __init__(
        self,
        table: Table,
        ids: Ids,
        ends: tuple[str, str],
        skip_unknown: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.table, self.ids, self.ends, self.progress = table, ids, ends, progress
        self.weighted = "weight" in table.names and "weight" not in ends
        self.notes: list[str] = []
        self._skip, self._skipped, self._example = skip_unknown, 0, ""
        ignored = [name for name in table.names if name not in (*ends, "weight")]
        if ignored:
            self.notes.append(f"{table.label}: unknown columns ignored: {listed(ignored)}")

    def __iter__(self) -> Iterator[list[Array]]:
        total, row = self.table.count() if self.progress else 0, 0
        if (self.ids.find([pa.array(list(self.ends), pa.string())]) >= 0).all():
            first = f"its first row, {', '.join(self.ends)}, is an edge"
            raise DataError(f"{self.table.label} has no header: {first}; expected source, target")
        for columns in self.table.batches([*self.ends, *(["weight"] if self.weighted else [])]):
            ends = [
                _id_values(column, self.table.label, name, row)
                for name, column in zip(self.ends, columns, strict=False)
            ]
            index = self.ids.find(ends)
            weights = [_weights(column, self.table.label, row) for column in columns[2:]]
            known = (index >= 0).all(0)
            if not known.all():
                self._unknown(index, ends, row)
                index, weights = index[:, known], [weight[known] for weight in weights]
            yield [*index, *weights]
            row += len(columns[0])
            if self.progress:
                self.progress(row, max(total, row))
            del columns, ends, index
            pa.default_memory_pool().release_unused()
        if not row:
            self.notes.append(f"{self.table.label} has no rows: a graph without edges")
        if self._skipped:
            skipped = f"{counted(self._skipped, 'edge')} with an unknown id skipped, first {self._example}"
            self.notes.append(f"{self.table.label}: {skipped}")

    def _unknown(self, index: Array, columns: Sequence[pa.Array], row: int) -> None:
        bad = np.flatnonzero((index < 0).any(0))
        first = int(bad[0])
        end = int(index[0, first] >= 0)
        name, value = self.ends[end], python_value(columns[end][first])
        if not self._skip:
            label, nodes = self.table.label, self.ids.label
            others = f"; unknown ids also in rows {listed((bad[1:] + row + 1).tolist())}" if bad.size > 1 else ""
            raise DataError(
                f"{label} row {row + first + 1}: {name} {value!r} is unknown, expected an id of {nodes}{others}; "
                "--skip-unknown leaves such edges out"
            )
        self._example = self._example or f"row {row + first + 1}: {name} {value!r}"
        self._skipped += bad.size


def _weights(column: pa.Array, label: str, row: int) -> NDArray[np.float32]:
    single = to_float32(numbers_of(column))
    bad = bad_weight(single)
    if bad is not None:
        value = python_value(column[bad])
        raise DataError(f"{label} row {row + bad + 1}: weight is {value!r}, expected a finite number, 0 or larger")
    return single


def numbers_of(column: pa.Array) -> Floats:
    """The column as numbers, NaN where a value is missing or no number."""
    if _is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        missing = pc.is_in(text, value_set=pa.array(MISSING, column.type))
        column = pc.if_else(missing, pa.scalar(None, column.type), text)
    try:
        return np.asarray(pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        return loose_numbers([str(value or "") for value in column.to_pylist()])
    except pa.ArrowNotImplementedError:
        return np.full(len(column), np.nan)


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; too large ones become infinite, which the checks report."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def bad_weight(values: NDArray[np.float32]) -> int | None:
    """The index of the first weight that is not finite or negative."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    return int(bad[0]) if bad.size else None
