"""`read`: a user's own graph, from a folder or zip of two tables, a `.npz` file or a PyG `Data`."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import torch

from gfgn.data.dataset import Dataset
from gfgn.data.io.arrays import read_data, read_npz
from gfgn.data.io.assemble import Contents, Progress, assemble, reading
from gfgn.data.messages import DataError, listed

if TYPE_CHECKING:
    from torch_geometric.data import Data

TABLES = ("nodes", "edges")
FORMATS = (".csv", ".parquet")


class Reading(NamedTuple):
    """A dataset, one sentence per repair or choice, and the number of features of each kind."""

    dataset: Dataset
    notes: list[str]
    kinds: dict[str, int]


def read(
    source: str | Path | Data,
    *,
    undirected: bool = True,
    stratify: bool = False,
    normalize: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Reads a graph of your own.

    Args:
        source: A folder or `.zip` with `nodes.csv` or `.parquet` (`id`, optional `label` and `split`, all other
            columns are features) and `edges.csv` or `.parquet` (`source`, `target`, optional `weight`); a `.npz` with
            `edge_index`, `x` (or `x_data`, `x_indices`, `x_indptr`, `x_shape`) and optional `y`, `edge_weight`,
            `train_mask`, `val_mask`, `test_mask`; or a PyG `Data` with the same attributes.
        undirected: Whether to add the opposite of every edge.
        stratify: Whether random splits keep the proportions of the classes. Given splits are used as they are.
        normalize: Whether to divide each row of the features by the sum of its absolute values.
        progress: Called while an edge table is read, with the number of rows that are read and of all rows.

    Raises:
        DataError: The data cannot be read; the message is one sentence that says what is wrong and where.
    """
    options = {"undirected": undirected, "stratify": stratify, "normalize": normalize}
    return read_with_notes(source, progress=progress, **options).dataset


def read_with_notes(source: str | Path | Data, *, progress: Progress | None = None, **options: bool) -> Reading:
    """Reads a graph like `read`, with the same arguments, and reports how it was understood and repaired."""
    name, contents = _read_contents(source, progress)
    return Reading(assemble(contents, name, **options), contents.notes, contents.kinds)


def _read_contents(source: object, progress: Progress | None) -> tuple[str, Contents]:
    """The name of the graph, and the contents of its files."""
    if isinstance(source, str | Path):
        path = Path(source)
        return path.resolve().stem if path.is_file() else path.resolve().name, _read_path(path, progress)
    from torch_geometric.data import Data  # 100 MiB of modules that files do not need

    if not isinstance(source, Data):
        raise DataError(f"source is of type {type(source).__name__}, expected a path or a PyG Data")
    return "data", read_data(source)


def _read_path(path: Path, progress: Progress | None) -> Contents:
    if path.is_dir():
        return _read_folder(path, str(path), "", progress)
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a folder, a .zip or a .npz file")
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".zip":
        with tempfile.TemporaryDirectory(prefix="gfgn-") as folder:
            _extract_tables(path, Path(folder))
            return _read_folder(Path(folder), path.name, f"{path.name}/", progress)
    raise DataError(f"{path.name} has the suffix {path.suffix!r}, expected a folder, a .zip or a .npz file")


def _read_folder(folder: Path, label: str, prefix: str, progress: Progress | None) -> Contents:
    """Reads the two tables; messages name the folder `label` and put `prefix` before file names."""
    paths = []
    for table in TABLES:
        files = [folder / f"{table}{suffix}" for suffix in FORMATS if (folder / f"{table}{suffix}").is_file()]
        if len(files) != 1:
            got, word = ("both", " and ") if files else ("no", " or ")
            names = word.join(f"{table}{suffix}" for suffix in FORMATS)
            raise DataError(f"{label} has {got} {names}, expected one of them")
        paths += files
    try:
        from gfgn.data.io.tables import read_tables
    except ImportError as error:
        raise DataError("reading tables needs PyArrow, which is not installed: pip install gfgn[tables]") from error
    return read_tables(paths[0], paths[1], prefix, progress)


def _extract_tables(path: Path, folder: Path) -> None:
    """Copies the tables from the top level or the only folder of the archive; writes nothing else."""
    wanted = {table + suffix for table in TABLES for suffix in FORMATS}
    with reading(path.name, "a zip archive"), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            name = PurePosixPath(entry.filename.replace("\\", "/"))
            if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
                raise DataError(f"{path.name}: entry {entry.filename!r} is outside the folder, expected none")
            if name.name not in wanted or len(name.parts) > 2 or name.parts[0] == "__MACOSX" or entry.is_dir():
                continue
            target = folder / name.name
            if target.exists():
                raise DataError(f"{path.name} has {name.name} more than once, expected one graph")
            with archive.open(entry) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, 2**20)


def describe_reading(reading: Reading) -> str:
    """How the files were understood, as lines for a terminal."""
    data = reading.dataset
    assert data.node_ids is not None
    direction = "both directions counted" if data.graph.by_source is data.graph.by_target else "directed"
    weighted = "" if data.graph.weight is None else ", weighted"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in reading.kinds.items())
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
        f"  features  {data.num_features:,}: {kinds} ({listed(data.feature_names)})",
        f"  classes   {data.num_classes:,}{': ' if classes else ''}{listed(classes, 10)}",
        f"  splits    {splits}",
    ]
    return "\n".join([*lines, *(f"  note      {note}" for note in reading.notes or ["nothing was changed"])])
