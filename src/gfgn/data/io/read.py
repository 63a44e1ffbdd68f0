"""`read`: a user's own graph, from a folder or zip of two tables, a `.npz` file or a PyG `Data`."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gfgn.data.columns import KINDS
from gfgn.data.dataset import Dataset
from gfgn.data.encoder import FeatureEncoder
from gfgn.data.io.arrays import read_data, read_npz
from gfgn.data.io.assemble import Contents, Options, Progress, assemble
from gfgn.data.limits import check_memory
from gfgn.data.messages import DataError, listed, reading

if TYPE_CHECKING:
    from torch_geometric.data import Data

TABLES = ("nodes", "edges")
FORMATS = (".csv", ".parquet")
WORDS = {"bag": "bag-of-words"}


class Reading(NamedTuple):
    """A dataset, and one sentence per repair or choice."""

    dataset: Dataset
    notes: list[str]


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
    encoder: FeatureEncoder | None = None,
    class_names: Sequence[str] | None = None,
    metric: str | None = None,
    num_splits: int = 10,
    fractions: tuple[float, float] = (0.48, 0.32),
    progress: Progress | None = None,
) -> Dataset:
    """Reads a graph of your own.

    Args:
        source: A folder or `.zip` with `nodes.csv` or `.parquet` (`id`, optional `label` and `split`, all other
            columns are features) and `edges.csv` or `.parquet` (`source`, `target`, optional `weight`); a `.npz` with
            `edge_index`, `x` (or `x_data`, `x_indices`, `x_indptr`, `x_shape`) and optional `y`, `edge_weight`,
            `train_mask`, `val_mask`, `test_mask`, or in another public layout; or a PyG `Data` with these attributes.
        undirected: Whether to add the opposite of every edge.
        stratify: Whether random splits keep the proportions of the classes. Given splits are used as they are.
        scale: `"standard"`, `"row"` or `"none"`, see `FeatureEncoder`. Means and standard deviations are those of the
            nodes that are in the training part of any of the splits.
        id: Name of the column of ids in the node table, `"id"` by default.
        label: Name of the column of labels, `"label"` by default.
        split: Name of the column of splits, `"split"` by default.
        drop: Names of columns of the node table to leave out.
        encoder: With `class_names`, those of a model: the features are encoded as the model expects, labels are
            optional, no splits are drawn, and columns or classes that differ from the model's are an error.
        class_names: Names of the classes of a model, see `encoder`.
        metric: What is measured; by default `"roc_auc"` for two classes, `"accuracy"` for more.
        num_splits: Number of random splits if none are given.
        fractions: Fractions of training and validation nodes of random splits; if they sum to 1, there are no test
            nodes.
        progress: Called while an edge table is read, with the number of rows that are read and of all rows.

    Raises:
        DataError: The data cannot be read; the message is one sentence that says what is wrong and where.
    """
    options = {name: value for name, value in locals().items() if name not in ("source", "progress")}
    return read_with_notes(source, progress=progress, **options).dataset


def read_with_notes(source: str | Path | Data, *, progress: Progress | None = None, **options: Any) -> Reading:
    """Reads a graph like `read`, with the same arguments, and reports how it was understood and repaired."""
    chosen = Options(**options)
    name, contents = _read_contents(source, chosen, progress)
    return Reading(assemble(contents, name, chosen), contents.notes)


def _read_contents(source: object, options: Options, progress: Progress | None) -> tuple[str, Contents]:
    """The name of the graph, and the contents of its files."""
    if isinstance(source, str | Path):
        path = Path(source)
        return path.resolve().stem if path.is_file() else path.resolve().name, _read_path(path, options, progress)
    from torch_geometric.data import Data  # 100 MiB of modules that files do not need

    if not isinstance(source, Data):
        raise DataError(f"source is of type {type(source).__name__}, expected a path or a PyG Data")
    _refuse_names("Data", options)
    return "data", read_data(source, options)


def _refuse_names(label: str, options: Options) -> None:
    for name in ("id", "label", "split", "drop"):
        if getattr(options, name):
            raise DataError(f"{name} is {getattr(options, name)!r}, but {label} has no columns with names to choose")


def _read_path(path: Path, options: Options, progress: Progress | None) -> Contents:
    if path.is_dir():
        return _read_folder(path, str(path), "", options, progress)
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a folder, a .zip or a .npz file")
    if path.suffix == ".npz":
        _refuse_names(path.name, options)
        return read_npz(path, options)
    if path.suffix == ".zip":
        with tempfile.TemporaryDirectory(prefix="gfgn-") as folder:
            _extract_tables(path, Path(folder))
            size = path.stat().st_size
            return _read_folder(Path(folder), path.name, f"{path.name}/", options, progress, size)
    raise DataError(f"{path.name} has the suffix {path.suffix!r}, expected a folder, a .zip or a .npz file")


def _read_folder(
    folder: Path, label: str, prefix: str, options: Options, progress: Progress | None, size: int = 0
) -> Contents:
    """Reads the two tables; messages name the folder `label` and put `prefix` before file names.

    `size` is the number of bytes that the user gave, by default that of the tables.
    """
    paths = find_tables(folder, label)
    from gfgn.data.io.tables import read_tables  # PyArrow, which other files do not need

    size = size or sum(path.stat().st_size for path in paths)
    return read_tables(paths[0], paths[1], size, prefix, options, progress)


def find_tables(folder: Path, label: str = "") -> list[Path]:
    """The node table and the edge table in a folder."""
    paths = []
    for table in TABLES:
        files = [folder / f"{table}{suffix}" for suffix in FORMATS if (folder / f"{table}{suffix}").is_file()]
        if len(files) != 1:
            got, word = ("both", " and ") if files else ("no", " or ")
            names = word.join(f"{table}{suffix}" for suffix in FORMATS)
            raise DataError(f"{label or folder} has {got} {names}, expected one of them")
        paths += files
    return paths


def _extract_tables(path: Path, folder: Path) -> None:
    """Copies the tables from the top level or the only folder of the archive; writes nothing else."""
    with reading(path.name, "a zip archive"), zipfile.ZipFile(path) as archive:
        tables = _tables(path.name, archive.infolist())
        check_memory(path.name, sum(entry.file_size for entry in tables.values()), path.stat().st_size)
        for name, entry in tables.items():
            with archive.open(entry) as packed, (folder / name).open("wb") as file:
                shutil.copyfileobj(packed, file, 2**20)


def _tables(label: str, entries: Sequence[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The entries of the tables by their file name, which must be in one folder."""
    wanted = {table + suffix for table in TABLES for suffix in FORMATS}
    found: dict[str, zipfile.ZipInfo] = {}
    folders: dict[str, str] = {}
    for entry in entries:
        name = PurePosixPath(entry.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
            raise DataError(f"{label}: entry {entry.filename!r} is outside the folder, expected none")
        if name.name not in wanted or len(name.parts) > 2 or name.parts[0] == "__MACOSX" or entry.is_dir():
            continue
        folders[str(name.parent)] = entry.filename
        if len(folders) > 1:
            raise DataError(f"{label} has {' and '.join(folders.values())}, expected one graph in one folder")
        if name.name in found:
            raise DataError(f"{label} has {name.name} more than once, expected one graph")
        found[name.name] = entry
    return found


def describe_reading(reading: Reading) -> str:
    """How the files were understood, as lines for a terminal."""
    data = reading.dataset
    assert data.node_ids is not None
    assert data.encoder is not None
    direction = "both directions counted" if data.graph.by_source is data.graph.by_target else "directed"
    weighted = "" if data.graph.weight is None else ", weighted"
    kinds = Counter(column.kind for column in data.encoder.columns)
    columns = ", ".join(f"{kinds[kind]:,} {WORDS.get(kind, kind)}" for kind in KINDS if kind in kinds)
    sizes = torch.bincount(data.y[data.y >= 0], minlength=data.num_classes).tolist()
    classes = [f"{name} ({size:,})" for name, size in zip(data.class_names or [], sizes, strict=True)]
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
