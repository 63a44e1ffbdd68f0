"""The table of named datasets, and `load`, which fetches, reads, caches and normalises them.

To add one, write its loader (`gfgn.data.datasets.loaders`) and give it a line in `DATASETS`. What a loader makes of the
raw files is kept in one file a dataset under `gfgn-cache`, which later loads read instead.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gfgn.data.dataset import Dataset
from gfgn.data.datasets.cache import DAMAGED, VERSION, Arrays, pack, read_cache, stamp, unpack, write_cache
from gfgn.data.datasets.download import Source, fetch
from gfgn.data.datasets.loaders import NEIGHBOURS, Raw, build, digits, filtered, from_pyg, karate, ogb, ppi
from gfgn.data.generators.dimensions import dimensions


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
        as_published: Whether `statistics` are those that its authors publish, not counted by this package.
        paper: Sizes as the table of the GFGN paper has them, `None` where the paper does not use the dataset. It counts
            some graphs' edges before repeated ones and self-loops are removed.
        files: The raw files, relative to the folder of all datasets; none for an embedded dataset.
        remote: Where the raw files are downloaded from; nowhere: there is no download.
        bag_of_words: Whether features are words' counts or weights, whose rows `load` normalises.
        directed: Whether the raw files tell the direction of edges, and the loader takes `directed`.
        metric: What scores are, see `Dataset`.
        task: What is predicted.
        graphs: Number of graphs.
        standin: Whether it only stands in for a published dataset, whose scores its own must never be taken for.
    """

    loader: Callable[..., Raw | Dataset]
    description: str
    source: str
    citation: str
    statistics: Statistics
    as_published: bool = False
    licence: str = "see source"
    paper: Statistics | None = None
    files: tuple[str, ...] = ()
    remote: tuple[Source, ...] = ()
    bag_of_words: bool = False
    directed: bool = False
    metric: str = "accuracy"
    task: str = "classes of nodes"
    graphs: int = 1
    standin: bool = False

    @property
    def kind(self) -> str:
        """`"embedded"`, `"download"` or `"stand-in"`."""
        if self.standin:
            return "stand-in"
        return "download" if self.files else "embedded"


def load(name: str, root: str | Path | None = None, *, normalize: bool = True, directed: bool = False) -> Dataset:
    """Loads a dataset by its name: edges undirected unless asked otherwise, without self-loops.

    With the raw files or the cache in place nothing touches the network.

    Args:
        name: One of `DATASETS`.
        root: Folder of all datasets; by default the environment variable `GFGN_DATA`, else `cache_dir()`.
        normalize: Whether the rows of a bag of words are divided by their sum; other features stay as they are.
        directed: Whether edges keep the direction that the raw files give them, from source to target; these files are
            then read anew. Only some datasets have directions: `DATASETS[name].directed`.
    """
    name = name.lower()
    entry = DATASETS.get(name)
    if entry is None:
        close = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(map(repr, DATASETS))}, got {name!r}{hint}")
    folder = Path(root or os.environ.get("GFGN_DATA") or cache_dir()).expanduser()
    if directed:
        return _dataset(name, entry, _directed(name, entry, folder, normalize))
    if entry.files:
        return _dataset(name, entry, unpack(_arrays(name, entry, folder), normalize))
    found = entry.loader(folder)
    return found if isinstance(found, Dataset) else _dataset(name, entry, found)


