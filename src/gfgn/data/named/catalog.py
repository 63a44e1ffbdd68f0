"""The named datasets: what each is, how large, and where it comes from; listed without importing PyTorch.

To add a dataset, write a loader in `gfgn.data.named.loaders` if none fits, and add an entry to `DATASETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from gfgn.lazy import Lazy

NEAREST = 5  # number of nearest neighbors of each image of `digits`


class Source(NamedTuple):
    """Where raw files come from: a single file or a zip archive.

    Attributes:
        path: Where the download goes, relative to the folder of all datasets. An archive is deleted after extraction.
        members: For an archive, the files to extract: their path relative to the folder of all datasets, and the end
            of their path inside the archive. Empty for a single file.
    """

    url: str
    path: str
    members: Mapping[str, str] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """The raw files, relative to the folder of all datasets."""
        return tuple(self.members) or (self.path,)


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
        loader: Reads the dataset from the folder of all datasets, without normalizing the features: a `RawData`, or a
            `NodeDataset` if it is generated.
        statistics: Sizes as loaded: undirected edges, no self-loops.
        paper: Sizes in the GFGN paper, which counts some edges before duplicates and self-loops are removed; `None` if
            the paper does not use the dataset.
        remote: Downloads of the raw files.
        files: The raw files, relative to the folder of all datasets, by default those of `remote`.
        bag_of_words: Whether the features are word counts or weights, whose rows `load` normalizes.
        directed: Whether the raw files have directed edges and the loader accepts `directed`.
        standin: Whether this is a stand-in for a published dataset, with scores that must not be compared with it.
    """

    loader: Callable[..., Any]
    description: str
    source: str
    citation: str
    statistics: Statistics
    license: str = "see source"
    paper: Statistics | None = None
    remote: tuple[Source, ...] = ()
    files: tuple[str, ...] = ()
    bag_of_words: bool = False
    directed: bool = False
    metric: str = "accuracy"
    graphs: int = 1
    standin: bool = False

    def __post_init__(self) -> None:
        if self.remote:
            object.__setattr__(self, "files", tuple(file for source in self.remote for file in source.files))

    @property
    def kind(self) -> str:
        """`"embedded"`, `"download"` or `"stand-in"`."""
        return "stand-in" if self.standin else "download" if self.files else "embedded"


GEOM_GCN = "the GitHub repository graphdml-uiuc-jlu/geom-gcn (folders new_data and splits)"
GEOM_GCN_URL = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master"
PEI = "Pei et al., Geom-GCN: Geometric Graph Convolutional Networks, ICLR 2020"
CRAVEN = "Craven et al., Learning to Extract Symbolic Knowledge from the World Wide Web, AAAI 1998"
PLATONOV = "Platonov et al., A Critical Look at the Evaluation of GNNs under Heterophily, ICLR 2023"


def _loader(function: str, **options: Any) -> partial[Any]:
    """A function of `gfgn.data.named.loaders` and its options; imported when it is called."""
    return partial(Lazy("gfgn.data.named.loaders", function), **options)


def _archive(url: str, path: str, folder: str, members: Sequence[str]) -> Source:
    """An archive whose members are extracted to `folder`."""
    return Source(url, path, {f"{folder}/{member}": member for member in members})


def _downloads(url: str, folder: str, names: Sequence[str]) -> tuple[Source, ...]:
    return tuple(Source(f"{url}/{name}", f"{folder}/{name}") for name in names)


def _geom_gcn_splits(folder: str, name: str) -> tuple[Source, ...]:
    return _downloads(f"{GEOM_GCN_URL}/splits", folder, [f"{name}_split_0.6_0.2_{k}.npz" for k in range(10)])


def _social(name: str, drive: str, people: str, words: str, statistics: Statistics) -> Entry:
    url = f"https://drive.usercontent.google.com/download?id={drive}&confirm=t"
    members = ("attrs.npz", "edgelist.txt", "labels.txt")
    return Entry(
        loader=_loader("attributed", folder=name),
        remote=(_archive(url, f"{name}/{name}.zip", f"{name}/raw", members),),
        description=f"{people} who follow each other, with {words} as features",
        source="the attributed graphs of the authors of PANE on Google Drive, as in PyG's AttributedGraphDataset",
        citation="Huang, Li and Hu, Label Informed Attributed Network Embedding, WSDM 2017; "
        "Yang et al., Scaling Attributed Network Embedding to Massive Graphs, VLDB 2021",
        statistics=statistics,
        paper=statistics,
        bag_of_words=True,
    )


def _geom_gcn(folder: str, name: str, citation: str, **fields: Any) -> Entry:
    raw, tables = f"{folder}/raw", ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    remote = _downloads(f"{GEOM_GCN_URL}/new_data/{name}", raw, tables) + _geom_gcn_splits(raw, name)
    fields |= {"source": GEOM_GCN, "citation": f"{PEI}; {citation}"}
    return Entry(remote=remote, bag_of_words=True, directed=True, **fields)


