"""`pack_tables`: two tables into a graph on disk, batch by batch; DuckDB sorts the edges."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import torch

from gfgn.data.assemble import KEEP, edge_notes
from gfgn.data.columns import to_float32
from gfgn.data.dataset import default_metric
from gfgn.data.files import atomic_folder
from gfgn.data.messages import DataError
from gfgn.data.on_disk import OnDiskGraph, create, release, write_facts
from gfgn.data.raw import ReadOptions
from gfgn.data.reading import open_tables
from gfgn.data.tables import EdgeReader, Ids, Roles, Table, label_codes, shown_value, split_codes
from gfgn.graph import TwoWeights

Progress: TypeAlias = Callable[[int], object]

SORTED = 2**20  # sorted edges that are copied at a time


def pack_tables(
    source: Path | str,
    folder: Path | str,
    options: ReadOptions | None = None,
    *,
    memory: str = "1GB",
    progress: Progress | None = None,
    notes: list[str] | None = None,
) -> OnDiskGraph:
    """Packs the node table and the edge table in the folder `source` without holding either in memory.

    The graph is that of `gfgn.data.read`. Features must be numbers without missing values, and are not scaled. There is
    one split, if the table has one.

    Args:
        folder: Folder to write, new or empty.
        options: As for `read`; those of columns and files count.
        memory: Memory for sorting edges, beside a few numbers per node.
        progress: Called with the number of edges that have been read.
        notes: One sentence is appended per guess and repair.
    """
    if find_spec("duckdb") is None:
        raise ImportError("sorting edges on disk needs DuckDB: pip install 'gfgn[large]'")
    options, notes = options or ReadOptions(), [] if notes is None else notes
    nodes, roles, edges, ends = open_tables(Path(source), str(source), "", options, notes)
    if edges is None:
        raise DataError(f"{source} has no table of edges, expected one to sort")
    ids = Ids(nodes.frame([roles.id], [roles.id])[roles.id], nodes.label, roles.id)
    with atomic_folder(folder) as unfinished:
        class_names = _pack_nodes(nodes, roles, len(ids), unfinished)
        reader, counts = EdgeReader(edges, ids, ends, options.skip_unknown), Counter[str]()
        batches = _batches(reader, edges, counts, progress)
        with tempfile.TemporaryDirectory(dir=unfinished) as scratch:
            try:
                rows, merged = _sort_edges(batches, reader.weighted, options.undirected, memory, Path(scratch))
            except TwoWeights as error:
                name_of = ids.to_numpy().tolist().__getitem__
                raise DataError(f"{edges.label}: {error.message(name_of, KEEP)}") from None
            _copy_sorted(rows, len(ids), unfinished, reader.weighted)
            added = rows.metadata.num_rows - merged
            rows.close()
        notes += reader.notes()
        notes += edge_notes(counts["loops"], counts["zero"], counts["given"] - merged, added, reader.weighted)
        metric = options.metric or default_metric(torch.empty(0), len(class_names))
        name = Path(source).resolve().name
        write_facts(unfinished, name, len(class_names), metric, roles.features, class_names, reader.weighted)
    return OnDiskGraph.open(folder)


def _pack_nodes(table: Table, roles: Roles, num_nodes: int, folder: Path) -> list[str]:
    """Writes features, labels and split; returns the names of the classes."""
    import pandas as pd

    if not roles.features:
        raise DataError(f"{table.label} has no feature column, expected one or more besides id, label and split")
    with create(folder, "x", (num_nodes, len(roles.features)), np.float32) as x:
        row = 0
        for frame in table.chunks(roles.features):
            numbers = [pd.to_numeric(frame[name], errors="coerce") for name in roles.features]
            block = to_float32(np.stack([each.to_numpy(np.float64, na_value=np.nan) for each in numbers], axis=1))
            for bad, column in np.argwhere(~np.isfinite(block))[:1]:
                name = roles.features[column]
                got = f"row {row + bad + 1}: column {name!r} holds {shown_value(frame[name], bad)}"
                cure = f"leave the column out (--drop {name}), or read the graph without --stream"
                raise DataError(f"{table.label} {got}, expected a finite number in single precision; {cure}")
            x[row : row + len(frame)] = block  # the file is written row by row
            release(x)
            row += len(frame)
    special = [name for name in (roles.label, roles.split) if name]
    known = table.frame(special or [roles.id], special)
    y, names = np.full(num_nodes, -1, dtype=np.int64), list[str]()
    parts = np.empty((0, num_nodes), dtype=np.int8)
    if roles.label:
        y, names = label_codes(known[roles.label], f"{table.label}: column {roles.label!r}", table.typed)
    if roles.split:
        parts = split_codes(known[roles.split], table.label, roles.split)[None].astype(np.int8)
    np.save(folder / "y.npy", y)
    np.save(folder / "parts.npy", parts)
    return names


def _batches(reader: EdgeReader, table: Table, counts: Counter[str], progress: Progress | None) -> Iterator[pa.Table]:
    """The edges that count, as DuckDB takes them."""
    row = 0
    for frame in table.chunks(reader.columns):
        (source, target), weight = reader.read(frame)
        values = np.ones(source.size, dtype=np.float32) if weight is None else weight
        loop, zero = source == target, values == 0
        kept = ~loop & ~zero
        counts += Counter(loops=int(loop.sum()), zero=int((zero & ~loop).sum()), given=int(kept.sum()))
        row += len(frame)
        if progress:
            progress(row)
        yield pa.table([column[kept] for column in (source, target, values)], names=["source", "target", "weight"])


def _sort_edges(
    batches: Iterator[pa.Table], weighted: bool, undirected: bool, memory: str, scratch: Path
) -> tuple[pyarrow.parquet.ParquetFile, int]:
    """Every edge once, by target, with the sum of its weights; and the number of edges before opposites were added."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "temp_directory": str(scratch / "duckdb"),
    }
    with duckdb.connect(str(scratch / "edges.duckdb"), config=config) as database:
        database.execute("CREATE TABLE given (source INTEGER, target INTEGER, weight FLOAT)")
        for batch in batches:
            database.register("batch", batch)
            database.execute("INSERT INTO given SELECT * FROM batch")
        weight = "sum(weight::DOUBLE)::FLOAT" if weighted else "1::FLOAT"
        database.execute(f"CREATE TABLE edge AS SELECT source, target, {weight} AS weight FROM given GROUP BY ALL")
        ((merged,),) = database.execute("SELECT count(*) FROM edge").fetchall()
        chosen = "SELECT source, target, weight FROM edge"
        if undirected:
            opposite = "SELECT target, source, weight FROM edge"
            chosen = f"SELECT source, target, max(weight) AS weight FROM ({chosen} UNION ALL {opposite}) GROUP BY ALL"
            two = (
                "SELECT a.source, a.target, a.weight, b.weight FROM edge a JOIN edge b ON a.source = b.target AND "
                "a.target = b.source WHERE least(a.weight, b.weight) < (1 - 1e-5) * greatest(a.weight, b.weight) "
                "ORDER BY a.target, a.source LIMIT 1"
            )
            for found in database.execute(two).fetchall() if weighted else ():
                raise TwoWeights(*found)
        path = scratch / "sorted.parquet"
        database.execute(f"COPY ({chosen} ORDER BY target, source) TO '{path.as_posix()}' (FORMAT parquet)")
    return pyarrow.parquet.ParquetFile(path), int(merged)


def _copy_sorted(edges: pyarrow.parquet.ParquetFile, num_nodes: int, folder: Path, weighted: bool) -> None:
    """Writes `ptr`, `idx` and `weight`."""
    degree, row, total = np.zeros(num_nodes, dtype=np.int64), 0, edges.metadata.num_rows
    with ExitStack() as stack:
        arrays = {"source": stack.enter_context(create(folder, "idx", (total,), np.int32))}
        if weighted:
            arrays["weight"] = stack.enter_context(create(folder, "weight", (total,), np.float32))
        for batch in edges.iter_batches(SORTED):
            for name, array in arrays.items():
                array[row : row + batch.num_rows] = batch.column(name).to_numpy()
                release(array)
            degree += np.bincount(batch.column("target").to_numpy(), minlength=num_nodes)
            row += batch.num_rows
    np.save(folder / "ptr.npy", np.concatenate([[0], np.cumsum(degree)]))
