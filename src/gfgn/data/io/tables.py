"""A graph in two tables, `nodes` and `edges`, each CSV or Parquet, read batch by batch through PyArrow.

Node ids are put into an index once; edges pass through it a batch at a time, so that the ids of all edges are never
held together. Rows are counted from 1, the header of a CSV file not included.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gfgn.data.io.assemble import Array, DataError, Edges, Parts, Progress, number, some, to_float32
from gfgn.data.splits import Split

NODE_BATCH = 2**16
"""Nodes of a Parquet file that are in memory at once."""
EDGE_BATCH = 2**21
"""Edges of a Parquet file that are in memory at once: many, as every batch costs an index of the node ids."""
BLOCK = 2**24
"""Bytes of a CSV file that are in memory at once."""
MAX_CATEGORIES = 64
MISSING = ("", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL", "None")
"""What stands for a missing number in a CSV file."""
PARTS = ("train", "val", "test")


def _arrow(module: str = "pyarrow") -> Any:
    """PyArrow, which is an extra and comes without types."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError("reading tables needs PyArrow, which is missing here: pip install gfgn[tables]") from error


@contextmanager
def _readable(label: str, kind: str) -> Iterator[None]:
    """Turns what PyArrow raises over a damaged file into one sentence."""
    pa = _arrow()
    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, OSError, ValueError, UnicodeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{label} cannot be read as {kind} ({reason})") from error


class Table:
    """A CSV or Parquet file as a sequence of batches. Columns of a CSV file are strings, whatever they hold."""

    def __init__(self, path: Path, label: str) -> None:
        self.path, self.label = path, label
        self.is_csv = path.suffix == ".csv"
        if path.stat().st_size == 0:
            raise DataError(f"{label} is empty, expected a table with a header")
        with _readable(label, self.kind):
            schema = self._open_csv({}).schema if self.is_csv else self._open_parquet().schema_arrow
            self._raw = list(schema.names)
        self.names = [name.strip() for name in self._raw]
        self.types = dict(zip(self.names, schema.types, strict=True))
        if len(self.types) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise DataError(f"{label} has the column {twice!r} more than once, expected every name once")
        if self.is_csv:
            self.types = dict.fromkeys(self.names, _arrow().string())

    @property
    def kind(self) -> str:
        return "CSV" if self.is_csv else "Parquet"

    def need(self, name: str) -> None:
        if name not in self.types:
            raise DataError(f"{self.label} has no column {name!r}, found {some(self.names, 12)}")

    def count(self) -> int:
        """The number of rows: exact for Parquet, that of the lines for CSV."""
        if not self.is_csv:
            with _readable(self.label, self.kind):
                return int(self._open_parquet().metadata.num_rows)
        with self.path.open("rb") as file:
            return max(sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK), b"")) - 1, 1)

    def batches(self, names: Sequence[str], size: int) -> Iterator[list[Any]]:
        """The named columns, batch after batch; `size` is the rows of one where the file is Parquet."""
        places = [self.names.index(name) for name in names]
        with _readable(self.label, self.kind):
            if self.is_csv:
                types = {raw: _arrow().string() for raw in self._raw}
                for batch in self._open_csv(types):
                    if batch.num_rows:
                        yield [batch.column(place) for place in places]
                return
            raw = [self._raw[place] for place in places]
            for batch in self._open_parquet().iter_batches(size, columns=raw, use_threads=False):
                batch.validate(full=True)  # a damaged file can decode into text that is not UTF-8
                if batch.num_rows:
                    yield [_plain(batch.column(name)) for name in raw]

    def _open_parquet(self) -> Any:
        return _arrow("pyarrow.parquet").ParquetFile(self.path)

    def _open_csv(self, types: dict[str, Any]) -> Any:
        csv = _arrow("pyarrow.csv")
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False),
        )


def _plain(column: Any) -> Any:
    """A dictionary-encoded column as the values it stands for."""
    pa = _arrow()
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _value_type(kind: Any) -> Any:
    return kind.value_type if _arrow().types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


# --- reading the two tables -----------------------------------------------------------------------