def _web(name: str, statistics: Statistics, edges_in_paper: int) -> Entry:
    return _geom_gcn(
        name,
        name,
        CRAVEN,
        loader=_loader("geom_gcn", folder=name, name=name),
        description=f"web pages of the computer science department of {name.capitalize()}, joined by hyperlinks",
        statistics=statistics,
        paper=statistics._replace(edges=edges_in_paper),
    )


def _citations(title: str, statistics: Statistics, edges_in_paper: int) -> Entry:
    name, folder, url = title.lower(), f"{title}/geom-gcn/raw", "https://github.com/kimiyoung/planetoid/raw/master/data"
    tables = [f"ind.{name}.{table}" for table in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")]
    return Entry(
        loader=_loader("planetoid", folder=f"{title}/geom-gcn", name=name),
        remote=_downloads(url, folder, tables) + _geom_gcn_splits(folder, name),
        description=f"papers in {title}, joined by citations",
        source=f"the GitHub repository kimiyoung/planetoid (folder data); the splits from {GEOM_GCN}",
        citation=f"Sen et al., Collective Classification in Network Data, AI Magazine 2008; splits: {PEI}",
        statistics=statistics,
        paper=statistics._replace(edges=edges_in_paper),
        bag_of_words=True,
    )


def _heterophilous(
    name: str, description: str, statistics: Statistics, file: str | None = None, **fields: Any
) -> Entry:
    """One `.npz` file; `file` is its path in the folder of all datasets if that does not follow from the name."""
    stem, url = name.replace("-", "_"), "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
    folder, _, member = (file or f"{stem}/raw/{stem}.npz").rpartition("/")
    return Entry(
        loader=_loader("heterophilous_npz", file=f"{folder}/{member}"),
        remote=_downloads(url, folder, [member]),
        description=description,
        source="the GitHub repository yandex-research/heterophilous-graphs (folder data)",
        statistics=statistics,
        metric="roc_auc" if statistics.classes == 2 else "accuracy",
        **{"citation": PLATONOV, **fields},
    )


def _wikipedia(animal: str, statistics: Statistics) -> Entry:
    description = f"Wikipedia articles on {animal}s, joined by links; classes of traffic; duplicates removed"
    citation = f"{PLATONOV}; Rozemberczki et al., Multi-scale Attributed Node Embedding, 2021; {PEI}"
    return _heterophilous(f"{animal}-filtered", description, statistics, citation=citation, bag_of_words=True)


def _ogb(folder: str, split: str, **fields: Any) -> Entry:
    name = folder.removeprefix("ogbn_")
    members = [f"raw/{table}.csv.gz" for table in ("edge", "node-feat", "node-label")]
    members += [f"split/{split}/{part}.csv.gz" for part in ("train", "valid", "test")]
    url = f"http://snap.stanford.edu/ogb/data/nodeproppred/{name}.zip"
    return Entry(
        loader=_loader("ogb", folder=folder, split=split),
        citation="Hu et al., Open Graph Benchmark: Datasets for Machine Learning on Graphs, NeurIPS 2020",
        **_files(_archive(url, f"{folder}/{name}.zip", folder, members), **fields),
    )


def _ppi(folder: str, **fields: Any) -> Entry:
    tables = ("feats.npy", "graph_id.npy", "graph.json", "labels.npy")
    members = [f"{part}_{table}" for part in ("train", "valid", "test") for table in tables]
    archive = _archive("https://data.dgl.ai/dataset/ppi.zip", f"{folder}/ppi.zip", f"{folder}/raw", members)
    return Entry(
        loader=_loader("ppi", folder=folder),
        citation="Zitnik and Leskovec, Predicting Multicellular Function through Multi-layer Tissue Networks, 2017; "
        "Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017",
        statistics=Statistics(56_944, 793_632, 50, 121),
        metric="micro_f1",
        graphs=24,
        **_files(archive, **fields),
    )


def _files(archive: Source, **fields: Any) -> dict[str, Any]:
    """A stand-in has the files of the archive but no download."""
    return fields | ({"files": archive.files} if fields.get("standin") else {"remote": (archive,)})


DATASETS: dict[str, Entry] = {
    "dimensions": Entry(
        loader=lambda root: Lazy("gfgn.data.generators.dimensions", "dimensions")(),
        description="generated graph whose edges form for several reasons, with known smooth feature dimensions",
        source="gfgn.data.generators.dimensions",
        citation="this package",
        license="MIT",
        statistics=Statistics(1_200, 11_842, 36, 6),
    ),
    "karate": Entry(
        loader=_loader("karate"),
        description="members of a karate club, joined if they met outside it; four communities by modularity",
        source="PyG's KarateClub, part of the package",
        citation="Zachary, An Information Flow Model for Conflict and Fission in Small Groups, 1977",
        statistics=Statistics(34, 78, 34, 4),
    ),
    "digits": Entry(
        loader=_loader("digits"),
        description=f"images of handwritten digits, each joined with its {NEAREST} nearest neighbors",
        source="scikit-learn's load_digits, part of the package, from the UCI repository",
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
        license="CC BY 4.0",
        statistics=Statistics(1_797, 6_309, 64, 10),
    ),
    "blogcatalog": _social(
        "blogcatalog", "178PqGqh67RUYMMP6-SoRHDoIBh8ku5FS", "bloggers", "keywords", Statistics(5_196, 171_743, 8_189, 6)
    ),
    "flickr": _social(
        "flickr", "1tZp3EB20fAC27SYWwa-x66_8uGsuU62X", "photographers", "tags", Statistics(7_575, 239_738, 12_047, 9)
    ),
    "actor": _geom_gcn(
        "actor",
        "film",
        "Tang et al., Social Influence Analysis in Large-scale Networks, KDD 2009",
        loader=_loader("geom_gcn", folder="actor", name="film", words=True),
        description="actors, joined if they appear on the same Wikipedia page",
        statistics=Statistics(7_600, 26_659, 932, 5),
        paper=Statistics(7_600, 33_544, 931, 5),
    ),
    "cornell": _web("cornell", Statistics(183, 277, 1_703, 5), 295),
    "cornell-corrected": _heterophilous(
        "cornell-corrected",
        "web pages of the computer science department of Cornell with their own features and labels; the files of "
        "`cornell` have those of Texas",
        Statistics(183, 277, 1_703, 5),
        "cornell-corrected/raw/cornell.npz",
        citation=f"{PLATONOV}; {PEI}; {CRAVEN}",
        bag_of_words=True,
    ),
    "texas": _web("texas", Statistics(183, 279, 1_703, 5), 309),
    "wisconsin": _web("wisconsin", Statistics(251, 450, 1_703, 5), 499),
    "cora": _citations("Cora", Statistics(2_708, 5_278, 1_433, 7), 5_429),
    "citeseer": _citations("CiteSeer", Statistics(3_327, 4_552, 3_703, 6), 4_732),
    "pubmed": _citations("PubMed", Statistics(19_717, 44_324, 500, 3), 44_338),
    "ogbn-arxiv": _ogb(
        "ogbn_arxiv",
        "time",
        description="computer science papers on arXiv, joined by citations, split by year",
        source="the Open Graph Benchmark of Stanford's SNAP group (arxiv.zip, its folder arxiv renamed to ogbn_arxiv)",
        license="ODC-BY",
        statistics=Statistics(169_343, 1_157_799, 128, 40),
        paper=Statistics(169_343, 1_166_243, 128, 40),
    ),
    "ogbn-arxiv-structure": _ogb(
        "ogbn_arxiv_structure",
        "time",
        description="a stand-in, not ogbn-arxiv: its edges, labels and split, but features drawn at random by class",
        source="the development files of this package (a stand-in in the raw layout of ogbn-arxiv)",
        license="ODC-BY",
        statistics=Statistics(169_343, 1_157_799, 128, 40),
        standin=True,
    ),
    "ppi": _ppi(
        "ppi",
        description="protein interactions in 24 human tissues, one graph per tissue; protein functions as labels",
        source="the copy of GraphSAGE's files kept by the authors of DGL (ppi.zip)",
        paper=Statistics(56_944, 818_716, 50, 121),
    ),
    "ppi-relabelled": _ppi(
        "ppi-relabelled",
        description="a stand-in, not ppi: its graphs, features (as 0 and 1) and split, but labels from gene ontology "
        "annotations of other dates",
        source="the development files of this package (a stand-in in the raw layout of PPI)",
        standin=True,
    ),
    "minesweeper": _heterophilous(
        "minesweeper", "cells of a grid, some of which are mines", Statistics(10_000, 39_402, 7, 2)
    ),
    "tolokers": _heterophilous(
        "tolokers", "crowd workers, joined by common tasks; predicts who was banned", Statistics(11_758, 519_000, 10, 2)
    ),
    # Sizes from here on are as published by the authors.
    "roman-empire": _heterophilous(
        "roman-empire",
        "words of the Wikipedia article on the Roman Empire, with syntactic roles as classes",
        Statistics(22_662, 32_927, 300, 18),
    ),
    "amazon-ratings": _heterophilous(
        "amazon-ratings",
        "products, joined if bought together, with mean ratings as classes",
        Statistics(24_492, 93_050, 300, 5),
    ),
    "questions": _heterophilous(
        "questions",
        "users who answered each other's questions; predicts who stayed active",
        Statistics(48_921, 153_540, 301, 2),
    ),
    "chameleon-filtered": _wikipedia("chameleon", Statistics(890, 8_854, 2_325, 5)),
    "squirrel-filtered": _wikipedia("squirrel", Statistics(2_223, 46_998, 2_089, 5)),
    "ogbn-products": _ogb(
        "ogbn_products",
        "sales_ranking",
        description="products of an online shop, joined if bought together, split by sales rank",
        source="the Open Graph Benchmark of Stanford's SNAP group (products.zip, its folder renamed to ogbn_products)",
        license="Amazon license, see source",
        # The authors count 61,859,140 lines of the file, of which 128 are self-loops.
        statistics=Statistics(2_449_029, 61_859_012, 100, 47),
    ),
}
