"""`read`: a user's own graph, from a folder or zip of two tables, a `.npz` file or a PyG `Data`.

Files are read and checked before PyTorch is imported, so that what is wrong with them is said at once.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np

from gfgn.data.columns import FrameReader
from gfgn.data.messages import DataError, listed, reading
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.tables import SUFFIXES, EdgeReader, Ids, Roles, Table, find_ends, find_roles, label_codes, split_codes

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from gfgn.data.assemble import Reading
    from gfgn.data.dataset import NodeDataset

Source: TypeAlias = "str | Path | Data"
P = ParamSpec("P")
T = TypeVar("T")


def _with_keywords(
    options: Callable[P, ReadOptions],
) -> Callable[[Callable[[Source, ReadOptions], T]], Callable[Concatenate[Source, P], T]]:
    """Makes the fields of the options the keywords of a function."""

    def decorate(function: Callable[[Source, ReadOptions], T]) -> Callable[Concatenate[Source, P], T]:
        @wraps(function)
        def call(source: Source, /, *args: P.args, **keywords: P.kwargs) -> T:
            return function(source, options(*args, **keywords))

        both = [*list(signature(function).parameters.values())[:1], *signature(options).parameters.values()]
        call.__signature__ = signature(function).replace(parameters=both)  # type: ignore[attr-defined]
        return call

    return decorate


@_with_keywords(ReadOptions)
def read(source: Source, options: ReadOptions) -> NodeDataset:
    """Reads a graph of your own.

    Args:
        source: A folder or `.zip` with a table `nodes` (`id`, optional `label` and `split`, all other columns are
            features) and a table `edges` (`source`, `target`, optional `weight`), each CSV, TSV (also with `.gz`),
            Parquet or Excel; a `.npz` with `edge_index`, `x` (or `x_data`, `x_indices`, `x_indptr`, `x_shape`) and
            optional `y`, `edge_weight`, `train_mask`, `val_mask`, `test_mask`, or in another public layout; or a PyG
            `Data` with these attributes.
        options: The fields of `ReadOptions` as keywords, such as `label="plan"`.

    Raises:
        DataError: The data cannot be read; the message is one sentence that says what is wrong and where.
    """
    from gfgn.data.assemble import assemble

    return assemble(read_raw(source, options), options).dataset


@_with_keywords(ReadOptions)
def read_with_notes(source: Source, options: ReadOptions) -> Reading:
    """Reads a graph like `read`, with the same arguments, and reports how it was understood and repaired."""
    from gfgn.data.assemble import assemble

    return assemble(read_raw(source, options), options)


def read_raw(source: object, options: ReadOptions) -> RawGraph:
    """The contents of the source; files are read without PyTorch."""
    if isinstance(source, str | Path):
        graph = _read_path(Path(source), options)
        path = Path(source).resolve()
        graph.name = path.stem if path.is_file() else path.name
        return graph
    pyg = sys.modules.get("torch_geometric.data")  # who passes a Data has imported it
    if pyg is None or not isinstance(source, pyg.Data):
        raise DataError(f"source is of type {type(source).__name__}, expected a path or a PyG Data")
    from gfgn.data.arrays import read_data

    return read_data(source, options)


def _read_path(path: Path, options: ReadOptions) -> RawGraph:
    if path.is_dir():
        return _read_folder(path, str(path), "", options)
    if path.suffix not in (".npz", ".zip") or not path.is_file():
        problem = f"has the suffix {path.suffix!r}" if path.is_file() else "does not exist"
        raise DataError(f"{path} {problem}, expected a folder, a .zip or a .npz file")
    if path.suffix == ".npz":
        from gfgn.data.arrays import read_npz

        return read_npz(path, options)
    with tempfile.TemporaryDirectory(prefix="gfgn-") as folder:
        _extract_tables(path, Path(folder))
        return _read_folder(Path(folder), path.name, f"{path.name}/", options)


def _extract_tables(path: Path, folder: Path) -> None:
    """Copies the tables, which must be in one folder of the archive; writes nothing else."""
    wanted = {table + suffix for table in ("nodes", "edges") for suffix in SUFFIXES}
    with reading(path.name, "a zip archive"), zipfile.ZipFile(path) as archive:
        names = [PurePosixPath(name) for name in archive.namelist() if not name.startswith("__MACOSX")]
        tables = [name for name in names if name.name in wanted]
        if len({name.parent for name in tables}) > 1:
            raise DataError(f"{path.name} has {' and '.join(map(str, tables))}, expected one graph in one folder")
        for name in tables:
            with archive.open(str(name)) as packed, (folder / name.name).open("wb") as file:
                shutil.copyfileobj(packed, file)


# --- tables -----------------------------------------------------------------------------------------------------------


def open_tables(
    folder: Path, label: str, prefix: str, options: ReadOptions, notes: list[str]
) -> tuple[Table, Roles, Table | None, tuple[str, str]]:
    """The tables of nodes and of edges, the roles of the columns of the first, and the ends of the edges in the second;
    messages name the folder `label` and put `prefix` before file names."""
    nodes, edges = (_open_table(folder, name, label, prefix, options, notes) for name in ("nodes", "edges"))
    if nodes is None:
        known = ", ".join(f"nodes{suffix}" for suffix in SUFFIXES)
        raise DataError(f"{label} has no table of nodes, expected one of {known}")
    roles = find_roles(nodes, options, notes)
    if edges is None:
        like = [file.name for file in sorted(folder.iterdir()) if "edge" in file.name.lower()]
        if like:
            raise DataError(f"{label} has {listed(like)}, expected a table of edges named edges.csv or the like")
        notes.append(f"there is no table of edges beside {nodes.label}: a graph without edges")
        return nodes, roles, None, ("", "")
    return nodes, roles, edges, find_ends(edges.names, edges.label, options.source_column, options.target_column, notes)


def _open_table(
    folder: Path, name: str, label: str, prefix: str, options: ReadOptions, notes: list[str]
) -> Table | None:
    files = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(files) > 1:
        raise DataError(f"{label} has both {files[0].name} and {files[1].name}, expected one of them")
    return Table(files[0], prefix + files[0].name, options, notes) if files else None


def _read_folder(folder: Path, label: str, prefix: str, options: ReadOptions) -> RawGraph:
    notes: list[str] = []
    nodes, roles, edges, ends = open_tables(folder, label, prefix, options, notes)
    expected = None if options.encoder is None else options.encoder.columns
    if not roles.features and expected is None:
        raise DataError(f"{nodes.label} has no feature column, expected one or more besides id, label and split")
    special = [name for name in (roles.id, roles.label, roles.split) if name]
    # What a model knows as text stays text, so that `01` is no number; and numbers in a form such as `1.234,5`, so that
    # `1.234` is not read as less than 2.
    written = {column.name for column in expected or () if column.holds == "text" or column.format}
    text = [name for name in roles.features if name in written]
    frame = nodes.frame([*special, *roles.features], [*special, *text])
    ids = Ids(frame[roles.id], nodes.label, roles.id)
    labels, classes, more = None, list[str](), list[str]()
    if roles.label:
        labels, classes = label_codes(frame[roles.label], f"{nodes.label}: column {roles.label!r}", nodes.typed)
        more = options.unknown_classes(classes, f"column {roles.label!r}")
    raw = FrameReader(nodes.label, nodes.typed, 1, notes).read(frame[roles.features], expected, more)
    parts = split_codes(frame[roles.split], nodes.label, roles.split)[None] if roles.split else None
    del frame
    index, weight = np.empty((2, 0), np.int32), None
    if edges is not None:
        reader = EdgeReader(edges, ids, ends, options.skip_unknown)
        index, weight = reader.read(edges.frame(reader.columns, ends))
        notes += reader.notes()
    return RawGraph(
        origin=nodes.label,
        edge_origin=edges.label if edges else nodes.label,
        label=f"column {roles.label!r}",
        raw=raw,
        edges=index,
        weight=weight,
        labels=labels,
        class_names=classes,
        parts=parts,
        node_ids=ids.to_numpy(),
        notes=notes,
    )
