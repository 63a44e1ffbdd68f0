"""`read`: a user's own graph, from a folder or zip of two tables, a `.npz` file or a PyG `Data`.

Files are read and checked before PyTorch is imported, so that what is wrong with them is said at once.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import numpy as np

from gfgn.data.columns import KINDS, read_frame
from gfgn.data.messages import DataError, listed, reading
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.tables import SUFFIXES, EdgeReader, Ids, Roles, Table, find_ends, find_roles, label_codes, split_codes

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from gfgn.data.dataset import NodeDataset
    from gfgn.data.encoder import FeatureEncoder


class Reading(NamedTuple):
    """A dataset, and one sentence per repair or choice."""

    dataset: NodeDataset
    notes: list[str]


class ReadKeywords(TypedDict, total=False):
    """The keywords of `read`."""

    undirected: bool
    stratify: bool
    scale: str
    id: str | None
    label: str | None
    split: str | None
    drop: Sequence[str]
    source_column: str | None
    target_column: str | None
    sep: str | None
    encoding: str | None
    skip_unknown: bool
    encoder: FeatureEncoder | None
    class_names: Sequence[str] | None
    metric: str | None
    num_splits: int
    fractions: tuple[float, float]


def read(
    source: str | Path | Data,
    *,
    undirected: bool = True,
    stratify: bool = False,
    scale: str = "standard",
    id: str | None = None,
    label: str | None = None,
    split: str | None = None,
    drop: Sequence[str] = (),
    source_column: str | None = None,
    target_column: str | None = None,
    sep: str | None = None,
    encoding: str | None = None,
    skip_unknown: bool = False,
    encoder: FeatureEncoder | None = None,
    class_names: Sequence[str] | None = None,
    metric: str | None = None,
    num_splits: int = 10,
    fractions: tuple[float, float] = (0.48, 0.32),
) -> NodeDataset:
    """Reads a graph of your own.

    Args:
        source: A folder or `.zip` with a table `nodes` (`id`, optional `label` and `split`, all other columns are
            features) and a table `edges` (`source`, `target`, optional `weight`), each CSV, TSV (also with `.gz`),
            Parquet or Excel; a `.npz` with `edge_index`, `x` (or `x_data`, `x_indices`, `x_indptr`, `x_shape`) and
            optional `y`, `edge_weight`, `train_mask`, `val_mask`, `test_mask`, or in another public layout; or a PyG
            `Data` with these attributes.
        undirected: Whether to add the opposite of every edge.
        stratify: Whether random splits keep the proportions of the classes. Given splits are used as they are.
        scale: `"standard"`, `"row"` or `"none"`, see `FeatureEncoder`. It is fitted on the nodes that are in the
            training part of any of the splits.
        id: Name of the column of ids in the node table, `"id"` by default.
        label: Name of the column of labels, `"label"` by default.
        split: Name of the column of splits, `"split"` by default.
        drop: Names of columns of the node table to leave out.
        source_column: Name of the column of sources in the edge table; by default found by usual names such as
            `source`, `src` and `from`, or as one of the only two columns.
        target_column: Name of the column of targets in the edge table.
        sep: Separator of the cells of CSV files, guessed by default.
        encoding: Encoding of CSV files, guessed by default.
        skip_unknown: Whether to leave out edges with an id that is not in the node table; they are an error otherwise.
        encoder: With `class_names`, those of a model: the features are encoded as the model expects, labels are
            optional, no splits are drawn, and columns or classes that differ from the model's are an error.
        class_names: Names of the classes of a model, see `encoder`.
        metric: What is measured; by default `"roc_auc"` for two classes, `"accuracy"` for more.
        num_splits: Number of random splits if none are given.
        fractions: Fractions of training and validation nodes of random splits; if they sum to 1, there are no test
            nodes.

    Raises:
        DataError: The data cannot be read; the message is one sentence that says what is wrong and where.
    """
    given = {name: value for name, value in locals().items() if name != "source"}
    return assemble(*read_raw(source, options := ReadOptions(**given)), options).dataset


def read_with_notes(source: str | Path | Data, **options: Unpack[ReadKeywords]) -> Reading:
    """Reads a graph like `read`, with the same arguments, and reports how it was understood and repaired."""
    chosen = ReadOptions(**options)
    return assemble(*read_raw(source, chosen), chosen)


def assemble(name: str, graph: RawGraph, options: ReadOptions) -> Reading:
    """The dataset of what has been read from files."""
    from gfgn.data.assemble import assemble

    return Reading(assemble(graph, name, options), graph.notes)


def read_raw(source: object, options: ReadOptions) -> tuple[str, RawGraph]:
    """The name and the contents of the source; files are read without PyTorch."""
    if isinstance(source, str | Path):
        path = Path(source)
        return path.resolve().stem if path.is_file() else path.resolve().name, _read_path(path, options)
    pyg = sys.modules.get("torch_geometric.data")  # who passes a Data has imported it
    if pyg is None or not isinstance(source, pyg.Data):
        raise DataError(f"source is of type {type(source).__name__}, expected a path or a PyG Data")
    from gfgn.data.arrays import read_data

    _refuse_names("Data", options)
    return "data", read_data(source, options)


def _refuse_names(label: str, options: ReadOptions) -> None:
    for name in ("id", "label", "split", "drop", "source_column", "target_column"):
        if getattr(options, name):
            raise DataError(f"{name} is {getattr(options, name)!r}, but {label} has no columns with names to choose")


def _read_path(path: Path, options: ReadOptions) -> RawGraph:
    if path.is_dir():
        return _read_folder(path, str(path), "", options)
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a folder, a .zip or a .npz file")
    if path.suffix == ".npz":
        from gfgn.data.arrays import read_npz

        _refuse_names(path.name, options)
        return read_npz(path, options)
    if path.suffix == ".zip":
        with tempfile.TemporaryDirectory(prefix="gfgn-") as folder:
            _extract_tables(path, Path(folder))
            return _read_folder(Path(folder), path.name, f"{path.name}/", options)
    raise DataError(f"{path.name} has the suffix {path.suffix!r}, expected a folder, a .zip or a .npz file")


# --- tables -----------------------------------------------------------------------------------------------------------


def open_tables(
    folder: Path, label: str, prefix: str, options: ReadOptions, notes: list[str]
) -> tuple[Table, Roles, Table | None, tuple[str, str]]:
    """The tables of nodes and of edges, the roles of the columns of the first, and the ends of the edges in the second;
    messages name the folder `label` and put `prefix` before file names."""
    nodes, edges = (_find_table(folder, name, label) for name in ("nodes", "edges"))
    if nodes is None:
        known = ", ".join(f"nodes{suffix}" for suffix in SUFFIXES)
        raise DataError(f"{label} has no table of nodes, expected one of {known}")
    opened = [Table(path, prefix + path.name, options.sep, options.encoding) for path in (nodes, edges) if path]
    notes += [note for table in opened for note in table.notes]
    given = {"id": options.id, "label": options.label, "split": options.split}
    roles = find_roles(opened[0], given, options.drop, options.encoder is not None, notes)
    if edges is None:
        like = [file.name for file in sorted(folder.iterdir()) if "edge" in file.name.lower()]
        if like:
            raise DataError(f"{label} has {listed(like)}, expected a table of edges named edges.csv or the like")
        notes.append(f"there is no table of edges beside {opened[0].label}: a graph without edges")
        return opened[0], roles, None, ("", "")
    table = opened[1]
    ends = find_ends(table.names, table.label, options.source_column, options.target_column, notes)
    return opened[0], roles, table, ends


def _find_table(folder: Path, name: str, label: str) -> Path | None:
    files = [folder / f"{name}{suffix}" for suffix in SUFFIXES if (folder / f"{name}{suffix}").is_file()]
    if len(files) > 1:
        raise DataError(f"{label} has both {files[0].name} and {files[1].name}, expected one of them")
    return files[0] if files else None


def _read_folder(folder: Path, label: str, prefix: str, options: ReadOptions) -> RawGraph:
    notes: list[str] = []
    nodes, roles, edges, ends = open_tables(folder, label, prefix, options, notes)
    special = [name for name in (roles.id, roles.label, roles.split) if name]
    frame = nodes.frame([*special, *roles.features], [*special, *_text_columns(options, roles.features)])
    ids = Ids(frame[roles.id], nodes.label, roles.id)
    labels, classes, more = None, list[str](), list[str]()
    if roles.label:
        labels, classes = label_codes(frame[roles.label], nodes, roles.label)
        more = options.unknown_classes(classes, f"column {roles.label!r}")
    if not roles.features and options.encoder is None:
        raise DataError(f"{nodes.label} has no feature column, expected one or more besides id, label and split")
    expected = None if options.encoder is None else options.encoder.columns
    features = frame[roles.features]
    raw = read_frame(features, expected, label=nodes.label, typed=nodes.typed, first=1, notes=notes, more=more)
    parts = split_codes(frame[roles.split], nodes.label, roles.split)[None] if roles.split else None
    del frame, features
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


def _text_columns(options: ReadOptions, names: Sequence[str]) -> list[str]:
    """The columns that hold text for a model, so that text such as `01` is not read as a number."""
    columns = () if options.encoder is None else options.encoder.columns
    return [column.name for column in columns if KINDS[column.kind].holds == "text" and column.name in names]


def _extract_tables(path: Path, folder: Path) -> None:
    """Copies the tables from the top level or the only folder of the archive; writes nothing else."""
    wanted = {table + suffix for table in ("nodes", "edges") for suffix in SUFFIXES}
    folders: dict[str, str] = {}
    with reading(path.name, "a zip archive"), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            name = PurePosixPath(entry.filename.replace("\\", "/"))
            if name.name not in wanted or len(name.parts) > 2 or name.parts[0] in ("__MACOSX", ".."):
                continue
            folders[str(name.parent)] = entry.filename
            if len(folders) > 1:
                raise DataError(f"{path.name} has {' and '.join(folders.values())}, expected one graph in one folder")
            if (folder / name.name).exists():
                raise DataError(f"{path.name} has {name.name} more than once, expected one graph")
            with archive.open(entry) as packed, (folder / name.name).open("wb") as file:
                shutil.copyfileobj(packed, file, 2**20)


def describe_reading(reading: Reading) -> str:
    """How the files were understood, as lines for a terminal."""
    data = reading.dataset
    assert data.node_ids is not None
    assert data.encoder is not None
    direction = "both directions counted" if data.graph.by_source is data.graph.by_target else "directed"
    weighted = "" if data.graph.weight is None else ", weighted"
    kinds = Counter(KINDS[column.kind].word for column in data.encoder.columns)
    words = dict.fromkeys(kind.word for kind in KINDS.values())
    columns = ", ".join(f"{kinds[word]:,} {word}" for word in words if word in kinds)
    sizes = np.bincount(data.y[data.y >= 0], minlength=data.num_classes).tolist()
    classes = [f"{name} ({size:,})" for name, size in zip(data.class_names or [], sizes, strict=False)]
    splits = "none"
    if data.splits:
        parts = ", ".join(f"{part} {int(mask.sum()):,}" for part, mask in data.splits[0]._asdict().items())
        splits = f"{len(data.splits)}; the first: {parts}"
    lines = [
        data.name,
        f"  nodes     {data.num_nodes:,} (ids such as {listed([repr(name) for name in data.node_ids[:3].tolist()])})",
        f"  edges     {data.graph.num_edges:,}, {direction}{weighted}",
        f"  columns   {kinds.total():,}: {columns}",
        f"  features  {data.num_features:,}: {listed(data.feature_names)}; scale {data.encoder.scale}",
        f"  classes   {data.num_classes:,}{': ' if classes else ''}{listed(classes, 10)}",
        f"  splits    {splits}",
        f"  metric    {data.metric}",
    ]
    return "\n".join([*lines, *(f"  note      {note}" for note in reading.notes or ["nothing was changed"])])
