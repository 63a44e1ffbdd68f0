"""Graphs in two tables, `nodes` and `edges`, each CSV or Parquet, read in batches with PyArrow.

The index of the node ids is built once and applied to the edges batch by batch, so that the ids of all edges are never
in memory together. Messages count rows from 1, without the header of a CSV file.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from gfgn.data.columns import (
    ISO_DATE,
    MAX_CATEGORIES,
    Column,
    differences,
    first_indices,
    recognize,
    unknown_categories,
)
from gfgn.data.io.assemble import (
    Array,
    Contents,
    Edges,
    Options,
    Progress,
    bad_weight,
    check_model,
    to_float32,
)
from gfgn.data.limits import MAX_COLUMNS, MAX_FEATURES, check_count, check_memory, most_memory
from gfgn.data.messages import DataError, counted, listed, reading
from gfgn.data.splits import Split

Floats: TypeAlias = NDArray[np.float32]

NODE_BATCH = 2**16  # rows per batch of a Parquet file of nodes
EDGE_BATCH = 2**21  # rows per batch of a Parquet file of edges: large, because every batch hashes the node ids again
CODED = 8  # bytes per value below which texts of a Parquet file are stored once for many rows
BLOCK = 2**24  # bytes per batch of a CSV file
MISSING = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL", "None")  # missing numbers and dates in a CSV file
DAY = 86_400_000_000  # microseconds


class Table:
    """A CSV or Parquet file as a sequence of batches. All columns of a CSV file are strings."""

    def __init__(self, path: Path, label: str, size: int) -> None:
        self.path, self.label, self.is_csv = path, label, path.suffix == ".csv"
        self._reading = partial(reading, label, "CSV" if self.is_csv else "Parquet")
        self._coded: list[str] = []  # columns of a Parquet file in which a text is stored once for many rows
        if path.stat().st_size == 0:
            raise DataError(f"{label} is empty, expected a table with a header")
        with self._reading():
            schema = self._csv_schema() if self.is_csv else self._parquet_schema(size)
            self._raw = list(schema.names)
        self.names = [name.strip() for name in self._raw]
        types = [pa.string()] * len(self.names) if self.is_csv else map(_value_type, schema.types)
        self.types = dict(zip(self.names, types, strict=True))
        if len(self.types) < len(self.names):
            twice = next(name for name, count in Counter(self.names).items() if count > 1)
            raise DataError(f"{label} has the column {twice!r} more than once, expected every name once")

    def _csv_schema(self) -> Any:
        with self.path.open("rb") as file:
            header = file.readline(BLOCK)
        if len(header) == BLOCK:
            raise DataError(f"{self.label} has a header of {BLOCK:,} bytes or more, expected names of columns")
        self._check_columns(header.count(b",") + 1)  # before they are parsed
        return self._open_csv({}).schema

    def _parquet_schema(self, size: int) -> Any:
        file = pyarrow.parquet.ParquetFile(self.path)
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        self._check_columns(columns)
        check_memory(self.label, 4 * rows * columns, size)
        self._size, schema = size, file.schema_arrow
        groups, unpacked = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)], 0
        for index in range(columns):
            chunks = [group.column(index) for group in groups]
            unpacked += sum(chunk.total_uncompressed_size for chunk in chunks)
            if any(chunk.total_uncompressed_size < CODED * chunk.num_values for chunk in chunks):
                self._coded.append(chunks[0].path_in_schema)
        check_memory(self.label, unpacked, size)
        return schema

    def _check_columns(self, count: int) -> None:
        cure = "; put wide features into a .npz file with a sparse x"
        check_count(self.label, "columns", count, MAX_COLUMNS, cure)

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.types:
                raise DataError(f"{self.label} has no column {name!r}, only {listed(self.names, 12)}")

    def count(self) -> int:
        """The number of rows; for a CSV file the number of lines."""
        if not self.is_csv:
            with self._reading():
                return int(pyarrow.parquet.read_metadata(self.path).num_rows)
        with self.path.open("rb") as file:
            return max(sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b"")) - 1, 1)

    def batches(self, names: Sequence[str], size: int) -> Iterator[list[Any]]:
        """The named columns in batches, of `size` rows for a Parquet file."""
        position = {name: index for index, name in enumerate(self.names)}
        indices = [position[name] for name in names]
        with self._reading():
            if self.is_csv:
                for batch in self._open_csv({raw: pa.string() for raw in self._raw}):
                    if batch.num_rows:
                        yield [batch.column(index) for index in indices]
                return
            raw = [self._raw[index] for index in indices]
            texts = [name for name, index in zip(raw, indices, strict=True) if _is_text(self.types[self.names[index]])]
            coded = texts if size * self._longest_row(texts) > most_memory(self._size) else self._coded
            # Pre-buffered row groups would stay in memory until the end.
            file = pyarrow.parquet.ParquetFile(self.path, read_dictionary=coded, pre_buffer=False)
            for batch in file.iter_batches(size, columns=raw, use_threads=False):
                batch.validate(full=True)  # a damaged file may decode to invalid UTF-8
                if batch.num_rows:
                    columns = [batch.column(name) for name in raw]
                    check_memory(self.label, sum(map(_text_size, columns)), self._size)
                    yield [column.cast(_value_type(column.type)) for column in columns]

    def _longest_row(self, texts: list[str]) -> int:
        """The most bytes that the texts of a row can have where a text is stored once for many rows; from the
        dictionaries of a Parquet file, which come with the first row of a group."""
        file = pyarrow.parquet.ParquetFile(self.path, read_dictionary=texts)
        longest = 0
        for group in range(file.num_row_groups if texts else 0):
            for batch in itertools.islice(file.iter_batches(1, [group], texts, use_threads=False), 1):
                columns = [getattr(column, "dictionary", column) for column in batch.columns]
                longest = max(longest, sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in columns))
        return longest

    def _open_csv(self, types: dict[str, Any]) -> Any:
        csv = pyarrow.csv
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )


def _value_type(kind: Any) -> Any:
    """The type of the values of a dictionary-encoded column, the type itself for other columns."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _python(scalar: Any) -> Any:
    """The value for a message; the number of days or seconds of a date that Python does not have."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def _text_size(column: Any) -> int:
    """The number of bytes of the texts of a dictionary-encoded column, each as often as it occurs."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return 0
    return pc.sum(pc.take(pc.binary_length(column.dictionary), column.indices)).as_py() or 0


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_date(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_decimal, types.is_null))


