"""The table of named datasets, and `load`, which fetches, reads, caches and normalises them.

To add one, write its loader and give it a line in `DATASETS`. PyG's dataset classes fetch and parse the raw files;
what they make of them is kept in one file a dataset under `gfgn-cache`, which later loads read instead.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.data.dimensions import dimensions
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph
from gfgn.ops.rows import compress

Arrays = dict[str, NDArray[Any]]

CACHE_VERSION = 1
CACHED = {"indptr", "indices", "transpose", "y", "masks", "num_features", "num_classes", "stamp"}
SPARSE_FROM = 0.9
"""Share of zeros above which a bag of words is kept as a sparse CSR tensor."""
NEIGHBOURS = 5
"""Nearest neighbours that each image of `digits` is joined with."""


class Statistics(NamedTuple):
    """Sizes of a dataset; an edge is a pair of nodes, counted once."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset.

    Attributes:
        loader: Reads the dataset from the folder of all datasets; features as they come, not normalised.
        description: What the graph is, in a few words.
        source: Who made it and where it comes from, in words.
        citation: The paper to cite.
        licence: Its licence, `"see source"` where we know of none.
        statistics: Sizes as loaded: both directions of an edge counted as one, no self-loops.
        paper: Sizes as the table of the GFGN paper has them, `None` where the paper does not use the dataset. It counts
            some graphs' edges before repeated ones and self-loops are removed.
        files: The raw files, relative to the folder of all datasets; none for an embedded dataset.
        fetch: Downloads the raw files into a folder laid out as the folder of all datasets; `None`: there is no
            download.
        bag_of_words: Whether features are words' counts or weights, whose rows `load` normalises.
        metric: What scores are, see `Dataset`.
        task: What is predicted.
        standin: Whether it only stands in for a published dataset, whose scores its own must never be taken for.
    """

    loader: Callable[[Path], Dataset]
    description: str
    source: str
    citation: str
    statistics: Statistics
    licence: str = "see source"
    paper: Statistics | None = None
    files: tuple[str, ...] = ()
    fetch: Callable[[Path], object] | None = None
    bag_of_words: bool = False
    metric: str = "accuracy"
    task: str = "classes of nodes"
    standin: bool = False

    @property
    def kind(self) -> str:
        """`"embedded"`, `"download"` or `"stand-in"`."""
        if self.standin:
            return "stand-in"
        return "download" if self.files else "embedded"


def load(name: str, root: str | Path | None = None, *, normalize: bool = True) -> Dataset:
    """Loads a dataset by its name: edges undirected, without self-loops.

    With the raw files or the cache in place nothing touches the network.

    Args:
        name: One of `DATASETS`.
        root: Folder of all datasets; by default the environment variable `GFGN_DATA`, else `cache_dir()`.
        normalize: Whether the rows of a bag of words are divided by their sum; other features stay as they are.
    """
    name = name.lower()
    entry = DATASETS.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(map(repr, DATASETS))}, got {name!r}{hint}")
    folder = Path(root or os.environ.get("GFGN_DATA") or cache_dir()).expanduser()
    if not entry.files:
        return entry.loader(folder)
    arrays = _arrays(name, entry, folder)
    with _one_thread():
        return _unpack(name, arrays, normalize)


def cache_dir() -> Path:
    """The platform's folder for what can be fetched again; `XDG_CACHE_HOME` is heeded except on Windows."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "gfgn" / "Cache"
    default = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "gfgn"


def normalize_rows(x: Tensor) -> Tensor:
    """`x`, dense or sparse CSR, with every row divided by the sum of its absolute values; a row of zeros stays."""
    if x.layout == torch.strided:
        total = x.abs().sum(1, keepdim=True)
        return x / torch.where(total > 0, total, 1)
    row = torch.repeat_interleave(torch.arange(x.size(0), device=x.device), x.crow_indices().diff())
    total = x.values().new_zeros(x.size(0)).index_add(0, row, x.values().abs())
    return _csr(x.crow_indices(), x.col_indices(), x.values() / torch.where(total > 0, total, 1)[row], x.shape)


# --- the cache: one file a dataset, which holds no objects and replaces the old one in one step ----------------------


