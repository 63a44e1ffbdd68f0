"""`load`: the datasets of the catalog by name.

The first `load` of a dataset writes the result of its loader to one file in the folder `gfgn-cache`; later ones read
that file.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from gfgn.data.dataset import NodeDataset
from gfgn.data.named.cache import DAMAGED, VERSION, Arrays, pack, read_cache, stamp, unpack, write_cache
from gfgn.data.named.catalog import DATASETS, Entry
from gfgn.data.named.download import fetch, verify_files
from gfgn.data.named.loaders import RawData


def load(name: str, root: str | Path | None = None, *, normalize: bool = True, directed: bool = False) -> NodeDataset:
    """Loads a dataset by name, with undirected edges by default and without self-loops.

    The network is used only if neither the raw files nor the cache exist.

    Args:
        name: One of `DATASETS`.
        root: Folder of all datasets; by default the environment variable `GFGN_DATA`, or else `cache_dir()`.
        normalize: Whether to divide each row of a bag of words by its sum; other features are left as they are.
        directed: Whether edges keep the direction they have in the raw files, which are then read again. Available
            where `DATASETS[name].directed` is true.
    """
    name = name.lower()
    entry = DATASETS.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(map(repr, DATASETS))}, got {name!r}{hint}")
    folder = data_folder(root)
    if directed and not entry.directed:
        known = ", ".join(repr(name) for name, entry in DATASETS.items() if entry.directed)
        only = f"unless name is one of {known}, whose edges are directed"
        raise ValueError(f"directed must be False {only}, got {name!r}")
    if directed:
        given = _load_raw(name, entry, folder, directed=True)
        raw: RawData | NodeDataset = unpack(pack(given, entry.bag_of_words), normalize)._replace(graph=given.graph)
    elif entry.files:
        raw = unpack(_load_arrays(name, entry, folder), normalize)
    elif isinstance(raw := entry.loader(folder), NodeDataset):  # generated
        return raw
    return NodeDataset(
        name=f"{name} (stand-in)" if entry.standin else name,
        graph=raw.graph,
        x=raw.x,
        y=raw.y,
        num_classes=raw.y.size(1) if raw.y.dim() == 2 else int(raw.y.max()) + 1,
        metric=entry.metric,
        feature_names=raw.feature_names or [f"feature {k + 1}" for k in range(raw.x.size(1))],
        splits=raw.splits,
        description=entry.description,
    )


def data_folder(root: str | Path | None = None) -> Path:
    """The folder of all datasets, see `load`."""
    return Path(root or os.environ.get("GFGN_DATA") or cache_dir()).expanduser()


def cache_dir() -> Path:
    """The cache folder of the platform; honors `XDG_CACHE_HOME` except on Windows. Without a home, it is temporary."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "gfgn" / "Cache"
    default = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "gfgn"


def _load_arrays(name: str, entry: Entry, root: Path) -> Arrays:
    """The arrays in the cache, which is written first if it is missing, damaged or older than the raw files."""
    path = root / "gfgn-cache" / f"{name}-v{VERSION}.npz"
    paths = [root / file for file in entry.files]
    with contextlib.suppress(*DAMAGED):
        arrays = read_cache(path)
        # The cache remains valid if the raw files are deleted.
        if not all(file.is_file() for file in paths) or str(arrays["stamp"]) == stamp(paths):
            return arrays
    arrays = pack(_load_raw(name, entry, root), entry.bag_of_words)
    arrays |= {"stamp": np.array(stamp(paths))}
    with contextlib.suppress(OSError):  # a read-only folder has no cache
        write_cache(path, arrays)
    return arrays


def _load_raw(name: str, entry: Entry, root: Path, **options: bool) -> RawData:
    """The result of the loader; missing raw files are downloaded first, and all known ones verified."""
    _fetch_missing(name, entry, root)
    verify_files(root, entry.files)
    try:
        raw: RawData = entry.loader(root, **options)
        _check_shapes(raw)
    except ImportError:
        raise
    except Exception as error:  # parsers of other packages raise anything on a damaged file
        raise ValueError(
            f"{name}: the files in {_folders(entry, root)} could not be read ({_reason(error)}); "
            "delete the damaged ones to download them again"
        ) from error
    return raw


def _check_shapes(raw: RawData) -> None:
    """Raises if features, labels or masks do not have one row per node; `NodeDataset` checks their values."""
    size = raw.graph.num_nodes
    shapes = {"features": raw.x.shape[:-1], "labels": raw.y.shape[:1]}
    for k, split in enumerate(raw.splits):
        shapes |= {f"{part} of split {k}": mask.shape for part, mask in split._asdict().items()}
    for name, shape in shapes.items():
        if shape != (size,):
            raise ValueError(f"{name} must have one row for each of {size} nodes, got shape {list(shape)}")


def _fetch_missing(name: str, entry: Entry, root: Path) -> None:
    missing = _missing(entry, root)
    if not missing:
        return
    cause, reason = None, "it has no download"
    if entry.remote:
        try:
            fetch(entry.remote, root, missing)
            return
        except Exception as error:  # connections and archives fail in many ways
            cause, reason = error, f"the download failed ({_reason(error)})"
        missing = _missing(entry, root)
    names = [Path(file).name for file in missing]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    urls = [source.url for source in entry.remote if missing[0] in source.files]
    address = f" ({urls[0]}{', …' if len(entry.remote) > 1 else ''})" if urls else ""
    raise FileNotFoundError(
        f"{name} needs {listed}, but {reason}. Get the raw files from {entry.source}{address} and put them into "
        f"{_folders(entry, root)}; set GFGN_DATA or the argument root to use another folder than {root}"
    ) from cause


def _missing(entry: Entry, root: Path) -> list[str]:
    return [file for file in entry.files if not (root / file).is_file()]


def _folders(entry: Entry, root: Path) -> str:
    return " and ".join(dict.fromkeys(str((root / file).parent) for file in entry.files))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
