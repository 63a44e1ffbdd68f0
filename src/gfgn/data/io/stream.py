"""`pack_tables`: two tables into a graph store, batch by batch; the edges are sorted in files.

Batches of edges are sorted and written as runs. The runs are then merged range by range of targets, each of which has
about `edges_in_memory` entries, so that memory does not grow with the number of edges. One number per node is kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gfgn.data.dataset import default_metric
from gfgn.data.io.assemble import KEEP, Options, Progress
from gfgn.data.io.tables import NODE_BATCH, Roles, Table, _find_roles, _label_codes, _numbers, _read_ids, _split_codes
from gfgn.data.io.tables import edge_batches as batches_of
from gfgn.data.messages import DataError
from gfgn.data.store import GraphStore, create, new_folder, release, write_facts
from gfgn.graph import TwoWeights, differ

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Run = tuple[Ints, Floats | None]  # ascending codes and their weights


def pack_tables(
    nodes: Path,
    edges: Path,
    folder: Path | str,
    *,
    undirected: bool = True,
    edges_in_memory: int = 2**24,
    progress: Progress | None = None,
    **names: Any,
) -> GraphStore:
    """Packs a graph from its node table and its edge table without holding either in memory.

    The graph is that of `gfgn.data.read`. Features must be numbers without missing values, and are not scaled. There is
    one split, if the table has one. `names` are `id`, `label`, `split` and `drop` of `read`.
    """
    if edges_in_memory < 1:
        raise ValueError(f"edges_in_memory must be 1 or larger, got {edges_in_memory}")
    size = nodes.stat().st_size + edges.stat().st_size
    node_table, edge_table = (Table(path, path.name, size) for path in (nodes, edges))
    roles = _find_roles(node_table, Options(undirected=undirected, **names), [])
    edge_table.require("source", "target")
    ids = _read_ids(node_table, roles.id, edge_table)
    folder = new_folder(folder)
    num_classes, class_names, y = _pack_nodes(node_table, roles, len(ids), folder)
    weighted = "weight" in edge_table.types
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        batches = batches_of(edge_table, ids, nodes.name, progress)
        try:
            sort_edges(batches, len(ids), folder, Path(scratch), undirected, weighted, edges_in_memory)
        except TwoWeights as error:
            raise DataError(f"{edges.name}: {error.message(lambda node: ids[node].as_py(), KEEP)}") from None
    metric = default_metric(torch.from_numpy(y[:0]), num_classes)
    write_facts(folder, nodes.resolve().parent.name, num_classes, metric, roles.features, class_names, weighted)
    return GraphStore.open(folder)


def _pack_nodes(table: Table, roles: Roles, num_nodes: int, folder: Path) -> tuple[int, list[str], Ints]:
    """Writes features, labels and split; returns the number and names of the classes, and the labels."""
    if not roles.features:
        raise DataError(f"{table.label} has no feature column, expected one or more besides id, label and split")
    x = create(folder, "x", (num_nodes, len(roles.features)), np.float32)
    y = create(folder, "y", (num_nodes,), np.int64)
    parts = create(folder, "parts", (int(bool(roles.split)), num_nodes), np.int8)
    y[:] = -1
    classes: dict[str, int] = {}
    others = [name for name in (roles.label, roles.split) if name]
    row = 0
    for columns in table.batches([*roles.features, *others], NODE_BATCH):
        rows = slice(row, row + len(columns[0]))
        block = np.empty((len(columns[0]), len(roles.features)), np.float32)  # the file is written row by row
        for k, (name, column) in enumerate(zip(roles.features, columns, strict=False)):
            values = _numbers(column)
            if values is None or not np.isfinite(values).all():
                problem = (
                    "texts" if values is None else f"{int((~np.isfinite(values)).sum())} missing or infinite values"
                )
                where = f"{table.label}: column {name!r} holds {problem} in rows {row + 1} to {rows.stop}"
                raise DataError(f"{where}, expected numbers; drop it, or read the graph without streaming")
            block[:, k] = values
        x[rows] = block
        release(x)
        rest = columns[len(roles.features) :]
        if roles.label:
            y[rows] = _label_codes(rest[0], classes, table.label, roles.label)
        if roles.split:
            parts[0, rows] = _split_codes(rest[-1], table.label, roles.split, row)
        row = rows.stop
    names = sorted(classes)
    number = np.array([*(names.index(name) for name in classes), -1])
    for low in range(0, num_nodes, NODE_BATCH):
        y[low : low + NODE_BATCH] = number[y[low : low + NODE_BATCH]]
    for array in (x, y, parts):
        array.flush()
    return len(names), names, y


# --- edges ------------------------------------------------------------------------------------------------------------


def sort_edges(
    batches: Iterable[list[NDArray[Any]]],
    num_nodes: int,
    folder: Path,
    scratch: Path,
    undirected: bool,
    weighted: bool,
    edges_in_memory: int,
) -> None:
    """Writes `ptr`, `idx` and `weight` of a store from batches of sources, targets and weights.

    An edge is one number, `2 (target · N + source)`, plus 1 for the opposite of a given edge.
    """
    counts = np.zeros(num_nodes, np.int64)
    runs = _write_runs(batches, num_nodes, scratch, undirected, weighted, edges_in_memory, counts)
    ends = np.cumsum(counts)
    degree = np.zeros(num_nodes, np.int64)
    with (scratch / "idx").open("wb") as sources, (scratch / "values").open("wb") as values:
        low = 0
        while low < num_nodes:
            before = int(ends[low - 1]) if low else 0
            high = max(int(np.searchsorted(ends, before + edges_in_memory, side="right")), low + 1)
            code, weight = _merge_range(runs, low, high, num_nodes, undirected)
            target, source = np.divmod(code, num_nodes)
            degree[low:high] = np.bincount(target - low, minlength=high - low)
            sources.write(source.astype(np.int32).tobytes())
            if weight is not None:
                values.write(weight.tobytes())
            low = high
    np.save(folder / "ptr.npy", np.concatenate([[0], np.cumsum(degree)]))
    _to_npy(scratch / "idx", folder, "idx", np.int32)
    if weighted:
        _to_npy(scratch / "values", folder, "weight", np.float32)


def _write_runs(
    batches: Iterable[list[NDArray[Any]]],
    num_nodes: int,
    scratch: Path,
    undirected: bool,
    weighted: bool,
    edges_in_memory: int,
    counts: Ints,
) -> list[Run]:
    """Sorted runs as memory maps; `counts` receives the number of their entries by target."""
    runs: list[Run] = []
    pending: list[tuple[Ints, Floats | None]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if not size:
            return
        code, weight = _merge(pending)
        counts[:] += np.bincount(code // (2 * num_nodes), minlength=num_nodes)
        np.save(scratch / f"{len(runs)}.npy", code)
        if weight is not None:
            np.save(scratch / f"{len(runs)}w.npy", weight)
        runs.append(
            (
                np.load(scratch / f"{len(runs)}.npy", mmap_mode="r", allow_pickle=False),
                None if weight is None else np.load(scratch / f"{len(runs)}w.npy", mmap_mode="r", allow_pickle=False),
            )
        )
        pending.clear()
        size = 0

    for batch in batches:
        step = max(edges_in_memory // 2, 1)
        for low in range(0, batch[0].size, step):
            source, target, *rest = (values[low : low + step] for values in batch)
            kept = source != target
            if weighted:
                kept &= rest[0] > 0  # an edge of weight 0 is none
            source, target = source[kept].astype(np.int64), target[kept].astype(np.int64)
            weight = rest[0][kept] if weighted else None
            pending.append((2 * (target * num_nodes + source), weight))
            if undirected:
                pending.append((2 * (source * num_nodes + target) + 1, weight))
            size += source.size * (1 + undirected)
            if size >= edges_in_memory:
                flush()
    flush()
    return runs


def _merge(parts: list[tuple[Ints, Floats | None]]) -> tuple[Ints, Floats | None]:
    """All codes once, in ascending order, with the sums of their weights."""
    code = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, np.int64)
    if not parts or parts[0][1] is None:
        code.sort()  # `np.unique` takes ten times as long, by a table of hashes
        return code[_firsts(code)], None
    weight = np.concatenate([part[1] for part in parts if part[1] is not None])
    order = np.argsort(code, kind="stable")
    code, weight = code[order], weight[order]
    first = np.flatnonzero(_firsts(code))
    return code[first], np.add.reduceat(weight, first) if first.size else weight


def _merge_range(runs: list[Run], low: int, high: int, num_nodes: int, undirected: bool) -> tuple[Ints, Floats | None]:
    """`target · N + source` of the edges into a range of targets, and their weights."""
    parts = []
    for code, weight in runs:
        start, stop = np.searchsorted(code, [2 * low * num_nodes, 2 * high * num_nodes])
        parts.append((np.array(code[start:stop]), None if weight is None else np.array(weight[start:stop])))
        release(code)
        release(weight)
    code, weight = _merge(parts)
    edge = code >> 1
    if not undirected or not edge.size:
        return edge, weight
    first = np.flatnonzero(_firsts(edge))  # an edge and the opposite of another
    if weight is None:
        return edge[first], None
    merged = np.maximum.reduceat(weight, first)
    for entry in np.flatnonzero(differ(np.minimum.reduceat(weight, first), merged))[:1]:
        target, source = divmod(int(edge[first[entry]]), num_nodes)
        raise TwoWeights(source, target, *map(float, weight[first[entry] : first[entry] + 2]))
    return edge[first], merged


def _firsts(values: Ints) -> NDArray[np.bool_]:
    """Which of the ascending values differ from the one before."""
    firsts = np.ones(values.size, np.bool_)
    firsts[1:] = values[1:] != values[:-1]
    return firsts


def _to_npy(raw: Path, folder: Path, name: str, dtype: Any) -> None:
    """Copies a file of numbers into a store, in blocks."""
    size = raw.stat().st_size // np.dtype(dtype).itemsize
    out = create(folder, name, (size,), dtype)
    with raw.open("rb") as file:
        for low in range(0, size, 2**22):
            block = np.fromfile(file, dtype, min(2**22, size - low))
            out[low : low + block.size] = block
    out.flush()