class Roles(NamedTuple):
    """The columns of the node table by their use; `label` and `split` are empty if there is none."""

    id: str
    label: str
    split: str
    features: list[str]


def read_tables(
    nodes: Path, edges: Path, size: int, prefix: str, options: Options, progress: Progress | None
) -> Contents:
    """Reads a graph from its two files, of `size` bytes as given; `prefix` is put before file names in messages."""
    node_table, edge_table = (Table(path, prefix + path.name, size) for path in (nodes, edges))
    notes: list[str] = []
    roles = _find_roles(node_table, options, notes)
    edge_table.require("source", "target")
    ids = _read_ids(node_table, roles.id, edge_table)
    contents = _read_nodes(node_table, roles, ids, size, options)
    contents.notes[:0] = notes
    check_model(contents, options)
    contents.edges = _read_edges(edge_table, ids, contents, progress)
    del ids
    pa.default_memory_pool().release_unused()
    return contents


def _find_roles(table: Table, options: Options, notes: list[str]) -> Roles:
    optional = options.encoder is not None  # a graph to predict on may lack what it does not need
    given = {role: getattr(options, role) for role in ("id", "label", "split")}
    needed = [given["id"] or "id"]
    if not optional:
        needed += [*options.drop, *(name for name in given.values() if name)]
    table.require(*needed)
    names = [name for name in table.names if name not in options.drop]
    found = {role: name if (name := column or role) in names else "" for role, column in given.items()}
    used = [name for name in found.values() if name]
    if len(set(used)) < len(used):
        raise DataError(f"{table.label}: id, label and split are {', '.join(used)}, expected different columns")
    if not found["id"]:
        raise DataError(f"{table.label}: column {needed[0]!r} is dropped, expected it for the ids of the nodes")
    dropped = [name for name in table.names if name in options.drop]
    if dropped:
        notes.append(f"{table.label}: {counted(len(dropped), 'column')} dropped: {listed(dropped)}")
    features = [name for name in names if name not in used]
    for role in (role for role in given if role in features):
        notes.append(f"{table.label}: column {role!r} is a feature, because {role} is {given[role]!r}")
    return Roles(**found, features=features)