def _arrays(name: str, entry: Entry, root: Path) -> Arrays:
    """The dataset from its cache, which is made first if it is missing, damaged or older than the raw files."""
    path = root / "gfgn-cache" / f"{name}-v{CACHE_VERSION}.npz"
    paths = [root / file for file in entry.files]
    with contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        arrays = _read_cache(path)
        # The raw files may be gone; the cache stands for itself then.
        if not all(file.is_file() for file in paths) or str(arrays["stamp"]) == _stamp(paths):
            return arrays
    _fetch_missing(name, entry, root)
    try:
        dataset = entry.loader(root)
    except ImportError:
        raise
    except Exception as error:  # whatever a parser of someone else's makes of a damaged file
        raise ValueError(
            f"{name}: the files in {_folders(entry, root)} could not be read ({_reason(error)}); "
            "remove those that are damaged, and they are fetched again"
        ) from error
    arrays = {**_pack(dataset, entry.bag_of_words), "stamp": np.array(_stamp(paths))}
    with contextlib.suppress(OSError):  # a folder that cannot be written to has no cache
        _write_cache(path, arrays)
    return arrays


def _stamp(paths: Sequence[Path]) -> str:
    """Changes when a raw file does."""
    facts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _read_cache(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    missing = CACHED - arrays.keys()
    if missing:
        raise ValueError(f"{path} must hold {', '.join(sorted(missing))}")
    return arrays


def _write_cache(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _pack(dataset: Dataset, sparse: bool) -> Arrays:
    """The dataset as arrays; `sparse` says to leave zeros out of the features, whichever their layout is."""
    graph, x = dataset.graph, dataset.x
    masks = torch.stack([torch.stack(list(split)) for split in dataset.splits])
    tensors = {"indptr": graph.by_target.ptr, "indices": graph.by_target.idx, "transpose": graph.transpose.int()}
    tensors["y"] = dataset.y
    if sparse:
        x = _to_csr(x)
        tensors |= {"x_indptr": x.crow_indices(), "x_indices": x.col_indices().int(), "x_data": x.values()}
    else:
        tensors["x"] = x
    arrays: Arrays = {key: value.numpy() for key, value in tensors.items()}
    return {
        **arrays,
        "masks": np.packbits(masks.numpy(), axis=-1),
        "num_features": np.array(x.size(1)),
        "num_classes": np.array(dataset.num_classes),
    }


def _unpack(name: str, arrays: Arrays, normalize: bool) -> Dataset:
    y = torch.from_numpy(arrays["y"])
    masks = np.unpackbits(arrays["masks"], axis=-1, count=y.numel()).astype(bool)
    splits = [Split(*map(torch.from_numpy, split)) for split in masks]
    x = torch.from_numpy(arrays["x"]) if "x" in arrays else _unpack_words(arrays, normalize)
    return _dataset(name, _unpack_graph(arrays), x, y, splits, int(arrays["num_classes"]))


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Unpacking is many short operations, which threads that wait for each other on a busy machine hold up."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _unpack_words(arrays: Arrays, normalize: bool) -> Tensor:
    """A bag of words, sparse where most of it is zero."""
    pointers, columns, values = (torch.from_numpy(arrays[f"x_{key}"]) for key in ("indptr", "indices", "data"))
    size = torch.Size([pointers.numel() - 1, int(arrays["num_features"])])
    x = _csr(pointers, columns.long(), values, size)
    x = normalize_rows(x) if normalize else x
    if values.numel() < (1 - SPARSE_FROM) * size.numel():
        return x
    stored = (x.values().numpy(), arrays["x_indices"], arrays["x_indptr"])
    return torch.from_numpy(
        scipy.sparse.csr_array(stored, shape=(size[0], size[1])).toarray()
    )  # faster than `to_dense`


def _unpack_graph(arrays: Arrays) -> Graph:
    """The graph without sorting its edges again: they were stored in order."""
    pointers, idx = torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"])
    num_nodes = pointers.numel() - 1
    targets = torch.repeat_interleave(torch.arange(num_nodes), pointers.diff(), output_size=idx.numel())
    rows = compress(targets, idx, num_nodes)
    unknown = torch.empty(0, dtype=torch.float16)
    graph = Graph(
        num_nodes=num_nodes,
        num_graphs=1,
        by_target=rows,
        by_source=rows,  # undirected: one copy serves both orders
        weight=None,
        transpose=torch.from_numpy(arrays["transpose"]).long(),
        slot=torch.arange(idx.numel()),
        batch=None,
        **dict.fromkeys(("norm", "share", "reverse_norm", "reverse_share", "degree"), unknown),
    )
    return graph.to(torch.float32)  # a change of dtype works degrees and weights out


# --- downloads: made elsewhere and moved, so that an interrupted one leaves nothing half-made ------------------------


def _fetch_missing(name: str, entry: Entry, root: Path) -> None:
    missing = [file for file in entry.files if not (root / file).is_file()]
    if not missing:
        return
    reason = "there is no download for it"
    if entry.fetch is not None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as part:
                entry.fetch(Path(part))
                for file in missing:
                    (root / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(Path(part) / file, root / file)  # noqa: PTH105
            return
        except Exception as error:  # connections, archives and parsers fail in ways of their own
            reason, cause = f"fetching failed ({_reason(error)})", error
    else:
        cause = None
    names = [Path(file).name for file in missing]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    raise FileNotFoundError(
        f"{name} needs {listed}, and {reason}. Get the raw files from {entry.source}, and put them into "
        f"{_folders(entry, root)}; GFGN_DATA or the argument root can name another folder than {root}"
    ) from cause


def _folders(entry: Entry, root: Path) -> str:
    return " and ".join(dict.fromkeys(str((root / file).parent) for file in entry.files))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


# --- what loaders share ----------------------------------------------------------------------------------------------


def _dataset(
    name: str, graph: Graph, x: Tensor, y: Tensor, splits: list[Split], num_classes: int | None = None
) -> Dataset:
    entry = DATASETS[name]
    return Dataset(
        name=f"{name} (stand-in)" if entry.standin else name,
        graph=graph,
        x=x,
        y=y,
        num_classes=int(y.max()) + 1 if num_classes is None else num_classes,
        metric=entry.metric,
        feature_names=[f"feature {k + 1}" for k in range(x.size(1))],
        splits=splits,
        description=entry.description,
    )


def _undirected(edge_index: Tensor, num_nodes: int) -> Graph:
    return Graph.from_edge_index(torch.cat([edge_index, edge_index.flip(0)], dim=1), num_nodes=num_nodes)


def _csr(pointers: Tensor, columns: Tensor, values: Tensor, size: torch.Size) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(pointers, columns, values, size=size, check_invariants=True)


def _to_csr(x: Tensor) -> Tensor:
    if x.layout == torch.sparse_csr:
        return _csr(x.crow_indices().long(), x.col_indices().long(), x.values(), x.shape)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return x.to_sparse_csr()


# --- loaders ---------------------------------------------------------------------------------------------------------


def _build(root: Path, cls: str, folder: str = "", **options: Any) -> Any:
    """An instance of PyG's dataset class `cls`, read from the raw files anew."""
    import torch_geometric.datasets

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # of a CSR tensor that PyG makes
        return getattr(torch_geometric.datasets, cls)(str(root / folder), force_reload=True, **options)


def _from_pyg(root: Path, name: str, build: Callable[[Path], Any]) -> Dataset:
    data = build(root)[0]
    if "train_mask" in data:
        masks = (data.train_mask.bool(), data.val_mask.bool(), data.test_mask.bool())
        splits = [Split(*(mask[:, k].clone() for mask in masks)) for k in range(masks[0].size(1))]
    else:
        splits = random_splits(data.num_nodes)
    return _dataset(name, _undirected(data.edge_index, data.num_nodes), data.x.float(), data.y.long(), splits)


def _from_ogb(root: Path, name: str, folder: str) -> Dataset:
    """Reads the raw files of an OGB dataset of node classes with a split by time."""
    import pandas

    def table(file: str, dtype: type[np.generic]) -> Tensor:
        frame = pandas.read_csv(root / folder / file, header=None, dtype=dtype)
        return torch.from_numpy(frame.to_numpy(copy=True))

    x, y = table("raw/node-feat.csv.gz", np.float32), table("raw/node-label.csv.gz", np.int64).view(-1)
    masks = torch.zeros(3, y.numel(), dtype=torch.bool)
    for mask, part in zip(masks, ("train", "valid", "test"), strict=True):
        mask[table(f"split/time/{part}.csv.gz", np.int64).view(-1)] = True
    edge_index = table("raw/edge.csv.gz", np.int64).t()
    return _dataset(name, _undirected(edge_index, y.numel()), x.contiguous(), y, [Split(*masks)])


def _fetch_arxiv(root: Path) -> None:
    from torch_geometric.data import download_url, extract_zip

    extract_zip(download_url("http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip", str(root)), str(root))
    (root / "arxiv").rename(root / "ogbn_arxiv")


def _dimensions(root: Path) -> Dataset:
    return dimensions()


def _karate(root: Path) -> Dataset:
    from torch_geometric.datasets import KarateClub

    data = KarateClub()[0]
    dataset = _dataset("karate", _undirected(data.edge_index, 34), data.x, data.y, random_splits(34))
    return replace(dataset, feature_names=[f"is member {k + 1}" for k in range(34)])


def _digits(root: Path) -> Dataset:
    """Distances between images are compared as integers, ties going to the earlier image: the same graph anywhere."""
    from sklearn.datasets import load_digits

    images = load_digits()
    pixels, count = images.data.astype(np.int64), len(images.data)
    squares = (pixels**2).sum(1)
    distance = squares[:, None] + squares - 2 * (pixels @ pixels.T)
    np.fill_diagonal(distance, np.iinfo(np.int64).max)
    nearest = torch.from_numpy(np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS].copy())
    edge_index = torch.stack([nearest.reshape(-1), torch.arange(count).repeat_interleave(NEIGHBOURS)])
    x, y = torch.from_numpy(pixels).float() / 16, torch.from_numpy(images.target).long()
    dataset = _dataset("digits", _undirected(edge_index, count), x, y, random_splits(count))
    return replace(dataset, feature_names=[f"row {k // 8 + 1}, column {k % 8 + 1}" for k in range(64)])


# --- families of entries that share a source -------------------------------------------------------------------------

GEOM_GCN = "the repository geom-gcn of graphdml-uiuc-jlu on GitHub (folders new_data and splits)"
PEI = "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020"


def _social(name: str, description: str, sizes: Statistics) -> Entry:
    build = partial(_build, cls="AttributedGraphDataset", name=name)
    return Entry(
        loader=partial(_from_pyg, name=name, build=build),
        fetch=build,
        files=tuple(f"{name}/raw/{file}" for file in ("attrs.npz", "edgelist.txt", "labels.txt")),
        description=description,
        source="the attributed graphs of PANE's authors on Google Drive, as PyG's AttributedGraphDataset has them",
        citation="Huang, Li and Hu, Label Informed Attributed Network Embedding, WSDM 2017; "
        "Yang et al., Scaling Attributed Network Embedding to Massive Graphs, VLDB 2021",
        statistics=sizes,
        paper=sizes,
        bag_of_words=True,
    )


def _web(name: str, sizes: Statistics, edges_in_paper: int) -> Entry:
    build = partial(_build, cls="WebKB", name=name)
    return Entry(
        loader=partial(_from_pyg, name=name, build=build),
        fetch=build,
        files=_geom_gcn_files(f"{name}/raw", name),
        description=f"web pages of {name.capitalize()}'s computer science department, linked by hyperlinks",
        source=GEOM_GCN,
        citation=f"{PEI}; Craven et al., Learning to Extract Symbolic Knowledge from the World Wide Web, AAAI 1998",
        statistics=sizes,
        paper=sizes._replace(edges=edges_in_paper),
        bag_of_words=True,
    )


def _geom_gcn_files(folder: str, name: str) -> tuple[str, ...]:
    tables = (f"{folder}/out1_node_feature_label.txt", f"{folder}/out1_graph_edges.txt")
    return (*tables, *(f"{folder}/{name}_split_0.6_0.2_{k}.npz" for k in range(10)))


def _actor(sizes: Statistics) -> Entry:
    build = partial(_build, cls="Actor", folder="actor")
    return Entry(
        loader=partial(_from_pyg, name="actor", build=build),
        fetch=build,
        files=_geom_gcn_files("actor/raw", "film"),
        description="actors, joined where they appear on one Wikipedia page",
        source=GEOM_GCN,
        citation=f"{PEI}; Tang et al., Social Influence Analysis in Large-scale Networks, KDD 2009",
        statistics=sizes,
        paper=sizes._replace(edges=33_544, features=931),
        bag_of_words=True,
    )


def _citations(title: str, sizes: Statistics, edges_in_paper: int) -> Entry:
    name, folder = title.lower(), f"{title}/geom-gcn/raw"
    build = partial(_build, cls="Planetoid", name=title, split="geom-gcn")
    tables = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return Entry(
        loader=partial(_from_pyg, name=name, build=build),
        fetch=build,
        files=(
            *(f"{folder}/ind.{name}.{table}" for table in tables),
            *(f"{folder}/{name}_split_0.6_0.2_{k}.npz" for k in range(10)),
        ),
        description=f"papers of {title}, joined by citations",
        source=f"the repository planetoid of kimiyoung on GitHub (folder data), the splits from {GEOM_GCN}",
        citation=f"Sen et al., Collective Classification in Network Data, AI Magazine 2008; splits: {PEI}",
        statistics=sizes,
        paper=sizes._replace(edges=edges_in_paper),
        bag_of_words=True,
    )


def _heterophilous(name: str, description: str, sizes: Statistics, metric: str = "accuracy") -> Entry:
    build, file = partial(_build, cls="HeterophilousGraphDataset", name=name), name.replace("-", "_")
    return Entry(
        loader=partial(_from_pyg, name=name, build=build),
        fetch=build,
        files=(f"{file}/raw/{file}.npz",),
        description=description,
        source="the repository heterophilous-graphs of yandex-research on GitHub (folder data)",
        citation="Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023",
        statistics=sizes,
        metric=metric,
    )


def _arxiv(name: str, folder: str, **fields: Any) -> Entry:
    tables = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")
    parts = ("split/time/train.csv.gz", "split/time/valid.csv.gz", "split/time/test.csv.gz")
    return Entry(
        loader=partial(_from_ogb, name=name, folder=folder),
        files=tuple(f"{folder}/{file}" for file in (*tables, *parts)),
        citation="Hu et al., Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020",
        licence="ODC-BY",
        statistics=Statistics(169_343, 1_157_799, 128, 40),
        **fields,
    )


DATASETS: dict[str, Entry] = {
    "dimensions": Entry(
        loader=_dimensions,
        description="generated: edges of several reasons, the smooth dimensions known",
        source="gfgn.data.dimensions",
        citation="this package",
        licence="MIT",
        statistics=Statistics(1_200, 11_842, 36, 6),
    ),
    "karate": Entry(
        loader=_karate,
        description="members of a karate club, joined where they met outside it; four communities found by modularity",
        source="PyG's KarateClub, part of the package",
        citation="Zachary, An Information Flow Model for Conflict and Fission in Small Groups, 1977",
        statistics=Statistics(34, 78, 34, 4),
    ),
    "digits": Entry(
        loader=_digits,
        description=f"images of handwritten digits, each joined with the {NEIGHBOURS} nearest",
        source="scikit-learn's load_digits, part of the package, from the UCI repository",
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
        licence="CC BY 4.0",
        statistics=Statistics(1_797, 6_309, 64, 10),
    ),
    "blogcatalog": _social(
        "blogcatalog", "bloggers who follow each other, with their keywords", Statistics(5_196, 171_743, 8_189, 6)
    ),
    "flickr": _social(
        "flickr", "photographers who follow each other, with their tags", Statistics(7_575, 239_738, 12_047, 9)
    ),
    "actor": _actor(Statistics(7_600, 26_659, 932, 5)),
    "cornell": _web("cornell", Statistics(183, 277, 1_703, 5), 295),
    "texas": _web("texas", Statistics(183, 279, 1_703, 5), 309),
    "wisconsin": _web("wisconsin", Statistics(251, 450, 1_703, 5), 499),
    "cora": _citations("Cora", Statistics(2_708, 5_278, 1_433, 7), 5_429),
    "citeseer": _citations("CiteSeer", Statistics(3_327, 4_552, 3_703, 6), 4_732),
    "pubmed": _citations("PubMed", Statistics(19_717, 44_324, 500, 3), 44_338),
    "ogbn-arxiv": _arxiv(
        "ogbn-arxiv",
        "ogbn_arxiv",
        fetch=_fetch_arxiv,
        description="computer science papers on arXiv, joined by citations, split by year",
        source="the Open Graph Benchmark of Stanford's SNAP group (arxiv.zip, its folder arxiv named ogbn_arxiv)",
        paper=Statistics(169_343, 1_166_243, 128, 40),
    ),
    "ogbn-arxiv-structure": _arxiv(
        "ogbn-arxiv-structure",
        "ogbn_arxiv_structure",
        description="a stand-in, not ogbn-arxiv: its edges, labels and split, but features drawn at random by class",
        source="the development files of this package (a stand-in in the raw layout of ogbn-arxiv)",
        standin=True,
    ),
    "minesweeper": _heterophilous(
        "minesweeper", "cells of a grid, some of them mines", Statistics(10_000, 39_402, 7, 2), "roc_auc"
    ),
    "tolokers": _heterophilous(
        "tolokers",
        "crowd workers, joined by common tasks; who was banned?",
        Statistics(11_758, 519_000, 10, 2),
        "roc_auc",
    ),
    "roman-empire": _heterophilous(
        "roman-empire", "words of an encyclopedia's article, by syntactic role", Statistics(22_662, 32_927, 300, 18)
    ),
    "amazon-ratings": _heterophilous(
        "amazon-ratings", "products bought together, by mean rating", Statistics(24_492, 93_050, 300, 5)
    ),
    "questions": _heterophilous(
        "questions",
        "users who answered each other; who stayed active?",
        Statistics(48_921, 153_540, 301, 2),
        "roc_auc",
    ),
}
