"""`read`: a user's own graph, from a folder or zip of two tables, a `.npz` file or a PyG `Data`, with a note on every
repair that was made."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import torch

from gfgn.data.dataset import Dataset
from gfgn.data.io.arrays import read_data, read_npz
from gfgn.data.io.assemble import Array, DataError, Parts, Progress, assemble, some
from gfgn.data.io.tables import read_tables

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["DataError", "Progress", "Reading", "describe_reading", "read", "read_with_notes"]

TABLES = ("nodes", "edges")
FORMATS = (".csv", ".parquet")


@dataclass(frozen=True)
class Reading:
    """A dataset and what was understood on the way to it.

    Attributes:
        dataset: The dataset.
        notes: Every repair and every choice that was made, one sentence each.
        ids: `[N]`: the id of every node, strings or integers; 0 … N − 1 for arrays.
        label_names: The name of every class.
        kinds: How many features there are of each kind.
    """

    dataset: Dataset
    notes: list[str]
    ids: Array
    label_names: list[str]
    kinds: dict[str, int] = field(default_factory=dict)


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
        source: A folder or `.zip` with `nodes.csv` or `.parquet` (`id`, optional `label` and `split`, every other
            column a feature) and `edges.csv` or `.parquet` (`source`, `target`, optional `weight`); a `.npz` with
            `edge_index`, `x` (or `x_data`, `x_indices`, `x_indptr`, `x_shape`) and optional `y`, `edge_weight`,
            `train_mask`, `val_mask`, `test_mask`; or a PyG `Data` with the same attributes.
        undirected: Adds the opposite of every edge.
        stratify: Where no split is given, meets its shares in every class.
        normalize: Makes the absolute values of every row of the features add up to 1.
        progress: Called while edges of a table are read, with the rows done and the rows in all.

    Raises:
        DataError: With one sentence on what is wrong, and where.
    """
    name, parts = _parts(source, progress)
    parts.ids = np.empty(0)  # nobody will ask for them, and a million strings take memory
    return assemble(parts, name, undirected=undirected, stratify=stratify, normalize=normalize)


def read_with_notes(
    source: str | Path | Data,
    *,
    undirected: bool = True,
    stratify: bool = False,
    normalize: bool = False,
    progress: Progress | None = None,
) -> Reading:
    """Reads a graph as `read` does, and says what was understood and repaired."""
    name, parts = _parts(source, progress)
    dataset = assemble(parts, name, undirected=undirected, stratify=stratify, normalize=normalize)
    return Reading(dataset, parts.notes, parts.ids, parts.label_names, parts.kinds)


def _parts(source: object, progress: Progress | None) -> tuple[str, Parts]:
    """The name of the graph, and what is in its files."""
    if isinstance(source, str | Path):
        path = Path(source)
        whole = path.resolve()
        return whole.stem if path.is_file() else whole.name, _read_path(path, progress)
    from torch_geometric.data import Data  # 100 MiB of modules, which files do without

    if not isinstance(source, Data):
        raise DataError(f"source is of type {type(source).__name__}, expected a path or a PyG Data")
    return "data", read_data(source)


def _read_path(path: Path, progress: Progress | None) -> Parts:
    if path.is_dir():
        return read_tables(*_find_tables(path), prefix="", progress=progress)
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a folder, a .zip or a .npz file")
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".zip":
        with tempfile.TemporaryDirectory(prefix="gfgn-") as folder:
            _unzip_tables(path, Path(folder))
            return read_tables(*_find_tables(Path(folder), path.name), prefix=f"{path.name}/", progress=progress)
    raise DataError(f"{path.name} ends in {path.suffix!r}, expected a folder, a .zip or a .npz file")


def _find_tables(folder: Path, label: str = "") -> tuple[Path, Path]:
    found = []
    for table in TABLES:
        files = [folder / f"{table}{ending}" for ending in FORMATS if (folder / f"{table}{ending}").is_file()]
        wanted = " or ".join(f"{table}{ending}" for ending in FORMATS)
        if len(files) != 1:
            raise DataError(f"{label or folder} has {'no' if not files else 'both'} {wanted}, expected one of the two")
        found += files
    return found[0], found[1]


def _unzip_tables(path: Path, folder: Path) -> None:
    """Copies the tables out of the archive, whose top level or only folder they are in; nothing else is written."""
    wanted = {table + ending for table in TABLES for ending in FORMATS}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = PurePosixPath(entry.filename.replace("\\", "/"))
                if name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
                    raise DataError(f"{path.name}: entry {entry.filename!r} lies outside the folder, expected none")
                if name.name not in wanted or len(name.parts) > 2 or name.parts[0] == "__MACOSX" or entry.is_dir():
                    continue
                target = folder / name.name
                if target.exists():
                    raise DataError(f"{path.name} holds {name.name} more than once, expected one graph")
                with archive.open(entry) as packed, target.open("wb") as file:
                    shutil.copyfileobj(packed, file, 2**20)
    except DataError:
        raise
    # A damaged archive fails as any of these, an encrypted one as a RuntimeError.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, IndexError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path.name} cannot be read as a zip archive ({reason})") from error


def describe_reading(reading: Reading) -> str:
    """What was understood, in lines for a terminal."""
    data = reading.dataset
    direction = "both directions counted" if data.graph.by_source is data.graph.by_target else "directed"
    weighted = "" if data.graph.weight is None else ", weighted"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in reading.kinds.items())
    lines = [
        data.name,
        f"  nodes     {data.num_nodes:,} (ids such as {some([repr(name) for name in reading.ids[:3].tolist()])})",
        f"  edges     {data.graph.num_edges:,}, {direction}{weighted}",
        f"  features  {data.num_features:,}: {kinds} ({some(data.feature_names)})",
    ]
    sizes = torch.bincount(data.y[data.y >= 0], minlength=data.num_classes).tolist()
    classes = [f"{name} ({size:,})" for name, size in zip(reading.label_names, sizes, strict=True)]
    lines.append(f"  classes   {data.num_classes:,}{': ' if classes else ''}{some(classes, 10)}")
    if data.splits:
        parts = ", ".join(f"{part} {int(mask.sum()):,}" for part, mask in data.splits[0]._asdict().items())
        lines.append(f"  splits    {len(data.splits)}; the first: {parts}")
    else:
        lines.append("  splits    none")
    lines += [f"  note      {note}" for note in reading.notes] or ["  note      nothing was changed"]
    return "\n".join(lines)