def _read_ids(nodes: Table, name: str, edges: Table) -> Any:
    """The ids of the nodes: 64-bit integers if both files have integers, strings otherwise."""
    kinds = []
    for table, column in ((nodes, name), (edges, "source"), (edges, "target")):
        kind = table.types[column]
        if not pa.types.is_integer(kind) and not _is_text(kind):
            raise DataError(f"{table.label}: column {column!r} is of type {kind}, expected strings or integers")
        kinds.append(kind)
    integers = all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in kinds)
    chunks, row = [], 0
    for (values,) in nodes.batches([name], NODE_BATCH):
        _check_ids(values, nodes.label, name, row)
        chunks.append(values.cast(pa.int64() if integers else pa.large_string()))
        row += len(values)
    if not chunks:
        raise DataError(f"{nodes.label} has no rows, expected one per node")
    ids = pa.chunked_array(chunks).combine_chunks()
    first = pc.index_in(ids, value_set=ids).to_numpy()
    repeated = np.flatnonzero(first != np.arange(len(ids)))
    if repeated.size:
        row, value = int(repeated[0]), _python(ids[int(repeated[0])])
        also = f"is also in row {first[row] + 1}, expected every id once"
        raise DataError(f"{nodes.label} row {row + 1}: {name} {value!r} {also}")
    chunks.clear()
    pa.default_memory_pool().release_unused()
    return ids


def _check_ids(column: Any, label: str, name: str, row: int) -> None:
    empty = pc.is_null(column)
    if _is_text(column.type):
        empty = pc.or_(empty, pc.fill_null(pc.equal(column, pa.scalar("", column.type)), True))
    index = pc.index(empty, True).as_py()
    if index >= 0:
        raise DataError(f"{label} row {row + index + 1}: {name} is empty, expected an id")


def _as_numpy(ids: Any) -> NDArray[Any]:
    """The ids as integers or NumPy strings, which take a quarter of the memory of Python strings."""
    if not _is_text(ids.type):
        return np.asarray(ids.to_numpy())
    array = np.empty(len(ids), dtype=np.dtypes.StringDType())
    for low in range(0, len(ids), NODE_BATCH):
        array[low : low + NODE_BATCH] = ids.slice(low, NODE_BATCH).to_pylist()
    return array


def _read_edges(table: Table, ids: Any, nodes: Contents, progress: Progress | None) -> Edges:
    ignored = [name for name in table.names if name not in ("source", "target", "weight")]
    if ignored:
        nodes.notes.append(f"{table.label}: unknown columns ignored: {listed(ignored)}")
    parts: list[list[NDArray[Any]]] = [[] for _ in range(2 + ("weight" in table.types))]
    for batch in edge_batches(table, ids, nodes.origin, progress):
        for part, values in zip(parts, batch, strict=True):
            part.append(values.copy())  # both ends are in one array
    arrays: list[Any] = []
    for part in parts:
        arrays.append(np.concatenate(part))
        part.clear()  # so that they are not all in memory twice
    edges = Edges(*arrays)
    edges.origin = table.label
    return edges


def edge_batches(table: Table, ids: Any, origin: str, progress: Progress | None = None) -> Iterator[list[NDArray[Any]]]:
    """The edges in batches: indices of sources and targets, and weights if there are any. `origin` names the nodes."""
    names = ["source", "target", *(["weight"] if "weight" in table.types else [])]
    total, row = table.count() if progress else 0, 0
    for columns in table.batches(names, EDGE_BATCH):
        for name, column in zip(names[:2], columns, strict=False):
            _check_ids(column, table.label, name, row)
        # Both ends in one call, because every call hashes the ids.
        both = pa.chunked_array([column.cast(ids.type) for column in columns[:2]])
        index = pc.fill_null(pc.index_in(both, value_set=ids), -1).to_numpy().reshape(2, -1)
        if (index < 0).any():
            _raise_unknown(index, columns, row, table.label, origin)
        yield [*index, *(_weights(column, table.label, row) for column in columns[2:])]
        row += len(columns[0])
        if progress:
            progress(row, max(total, row))
        del columns, both, index
        pa.default_memory_pool().release_unused()
    if not row:
        raise DataError(f"{table.label} has no rows, expected one per edge")


