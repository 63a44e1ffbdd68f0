"""Graphs in two tables, `nodes` and `edges`, each CSV or Parquet, read in batches with PyArrow.

The index of the node ids is built once and applied to the edges batch by batch, so that the ids of all edges are never
in memory together. Messages count rows from 1, without the header of a CSV file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import torch
from numpy.typing import NDArray

from gfgn.data.io.assemble import Contents, Edges, Progress, bad_weight, reading, to_float32
from gfgn.data.messages import DataError, counted, listed
from gfgn.data.splits import Split

Floats: TypeAlias = NDArray[np.float32]

NODE_BATCH = 2**16  # rows per batch of a Parquet file of nodes
EDGE_BATCH = 2**21  # rows per batch of a Parquet file of edges: large, because every batch hashes the node ids again
BLOCK = 2**24  # bytes per batch of a CSV file
MAX_CATEGORIES = 64
MISSING = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL", "None")  # missing numbers in a CSV file


class Table:
    """A CSV or Parquet file as a sequence of batches. All columns of a CSV file are strings."""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label, self.is_csv = path, label, path.suffix == ".csv"
        self._reading = partial(reading, label, "CSV" if self.is_csv else "Parquet")
        if path.stat().st_size == 0:
            raise DataError(f"{label} is empty, expected a table with a header")
        with self._reading():
            schema = self._open_csv({}).schema if self.is_csv else pyarrow.parquet.ParquetFile(self.path).schema_arrow
            self._raw = list(schema.names)
        self.names = [name.strip() for name in self._raw]
        types = [pa.string()] * len(self.names) if self.is_csv else map(_value_type, schema.types)
        self.types = dict(zip(self.names, types, strict=True))
        if len(self.types) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"{label} has the column {twice!r} more than once, expected every name once")

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
        indices = [self.names.index(name) for name in names]
        with self._reading():
            if self.is_csv:
                for batch in self._open_csv({raw: pa.string() for raw in self._raw}):
                    if batch.num_rows:
                        yield [batch.column(index) for index in indices]
                return
            raw = [self._raw[index] for index in indices]
            file = pyarrow.parquet.ParquetFile(self.path)
            for batch in file.iter_batches(size, columns=raw, use_threads=False):
                batch.validate(full=True)  # a damaged file may decode to invalid UTF-8
                if batch.num_rows:
                    yield [column.cast(_value_type(column.type)) for column in map(batch.column, raw)]

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


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_numeric(kind: Any) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_decimal, types.is_null))


def read_tables(nodes: Path, edges: Path, prefix: str, progress: Progress | None) -> Contents:
    """Reads a graph from its two files; `prefix` is put before file names in messages."""
    node_table, edge_table = Table(nodes, prefix + nodes.name), Table(edges, prefix + edges.name)
    node_table.require("id")
    edge_table.require("source", "target")
    ids = _read_ids(node_table, edge_table)
    contents = _read_nodes(node_table, len(ids))
    contents.edges = _read_edges(edge_table, ids, contents, progress)
    contents.node_ids = _as_numpy(ids)
    del ids
    pa.default_memory_pool().release_unused()
    return contents


def _read_ids(nodes: Table, edges: Table) -> Any:
    """The ids of the nodes: 64-bit integers if both files have integers, strings otherwise."""
    kinds = []
    for table, name in ((nodes, "id"), (edges, "source"), (edges, "target")):
        kind = table.types[name]
        if not pa.types.is_integer(kind) and not _is_text(kind):
            raise DataError(f"{table.label}: column {name!r} is of type {kind}, expected strings or integers")
        kinds.append(kind)
    integers = all(pa.types.is_integer(kind) and kind != pa.uint64() for kind in kinds)
    chunks, row = [], 0
    for (column,) in nodes.batches(["id"], NODE_BATCH):
        _check_ids(column, nodes.label, "id", row)
        chunks.append(column.cast(pa.int64() if integers else pa.large_string()))
        row += len(column)
    if not chunks:
        raise DataError(f"{nodes.label} has no rows, expected one per node")
    ids = pa.chunked_array(chunks).combine_chunks()
    first = pc.index_in(ids, value_set=ids).to_numpy()
    repeated = np.flatnonzero(first != np.arange(len(ids)))
    if repeated.size:
        row, name = int(repeated[0]), ids[int(repeated[0])].as_py()
        also = f"is also in row {first[row] + 1}, expected every id once"
        raise DataError(f"{nodes.label} row {row + 1}: id {name!r} {also}")
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
    names = ["source", "target", *(["weight"] if "weight" in table.types else [])]
    ignored = [name for name in table.names if name not in names]
    if ignored:
        nodes.notes.append(f"{table.label}: unknown columns ignored: {listed(ignored)}")
    total, row = table.count() if progress else 0, 0
    parts: list[list[NDArray[Any]]] = [[] for _ in names]
    for columns in table.batches(names, EDGE_BATCH):
        for name, column in zip(names[:2], columns, strict=False):
            _check_ids(column, table.label, name, row)
        # Both ends in one call, because every call hashes the ids.
        both = pa.chunked_array([column.cast(ids.type) for column in columns[:2]])
        index = pc.fill_null(pc.index_in(both, value_set=ids), -1).to_numpy().reshape(2, -1)
        if (index < 0).any():
            _raise_unknown(index, columns, row, table.label, nodes.origin)
        weights = [_weights(column, table.label, row) for column in columns[2:]]
        for part, values in zip(parts, (index[0].copy(), index[1].copy(), *weights), strict=True):
            part.append(values)
        row += len(columns[0])
        if progress:
            progress(row, max(total, row))
        del columns, both, index
        pa.default_memory_pool().release_unused()
    if not row:
        raise DataError(f"{table.label} has no rows, expected one per edge")
    arrays = []
    for part in parts:
        arrays.append(np.concatenate(part))
        part.clear()  # so that they are not all in memory twice
    return Edges(*arrays)


def _raise_unknown(index: NDArray[Any], columns: Sequence[Any], row: int, label: str, nodes: str) -> None:
    bad = np.flatnonzero((index < 0).any(0))
    first = int(bad[0])
    end = int(index[0, first] >= 0)
    name, value = ("source", "target")[end], columns[end][first].as_py()
    others = f"; unknown ids also in rows {listed((bad[1:] + row + 1).tolist())}" if bad.size > 1 else ""
    raise DataError(f"{label} row {row + first + 1}: {name} {value!r} is unknown, expected an id of {nodes}{others}")


def _weights(column: Any, label: str, row: int) -> Floats:
    values = _numbers(column)
    single = np.empty(0, dtype=np.float32) if values is None else to_float32(values)
    bad = _first_text(column) if values is None else bad_weight(single)
    if bad is not None:
        value = column[bad].as_py()
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


def _feature_columns(table: Table) -> dict[str, list[str] | None]:
    """The sorted categories of each column except `id`, `label` and `split`, `None` for numbers; reads text columns."""
    names = [name for name in table.names if name not in ("id", "label", "split")]
    if not names:
        raise DataError(f"{table.label} has no feature column, expected one or more besides id, label and split")
    for name in names:
        kind = table.types[name]
        if not (_is_text(kind) or _is_numeric(kind) or pa.types.is_boolean(kind)):
            raise DataError(f"{table.label}: column {name!r} is of type {kind}, expected numbers or categories")
    scans = {name: _Scan(table, name) for name in names if _is_text(table.types[name])}
    for columns in table.batches(list(scans), NODE_BATCH) if scans else ():
        for scan, column in zip(scans.values(), columns, strict=True):
            scan.add(column)
    return {name: scans[name].categories() if name in scans else None for name in names}


class _Scan:
    """Determines whether a text column holds numbers (in CSV), categories, or text that cannot be a feature."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name
        self.numbers = self.booleans = table.is_csv
        self.values: set[str] = set()
        self.rows = 0
        self.example: tuple[int, str] | None = None

    def add(self, column: Any) -> None:
        if self.numbers or self.booleans:  # all batches must be numbers, or all must be true and false
            text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
            words = pa.array(["true", "false", *(token.lower() for token in MISSING)], column.type)
            has_words = pc.any(pc.is_in(text, value_set=words.slice(0, 2))).as_py()
            self.booleans = self.booleans and pc.all(pc.is_in(text, value_set=words)).as_py()
            self.numbers = self.numbers and not has_words and _numbers(column) is not None
        if not self.numbers and not self.booleans and self.example is None:
            index = _first_text(column) if self.table.is_csv else 0
            self.example = (self.rows + index + 1, str(column[index].as_py()))
        if len(self.values) <= MAX_CATEGORIES:
            values = pc.unique(pc.utf8_trim_whitespace(pc.drop_null(column)))
            self.values.update(values.slice(0, MAX_CATEGORIES + 2).to_pylist())
            self.values.discard("")
        self.rows += len(column)

    def categories(self) -> list[str] | None:
        if self.numbers or self.booleans:
            return None
        if 0 < len(self.values) <= MAX_CATEGORIES and 2 * len(self.values) < self.rows:
            return sorted(self.values)
        if self.example is None or not self.values:
            raise DataError(f"{self.table.label}: column {self.name!r} has no value, expected numbers or categories")
        row, text = self.example
        many = f"more than {MAX_CATEGORIES}" if len(self.values) > MAX_CATEGORIES else f"{len(self.values)}"
        shown = text if len(text) <= 30 else text[:29] + "…"
        raise DataError(
            f"{self.table.label}: column {self.name!r} is text ({shown!r} at row {row}) with {many} distinct values "
            f"in {counted(self.rows, 'row')}, expected numbers, or categories (at most {MAX_CATEGORIES}, fewer than "
            "half of the rows): remove it or replace it by numbers, such as an embedding"
        )


