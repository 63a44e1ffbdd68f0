"""`load`: the datasets of the catalog by name.

The first `load` of a dataset writes the result of its loader to one file in the folder `gfgn-cache`; later ones read
that file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gfgn.data.columns import sparse_tensor
from gfgn.data.dataset import NodeDataset
from gfgn.data.messages import listed, reason
from gfgn.data.named.cache import DAMAGED, read_cache, write_cache
from gfgn.data.named.catalog import DATASETS, Entry, find_dataset
from gfgn.data.named.download import fetch, verify_files
from gfgn.data.named.loaders import RawData
from gfgn.ops.features import row_normalize, sparse_csr
from gfgn.ops.thread_count import num_threads

VERSION = 1
SPARSE_FROM = 0.9  # fraction of zeros above which a bag of words is a sparse CSR tensor


def load(name: str, root: str | Path | None = None, *, normalize: bool = True, directed: bool = False) -> NodeDataset:
    """Loads a dataset by name, with undirected edges by default and without self-loops.

    The network is used only if neither the raw files nor the cache exist.

    Args:
        name: One of `DATASETS`.
        root: Folder of all datasets; by default the environment variable `GFGN_DATA`, or else the platform's cache.
        normalize: Whether to divide each row of a bag of words by its sum; other features are left as they are.
        directed: Whether edges keep the direction they have in the raw files, which are then read again. Available
            where `DATASETS[name].directed` is true.
    """
    name, entry = name.lower(), find_dataset(name)
    if directed and not entry.directed:
        known = ", ".join(repr(name) for name, entry in DATASETS.items() if entry.directed)
        only = f"unless name is one of {known}, whose edges are directed"
        raise ValueError(f"directed must be False {only}, got {name!r}")
    folder = data_folder(root)
    raw = _load_raw(name, entry, folder, directed=True) if directed else _load_cached(name, entry, folder)
    if isinstance(raw, NodeDataset):  # generated
        return raw
    return NodeDataset(
        name=f"{name} (stand-in)" if entry.standin else name,
        graph=raw.graph,
        x=_words(raw.x, normalize) if entry.bag_of_words else raw.x,
        y=raw.y,
        num_classes=raw.y.size(1) if raw.y.dim() == 2 else int(raw.y.max()) + 1,
        metric=entry.metric,
        feature_names=raw.feature_names or [f"feature {k + 1}" for k in range(raw.x.size(1))],
        splits=raw.splits,
        description=entry.description,
    )


def data_folder(root: str | Path | None = None) -> Path:
    """The folder of all datasets, see `load`: by default the cache folder of the platform."""
    if root is None and not os.environ.get("GFGN_DATA"):
        import pooch  # type: ignore[import-untyped]

        return Path(pooch.os_cache("gfgn"))
    return Path(root or os.environ["GFGN_DATA"]).expanduser()


def _words(x: Tensor, normalize: bool) -> Tensor:
    """A bag of words, sparse if most of it is zero."""
    with num_threads(1):
        x = row_normalize(x) if normalize else x
        if x.values().numel() < (1 - SPARSE_FROM) * x.numel():
            return x
        return torch.from_numpy(sparse_tensor(x).toarray())  # faster than `to_dense`


def _load_cached(name: str, entry: Entry, root: Path) -> RawData | NodeDataset:
    """The dataset in the cache, which is written first if it is missing, damaged or older than the raw files."""
    path, paths = root / "gfgn-cache" / f"{name}-v{VERSION}.npz", [root / file for file in entry.files]
    if not paths:
        return _load_raw(name, entry, root)
    with contextlib.suppress(*DAMAGED):
        return read_cache(path, paths)
    raw = _load_raw(name, entry, root)
    with contextlib.suppress(OSError):  # a read-only folder has no cache
        write_cache(path, paths, raw)
    return raw


def _load_raw(name: str, entry: Entry, root: Path, **options: bool) -> RawData:
    """The result of the loader; missing raw files are downloaded first, and all known ones verified. A bag of words is
    sparse."""
    _fetch_missing(name, entry, root)
    verify_files(root, entry.files)
    try:
        raw: RawData = entry.loader(root, **options)
    except ImportError:
        raise
    except Exception as error:  # parsers of other packages raise anything on a damaged file
        raise ValueError(
            f"{name}: the files in {_folders(entry, root)} could not be read ({reason(error)}); "
            "delete the damaged ones to download them again"
        ) from error
    if entry.bag_of_words and raw.x.layout == torch.strided:
        words = scipy.sparse.csr_array(raw.x.numpy())
        pointers, columns = (torch.from_numpy(part.astype(np.int64)) for part in (words.indptr, words.indices))
        raw = raw._replace(x=sparse_csr(pointers, columns, torch.from_numpy(words.data), raw.x.shape))
    return raw


def _fetch_missing(name: str, entry: Entry, root: Path) -> None:
    cause, problem = None, "it has no download"
    try:
        for source in entry.sources if not entry.standin else ():
            fetch(source, root)
    except Exception as error:  # connections and archives fail in many ways
        cause, problem = error, f"the download failed ({reason(error)})"
    missing = [(file, source) for source in entry.sources for file in source.files if not (root / file).is_file()]
    if not missing:
        return
    names, first = listed([Path(file).name for file, _ in missing], 3), missing[0][1]
    address = f" ({first.archive or first.url})" if not entry.standin else ""
    raise FileNotFoundError(
        f"{name} needs {names}, but {problem}. Get the raw files from {entry.source}{address} and put them into "
        f"{_folders(entry, root)}; set GFGN_DATA or the argument root to use another folder than {root}"
    ) from cause


def _folders(entry: Entry, root: Path) -> str:
    return " and ".join(dict.fromkeys(str(root / source.folder) for source in entry.sources))