def _raise_unknown(index: NDArray[Any], columns: Sequence[Any], row: int, label: str, nodes: str) -> None:
    bad = np.flatnonzero((index < 0).any(0))
    first = int(bad[0])
    end = int(index[0, first] >= 0)
    name, value = ("source", "target")[end], _python(columns[end][first])
    others = f"; unknown ids also in rows {listed((bad[1:] + row + 1).tolist())}" if bad.size > 1 else ""
    raise DataError(f"{label} row {row + first + 1}: {name} {value!r} is unknown, expected an id of {nodes}{others}")


def _weights(column: Any, label: str, row: int) -> Floats:
    values = _numbers(column)
    single = np.empty(0, dtype=np.float32) if values is None else to_float32(values)
    bad = _first_text(column) if values is None else bad_weight(single)
    if bad is not None:
        value = _python(column[bad])
        raise DataError(f"{label} row {row + bad + 1}: weight is {value!r}, expected a finite number, 0 or larger")
    return single


def _numbers(column: Any) -> NDArray[np.float64] | None:
    """The column as numbers, NaN where one is missing; `None` if a value is not a number."""
    if _is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        missing = pc.is_in(text, value_set=pa.array(MISSING, column.type))
        column = pc.if_else(missing, pa.scalar(None, column.type), text)
    elif not (_is_numeric(column.type) or pa.types.is_boolean(column.type)):
        return None
    try:
        cast = column.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        lower = pc.utf8_lower(column)
        known = pc.is_in(pc.drop_null(lower), value_set=pa.array(["true", "false"], column.type))
        if not pc.all(known, min_count=0).as_py():
            return None
        cast = pc.equal(lower, pa.scalar("true", column.type)).cast(pa.float64())
    return np.asarray(pc.fill_null(cast, np.nan).to_numpy(zero_copy_only=False), dtype=np.float64)