def _read_nodes(table: Table, size: int) -> Contents:
    """Reads everything except the ids; features, labels and splits in one pass over the file."""
    columns = _feature_columns(table)
    special = [name for name in ("label", "split") if name in table.types]
    kinds = [[""] if values is None else [f"={value}" for value in values] for values in columns.values()]
    names = [name + suffix for name, suffixes in zip(columns, kinds, strict=True) for suffix in suffixes]
    stops = np.cumsum([len(suffixes) for suffixes in kinds])[:-1]
    x = np.zeros((size, len(names)), dtype=np.float32)
    classes: dict[str, int] = {}
    codes = {name: np.full(size, -1, dtype=np.int64) for name in special}
    row = 0
    for batch in table.batches([*columns, *special], NODE_BATCH):
        rows = slice(row, row + len(batch[0]))
        blocks = np.split(x[rows], stops, axis=1)
        for (name, categories), block, values in zip(columns.items(), blocks, batch, strict=False):
            _fill(block, name, categories, values, table.label, row)
        for name, values in zip(special, batch[len(columns) :], strict=True):
            if name == "label":
                codes[name][rows] = _label_codes(values, classes, table.label)
            else:
                codes[name][rows] = _split_codes(values, table.label, row)
        row = rows.stop
    numeric = sum(categories is None for categories in columns.values())
    part = codes.get("split")
    contents = Contents(
        origin=table.label,
        x=torch.from_numpy(x),
        feature_names=names,
        kinds={kind: n for kind, n in (("numeric", numeric), ("one-hot", len(names) - numeric)) if n},
        labels=codes.get("label"),
        class_names=list(classes),
        splits=None if part is None else [Split(*(torch.from_numpy(part == k) for k in range(3)))],
    )
    for (name, categories), block in zip(columns.items(), np.split(x, stops, axis=1), strict=True):
        _replace_missing(block, name, categories is None, table.label, contents.notes)
    return contents