def read_tables(nodes: Path, edges: Path, prefix: str, progress: Progress | None) -> Parts:
    """Reads a graph from the files of its nodes and edges; `prefix` stands before file names in messages."""
    node_table, edge_table = Table(nodes, prefix + nodes.name), Table(edges, prefix + edges.name)
    node_table.need("id")
    for name in ("source", "target"):
        edge_table.need(name)
    notes: list[str] = []
    ids = _ids(node_table, edge_table)
    columns = _columns(node_table)
    x, labels, label_names, splits = _node_values(node_table, columns, len(ids), notes)
    found = _edges(edge_table, ids, node_table.label, notes, progress)
    kinds = {"numeric": sum(c.kind != "one-hot" for c in columns), "one-hot": sum(len(c.values) for c in columns)}
    array = _as_numpy(ids)
    del ids
    _return_memory()
    return Parts(
        origin=node_table.label,
        edges=found,
        x=torch.from_numpy(x),
        feature_names=[name for column in columns for name in column.feature_names],
        kinds={kind: count for kind, count in kinds.items() if count},
        labels=labels,
        label_names=label_names,
        splits=splits,
        ids=array,
        notes=notes,
    )


def _return_memory() -> None:
    """Gives back what PyArrow keeps of freed memory."""
    _arrow().default_memory_pool().release_unused()


# --- ids ------------------------------------------------------------------------------------------


def _ids(nodes: Table, edges: Table) -> Any:
    """The ids of the nodes: 64-bit integers where both files have integers, strings otherwise."""
    pa = _arrow()
    used = [(nodes, "id"), (edges, "source"), (edges, "target")]
    whole = True
    for table, name in used:
        kind = _value_type(table.types[name])
        integer = pa.types.is_integer(kind)
        if not integer and not _is_text(kind):
            raise DataError(f"{table.label}: column {name!r} is of type {kind}, expected strings or integers")
        whole = whole and integer and kind != pa.uint64()
    target = pa.int64() if whole else pa.large_string()
    chunks, row = [], 0
    for (column,) in nodes.batches(["id"], NODE_BATCH):
        _no_empty_id(column, nodes.label, "id", row)
        chunks.append(column.cast(target))
        row += len(column)
    if not chunks:
        raise DataError(f"{nodes.label} holds no rows, expected one a node")
    ids = pa.chunked_array(chunks).combine_chunks()
    if _arrow("pyarrow.compute").count_distinct(ids).as_py() < len(ids):
        _name_duplicate(ids.to_pylist(), nodes.label)
    chunks.clear()
    _return_memory()
    return ids


def _as_numpy(ids: Any) -> Array:
    """The ids as integers, or as NumPy's strings, which take a quarter of the memory of Python's."""
    if not _is_text(ids.type):
        return np.asarray(ids.to_numpy())
    found = np.empty(len(ids), dtype=np.dtypes.StringDType())
    for low in range(0, len(ids), NODE_BATCH):
        found[low : low + NODE_BATCH] = ids.slice(low, NODE_BATCH).to_pylist()
    return found


def _no_empty_id(column: Any, label: str, name: str, row: int) -> None:
    pc = _arrow("pyarrow.compute")
    empty = pc.is_null(column)
    if _is_text(column.type):
        empty = pc.or_(empty, pc.fill_null(pc.equal(column, _arrow().scalar("", column.type)), True))
    place = pc.index(empty, True).as_py()
    if place >= 0:
        raise DataError(f"{label} row {row + place + 1}: {name} is empty, expected an id")


def _name_duplicate(ids: list[object], label: str) -> None:
    first: dict[object, int] = {}
    for row, name in enumerate(ids, 1):
        if first.setdefault(name, row) != row:
            raise DataError(f"{label} row {row}: id {name!r} is also that of row {first[name]}, expected every id once")