def _first_text(column: Any) -> int:
    """The index of the first value that is not a number, by bisection, because a cast fails as a whole."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _numbers(column.slice(low, middle - low)) is not None else (low, middle)
    return low


def _days(column: Any) -> NDArray[np.float64] | None:
    """The column as days since 1970, NaN where one is missing; `None` if a value is not a date."""
    if _is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        missing = pc.is_in(text, value_set=pa.array(MISSING, column.type))
        column = pc.if_else(missing, pa.scalar(None, column.type), text)
        if not pc.all(pc.match_substring_regex(column, f"^{ISO_DATE}$"), min_count=0).as_py():
            return None
        for zone in (None, "UTC"):
            with suppress(pa.ArrowInvalid):  # such as February 30
                column = column.cast(pa.timestamp("us", zone))
                break
    if not _is_date(column.type):
        return None
    time = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
    return np.asarray(pc.divide(time.cast(pa.float64(), safe=False), float(DAY)).fill_null(np.nan).to_numpy(False))


def _feature_columns(table: Table, names: Sequence[str], expected: Mapping[str, Column]) -> dict[str, _Scan]:
    """The columns, examined; reads text columns."""
    for name in names:
        kind = table.types[name]
        if not (_is_text(kind) or _is_numeric(kind) or _is_date(kind) or pa.types.is_boolean(kind)):
            raise DataError(f"{table.label}: column {name!r} is of type {kind}, expected numbers, categories or dates")
    scans = {name: _Scan(table, name, expected.get(name)) for name in names}
    texts = [name for name in names if _is_text(table.types[name])]
    for columns in table.batches(texts, NODE_BATCH) if texts else ():
        for name, column in zip(texts, columns, strict=True):
            scans[name].add(column)
    return scans


class _Scan:
    """Determines whether a column holds numbers, dates, categories, or text that cannot be a feature."""

    def __init__(self, table: Table, name: str, expected: Column | None) -> None:
        self.table, self.name, self.expected = table, name, expected
        kind = table.types[name]
        self.text = _is_text(kind)
        self.numbers = self.booleans = table.is_csv or not (self.text or _is_date(kind))
        self.dates = self.text or _is_date(kind)
        self.values: set[str] = set()
        self.rows = 0
        self.example: tuple[int, str] | None = None

    def add(self, column: Any) -> None:
        """Examines a batch of a text column."""
        if self.numbers or self.booleans:  # all batches must be numbers, or all must be true and false
            text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
            words = pa.array(["true", "false", *(token.lower() for token in MISSING)], column.type)
            has_words = pc.any(pc.is_in(text, value_set=words.slice(0, 2))).as_py()
            self.booleans = self.booleans and pc.all(pc.is_in(text, value_set=words)).as_py()
            self.numbers = self.numbers and not has_words and _numbers(column) is not None
        self.dates = self.dates and _days(column) is not None
        if not (self.numbers or self.booleans) and self.example is None:
            index = _first_text(column) if self.table.is_csv else 0
            self.example = (self.rows + index + 1, str(_python(column[index])))
        if len(self.values) <= MAX_CATEGORIES:
            values = pc.unique(pc.utf8_trim_whitespace(pc.drop_null(column)))
            self.values.update(values.slice(0, MAX_CATEGORIES + 2).to_pylist())
            self.values.discard("")
        self.rows += len(column)

    @property
    def kind(self) -> str:
        """ "numeric", "date", "category", or "" if no value is known."""
        if pa.types.is_null(self.table.types[self.name]) or (self.text and self.values <= {*MISSING}):
            return ""
        if self.text and self.expected is not None and not self.values.isdisjoint(self.expected.categories):
            return "category"  # which may look like numbers
        return "numeric" if self.numbers or self.booleans else "date" if self.dates else "category"

    @property
    def shown(self) -> str:
        """An example of what is not a number."""
        if self.example is None:
            return ""
        row, text = self.example
        return f" ({text if len(text) <= 30 else text[:29] + '…'!r} at row {row})"

    def column(self) -> Column:
        if self.kind != "category":
            return Column(self.name, self.kind or "numeric")
        if len(self.values) <= MAX_CATEGORIES and 2 * len(self.values) < self.rows:
            return Column(self.name, "category", tuple(sorted(self.values)))
        many = f"more than {MAX_CATEGORIES}" if len(self.values) > MAX_CATEGORIES else f"{len(self.values)}"
        raise DataError(
            f"{self.table.label}: column {self.name!r} is text{self.shown} with {many} distinct values "
            f"in {counted(self.rows, 'row')}, expected numbers, dates, or categories (at most {MAX_CATEGORIES}, fewer "
            f"than half of the rows): leave it out (--drop {self.name}) or replace it by numbers, such as an embedding"
        )


def _read_nodes(table: Table, roles: Roles, ids: Any, size: int, options: Options) -> Contents:
    """Reads everything except the ids; features, labels and splits in one pass over the file."""
    expected = {} if options.encoder is None else {column.name: column for column in options.encoder.columns}
    scans = _feature_columns(table, roles.features, expected)
    unlike = [] if options.encoder is None else _differences(options.encoder.columns, scans)
    columns: list[Column] = []  # if columns differ from those of the model, only labels are read
    if not unlike:
        columns = list(expected.values()) or [scan.column() for scan in scans.values()]
        if not columns:
            raise DataError(f"{table.label} has no feature column, expected one or more besides id, label and split")
    contents = Contents(
        origin=table.label,
        raw=_empty(table.label, len(ids), columns, size),
        columns=columns,
        labels=np.full(len(ids), -1, dtype=np.int64) if roles.label else None,
        class_names=[],
        splits=None,
        node_ids=_as_numpy(ids),
        label=f"column {roles.label!r}",
        differences=unlike,
    )
    part = np.full(len(ids), -1, dtype=np.int64) if roles.split else None
    _read_rows(table, roles, contents, part)
    if part is not None:
        contents.splits = [Split(*(torch.from_numpy(part == k) for k in range(3)))]
    if options.encoder is None:
        assert contents.raw is not None
        contents.columns = recognize(contents.raw, columns)
    return contents


def _differences(expected: Sequence[Column], scans: Mapping[str, _Scan]) -> list[str]:
    shown = {name: scan.shown if scan.kind == "category" else "" for name, scan in scans.items()}
    return differences(expected, {name: scan.kind for name, scan in scans.items()}, shown)


def _empty(label: str, rows: int, columns: Sequence[Column], size: int) -> NDArray[Any]:
    dtype = np.float64 if any(column.kind == "date" for column in columns) else np.float32
    width = sum(column.width for column in columns)
    check_count(label, "features", width, MAX_FEATURES)
    check_memory(label, rows * width * np.dtype(dtype).itemsize, size)
    return np.zeros((rows, width), dtype=dtype)


def _read_rows(table: Table, roles: Roles, contents: Contents, part: NDArray[np.int64] | None) -> None:
    """Fills features, labels and parts of the split, batch by batch."""
    assert isinstance(contents.raw, np.ndarray)
    columns, row = contents.columns, 0
    stops = first_indices(columns)[1:]
    classes: dict[str, int] = {}
    unknown: dict[str, Counter[str]] = {column.name: Counter() for column in columns}
    special = [name for name in (roles.label, roles.split) if name]
    names = [*(column.name for column in columns), *special]
    for batch in table.batches(names, NODE_BATCH) if names else ():
        rows = slice(row, row + len(batch[0]))
        values = dict(zip(names, batch, strict=True))
        blocks = np.split(contents.raw[rows], stops, axis=1)
        for column, block in zip(columns, blocks, strict=False):
            _fill(block, column, values[column.name], table.label, row, unknown[column.name])
        if contents.labels is not None:
            contents.labels[rows] = _label_codes(values[roles.label], classes, table.label, roles.label)
        if part is not None:
            part[rows] = _split_codes(values[roles.split], table.label, roles.split, row)
        row = rows.stop
    contents.class_names = list(classes)
    contents.notes += [f"{table.label}: {unknown_categories(name, count)}" for name, count in unknown.items() if count]


def _fill(out: Array, column: Column, values: Any, label: str, row: int, unknown: Counter[str]) -> None:
    """Writes one column of a batch; NaN where a value is missing."""
    if column.kind == "category":
        if not _is_text(values.type):  # no value at all
            out[:] = np.nan
            return
        text = pc.fill_null(pc.utf8_trim_whitespace(values), "")
        code = pc.index_in(text, value_set=pa.array(column.categories, values.type)).fill_null(-1).to_numpy()
        out[np.flatnonzero(code >= 0), code[code >= 0]] = 1
        empty = pc.equal(text, "").to_numpy(zero_copy_only=False)
        out[empty] = np.nan
        unknown.update(text.filter(pa.array((code < 0) & ~empty)).to_pylist())
        return
    numbers = _days(values) if column.kind == "date" and not pa.types.is_null(values.type) else _numbers(values)
    if numbers is None:  # the file has changed since its columns were scanned
        raise DataError(f"{label}: column {column.name!r} is not of one kind throughout, expected numbers or dates")
    with np.errstate(over="ignore"):
        out[:, 0] = numbers
    bad = np.flatnonzero(np.isinf(out[:, 0]))
    if bad.size:
        got = f"row {row + bad[0] + 1}: column {column.name!r} holds {_python(values[int(bad[0])])!r}"
        raise DataError(f"{label} {got}, expected a finite number")


def _label_codes(column: Any, classes: dict[str, int], label: str, name: str) -> NDArray[np.int64]:
    """The classes, numbered in order of appearance; −1 where the label is empty or −1."""
    kind = column.type
    if pa.types.is_floating(kind):  # pandas writes integers with missing values as floats
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            raise DataError(f"{label}: column {name!r} holds infinity, expected class names or integers")
        column = pc.replace_substring_regex(column.cast(pa.string()), r"\.0$", "")
    elif not (_is_text(kind) or _is_numeric(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{label}: column {name!r} is of type {kind}, expected class names or integers")
    coded = pc.utf8_trim_whitespace(column.cast(pa.string())).dictionary_encode()
    names = coded.dictionary.to_pylist()
    index = [-1 if name in ("", "-1") else classes.setdefault(name, len(classes)) for name in names]
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    return np.asarray(np.array([*index, -1])[codes], dtype=np.int64)  # the last entry is that of code −1


def _split_codes(column: Any, label: str, name: str, row: int) -> NDArray[np.int64]:
    """0, 1 and 2 for train, val and test, −1 for an empty value."""
    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{label}: column {name!r} is of type {column.type}, expected train, val or test")
    text = pc.fill_null(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
    codes = pc.index_in(text, value_set=pa.array(["train", "val", "test", ""])).fill_null(-1).to_numpy()
    bad = np.flatnonzero(codes < 0)
    if bad.size:
        value = text[int(bad[0])].as_py()
        raise DataError(f"{label} row {row + bad[0] + 1}: {name} is {value!r}, expected train, val, test or nothing")
    return np.where(codes == 3, -1, codes).astype(np.int64)