def _fill(out: Floats, name: str, categories: list[str] | None, values: Any, label: str, row: int) -> None:
    """Writes one column of a batch; NaN where a value is missing."""
    if categories is not None:
        values = pc.utf8_trim_whitespace(values)
        code = pc.index_in(values, value_set=pa.array(categories, values.type)).fill_null(-1).to_numpy()
        out[np.flatnonzero(code >= 0), code[code >= 0]] = 1
        out[code < 0] = np.nan
        return
    numbers = _numbers(values)
    if numbers is None:  # the file has changed since its columns were scanned
        raise DataError(f"{label}: column {name!r} is not numeric throughout, expected numbers")
    out[:, 0] = to_float32(numbers)
    bad = np.flatnonzero(np.isinf(out[:, 0]))
    if bad.size:
        got = f"row {row + bad[0] + 1}: column {name!r} holds {values[int(bad[0])].as_py()!r}"
        raise DataError(f"{label} {got}, expected a finite number")


def _replace_missing(block: Floats, name: str, numeric: bool, label: str, notes: list[str]) -> None:
    """Replaces missing values in place: numbers by the mean, categories by zeros."""
    missing = np.isnan(block[:, 0])
    count = int(missing.sum())
    if not count:
        return
    values = f"{label}: {counted(count, 'missing value')} in column {name!r}"
    if not numeric:
        block[missing] = 0
        notes.append(f"{values} read as none of its categories")
    elif count == len(block):
        block[:] = 0
        notes.append(f"{label}: column {name!r} has no value, replaced by 0")
    else:
        mean = float(block[~missing].mean(dtype=np.float64))
        block[missing] = mean
        notes.append(f"{values} replaced by the mean, {mean:.6g}")


def _label_codes(column: Any, classes: dict[str, int], label: str) -> NDArray[np.int64]:
    """The classes, numbered in order of appearance; −1 where the label is empty or −1."""
    kind = column.type
    if pa.types.is_floating(kind):  # pandas writes integers with missing values as floats
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        if pc.any(pc.and_(pc.is_finite(column), pc.not_equal(column, pc.floor(column)))).as_py():
            raise DataError(f"{label}: column 'label' holds fractions, expected class names or integers")
        try:
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise DataError(f"{label}: column 'label' holds numbers too large for a class, expected integers") from None
    elif not (_is_text(kind) or _is_numeric(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{label}: column 'label' is of type {kind}, expected class names or integers")
    coded = pc.utf8_trim_whitespace(column.cast(pa.string())).dictionary_encode()
    names = coded.dictionary.to_pylist()
    index = [-1 if name in ("", "-1") else classes.setdefault(name, len(classes)) for name in names]
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    return np.asarray(np.array([*index, -1])[codes], dtype=np.int64)  # the last entry is that of code −1


def _split_codes(column: Any, label: str, row: int) -> NDArray[np.int64]:
    """0, 1 and 2 for train, val and test, −1 for an empty value."""
    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{label}: column 'split' is of type {column.type}, expected train, val or test")
    text = pc.fill_null(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
    codes = pc.index_in(text, value_set=pa.array(["train", "val", "test", ""])).fill_null(-1).to_numpy()
    bad = np.flatnonzero(codes < 0)
    if bad.size:
        value = text[int(bad[0])].as_py()
        raise DataError(f"{label} row {row + bad[0] + 1}: split is {value!r}, expected train, val, test or nothing")
    return np.where(codes == 3, -1, codes).astype(np.int64)