def _edges(table: Table, ids: Any, nodes: str, notes: list[str], progress: Progress | None) -> Edges:
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    weighted = "weight" in table.types
    extra = [name for name in table.names if name not in ("source", "target", "weight")]
    if extra:
        notes.append(f"{table.label}: columns without a meaning here left out: {some(extra)}")
    total, row = table.count() if progress else 0, 0
    sources: list[NDArray[np.int32]] = []
    targets: list[NDArray[np.int32]] = []
    weights: list[NDArray[np.float32]] = []
    names = ["source", "target", "weight"] if weighted else ["source", "target"]
    for columns in table.batches(names, EDGE_BATCH):
        for name, column in zip(("source", "target"), columns, strict=False):
            _no_empty_id(column, table.label, name, row)
        # Both ends in one call: the index of the ids is built once a call.
        both = pa.chunked_array([column.cast(ids.type) for column in columns[:2]])
        place = pc.fill_null(pc.index_in(both, value_set=ids), -1).to_numpy().reshape(2, -1)
        if (place < 0).any():
            _name_unknown(place, columns, row, table.label, nodes)
        sources.append(place[0].copy())
        targets.append(place[1].copy())
        if weighted:
            weights.append(_weights(columns[2], table.label, row))
        row += len(columns[0])
        if progress:
            progress(row, max(total, row))
        del columns, both, place
        _return_memory()
    if not row:
        raise DataError(f"{table.label} holds no rows, expected one an edge")
    return Edges(_joined(sources), _joined(targets), _joined(weights) if weighted else None)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; the list is empty then, so that they are not held twice."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def _name_unknown(place: Array, columns: Sequence[Any], row: int, label: str, nodes: str) -> None:
    bad = np.flatnonzero((place < 0).any(0))
    first = int(bad[0])
    end = int(place[0, first] >= 0)
    name = columns[end][first].as_py()
    others = f"; unknown ids also in rows {some((bad[1:] + row + 1).tolist())}" if bad.size > 1 else ""
    which = ("source", "target")[end]
    raise DataError(f"{label} row {row + first + 1}: {which} {name!r} is unknown, expected an id of {nodes}{others}")


def _weights(column: Any, label: str, row: int) -> NDArray[np.float32]:
    expected = "expected a finite number, 0 or larger"
    values = _numbers(column)
    if values is None:
        place = _first_text(column)
        raise DataError(f"{label} row {row + place + 1}: weight {column[place].as_py()!r} is no number, {expected}")
    single = to_float32(values)
    bad = np.flatnonzero(~(np.isfinite(single) & (single >= 0)))
    if bad.size:
        found = column[int(bad[0])].as_py()
        raise DataError(f"{label} row {row + int(bad[0]) + 1}: weight is {found!r}, {expected}")
    return single


# --- numbers in columns ---------------------------------------------------------------------------


def _numbers(column: Any) -> NDArray[np.float64] | None:
    """The column as numbers, NaN where one is missing; `None` where something in it is not a number."""
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    types = pa.types
    if _is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        missing = pc.is_in(text, value_set=pa.array(MISSING, column.type))
        column = pc.if_else(missing, pa.scalar(None, column.type), text)
    elif not (types.is_boolean(column.type) or _is_numeric(column.type)):
        return None
    try:
        if types.is_boolean(column.type):
            column = column.cast(pa.int8())
        cast = column.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        cast = _booleans(column)
        if cast is None:
            return None
    return np.asarray(pc.fill_null(cast, np.nan).to_numpy(zero_copy_only=False), dtype=np.float64)


def _booleans(column: Any) -> Any | None:
    """A text column of true and false as 1 and 0, or `None`."""
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    lower = pc.utf8_lower(column)
    known = pc.is_in(pc.drop_null(lower), value_set=pa.array(["true", "false"], column.type))
    if pc.all(known, min_count=0).as_py() is not True:
        return None
    return pc.equal(lower, pa.scalar("true", column.type)).cast(pa.int8()).cast(pa.float64())


def _is_numeric(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind))