def cache_dir() -> Path:
    """The platform's folder for what can be fetched again; `XDG_CACHE_HOME` is heeded except on Windows."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "gfgn" / "Cache"
    default = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "gfgn"


def _dataset(name: str, entry: Entry, raw: Raw) -> Dataset:
    return Dataset(
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


def _directed(name: str, entry: Entry, root: Path, normalize: bool) -> Raw:
    """The dataset with edges as its files have them: all but the edges goes the same way as ever."""
    if not entry.directed:
        known = ", ".join(map(repr, (other for other, found in DATASETS.items() if found.directed)))
        raise ValueError(
            f"directed must be False unless name is one of {known}, whose edges have directions, got {name!r}"
        )
    raw = _read(name, entry, root, directed=True)
    return unpack(pack(raw, entry.bag_of_words), normalize)._replace(graph=raw.graph)


def _arrays(name: str, entry: Entry, root: Path) -> Arrays:
    """The dataset from its cache, which is made first if it is missing, damaged or older than the raw files."""
    path = root / "gfgn-cache" / f"{name}-v{VERSION}.npz"
    paths = [root / file for file in entry.files]
    with contextlib.suppress(*DAMAGED):
        arrays = read_cache(path)
        # The raw files may be gone; the cache stands for itself then.
        if not all(file.is_file() for file in paths) or str(arrays["stamp"]) == stamp(paths):
            return arrays
    arrays = pack(_read(name, entry, root), entry.bag_of_words)
    arrays |= {"stamp": np.array(stamp(paths))}
    with contextlib.suppress(OSError):  # a folder that cannot be written to has no cache
        write_cache(path, arrays)
    return arrays


def _read(name: str, entry: Entry, root: Path, **options: bool) -> Raw:
    """What the loader makes of the raw files, which are fetched if they are missing."""
    _fetch_missing(name, entry, root)
    try:
        raw = entry.loader(root, **options)
        assert not isinstance(raw, Dataset)
    except ImportError:
        raise
    except Exception as error:  # whatever a parser of someone else's makes of a damaged file
        raise ValueError(
            f"{name}: the files in {_folders(entry, root)} could not be read ({_reason(error)}); "
            "remove those that are damaged, and they are fetched again"
        ) from error
    return raw


def _fetch_missing(name: str, entry: Entry, root: Path) -> None:
    missing = [file for file in entry.files if not (root / file).is_file()]
    if not missing:
        return
    cause, reason = None, "there is no download for it"
    if entry.remote:
        try:
            fetch(entry.remote, root, missing)
            return
        except Exception as error:  # connections and archives fail in ways of their own
            cause, reason = error, f"fetching failed ({_reason(error)})"
        missing = [file for file in entry.files if not (root / file).is_file()]  # some may have come
    names = [Path(file).name for file in missing]
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    raise FileNotFoundError(
        f"{name} needs {listed}, and {reason}. Get the raw files from {entry.source}{_address(entry, missing)}, and "
        f"put them into {_folders(entry, root)}; GFGN_DATA or the argument root can name another folder than {root}"
    ) from cause


def _address(entry: Entry, missing: list[str]) -> str:
    """Where the first missing file is, in brackets."""
    for source in entry.remote:
        if missing[0] in (source.members or (source.path,)):
            return f" ({source.url}{' and so on' if len(entry.remote) > 1 else ''})"
    return ""


def _folders(entry: Entry, root: Path) -> str:
    return " and ".join(dict.fromkeys(str((root / file).parent) for file in entry.files))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _dimensions(root: Path) -> Dataset:
    return dimensions()


# --- families of entries that share a source -------------------------------------------------------------------------

GEOM_GCN = "the repository geom-gcn of graphdml-uiuc-jlu on GitHub (folders new_data and splits)"
GEOM_GCN_URL = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
HETEROPHILOUS_URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
DRIVE_URL = "https://drive.usercontent.google.com/download?id={}&confirm=t"
OGB_URL = "http://snap.stanford.edu/ogb/data/nodeproppred"
PPI_URL = "https://data.dgl.ai/dataset/ppi.zip"
PEI = "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020"
PLATONOV = "Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023"


def _archive(url: str, path: str, folder: str, ends: tuple[str, ...]) -> Source:
    """An archive of whose members each goes to `folder` under the path that it ends in."""
    return Source(url, path, {f"{folder}/{end}": end for end in ends})


def _social(name: str, drive: str, description: str, sizes: Statistics) -> Entry:
    tables = ("attrs.npz", "edgelist.txt", "labels.txt")
    archive = _archive(DRIVE_URL.format(drive), f"{name}/{name}.zip", f"{name}/raw", tables)
    return Entry(
        loader=partial(from_pyg, make=partial(build, cls="AttributedGraphDataset", name=name)),
        files=tuple(archive.members),
        remote=(archive,),
        description=description,
        source="the attributed graphs of PANE's authors on Google Drive, as PyG's AttributedGraphDataset has them",
        citation="Huang, Li and Hu, Label Informed Attributed Network Embedding, WSDM 2017; "
        "Yang et al., Scaling Attributed Network Embedding to Massive Graphs, VLDB 2021",
        statistics=sizes,
        paper=sizes,
        bag_of_words=True,
    )


def _geom_gcn(folder: str, name: str) -> tuple[Source, ...]:
    tables = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    return (
        *(Source(f"{GEOM_GCN_URL}/new_data/{name}/{table}", f"{folder}/{table}") for table in tables),
        *_geom_gcn_splits(folder, name),
    )


def _geom_gcn_splits(folder: str, name: str) -> tuple[Source, ...]:
    splits = [f"{name}_split_0.6_0.2_{k}.npz" for k in range(10)]
    return tuple(Source(f"{GEOM_GCN_URL}/splits/{split}", f"{folder}/{split}") for split in splits)


def _paths(sources: tuple[Source, ...]) -> tuple[str, ...]:
    return tuple(source.path for source in sources)


def _web(name: str, sizes: Statistics, edges_in_paper: int) -> Entry:
    remote = _geom_gcn(f"{name}/raw", name)
    return Entry(
        loader=partial(from_pyg, make=partial(build, cls="WebKB", name=name)),
        files=_paths(remote),
        remote=remote,
        description=f"web pages of {name.capitalize()}'s computer science department, linked by hyperlinks",
        source=GEOM_GCN,
        citation=f"{PEI}; Craven et al., Learning to Extract Symbolic Knowledge from the World Wide Web, AAAI 1998",
        statistics=sizes,
        paper=sizes._replace(edges=edges_in_paper),
        bag_of_words=True,
        directed=True,
    )


def _actor(sizes: Statistics) -> Entry:
    remote = _geom_gcn("actor/raw", "film")
    return Entry(
        loader=partial(from_pyg, make=partial(build, cls="Actor", folder="actor")),
        files=_paths(remote),
        remote=remote,
        description="actors, joined where they appear on one Wikipedia page",
        source=GEOM_GCN,
        citation=f"{PEI}; Tang et al., Social Influence Analysis in Large-scale Networks, KDD 2009",
        statistics=sizes,
        paper=sizes._replace(edges=33_544, features=931),
        bag_of_words=True,
        directed=True,
    )


def _citations(title: str, sizes: Statistics, edges_in_paper: int) -> Entry:
    name, folder = title.lower(), f"{title}/geom-gcn/raw"
    tables = [f"ind.{name}.{table}" for table in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")]
    remote = (
        *(Source(f"{PLANETOID_URL}/{table}", f"{folder}/{table}") for table in tables),
        *_geom_gcn_splits(folder, name),
    )
    return Entry(
        loader=partial(from_pyg, make=partial(build, cls="Planetoid", name=title, split="geom-gcn")),
        files=_paths(remote),
        remote=remote,
        description=f"papers of {title}, joined by citations",
        source=f"the repository planetoid of kimiyoung on GitHub (folder data), the splits from {GEOM_GCN}",
        citation=f"Sen et al., Collective Classification in Network Data, AI Magazine 2008; splits: {PEI}",
        statistics=sizes,
        paper=sizes._replace(edges=edges_in_paper),
        bag_of_words=True,
    )


def _heterophilous(name: str, **fields: Any) -> Entry:
    stem = name.replace("-", "_")
    file = f"{stem}/raw/{stem}.npz"
    by_pyg = partial(from_pyg, make=partial(build, cls="HeterophilousGraphDataset", name=name))
    return Entry(
        # PyG has no class for the filtered graphs, which have the same layout.
        loader=partial(filtered, file=file) if name.endswith("-filtered") else by_pyg,
        files=(file,),
        remote=(Source(f"{HETEROPHILOUS_URL}/{stem}.npz", file),),
        source="the repository heterophilous-graphs of yandex-research on GitHub (folder data)",
        citation=fields.pop("citation", PLATONOV),
        **fields,
    )


def _wikipedia(animal: str, sizes: Statistics) -> Entry:
    return _heterophilous(
        f"{animal}-filtered",
        description=f"Wikipedia's articles on {animal}s, by traffic, joined by links; repeated articles taken out",
        citation=f"{PLATONOV}; Rozemberczki et al., Multi-scale Attributed Node Embedding, 2021; {PEI}",
        statistics=sizes,
        as_published=True,
        bag_of_words=True,
    )


def _ogb(folder: str, split: str, download: str | None = None, **fields: Any) -> Entry:
    tables = ("raw/edge.csv.gz", "raw/node-feat.csv.gz", "raw/node-label.csv.gz")
    parts = tuple(f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test"))
    archive = _archive(f"{OGB_URL}/{download}.zip", f"{folder}/{download}.zip", folder, (*tables, *parts))
    return Entry(
        loader=partial(ogb, folder=folder, split=split),
        files=tuple(archive.members),
        remote=() if download is None else (archive,),
        citation="Hu et al., Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020",
        **fields,
    )


def _ppi(folder: str, download: bool, **fields: Any) -> Entry:
    tables = ("feats.npy", "graph_id.npy", "graph.json", "labels.npy")
    names = tuple(f"{part}_{table}" for part in ("train", "valid", "test") for table in tables)
    archive = _archive(PPI_URL, f"{folder}/ppi.zip", f"{folder}/raw", names)
    return Entry(
        loader=partial(ppi, folder=folder),
        files=tuple(archive.members),
        remote=(archive,) if download else (),
        citation="Zitnik and Leskovec, Predicting Multicellular Function through Multi-layer Tissue Networks, 2017; "
        "Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        statistics=Statistics(56_944, 793_632, 50, 121),
        metric="micro_f1",
        task="labels of nodes, many at once, in graphs not seen in training",
        graphs=24,
        **fields,
    )


ARXIV = Statistics(169_343, 1_157_799, 128, 40)

DATASETS: dict[str, Entry] = {
    "dimensions": Entry(
        loader=_dimensions,
        description="generated: edges of several reasons, the smooth dimensions known",
        source="gfgn.data.generators.dimensions",
        citation="this package",
        licence="MIT",
        statistics=Statistics(1_200, 11_842, 36, 6),
    ),
    "karate": Entry(
        loader=karate,
        description="members of a karate club, joined where they met outside it; four communities found by modularity",
        source="PyG's KarateClub, part of the package",
        citation="Zachary, An Information Flow Model for Conflict and Fission in Small Groups, 1977",
        statistics=Statistics(34, 78, 34, 4),
    ),
    "digits": Entry(
        loader=digits,
        description=f"images of handwritten digits, each joined with the {NEIGHBOURS} nearest",
        source="scikit-learn's load_digits, part of the package, from the UCI repository",
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
        licence="CC BY 4.0",
        statistics=Statistics(1_797, 6_309, 64, 10),
    ),
    "blogcatalog": _social(
        "blogcatalog",
        "178PqGqh67RUYMMP6-SoRHDoIBh8ku5FS",
        "bloggers who follow each other, with their keywords",
        Statistics(5_196, 171_743, 8_189, 6),
    ),
    "flickr": _social(
        "flickr",
        "1tZp3EB20fAC27SYWwa-x66_8uGsuU62X",
        "photographers who follow each other, with their tags",
        Statistics(7_575, 239_738, 12_047, 9),
    ),
    "actor": _actor(Statistics(7_600, 26_659, 932, 5)),
    "cornell": _web("cornell", Statistics(183, 277, 1_703, 5), 295),
    "texas": _web("texas", Statistics(183, 279, 1_703, 5), 309),
    "wisconsin": _web("wisconsin", Statistics(251, 450, 1_703, 5), 499),
    "cora": _citations("Cora", Statistics(2_708, 5_278, 1_433, 7), 5_429),
    "citeseer": _citations("CiteSeer", Statistics(3_327, 4_552, 3_703, 6), 4_732),
    "pubmed": _citations("PubMed", Statistics(19_717, 44_324, 500, 3), 44_338),
    "ogbn-arxiv": _ogb(
        "ogbn_arxiv",
        "time",
        "arxiv",
        description="computer science papers on arXiv, joined by citations, split by year",
        source="the Open Graph Benchmark of Stanford's SNAP group (arxiv.zip, its folder arxiv named ogbn_arxiv)",
        licence="ODC-BY",
        statistics=ARXIV,
        paper=ARXIV._replace(edges=1_166_243),
    ),
    "ogbn-arxiv-structure": _ogb(
        "ogbn_arxiv_structure",
        "time",
        description="a stand-in, not ogbn-arxiv: its edges, labels and split, but features drawn at random by class",
        source="the development files of this package (a stand-in in the raw layout of ogbn-arxiv)",
        licence="ODC-BY",
        statistics=ARXIV,
        standin=True,
    ),
    "ppi": _ppi(
        "ppi",
        download=True,
        description="proteins of 24 human tissues, a graph each, joined where they interact; their functions",
        source="the copy of GraphSAGE's files that DGL's authors keep (ppi.zip)",
        paper=Statistics(56_944, 818_716, 50, 121),
    ),
    "ppi-relabelled": _ppi(
        "ppi-relabelled",
        download=False,
        description="a stand-in, not ppi: its graphs, features (as 0 and 1) and split, but labels derived anew from "
        "gene ontology annotations of other dates",
        source="the development files of this package (a stand-in in the raw layout of PPI)",
        standin=True,
    ),
    "minesweeper": _heterophilous(
        "minesweeper",
        description="cells of a grid, some of them mines",
        statistics=Statistics(10_000, 39_402, 7, 2),
        metric="roc_auc",
    ),
    "tolokers": _heterophilous(
        "tolokers",
        description="crowd workers, joined by common tasks; who was banned?",
        statistics=Statistics(11_758, 519_000, 10, 2),
        metric="roc_auc",
    ),
    "roman-empire": _heterophilous(
        "roman-empire",
        description="words of an encyclopedia's article, by syntactic role",
        statistics=Statistics(22_662, 32_927, 300, 18),
        as_published=True,
    ),
    "amazon-ratings": _heterophilous(
        "amazon-ratings",
        description="products bought together, by mean rating",
        statistics=Statistics(24_492, 93_050, 300, 5),
        as_published=True,
    ),
    "questions": _heterophilous(
        "questions",
        description="users who answered each other; who stayed active?",
        statistics=Statistics(48_921, 153_540, 301, 2),
        as_published=True,
        metric="roc_auc",
    ),
    "chameleon-filtered": _wikipedia("chameleon", Statistics(890, 8_854, 2_325, 5)),
    "squirrel-filtered": _wikipedia("squirrel", Statistics(2_223, 46_998, 2_089, 5)),
    "ogbn-products": _ogb(
        "ogbn_products",
        "sales_ranking",
        "products",
        description="products of a shop, joined where they are bought together, split by sales",
        source="the Open Graph Benchmark of Stanford's SNAP group (products.zip, its folder named ogbn_products)",
        licence="Amazon license, see source",
        # Its authors count 61,859,140 lines of the file, 128 of which join a node with itself.
        statistics=Statistics(2_449_029, 61_859_012, 100, 47),
        as_published=True,
    ),
}