def _first_text(column: Any) -> int:
    """Where the first value is that is not a number; by halving, as casting tells of a whole only."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _numbers(column.slice(low, middle - low)) is not None else (low, middle)
    return low


# --- the columns of the nodes ---------------------------------------------------------------------


@dataclass
class Column:
    """A feature column of the nodes.

    Attributes:
        kind: `"numeric"`, or `"one-hot"` for one feature a value.
        values: The values of a one-hot column, sorted.
    """

    name: str
    kind: str
    values: list[str] = field(default_factory=list)

    @property
    def feature_names(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values] if self.kind == "one-hot" else [self.name]


def _columns(table: Table) -> list[Column]:
    """What every column other than `id`, `label` and `split` is; reads the text columns once through."""
    names = [name for name in table.names if name not in ("id", "label", "split")]
    if not names:
        raise DataError(f"{table.label} has no feature column, expected one or more beside id, label and split")
    types = {name: _value_type(table.types[name]) for name in names}
    for name, kind in types.items():
        if not (_is_text(kind) or _is_numeric(kind) or _arrow().types.is_boolean(kind)):
            raise DataError(f"{table.label}: column {name!r} is of type {kind}, expected numbers or categories")
    scans = {name: _Scan(table, name) for name in names if _is_text(types[name])}
    for columns in table.batches(list(scans), NODE_BATCH) if scans else ():
        for scan, column in zip(scans.values(), columns, strict=True):
            scan.add(column)
    return [scans[name].column() if name in scans else Column(name, "numeric") for name in names]


class _Scan:
    """Finds out whether a text column holds numbers (in CSV), categories, or text that is of no use as a feature."""

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name
        self.numbers, self.booleans = table.is_csv, table.is_csv
        self.values: set[str] = set()
        self.rows = 0
        self.example: tuple[int, str] | None = None

    def add(self, column: Any) -> None:
        pc = _arrow("pyarrow.compute")
        if self.numbers or self.booleans:
            self._try_numbers(column)
        if not self.numbers and not self.booleans and self.example is None:
            place = _first_text(column) if self.table.is_csv else 0
            self.example = (self.rows + place + 1, str(column[place].as_py()))
        if len(self.values) <= MAX_CATEGORIES:
            found = pc.unique(pc.utf8_trim_whitespace(pc.drop_null(column)))
            self.values.update(found.slice(0, MAX_CATEGORIES + 2).to_pylist())
            self.values.discard("")
        self.rows += len(column)

    def _try_numbers(self, column: Any) -> None:
        """A column is numeric if every batch is; one of true and false must be so in every batch as well."""
        pa, pc = _arrow(), _arrow("pyarrow.compute")
        is_number = _numbers(column) is not None
        text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        words = pa.array(["true", "false", *(token.lower() for token in MISSING)], column.type)
        is_word = pc.all(pc.is_in(text, value_set=words)).as_py()
        has_word = pc.any(pc.is_in(text, value_set=words.slice(0, 2))).as_py()
        self.booleans = self.booleans and is_word
        self.numbers = self.numbers and is_number and not has_word

    def column(self) -> Column:
        if self.numbers or self.booleans:
            return Column(self.name, "numeric")
        if 0 < len(self.values) <= MAX_CATEGORIES and 2 * len(self.values) < self.rows:
            return Column(self.name, "one-hot", sorted(self.values))
        if self.example is None or not self.values:
            raise DataError(f"{self.table.label}: column {self.name!r} holds no value, expected numbers or categories")
        row, text = self.example
        many = f"more than {MAX_CATEGORIES}" if len(self.values) > MAX_CATEGORIES else f"{len(self.values)}"
        shown = text if len(text) <= 30 else text[:29] + "…"
        raise DataError(
            f"{self.table.label}: column {self.name!r} is text ({shown!r} at row {row}) with {many} distinct values "
            f"in {number(self.rows, 'row')}, expected numbers, or categories (at most {MAX_CATEGORIES}, fewer than "
            "half of the rows): leave it out or turn it into numbers, such as an embedding"
        )


def _node_values(
    table: Table, columns: list[Column], size: int, notes: list[str]
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None, list[str], list[Split] | None]:
    """Features, labels, the names of the classes and the split, in one pass over the file."""
    extra = [name for name in ("label", "split") if name in table.types]
    width = [len(column.feature_names) for column in columns]
    x = np.zeros((size, sum(width)), dtype=np.float32)
    classes: dict[str, int] = {}
    labels, part = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    row = 0
    for batch in table.batches([*(column.name for column in columns), *extra], NODE_BATCH):
        stop, place = row + len(batch[0]), 0
        for column, count, values in zip(columns, width, batch, strict=False):
            _fill(x[row:stop, place : place + count], column, values, table.label, row)
            place += count
        for name, values in zip(extra, batch[len(columns) :], strict=True):
            if name == "label":
                labels[row:stop] = _label_codes(values, classes, table.label)
            else:
                part[row:stop] = _split_codes(values, table.label, row)
        row = stop
    _repair(x, columns, table.label, notes)
    splits = [Split(*(torch.from_numpy(part == k) for k in range(3)))] if "split" in extra else None
    return x, labels if "label" in extra else None, list(classes), splits


def _fill(out: NDArray[np.float32], column: Column, values: Any, label: str, row: int) -> None:
    """Writes one column of one batch; NaN where a value is missing."""
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    if column.kind == "one-hot":
        values = pc.utf8_trim_whitespace(values)
        codes = pc.index_in(values, value_set=pa.array(column.values, values.type))
        code = pc.fill_null(codes, -1).to_numpy()
        out[np.flatnonzero(code >= 0), code[code >= 0]] = 1
        out[code < 0] = np.nan
        return
    numbers = _numbers(values)
    if numbers is None:  # the file was another one when its columns were looked at
        raise DataError(f"{label}: column {column.name!r} is not numeric throughout, expected numbers")
    out[:, 0] = to_float32(numbers)
    bad = np.flatnonzero(np.isinf(out[:, 0]))
    if bad.size:
        found = values[int(bad[0])].as_py()
        raise DataError(
            f"{label} row {row + int(bad[0]) + 1}: column {column.name!r} holds {found!r}, expected a finite number"
        )


def _repair(x: NDArray[np.float32], columns: list[Column], label: str, notes: list[str]) -> None:
    """Replaces what is missing, in place: the mean for a number, no category at all for a category."""
    place = 0
    for column in columns:
        block = x[:, place : place + len(column.feature_names)]
        place += block.shape[1]
        missing = np.isnan(block[:, 0])
        count = int(missing.sum())
        if not count:
            continue
        values = number(count, "missing value")
        if column.kind == "one-hot":
            block[missing] = 0
            notes.append(f"{label}: {values} in column {column.name!r} read as none of its categories")
        elif count == len(block):
            block[:] = 0
            notes.append(f"{label}: column {column.name!r} holds no value, replaced by 0")
        else:
            mean = float(block[~missing].mean(dtype=np.float64))
            block[missing] = mean
            notes.append(f"{label}: {values} in column {column.name!r} replaced by the mean, {mean:.6g}")


def _label_codes(column: Any, classes: dict[str, int], label: str) -> NDArray[np.int64]:
    """Numbers of the classes in the order of their appearance, −1 where the label is empty or −1."""
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    kind = column.type
    if pa.types.is_floating(kind):  # integers with gaps, as pandas writes them
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
    place = [-1 if name in ("", "-1") else classes.setdefault(name, len(classes)) for name in names]
    codes: Array = pc.fill_null(coded.indices, -1).to_numpy()
    numbers: NDArray[np.int64] = np.array([*place, -1], dtype=np.int64)[codes]  # the last one serves −1
    return numbers


def _split_codes(column: Any, label: str, row: int) -> NDArray[np.int64]:
    """0, 1 and 2 for train, val and test, −1 for an empty value."""
    pa, pc = _arrow(), _arrow("pyarrow.compute")
    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        raise DataError(f"{label}: column 'split' is of type {column.type}, expected train, val or test")
    text = pc.fill_null(pc.utf8_trim_whitespace(column.cast(pa.string())), "")
    codes = pc.index_in(text, value_set=pa.array([*PARTS, ""])).fill_null(-1).to_numpy()
    bad = np.flatnonzero(codes < 0)
    if bad.size:
        found = text[int(bad[0])].as_py()
        raise DataError(
            f"{label} row {row + int(bad[0]) + 1}: split is {found!r}, expected train, val, test or nothing"
        )
    return np.where(codes == 3, -1, codes).astype(np.int64)
